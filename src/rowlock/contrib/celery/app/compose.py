"""Write a canvas as a workflow.

1. A step waits for the jobs before it, and is cancelled if one of them dies. A retry of the
   workflow lets it go on.
2. A value is passed as an input of the job: by the name of the first parameter, or as the first of
   `*args`. A group in a group needs a job that collects its results, because inputs are flat.
3. An errback waits for the death of its job. That of a chord's body also waits for those of the
   header.
4. A task that replaces itself succeeds, and adds the other canvas to its workflow. Its result names
   the job at the end of that one, which succeeds or fails as it does. So what waits for the task
   waits for that job, and gets its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from rowlock.contrib.celery.canvas import chain, chord, chunks, failing_steps, group
from rowlock.contrib.celery.local import runs
from rowlock.contrib.celery.result import (
    REPLACED,
    AsyncResult,
    EagerResult,
    GroupResult,
    replaced_mark,
    standing_for,
)
from rowlock.contrib.celery.signatures import LINKS, Signature, links_in
from rowlock.contrib.compat import permanent
from rowlock.errors import OptionInvalid
from rowlock.ids import new_id
from rowlock.inputs import Shape
from rowlock.job import JobState
from rowlock.workflow import Node, Plan, Reference
from rowlock.workflow_rules import When

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.contrib.celery.app.task import Request, Task

COLLECT: Final = "celery.collect"
# Options of a canvas that are not those of each of its tasks.
_OF_THE_WHOLE: Final = (*LINKS, "task_id")
_OF_THE_START: Final = ("countdown", "eta")


@dataclass(frozen=True)
class Before:
    """What comes before a step: the jobs that it waits for, and the arguments that it gets."""

    nodes: tuple[Node[Any], ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    when: When = "succeeded"
    result: AsyncResult | GroupResult | None = None
    # If the jobs are the header of a chord: all jobs whose death means that the chord has failed.
    header: tuple[Node[Any], ...] | None = None
    # What the run of the step needs to know.
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Done:
    """A step that was added: its last jobs, what stands for its value, and its result."""

    nodes: tuple[Node[Any], ...]
    value: Any
    result: Any
    # All its jobs but callbacks and errbacks.
    all: tuple[Node[Any], ...]
    # The id of the job that the canvas began with.
    root: str | None

    def before(self, *, is_header: bool, header: tuple[Node[Any], ...] = ()) -> Before:
        """What the next step comes after. `header`: more jobs that the chord needs."""
        own = {"root": self.root, "parent": self.nodes[0].id} if self.nodes else {}
        whole = (*header, *self.all) if is_header else None
        return Before(self.nodes, (self.value,), result=self.result, header=whole, own=own)


def start(app: Celery, canvas: Signature) -> Any:
    """Write a canvas, all of it or nothing, and return its result."""
    if not any(True for _ in _tasks_in(canvas)):
        return GroupResult(new_id(), [], app=app) if isinstance(canvas, group) else None
    with app.workflow(_name_of(canvas)) as flow:
        composer = Composer(app, flow)
        is_plain_group = isinstance(canvas, group | chunks) and canvas.id is None
        given = {"task_id": flow.id} if is_plain_group else {}
        done = composer.put(canvas, Before(own=_origin()), given, is_used=False)
        composer.check_ids()
    composer.announce()
    return _unwrapped(canvas, done.result)


def _origin() -> Mapping[str, Any]:
    """Return the ids of the job that starts a canvas, if one does."""
    stack = runs.get()
    request = stack[-1][1] if stack else None
    if request is None or request.context is None:
        return {}
    return {"root": request.root_id, "parent": request.id}


def _unwrapped(canvas: Signature, result: Any) -> Any:
    """As in Celery, a group of one chain that ends with a group has the results of that one."""
    if isinstance(canvas, group) and len(result) == 1 and isinstance(result[0], GroupResult):
        return result[0]
    return result


def _tasks_in(canvas: Signature) -> Sequence[Signature]:
    match canvas:
        case chord():
            return [*canvas.tasks, canvas.last]
        case chain() | group():
            return canvas.tasks
        case _:
            return [canvas]


def _name_of(canvas: Signature) -> str:
    """Return the name of the workflow: that of the first task."""
    inner = _tasks_in(canvas)[0]
    return canvas.task if inner is canvas else _name_of(inner) if _tasks_in(inner) else inner.task


class Composer:
    """Adds the steps of a canvas to a workflow."""

    def __init__(self, app: Celery, flow: Plan) -> None:
        self._app = app
        self._flow = flow
        self._flow.keeps_ids = True
        # The jobs of callbacks, for which no step waits.
        self.callbacks: list[Node[Any]] = []
        self._chosen: list[str] = []
        # To be called when all is written.
        self._after: list[Callable[[], object]] = []

    def put(
        self, step: Signature, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        """Add a step. `is_used`: another one gets its value."""
        if isinstance(step, chunks):
            step = step.group()
        if isinstance(step, chain | group | chord):
            options = {**step.options, **options, **_links(step.options, options)}
            if not step.immutable:
                given = {**step.given, **before.kwargs}
                before = replace(before, args=(*before.args, *step.args), kwargs=given)
        match step:
            case chain():
                return self._put_chain(step, before, options, is_used=is_used)
            case group():
                return self._put_group(step.tasks, before, options, is_used=is_used)
            case chord():
                return self._put_chord(step, before, options, is_used=is_used)
            case Signature():
                return self._put_task(step, before, options, is_used=is_used)
            case _:
                assert_never(step)

    def _put_chain(
        self, step: chain, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        """As in Celery, options are those of the first step, and errbacks those of each."""
        own = {name: each for name, each in options.items() if name not in _OF_THE_WHOLE}
        errors = links_in(options, "link_error")
        failing = {id(each) for each in failing_steps(step.tasks, self._app)}
        last = len(step.tasks) - 1
        done = Done(before.nodes, None, before.result, (), before.own.get("root"))
        whole: tuple[Node[Any], ...] = ()
        for place, each in enumerate(step.tasks):
            chosen: dict[str, Any] = dict(own) if place == 0 else {}
            if errors and id(each) in failing:
                chosen["link_error"] = errors
            if place == last:
                chosen.update(
                    {name: options[name] for name in ("link", "task_id") if options.get(name)}
                )
            done = self.put(each, before, chosen, is_used=is_used or place < last)
            whole = (*whole, *done.all)
            before = done.before(is_header=isinstance(each, group | chunks))
        return replace(done, all=whole)

    def _put_group(
        self,
        tasks: Sequence[Signature],
        before: Before,
        options: Mapping[str, Any],
        *,
        is_used: bool,
    ) -> Done:
        """As in Celery, a callback of the whole is one of the first task, without its result."""
        each = {name: value for name, value in options.items() if name not in ("link", "task_id")}
        callbacks = [link.clone(immutable=True) for link in links_in(options, "link")]
        id = options.get("task_id") or new_id()
        # As in Celery, what comes before the group is before it as a whole.
        within = replace(before, own={**before.own, "group": id}, result=None)
        parts: list[Done] = []
        for place, task in enumerate(_unrolled(tasks)):
            chosen = {**each, "link": callbacks} if callbacks and not place else each
            parts.append(self.put(task, within, chosen, is_used=is_used))
        results = [part.result for part in parts]
        result = GroupResult(id, results, parent=before.result, app=self._app)
        _add_child(before.result, result)
        if is_used:
            parts = [self._collected(part) for part in parts]
        nodes = tuple(node for part in parts for node in part.nodes)
        whole = tuple(node for part in parts for node in part.all)
        root = parts[0].root if parts else before.own.get("root")
        return Done(nodes, _references(nodes) if nodes else [], result, whole, root)

    def _collected(self, part: Done) -> Done:
        """Return a part of a group with one value. That of a group in it is a list."""
        if isinstance(part.value, Reference) and not part.value.shape.is_list:
            return part
        collect = Signature(COLLECT, app=self._app)
        done = self._put_task(collect, part.before(is_header=True), {}, is_used=True)
        return replace(done, result=part.result, all=(*part.all, *done.all))

    def _put_chord(
        self, step: chord, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        own = {name: each for name, each in options.items() if name not in _OF_THE_WHOLE}
        header = self._put_group(step.tasks, before, own, is_used=True)
        after = header.before(is_header=True, header=before.header or ())
        later = {name: each for name, each in options.items() if name not in _OF_THE_START}
        done = self.put(step.last, after, later, is_used=is_used)
        return replace(done, all=(*header.all, *done.all))

    def _put_task(
        self, step: Signature, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        given = {name: each for name, each in options.items() if name not in LINKS}
        whole = step.clone(before.args, before.kwargs, **given)
        callbacks = [*links_in(step.options, "link"), *links_in(options, "link")]
        errbacks = [*links_in(step.options, "link_error"), *links_in(options, "link_error")]
        own = dict(before.own)
        if before.header is not None:
            own["chord"] = True
        if any(isinstance(each, Reference) for each in before.args):
            own["gets"] = True
        node = self._added(whole, before, own, is_used=is_used or bool(callbacks))
        result = AsyncResult(node.id, app=self._app, parent=before.result)
        _add_child(before.result, result)
        root = before.own.get("root") or node.id
        done = Done((node,), _reference(node), result, (node,), root)
        for callback in callbacks:
            after = self.put(callback, done.before(is_header=False), {}, is_used=False)
            self.callbacks += after.all
        watched = (*(before.header or ()), node)
        for errback in errbacks:
            call = self._call_of(errback, node.id)
            self.put(errback, Before(watched, when="dead", **call), {}, is_used=False)
        return done

    def _added(
        self, whole: Signature, before: Before, own: Mapping[str, Any], *, is_used: bool
    ) -> Node[Any]:
        chosen = {name: each for name, each in whole.options.items() if name not in LINKS}
        if chosen.get("task_id") is not None:
            self._chosen.append(chosen["task_id"])
        if is_used:
            # As in Celery, the next one gets the value of a task that ignores its result.
            chosen["ignore_result"] = False
        job, after = self._app.node_job(whole.type, whole.args, whole.kwargs, chosen, own)
        self._after += after
        if before.when == "dead" or not before.nodes:
            return self._flow.add(job, after=before.nodes, when=before.when)
        return self._flow.add(job, after=before.nodes, if_dead="cancel")

    def check_ids(self) -> None:
        """Raise if an id that was chosen belongs to another job."""
        for id in self._chosen:
            if self._app.get(id) is not None:
                raise OptionInvalid(
                    "task_id",
                    f"{id} belongs to another job; freeze a new signature, or leave it out",
                )

    def announce(self) -> None:
        """Send the signals of jobs that are written."""
        for send in self._after:
            send()

    @staticmethod
    def _call_of(errback: Signature, failed: str) -> dict[str, Any]:
        """Return what an errback is called with, as in Celery: by the number of its parameters.

        Errors are no JSON: the run reads them from the job that failed.
        """
        own = {"root": failed, "parent": failed}
        if isinstance(errback, chain | group | chord | chunks):
            return {"args": (failed,), "own": own}
        # As in Celery, one that can't be called so harms nobody until something fails.
        room = min(errback.type.shape.room(errback.args, errback.kwargs), 3)
        if not takes_error(errback):
            return {"args": (failed,)[:room], "own": own}
        return {"args": (failed, "", "")[:room], "own": {**own, "failed": failed, "room": room}}


def _add_child(before: AsyncResult | GroupResult | None, result: Any) -> None:
    if isinstance(before, AsyncResult):
        before.children = [*(before.children or ()), result]


def _links(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Return the callbacks of both options."""
    both = {name: [*links_in(first, name), *links_in(then, name)] for name in LINKS}
    return {name: each for name, each in both.items() if each}


