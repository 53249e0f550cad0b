"""Signatures and what composes them: `chain`, `group`, `chord`, `chunks`, `link`, `|`.

1. A canvas is written as one workflow, all of it or nothing. `app/compose.py` does that.
2. As in Celery, `set`, `link` and `link_error` change a signature in place. `clone` and `|` copy.
3. As in Celery, the result of a step comes before the arguments of the next, unless that is
   immutable.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never, Self

from rowlock.contrib.celery.local import the_app
from rowlock.contrib.compat import Unsupported

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.contrib.celery.app.task import Task
    from rowlock.contrib.celery.result import GroupResult

# What has no place in a workflow, and what to do instead.
INSTEAD: Final[Mapping[str, str]] = {
    "replace": "return, and start the other one as a step of a chain",
    "add_to_chord": "count the parts before the chord starts",
    "group_id": "leave it out: a group has the id of its workflow",
    "stamp": "pass it as a header: set(headers={...})",
    "freeze": "start it, and use the id of its result",
    "skew": "set(countdown=...) on each signature",
}
LINKS: Final = ("link", "link_error")


class Signature:
    """A task with its arguments and options, to be enqueued later, by a schedule or in a canvas.

    Args:
        task: A task, or its name.
        args: Arguments by position.
        kwargs: Arguments by name.
        options: Options as for `apply_async`.
        immutable: Whether results of earlier steps are not passed to it.
        app: Its app. Default: that of the task, or else the current one.
        other: More options.
    """

    def __init__(
        self,
        task: Task | str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: Celery | None = None,
        **other: Any,
    ) -> None:
        self._task = task
        self._app = app
        self.args: tuple[Any, ...] = tuple(args or ())
        self.kwargs: dict[str, Any] = dict(kwargs or {})
        self.options: dict[str, Any] = {**(options or {}), **other}
        for link in LINKS:
            if link in self.options:
                self.options[link] = links_in(self.options, link)
        self.immutable: bool = immutable

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._task if isinstance(self._task, str) else self._task.full_name

    @property
    def name(self) -> str:
        """The same as `task`."""
        return self.task

    @property
    def type(self) -> Task:
        """The task itself."""
        if not isinstance(self._task, str):
            return self._task
        app = self.app
        if self._task not in app.tasks:
            app.load_tasks()
        if self._task not in app.tasks:
            raise Unsupported(
                f"a signature of {self._task!r}, which is unknown here",
                "import its module, or call app.send_task(name, kwargs=...)",
            )
        return app.tasks[self._task]

    @property
    def app(self) -> Celery:
        """The app."""
        if self._app is not None:
            return self._app
        return the_app() if isinstance(self._task, str) else self._task.app

    @property
    def id(self) -> str | None:
        """The id that its job is to have, if one was chosen."""
        return self.options.get("task_id")

    # Change

    def set(self, immutable: bool | None = None, **options: Any) -> Self:
        """Give it more options, and return it."""
        if immutable is not None:
            self.set_immutable(immutable)
        self.options.update(options)
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Say whether results of earlier steps are not passed to it."""
        self.immutable = immutable

    def clone(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Return a copy with more arguments, which come before its own, and more options.

        If it is immutable, its arguments stay as they are.
        """
        copy = self._copy()
        if not self.immutable:
            copy.args = (*(args or ()), *self.args)
            copy.kwargs = {**self.kwargs, **(kwargs or {})}
        copy.options = {
            **{name: _copied(value) for name, value in self.options.items()},
            **options,
        }
        return copy

    partial = clone

    def _copy(self) -> Self:
        copy = self.__class__.__new__(self.__class__)
        copy.__dict__.update(self.__dict__)
        return copy

    def link(self, callback: Signature) -> Signature:
        """Run another task after it, with its result. Return that one."""
        return self._linked("link", callback)

    def link_error(self, errback: Signature) -> Signature:
        """Run another task if it fails. Return that one."""
        return self._linked("link_error", errback)

    def _linked(self, option: str, other: Signature) -> Signature:
        known = self.options[option] = links_in(self.options, option)
        if other not in known:
            known.append(signature(other))
        return other

    def on_error(self, errback: Signature) -> Self:
        """As `link_error`, but return this one."""
        self.link_error(errback)
        return self

    # Start

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Start it. As in Celery, these arguments come before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Start it."""
        whole = self.clone(args, kwargs, **options)
        return whole.type.apply_async(whole.args, whole.kwargs, **whole.options)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run it at once, in this process."""
        whole = self.clone(args, kwargs, **options)
        return whole.type.apply(whole.args, whole.kwargs, **whole.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        whole = self.clone(args, kwargs)
        return whole.type(*whole.args, **whole.kwargs)

    # Compose

    def __or__(self, other: object) -> Any:
        return _followed(self, other) if isinstance(other, Signature) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _facts(other) == _facts(self)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as Celery's, which is a dict

    def __getitem__(self, name: str) -> Any:
        """Return a part by its name, as from Celery's, which is a dict."""
        if name not in ("task", "args", "kwargs", "options", "immutable"):
            raise KeyError(name)
        return getattr(self, name)

    def __getattr__(self, name: str) -> Never:
        if name in INSTEAD:
            raise Unsupported(f"signature.{name}", INSTEAD[name])
        raise AttributeError(name)

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={each!r}" for name, each in self.kwargs.items())]
        return f"{self.task}({', '.join(words)})"


class _Composed(Signature):
    """Several signatures, started as one workflow."""

    tasks: list[Signature]

    def __init__(self, tasks: Iterable[Signature], app: Celery | None, options: Any) -> None:
        super().__init__(f"celery.{type(self).__name__}", options=options, app=app)
        self.tasks = [signature(each) for each in tasks]

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

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        several = tasks if len(tasks) == 1 and isinstance(tasks[0], group) else _several(tasks)
        steps = [step for each in several for step in _steps(signature(each))]
        # As in Celery, a group of none changes nothing after another step.
        kept = [step for step in steps if not isinstance(step, group) or step.tasks]
        super().__init__(kept if steps[:1] == kept[:1] else [steps[0], *kept], app, options)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run them at once, in this process."""
        whole = self.clone(args, kwargs, **options)
        given, names = whole.args, whole.kwargs
        last: Any = None
        for step in whole.tasks:
            result = step.apply(given, names)
            result.parent, last = last, result
            if step is not whole.tasks[-1]:
                given, names = (result.get(),), {}
        return last

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(_Composed):  # noqa: N801  # Celery's name for it
    """Signatures that run side by side."""

    def __init__(self, *tasks: Any, app: Celery | None = None, **options: Any) -> None:
        super().__init__(_several(tasks), app, options)

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> GroupResult:
        """Run them at once, in this process."""
        from rowlock.contrib.celery.result import GroupResult
        from rowlock.ids import new_id

        whole = self.clone(args, kwargs, **options)
        results = [each.apply(whole.args, whole.kwargs) for each in whole.tasks]
        return GroupResult(new_id(), results, app=whole.app)

    def link(self, callback: Signature) -> Signature:
        """As in Celery: run another task after the first of them, without its result."""
        return self.tasks[0].link(callback.clone().set(immutable=True))

    def link_error(self, errback: Signature) -> Signature:
        """Run another task for each of them that fails, without arguments."""
        for each in self.tasks:
            each.link_error(errback.clone().set(immutable=True))
        return errback

    def set_immutable(self, immutable: bool) -> None:
        """Say whether results of earlier steps are not passed to them."""
        for each in self.tasks:
            each.set_immutable(immutable)

    def __iter__(self) -> Iterator[Signature]:
        return iter(self.tasks)

    def __repr__(self) -> str:
        return f"group({self.tasks!r})"


class chord(_Composed):  # noqa: N801  # Celery's name for it
    """Signatures that run side by side, and one that runs after all, with their results."""

    def __init__(
        self,
        header: Any,
        body: Signature | None = None,
        *,
        app: Celery | None = None,
        **options: Any,
    ) -> None:
        super().__init__(list(_several((header,))), app, options)
        self.body: Signature | None = None if body is None else signature(body)

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

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Run them at once, in this process."""
        whole = self.clone(args, kwargs, **options)
        ended = whole.header.apply(whole.args, whole.kwargs)
        result = whole.last.apply((ended.get(),))
        result.parent = ended
        return result

    def link(self, callback: Signature) -> Signature:
        """Run another task after the body, with its result."""
        return self.last.link(callback)

    def link_error(self, errback: Signature) -> Signature:
        """Run another task if the body fails, or can't run because one before it failed."""
        return self.last.link_error(errback)

    def __repr__(self) -> str:
        return f"chord({self.tasks!r}, {self.body!r})"


class xmap(Signature):  # noqa: N801  # Celery's name for it
    """One job that calls a task with each of several values, and returns a list."""

    kind: str = "celery.map"

    def __init__(
        self,
        task: Signature | Task | str,
        it: Iterable[Any],
        app: Celery | None = None,
        **chosen: Any,
    ) -> None:
        called = signature(task)
        given = {"task": called.task, "it": list(it)}
        super().__init__(self.kind, (), given, immutable=True, app=app or called.app, **chosen)


class xstarmap(xmap):  # noqa: N801  # Celery's name for it
    """One job that calls a task with each of several lists of arguments, and returns a list."""

    kind = "celery.starmap"


class chunks(Signature):  # noqa: N801  # Celery's name for it
    """Many calls of a task, `n` of them in each job."""

    def __init__(
        self,
        task: Signature | Task | str,
        it: Iterable[Any],
        n: int,
        app: Celery | None = None,
        **options: Any,
    ) -> None:
        called = signature(task)
        super().__init__("celery.chunks", (), {"it": list(it), "n": n}, options, app=app)
        self._called = called

    def group(self) -> group:
        """Return the group of its parts."""
        values, number = self.kwargs["it"], self.kwargs["n"]
        parts = [values[first : first + number] for first in range(0, len(values), number)]
        made = [xstarmap(self._called, part) for part in parts]
        return group(made, app=self._called.app, **self.options)

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


def signature(varies: Any, *args: Any, **kwargs: Any) -> Signature:
    """Return a signature of a task, its name, another signature, or its parts by their names."""
    if isinstance(varies, Signature):
        return varies.clone()
    if isinstance(varies, Mapping):
        parts = {name: each for name, each in varies.items() if name in _PARTS}
        if varies.get("subtask_type") is not None or "task" not in parts:
            raise Unsupported("a canvas as a dict", "compose it where it is started")
        return Signature(**parts, app=kwargs.get("app"))
    return Signature(varies, *args, **kwargs)


subtask: Callable[..., Signature] = signature
_PARTS: Final = ("task", "args", "kwargs", "options", "immutable")


def maybe_signature(d: Any, app: Celery | None = None, clone: bool = False) -> Signature | None:
    """Return a signature of a signature or a dict. None stays None."""
    if d is None or (isinstance(d, Signature) and not clone):
        return d
    return signature(d, app=app) if isinstance(d, Mapping) else signature(d)


def links_in(options: Mapping[str, Any], name: str) -> list[Signature]:
    """Return the callbacks of an option: None, one, or several."""
    value = options.get(name)
    several = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [each if isinstance(each, Signature) else signature(each) for each in several]


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _facts(each: Signature) -> tuple[Any, ...]:
    tasks = getattr(each, "tasks", None) if isinstance(each, _Composed) else None
    body = each.body if isinstance(each, chord) else None
    return each.task, each.args, each.kwargs, each.options, each.immutable, tasks, body


def _several(tasks: Sequence[Any]) -> Iterable[Any]:
    """Return the signatures of a call: each by itself, or all in one iterable."""
    if len(tasks) != 1 or isinstance(tasks[0], Mapping):
        return tasks
    (only,) = tasks
    if isinstance(only, group):
        return only.tasks
    if isinstance(only, Signature) or not isinstance(only, Iterable):
        return [only]
    return only


def _steps(each: Signature) -> list[Signature]:
    """Return the steps of a chain with the callbacks of the whole, or the one signature."""
    if not isinstance(each, chain) or not each.tasks:
        return [each]
    steps = [step.clone() for step in each.tasks]
    for callback in links_in(each.options, "link"):
        steps[-1].link(callback)
    for step, errback in itertools.product(steps, links_in(each.options, "link_error")):
        step.link_error(errback)
    return steps


def _followed(first: Signature, then: Signature) -> Signature:
    """Return what `first | then` means."""
    if isinstance(then, group) and not then.tasks:
        return first
    if isinstance(first, group):
        return chord(first, then, app=first._app)
    if isinstance(then, group) and len(then.tasks) == 1:
        then = then.tasks[0]
    steps = _steps(first)
    last = steps[-1]
    if isinstance(last, chord) and not isinstance(then, chord):
        joined = last.clone()
        joined.body = last.last | then
        steps[-1] = joined
    elif isinstance(last, group):
        steps[-1] = chord(last, then)
    else:
        steps += _steps(then)
    return steps[0] if len(steps) == 1 else chain(*steps, app=first._app)
