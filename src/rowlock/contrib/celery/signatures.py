"""Signatures: a task with its arguments and options.

1. As in Celery, a signature is a dict of JSON values, so that it can be an argument of a task, or
   its result. `signature(...)` makes one of such a dict.
2. As in Celery, `set`, `link`, `link_error`, `freeze` and `stamp` change a signature in place.
   `clone` and `|` copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never, Self

from rowlock.contrib.celery.local import the_app
from rowlock.contrib.celery.stamps import StampingVisitor, merged_stamps
from rowlock.contrib.compat import Unsupported
from rowlock.ids import new_id

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.contrib.celery.app.task import Task
    from rowlock.contrib.celery.result import AsyncResult, GroupResult

# What has no place in a workflow, and what to do instead.
INSTEAD: Final[Mapping[str, str]] = {
    "group_id": "leave it out: a group has an id of its own",
    "skew": "set(countdown=...) on each signature",
    "election": "start it once",
}
LINKS: Final = ("link", "link_error")
# The classes of signatures by the `subtask_type` of their dicts.
_kinds: dict[str, type[Signature]] = {}


class Signature(dict[str, Any]):
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

    kind: ClassVar[str | None] = None
    _task: Task | None
    _app: Celery | None

    def __init_subclass__(cls) -> None:
        if cls.kind is not None:
            _kinds[cls.kind] = cls

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
        self._task = None if isinstance(task, str) else task
        self._app = app
        super().__init__(
            task=task if isinstance(task, str) else task.name,
            args=tuple(args or ()),
            kwargs=dict(kwargs or {}),
            options={**(options or {}), **other},
            subtask_type=self.kind,
            immutable=immutable,
        )
        for link in LINKS:
            if link in self.options:
                self.options[link] = links_in(self.options, link)

    @classmethod
    def from_dict(cls, d: Mapping[str, Any], app: Celery | None = None) -> Signature:
        """Return the signature that a dict describes."""
        kind = _kinds.get(str(d.get("subtask_type")), Signature)
        if "task" not in d:
            raise Unsupported("a signature of a dict without a task", "pass a signature as JSON")
        made = Signature(str(d["task"]), d.get("args"), None, d.get("options"), app=app)
        made["subtask_type"] = kind.kind
        made.immutable = bool(d.get("immutable"))
        made.__class__ = kind
        made["kwargs"] = kind._parts_from(dict(d.get("kwargs") or {}), app)
        return made

    @staticmethod
    def _parts_from(kwargs: dict[str, Any], app: Celery | None) -> dict[str, Any]:
        """Return the arguments by name of a dict, with signatures in their places."""
        return kwargs

    @property
    def task(self) -> str:
        """The name of the task."""
        if self._task is not None:
            # The first app of a script's task changes its name.
            self["task"] = self._task.full_name
        name: str = self["task"]
        return name

    @property
    def name(self) -> str:
        """The same as `task`."""
        return self.task

    @property
    def args(self) -> tuple[Any, ...]:
        """Arguments by position."""
        return tuple(self["args"])

    @args.setter
    def args(self, args: Sequence[Any]) -> None:
        self["args"] = tuple(args)

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments by name."""
        named: dict[str, Any] = self["kwargs"]
        return named

    @kwargs.setter
    def kwargs(self, kwargs: Mapping[str, Any]) -> None:
        self["kwargs"] = dict(kwargs)

    @property
    def given(self) -> Mapping[str, Any]:
        """Arguments by name for the tasks of a canvas, or for the task."""
        return self.kwargs

    @property
    def options(self) -> dict[str, Any]:
        """Options as for `apply_async`."""
        chosen: dict[str, Any] = self["options"]
        return chosen

    @options.setter
    def options(self, options: Mapping[str, Any]) -> None:
        self["options"] = dict(options)

    @property
    def immutable(self) -> bool:
        """Whether results of earlier steps are not passed to it."""
        return bool(self["immutable"])

    @immutable.setter
    def immutable(self, immutable: bool) -> None:
        self["immutable"] = immutable

    @property
    def type(self) -> Task:
        """The task itself."""
        if self._task is not None:
            return self._task
        app, name = self.app, self.task
        if name not in app.tasks:
            app.load_tasks()
        if name not in app.tasks:
            raise Unsupported(
                f"a signature of {name!r}, which is unknown here",
                "import its module, or call app.send_task(name, kwargs=...)",
            )
        return app.tasks[name]

    @property
    def app(self) -> Celery:
        """The app."""
        if self._app is not None:
            return self._app
        return the_app() if self._task is None else self._task.app

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
            if kwargs:
                copy._give(kwargs)
        chosen = {name: _copied(value) for name, value in self.options.items()}
        if "immutable" in options:
            copy.immutable = options.pop("immutable")
        copy.options = {**chosen, **options}
        return copy

    partial = clone

    def _copy(self) -> Self:
        copy = self.__class__.__new__(self.__class__)
        dict.update(copy, self.items())
        copy.__dict__.update(self.__dict__)
        copy["kwargs"] = dict(self.kwargs)
        return copy

    def _give(self, kwargs: Mapping[str, Any]) -> None:
        self.kwargs = {**self.kwargs, **kwargs}

    def freeze(self, _id: str | None = None, *_: Any, **__: Any) -> AsyncResult | GroupResult:
        """Choose the id of its job now, and return the result that it will have."""
        from rowlock.contrib.celery.result import AsyncResult

        id = self.options.setdefault("task_id", _id or new_id())
        return AsyncResult(id, app=self.app)

    def link(self, callback: Signature) -> Signature:
        """Run another task after it, with its result. Return that one."""
        return self._linked("link", callback)

    def link_error(self, errback: Signature) -> Any:
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

    # Stamp

    def stamp(
        self, visitor: StampingVisitor | None = None, append_stamps: bool = False, **headers: Any
    ) -> Any:
        """Give it, and its callbacks, headers of their own: `headers`, and those of a visitor."""
        self._stamp_links(visitor, append_stamps, headers)
        more = None if visitor is None else visitor.on_signature(self, **headers)
        return self.set(**merged_stamps(headers, more, self.options, append=append_stamps))

    def _stamp_links(
        self, visitor: StampingVisitor | None, append: bool, headers: Mapping[str, Any]
    ) -> None:
        for option in LINKS:
            links = links_in(self.options, option)
            if links:
                self.options[option] = links
            for each in links:
                more: Mapping[str, Any] | None = None
                if visitor is not None:
                    hook = visitor.on_callback if option == "link" else visitor.on_errback
                    more = hook(each, **headers)
                each.stamp(visitor, append, **merged_stamps(headers, more, {}, append=append))

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

    def __invert__(self) -> Any:
        """Start it, and wait for its result."""
        return self.apply_async().get()

    # Compose

    def __or__(self, other: Any) -> Any:
        from rowlock.contrib.celery.canvas import followed

        return followed(self, other) if isinstance(other, Signature) else NotImplemented

    def __ior__(self, other: Any) -> Any:  # no dict is merged
        return self.__or__(other)

    def __getattr__(self, name: str) -> Never:
        if name in INSTEAD:
            raise Unsupported(f"signature.{name}", INSTEAD[name])
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Callable[..., Signature], tuple[dict[str, Any]]]:
        return signature, (dict(self.items()),)

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={each!r}" for name, each in self.kwargs.items())]
        return f"{self.task}({', '.join(words)})"


def signature(varies: Any, *args: Any, **kwargs: Any) -> Signature:
    """Return a signature of a task, its name, another signature, or a dict that describes one."""
    if isinstance(varies, Signature):
        return varies.clone()
    if isinstance(varies, Mapping):
        return Signature.from_dict(varies, app=kwargs.get("app"))
    return Signature(varies, *args, **kwargs)


subtask: Callable[..., Signature] = signature


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