def replace_run(request: Request, canvas: Signature, app: Celery) -> Any:
    """Add a canvas to the workflow of a running job, and return the result that names it."""
    assert request.context is not None and request.id is not None
    flow = request.context.workflow
    composer = Composer(app, flow)
    own = {
        "root": request.root_id,
        "parent": request.parent_id,
        "group": request.group,
        "nesting": request.replaced_task_nesting + 1,
    }
    done = composer.put(canvas, Before(own=own), {}, is_used=True)
    composer.check_ids()
    is_list = not (isinstance(done.value, Reference) and not done.value.shape.is_list)
    ids = [node.id for node in done.nodes]
    task = app.tasks[REPLACED]
    job, _ = app.node_job(task, (), {"ids": ids, "is_list": is_list}, {}, {"root": own["root"]})
    last = flow.add(job, after=(*done.nodes, *composer.callbacks), when="ended")
    composer.announce()
    return replaced_mark(by=last.id)


def extend_chord(request: Request, canvas: Signature, app: Celery) -> AsyncResult:
    """Add a canvas to the header of the chord of a running job."""
    assert request.context is not None
    composer = Composer(app, request.context.workflow)
    own = {"root": request.root_id, "parent": request.id, "group": request.group}
    done = composer._collected(composer.put(canvas, Before(own=own), {}, is_used=True))
    composer.check_ids()
    composer.announce()
    return AsyncResult(done.nodes[0].id, app=app)


