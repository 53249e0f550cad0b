"""Write a canvas as a workflow.

1. A step waits for the jobs before it, and is cancelled if one of them dies. A retry of the
   workflow lets it go on.
2. A value is passed as an input of the job: by the name of the first parameter, or as the first of
   `*args`. A group in a group needs a job that collects its results, because inputs are flat.
3. An errback waits for the death of its job. That of a chord's body also waits for those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from rowlock.contrib.celery.canvas import LINKS, Signature, chain, chord, chunks, group, links_in
from rowlock.contrib.celery.result import AsyncResult, EagerResult, GroupResult
from rowlock.contrib.compat import Unsupported
from rowlock.ids import new_id
from rowlock.inputs import Shape
from rowlock.workflow import Node, Reference, Workflow
from rowlock.workflow_rules import When

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.contrib.celery.app.task import Request, Task

COLLECT: Final = "celery.collect"


@dataclass(frozen=True)
class Before:
    """What comes before a step: the jobs that it waits for, and the arguments that it gets."""

    nodes: tuple[Node[Any], ...] = ()
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    when: When = "succeeded"
    result: AsyncResult | GroupResult | None = None
    # Whether the jobs are the header of a chord.
    is_header: bool = False
    # What the run of the step needs to know.
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Done:
    """A step that was added: its last jobs, what stands for its value, and its result."""

    nodes: tuple[Node[Any], ...]
    value: Any
    result: Any

    def before(self, *, is_header: bool) -> Before:
        """What the next step comes after."""
        return Before(self.nodes, (self.value,), result=self.result, is_header=is_header)


def start(app: Celery, canvas: Signature) -> Any:
    """Write a canvas, all of it or nothing, and return its result."""
    if not any(True for _ in _tasks_in(canvas)):
        return GroupResult(new_id(), [], app=app) if isinstance(canvas, group) else None
    with app.workflow(_name_of(canvas)) as flow:
        done = Composer(app, flow).put(canvas, Before(), {}, is_used=False)
    return done.result


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

    def __init__(self, app: Celery, flow: Workflow) -> None:
        self._app = app
        self._flow = flow

    def put(
        self, step: Signature, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        """Add a step. `is_used`: another one gets its value."""
        if isinstance(step, chunks):
            step = step.group()
        if isinstance(step, chain | group | chord) and not step.immutable:
            given = {**step.kwargs, **before.kwargs}
            before = replace(before, args=(*before.args, *step.args), kwargs=given)
        match step:
            case chain():
                return self._put_chain(step, before, {**step.options, **options}, is_used=is_used)
            case group():
                chosen = {**step.options, **options}
                return self._put_group(step.tasks, before, chosen, is_used=is_used)
            case chord():
                return self._put_chord(step, before, {**step.options, **options}, is_used=is_used)
            case Signature():
                return self._put_task(step, before, options, is_used=is_used)
            case _:
                assert_never(step)

    def _put_chain(
        self, step: chain, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        """As in Celery, options are those of the first step, and errbacks those of each."""
        own = {name: each for name, each in options.items() if name not in LINKS}
        errors = links_in(options, "link_error")
        last = len(step.tasks) - 1
        done = Done(before.nodes, None, before.result)
        for place, each in enumerate(step.tasks):
            chosen: dict[str, Any] = dict(own) if place == 0 else {}
            if errors:
                chosen["link_error"] = errors
            if place == last and options.get("link"):
                chosen["link"] = options["link"]
            done = self.put(each, before, chosen, is_used=is_used or place < last)
            before = done.before(is_header=isinstance(each, group | chunks))
        return done

    def _put_group(
        self,
        tasks: Sequence[Signature],
        before: Before,
        options: Mapping[str, Any],
        *,
        is_used: bool,
    ) -> Done:
        parts = [self.put(each, before, options, is_used=is_used) for each in _unrolled(tasks)]
        result = GroupResult(
            self._flow.id, [part.result for part in parts], parent=before.result, app=self._app
        )
        if is_used:
            parts = [self._collected(part) for part in parts]
        nodes = tuple(node for part in parts for node in part.nodes)
        return Done(nodes, _references(nodes) if nodes else [], result)

    def _collected(self, part: Done) -> Done:
        """Return a part of a group with one value. That of a group in it is a list."""
        if isinstance(part.value, Reference) and not part.value.shape.is_list:
            return part
        collect = Signature(COLLECT, app=self._app)
        done = self._put_task(collect, part.before(is_header=True), {}, is_used=True)
        return replace(done, result=part.result)

    def _put_chord(
        self, step: chord, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        own = {name: each for name, each in options.items() if name not in LINKS}
        header = self._put_group(step.tasks, before, own, is_used=True)
        after = header.before(is_header=True)
        return self.put(step.last, after, options, is_used=is_used)

    def _put_task(
        self, step: Signature, before: Before, options: Mapping[str, Any], *, is_used: bool
    ) -> Done:
        given = {name: each for name, each in options.items() if name not in LINKS}
        whole = step.clone(before.args, before.kwargs, **given)
        callbacks = [*links_in(step.options, "link"), *links_in(options, "link")]
        errbacks = [*links_in(step.options, "link_error"), *links_in(options, "link_error")]
        own = {**before.own, "chord": True} if before.is_header else before.own
        node = self._added(whole, before, own, is_used=is_used or bool(callbacks))
        result = AsyncResult(node.id, app=self._app, parent=before.result)
        if isinstance(before.result, AsyncResult):
            before.result.children = [*(before.result.children or ()), result]
        done = Done((node,), _reference(node), result)
        for callback in callbacks:
            self.put(callback, done.before(is_header=False), {}, is_used=False)
        watched = (*before.nodes, node) if before.is_header else (node,)
        for errback in errbacks:
            after = Before(watched, when="dead", **self._call_of(errback, node.id))
            self.put(errback, after, {}, is_used=False)
        return done

    def _added(
        self, whole: Signature, before: Before, own: Mapping[str, Any], *, is_used: bool
    ) -> Node[Any]:
        chosen = {name: each for name, each in whole.options.items() if name not in LINKS}
        if chosen.get("task_id") is not None:
            raise Unsupported("task_id in a canvas", "leave it out, and keep the id of the result")
        if is_used:
            # As in Celery, the next one gets the value of a task that ignores its result.
            chosen["ignore_result"] = False
        job = self._app.node_job(whole.type, whole.args, whole.kwargs, chosen, own)
        if before.when == "dead" or not before.nodes:
            return self._flow.add(job, after=before.nodes, when=before.when)
        return self._flow.add(job, after=before.nodes, if_dead="cancel")

    @staticmethod
    def _call_of(errback: Signature, failed: str) -> dict[str, Any]:
        """Return what an errback is called with, as in Celery: by the number of its parameters.

        Errors are no JSON: the run reads them from the job that failed.
        """
        is_composed = isinstance(errback, chain | group | chord | chunks)
        if not is_composed and not errback.immutable and takes_error(errback.type):
            return {"args": (failed, "", ""), "own": {"failed": failed}}
        return {"args": (failed,)}


def _unrolled(tasks: Sequence[Signature]) -> Iterator[Signature]:
    """Yield the tasks of a group. As in Celery, those of a group in it are its own."""
    for each in tasks:
        inner = each.group() if isinstance(each, chunks) else each
        if isinstance(inner, group):
            for part in _unrolled(inner.tasks):
                yield part.clone(inner.args, inner.kwargs, **inner.options)
        else:
            yield inner


def takes_error(task: Task) -> bool:
    """Return whether an errback takes a request, an error and a traceback, not only an id."""
    return "bind" not in task.__dict__ and task.shape.takes(2)


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


BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    "celery.map": _map,
    "celery.starmap": _starmap,
    COLLECT: _collect,
}


def call_links(request: Request, result: EagerResult, options: Mapping[str, Any]) -> None:
    """Run the callbacks of a task that has run at once."""
    if result.successful():
        for callback in links_in(options, "link"):
            callback.apply((result.result,))
    elif result.failed():
        for errback in links_in(options, "link_error"):
            is_composed = isinstance(errback, chain | group | chord | chunks)
            if not is_composed and not errback.immutable and takes_error(errback.type):
                errback(request, result.result, result.traceback)
            else:
                errback.apply((request.id,))
