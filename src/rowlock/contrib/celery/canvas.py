"""`Signature`: a task with its arguments. What composes several of them is not supported yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Never

from rowlock.contrib.compat import Unsupported

if TYPE_CHECKING:
    from rowlock.contrib.celery.app.task import Task
    from rowlock.contrib.celery.result import AsyncResult

ONE_AFTER_ANOTHER = "call the next task's delay() at the end of this one"
MANY_AT_ONCE = "call delay() for each, and keep the results in a list"
ALL_THEN_ONE = (
    "count the finished parts in your own database, and let the last one call the callback's "
    "delay()"
)
# What composes jobs, and what to do instead.
INSTEAD: dict[str, str] = {
    "chain": ONE_AFTER_ANOTHER,
    "group": MANY_AT_ONCE,
    "chord": ALL_THEN_ONE,
    "chunks": MANY_AT_ONCE,
    "xmap": MANY_AT_ONCE,
    "xstarmap": MANY_AT_ONCE,
    "map": MANY_AT_ONCE,
    "starmap": MANY_AT_ONCE,
    "signature": "write task.s(...), or app.send_task(name, kwargs=...)",
    "maybe_signature": "write task.s(...), or app.send_task(name, kwargs=...)",
    "link": ONE_AFTER_ANOTHER,
    "link_error": "write it in on_failure of a base class, or connect signals.task_failure",
    "on_error": "write it in on_failure of a base class, or connect signals.task_failure",
    "replace": ONE_AFTER_ANOTHER,
    "add_to_chord": ALL_THEN_ONE,
}


@dataclass(frozen=True)
class Signature:
    """A task with its arguments and options, to be enqueued later or by a schedule."""

    task: Task
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def set(self, **options: Any) -> Signature:
        """Return it with more options."""
        return Signature(self.task, self.args, self.kwargs, {**self.options, **options})

    def clone(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Signature:
        """Return it with more arguments, which come before its own, and more options."""
        return Signature(
            self.task,
            (*args, *self.args),
            {**self.kwargs, **(kwargs or {})},
            {**self.options, **options},
        )

    partial = clone

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue it. As in Celery, these arguments come before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue it."""
        whole = self.clone(args or (), kwargs, **options)
        return self.task.apply_async(whole.args, whole.kwargs, **whole.options)

    def apply(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run it at once, in this process."""
        whole = self.clone(args, kwargs)
        return self.task.apply(whole.args, whole.kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        whole = self.clone(args, kwargs)
        return self.task(*whole.args, **whole.kwargs)

    def __or__(self, _: object) -> Never:
        raise Unsupported("a chain", ONE_AFTER_ANOTHER)

    def __getattr__(self, name: str) -> Never:
        if name in INSTEAD:
            raise Unsupported(f"signature.{name}", INSTEAD[name])
        raise AttributeError(name)


def _refused(name: str) -> Callable[..., Never]:
    def refuse(*_: Any, **__: Any) -> Never:
        raise Unsupported(name, INSTEAD[name])

    return refuse


chain: Callable[..., Never] = _refused("chain")
group: Callable[..., Never] = _refused("group")
chord: Callable[..., Never] = _refused("chord")
chunks: Callable[..., Never] = _refused("chunks")
xmap: Callable[..., Never] = _refused("xmap")
xstarmap: Callable[..., Never] = _refused("xstarmap")
signature: Callable[..., Never] = _refused("signature")
subtask: Callable[..., Never] = signature
maybe_signature: Callable[..., Never] = _refused("maybe_signature")