def _unrolled(tasks: Sequence[Signature]) -> Iterator[Signature]:
    """Yield the tasks of a group. As in Celery, those of a group in it are its own."""
    for each in tasks:
        inner = each.group() if isinstance(each, chunks) else each
        if isinstance(inner, chain) and not inner.tasks:
            continue
        if isinstance(inner, group):
            for part in _unrolled(inner.tasks):
                chosen = {k: v for k, v in inner.options.items() if k != "task_id"}
                yield part.clone(inner.args, inner.given, **chosen)
        else:
            yield inner


def takes_error(errback: Signature) -> bool:
    """Return whether an errback takes a request, an error and a traceback, not only an id.

    Arguments that it has already are not counted.
    """
    if isinstance(errback, chain | group | chord | chunks) or errback.immutable:
        return False
    task = errback.type
    return "bind" not in task.__dict__ and task.shape.room(errback.args, errback.kwargs) > 1


def _reference(node: Node[Any]) -> Reference:
    # Celery checks no types, so none are known.
    return Reference(f"result of {node.kind}", [node.id], Shape.ONE, Any)


def _references(nodes: Sequence[Node[Any]]) -> Reference:
    kinds = ", ".join(dict.fromkeys(node.kind for node in nodes))
    return Reference(f"results of {kinds}", [node.id for node in nodes], Shape.LIST, Any)


