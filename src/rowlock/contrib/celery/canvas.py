"""What composes signatures: `chain`, `group`, `chord`, `chunks`, `map`, `|`.

1. A canvas is written as one workflow, all of it or nothing. `app/compose.py` does that.
2. As in Celery, the result of a step comes before the arguments of the next, unless that is
   immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rowlock.contrib.celery.local import the_app
from rowlock.contrib.celery.signatures import (
    Signature,
    links_in,
    maybe_signature,
    signature,
    subtask,
)
from rowlock.contrib.celery.stamps import StampingVisitor, merged_stamps
from rowlock.contrib.compat import Unsupported
from rowlock.ids import new_id

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.contrib.celery.app.task import Task
    from rowlock.contrib.celery.result import AsyncResult, GroupResult

__all__ = [
    "Signature",
    "StampingVisitor",
    "chain",
    "chord",
    "chunks",
    "group",
    "maybe_signature",
    "signature",
    "subtask",
    "xmap",
    "xstarmap",
]


class _Composed(Signature):
    """Several signatures, started as one workflow."""

    # The name of the signatures in the dict.
    _parts: ClassVar[str] = "tasks"

    def __init__(self, tasks: Iterable[Signature], app: Celery | None, options: Any) -> None:
        super().__init__(f"celery.{self.kind}", options=options, app=app)
        self.kwargs = {self._parts: [signature(each) for each in tasks]}

    @property
    def tasks(self) -> list[Signature]:
        """The signatures."""
        parts: list[Signature] = self.kwargs[self._parts]
        return parts

    @tasks.setter
    def tasks(self, tasks: Iterable[Signature]) -> None:
        self.kwargs[self._parts] = list(tasks)

    @classmethod
    def _parts_from(cls, kwargs: dict[str, Any], app: Celery | None) -> dict[str, Any]:
        found = kwargs.get(cls._parts) or ()
        parts = found.get("kwargs", {}).get("tasks", ()) if isinstance(found, Mapping) else found
        return {**kwargs, cls._parts: [signature(each, app=app) for each in parts]}

    @property
    def given(self) -> Mapping[str, Any]:
        """Arguments by name for its tasks."""
        more: Mapping[str, Any] = self.kwargs.get("kwargs") or {}
        return more

    def _give(self, kwargs: Mapping[str, Any]) -> None:
        self.kwargs["kwargs"] = {**self.given, **kwargs}

    @property
    def app(self) -> Celery:
        """The app."""
        if self._app is not None or not self.tasks:
            return self._app or the_app()
        return self.tasks[0].app

    def _copy(self) -> Self:
        copy = super()._copy()
        copy.tasks = [each.clone() for each in self.tasks]
        return copy

    def stamp(
        self, visitor: StampingVisitor | None = None, append_stamps: bool = False, **headers: Any
    ) -> None:
        """Stamp all of it."""
        more = None if visitor is None else self._begin_stamps(visitor, headers)
        stamps = merged_stamps(headers, more, self.options, append=append_stamps)
        self._stamp_links(visitor, append_stamps, stamps)
        for each in self.tasks:
            each.stamp(visitor, append_stamps, **stamps)
        if visitor is not None:
            self._end_stamps(visitor, append_stamps, stamps)

    def _begin_stamps(
        self, visitor: StampingVisitor, headers: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        raise NotImplementedError

    def _end_stamps(
        self, visitor: StampingVisitor, append: bool, headers: Mapping[str, Any]
    ) -> None:
        raise NotImplementedError

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Start all of it: every job is written, or none."""
        from rowlock.contrib.celery.app.compose import start

        whole = self.clone(args, kwargs, **options)
        if self.app.conf.task_always_eager:
            return whole.apply()
        return start(self.app, whole)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start it, as in Celery."""
        return self.apply_async(args, kwargs)

    def __len__(self) -> int:
        return len(self.tasks)

    def __bool__(self) -> bool:
        return True


class chain(_Composed):  # noqa: N801  # Celery's name for it
    """Signatures that run one after the other. Each gets the result of the one before."""

    kind: ClassVar[str | None] = "chain"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        several = tasks if len(tasks) == 1 and isinstance(tasks[0], group) else _several(tasks)
        steps = [step for each in several for step in _steps(signature(each))]
        if len(steps) > 1:
            # As in Celery, a group of one among others is that one.
            steps = [_lone(step) for step in steps]
        # As in Celery, a group of none changes nothing after another step.
        kept = [step for step in steps if not isinstance(step, group) or step.tasks]
        super().__init__(kept if steps[:1] == kept[:1] else [steps[0], *kept], app, options)

    def freeze(self, _id: str | None = None, *_: Any, **__: Any) -> AsyncResult | GroupResult:
        """Choose the ids of its jobs now, and return the result of the last."""
        last: Any = None
        for place, each in enumerate(self.tasks):
            is_last = place == len(self.tasks) - 1
            result = each.freeze((_id or self.id) if is_last else None)
            _first_of(result).parent, last = last, result
        if last is None:
            raise Unsupported("freeze() of an empty chain", "add a task to it")
        self.options["task_id"] = last.id
        return last  # type: ignore[no-any-return]

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run them at once, in this process."""
        whole = self.clone(args, kwargs, **options)
        given, names = whole.args, whole.given
        last: Any = None
        for step in whole.tasks:
            result = step.apply(given, names)
            result.parent, last = last, result
            if step is not whole.tasks[-1]:
                given, names = (result.get(),), {}
        return last

    def _begin_stamps(
        self, visitor: StampingVisitor, headers: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        return visitor.on_chain_start(self, **headers)

    def _end_stamps(
        self, visitor: StampingVisitor, append: bool, headers: Mapping[str, Any]
    ) -> None:
        visitor.on_chain_end(self, **headers)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(_Composed):  # noqa: N801  # Celery's name for it
    """Signatures that run side by side."""

    kind: ClassVar[str | None] = "group"

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        super().__init__(_several(tasks), app, options)

    def freeze(self, _id: str | None = None, *_: Any, **__: Any) -> GroupResult:
        """Choose the ids of its jobs now, and return their results."""
        from rowlock.contrib.celery.result import GroupResult

        id = self.options.setdefault("task_id", _id or new_id())
        return GroupResult(id, [each.freeze() for each in self.tasks], app=self.app)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> GroupResult:
        """Run them at once, in this process."""
        from rowlock.contrib.celery.result import GroupResult

        whole = self.clone(args, kwargs, **options)
        results = [each.apply(whole.args, whole.given) for each in whole.tasks]
        return GroupResult(new_id(), results, app=whole.app)

    def link(self, callback: Signature) -> Signature:
        """As in Celery: run another task after the first of them, without its result."""
        return self.tasks[0].link(callback.clone().set(immutable=True))

    def link_error(self, errback: Signature) -> tuple[Any, ...]:
        """Run another task for each of them that fails."""
        return tuple(each.link_error(signature(errback)) for each in self.tasks)

    def set_immutable(self, immutable: bool) -> None:
        """Say whether results of earlier steps are not passed to them."""
        for each in self.tasks:
            each.set_immutable(immutable)

    def _begin_stamps(
        self, visitor: StampingVisitor, headers: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        return visitor.on_group_start(self, **headers)

    def _end_stamps(
        self, visitor: StampingVisitor, append: bool, headers: Mapping[str, Any]
    ) -> None:
        visitor.on_group_end(self, **headers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tasks)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


class chord(_Composed):  # noqa: N801  # Celery's name for it
    """Signatures that run side by side, and one that runs after all, with their results."""

    kind: ClassVar[str | None] = "chord"
    _parts: ClassVar[str] = "header"

    def __init__(
        self,
        header: Any,
        body: Signature | None = None,
        *,
        app: Celery | None = None,
        **options: Any,
    ) -> None:
        super().__init__(list(_several((header,))), app, options)
        self.body = None if body is None else signature(body)

    @property
    def body(self) -> Signature | None:
        """The one that runs after all."""
        found: Signature | None = self.kwargs["body"]
        return found

    @body.setter
    def body(self, body: Signature | None) -> None:
        self.kwargs["body"] = body

    @classmethod
    def _parts_from(cls, kwargs: dict[str, Any], app: Celery | None) -> dict[str, Any]:
        body = kwargs.get("body")
        whole = super()._parts_from(kwargs, app)
        return {**whole, "body": None if body is None else signature(body, app=app)}

    def _copy(self) -> Self:
        copy = super()._copy()
        copy.body = None if self.body is None else self.body.clone()
        return copy

    @property
    def header(self) -> group:
        """The signatures that run side by side."""
        return group(self.tasks, app=self._app)

    @property
    def last(self) -> Signature:
        """The one that runs after all."""
        if self.body is None:
            raise Unsupported("a chord without a body", "write chord(header)(body), or a group")
        return self.body

    def __call__(self, body: Signature | None = None, **options: Any) -> Any:
        """Start it, as in Celery: with the body, if it has none yet."""
        whole = self.clone()
        if body is not None:
            whole.body = signature(body)
        return whole.apply_async(**options)

    def freeze(self, _id: str | None = None, *_: Any, **__: Any) -> AsyncResult | GroupResult:
        """Choose the ids of its jobs now, and return the result of the body."""
        from rowlock.contrib.celery.result import GroupResult

        header = GroupResult(new_id(), [each.freeze() for each in self.tasks], app=self.app)
        result = self.last.freeze(_id or self.id)
        _first_of(result).parent = header
        return result

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run them at once, in this process."""
        whole = self.clone(args, kwargs, **options)
        ended = whole.header.apply(whole.args, whole.given)
        result = whole.last.apply((ended.get(),))
        result.parent = ended
        return result

    def link(self, callback: Signature) -> Signature:
        """Run another task after the body, with its result."""
        return self.last.link(callback)

    def link_error(self, errback: Signature) -> Signature:
        """Run another task if the body fails, or can't run because one before it failed.

        With the setting `task_allow_error_cb_on_chord_header`, also for each of those that fails.
        """
        if self.app.conf.task_allow_error_cb_on_chord_header:
            for each in self.tasks:
                each.link_error(errback.clone(immutable=True))
        self.last.link_error(errback)
        return errback

    def set_immutable(self, immutable: bool) -> None:
        """Say whether results of earlier steps are not passed to the header."""
        for each in self.tasks:
            each.set_immutable(immutable)

    def _begin_stamps(
        self, visitor: StampingVisitor, headers: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        return visitor.on_chord_header_start(self, **headers)

    def _end_stamps(
        self, visitor: StampingVisitor, append: bool, headers: Mapping[str, Any]
    ) -> None:
        visitor.on_chord_header_end(self, **headers)
        if self.body is not None:
            more = visitor.on_chord_body(self, **headers)
            stamps = merged_stamps(headers, more, self.options, append=append)
            self.body.stamp(visitor, append, **stamps)

    def __repr__(self) -> str:
        return f"chord({self.tasks!r}, {self.body!r})"


class xmap(Signature):  # noqa: N801  # Celery's name for it
    """One job that calls a task with each of several values, and returns a list."""

    kind: ClassVar[str | None] = "xmap"
    runs: ClassVar[str] = "celery.map"

    def __init__(
        self,
        task: Signature | Task | str,
        it: Iterable[Any],
        app: Celery | None = None,
        **chosen: Any,
    ) -> None:
        called = signature(task)
        given = {"task": called.task, "it": list(it)}
        super().__init__(self.runs, (), given, immutable=True, app=app or called.app, **chosen)


class xstarmap(xmap):  # noqa: N801  # Celery's name for it
    """One job that calls a task with each of several lists of arguments, and returns a list."""

    kind: ClassVar[str | None] = "xstarmap"
    runs: ClassVar[str] = "celery.starmap"


class chunks(Signature):  # noqa: N801  # Celery's name for it
    """Many calls of a task, `n` of them in each job."""

    kind: ClassVar[str | None] = "chunks"

    def __init__(
        self,
        task: Signature | Task | str,
        it: Iterable[Any],
        n: int,
        app: Celery | None = None,
        **options: Any,
    ) -> None:
        called = signature(task)
        given = {"task": called, "it": list(it), "n": n}
        super().__init__("celery.chunks", (), given, options, app=app)

    @staticmethod
    def _parts_from(kwargs: dict[str, Any], app: Celery | None) -> dict[str, Any]:
        return {**kwargs, "task": signature(kwargs["task"], app=app)}

    def group(self) -> group:
        """Return the group of its parts."""
        called, values, number = (self.kwargs[name] for name in ("task", "it", "n"))
        parts = [values[first : first + number] for first in range(0, len(values), number)]
        made = [xstarmap(called, part) for part in parts]
        return group(made, app=called.app, **self.options)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Start them."""
        return self.group().apply_async(**options)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run them at once, in this process."""
        return self.group().apply()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start them, as in Celery."""
        return self.apply_async()


def _several(tasks: Sequence[Any]) -> Iterable[Any]:
    """Return the signatures of a call: each by itself, or all in one iterable."""
    if len(tasks) != 1:
        return tasks
    (only,) = tasks
    if isinstance(only, group):
        return only.tasks
    if isinstance(only, Mapping) or not isinstance(only, Iterable):
        return [only]
    return only


def _lone(step: Signature) -> Signature:
    return step.tasks[0] if isinstance(step, group) and len(step.tasks) == 1 else step


def _first_of(result: Any) -> Any:
    """Return the result of the first step that leads to this one."""
    while result.parent is not None:
        result = result.parent
    return result


def _steps(each: Signature) -> list[Signature]:
    """Return the steps of a chain with the callbacks of the whole, or the one signature."""
    if not isinstance(each, chain):
        return [each]
    steps = [step.clone() for step in each.tasks]
    if not steps:
        return []
    if each.id is not None:
        steps[-1].options.setdefault("task_id", each.id)
    for callback in links_in(each.options, "link"):
        steps[-1].link(callback)
    for errback in links_in(each.options, "link_error"):
        for step in failing_steps(steps, each.app):
            step.link_error(errback)
    return steps


def failing_steps(steps: Sequence[Signature], app: Celery) -> list[Signature]:
    """Return the steps of a chain that call its errbacks.

    As in Celery, a group that another step follows is the header of a chord, whose body calls them.
    """
    if app.conf.task_allow_error_cb_on_chord_header:
        return list(steps)
    last = len(steps) - 1
    return [
        step for place, step in enumerate(steps) if place == last or not isinstance(step, group)
    ]


def followed(first: Signature, then: Signature) -> Signature:
    """Return what `first | then` means."""
    if isinstance(then, group) and not then.tasks:
        return first
    if isinstance(first, group):
        return chord(first, then, app=first._app)
    then = _lone(then)
    steps = _steps(first)
    last = steps[-1] if steps else None
    if isinstance(last, chord) and not isinstance(then, chord):
        joined = last.clone()
        joined.body = last.last | then
        steps[-1] = joined
    elif isinstance(last, group):
        steps[-1] = chord(last, then)
    else:
        steps += _steps(then)
    return steps[0] if len(steps) == 1 else chain(*steps, app=first._app)