# The tasks that every app has.


def _map(self: Task, task: str, it: list[Any]) -> list[Any]:
    called = self.app.tasks[task]
    return [called(each) for each in it]


def _starmap(self: Task, task: str, it: list[Any]) -> list[Any]:
    called = self.app.tasks[task]
    return [called(*each) for each in it]


def _collect(self: Task, parts: list[Any]) -> list[Any]:
    return parts


def _replaced(self: Task, ids: list[str], is_list: bool) -> Any:
    """End as the jobs that took the place of a task: with their value, or with their error."""
    values: list[Any] = []
    for id in ids:
        result = AsyncResult(id, app=self.app)
        job = result.job
        ended = None if job is None else standing_for(self.app, job)
        if ended is None or ended.state is not JobState.SUCCEEDED:
            raise permanent(result.result)
        values.append(ended.result)
    return values if is_list else values[0]


BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    "celery.map": _map,
    "celery.starmap": _starmap,
    COLLECT: _collect,
    REPLACED: _replaced,
}


def call_links(request: Request, result: EagerResult, options: Mapping[str, Any]) -> None:
    """Run the callbacks of a task that has run at once."""
    if result.successful():
        for callback in links_in(options, "link"):
            callback.apply((result.result,))
    elif result.failed():
        for errback in links_in(options, "link_error"):
            if takes_error(errback):
                errback(request, result.result, result.traceback)
            else:
                errback.apply((request.id,))
