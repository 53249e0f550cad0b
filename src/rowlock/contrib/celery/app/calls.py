"""The options of `apply_async`: which there are, and what they mean for a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rowlock.clock import SystemClock, from_us
from rowlock.config import SECOND_US
from rowlock.contrib.celery.app.task import Task
from rowlock.contrib.celery.app.trace import EXPIRES
from rowlock.contrib.celery.result import CALL
from rowlock.contrib.celery.signatures import INSTEAD
from rowlock.contrib.celery.stamps import STAMPED, stamps_in
from rowlock.contrib.compat import Unsupported

# Options of a call that can't be followed, unless they are empty.
_CALL_ADVICE: Final[Mapping[str, str]] = {
    "chord": "write chord(header, body)",
    "chain": "write chain(...), or |",
    "group_id": INSTEAD["group_id"],
    "shadow": "give the task a name",
    "exchange": "name a queue",
    "producer": "leave it out: there is no broker",
    "connection": "leave it out: there is no broker",
    "publisher": "leave it out: there is no broker",
    "reply_to": "read the result with AsyncResult",
    "root_id": "pass it as a header: headers={...}",
    "parent_id": "pass it as a header: headers={...}",
}
_CALL_HARMLESS: Final = frozenset(
    {
        "retry", "retry_policy", "compression", "delivery_mode", "add_to_parent", "mandatory",
        "immediate", "argsrepr", "kwargsrepr", "exchange_type", "routing_key", "serializer",
        "throw",
    }
)  # fmt: skip
_CALL_USED: Final = frozenset(
    {
        "task_id", "countdown", "eta", "expires", "queue", "priority", "ignore_result", "headers",
        "time_limit", "soft_time_limit",
    }
)  # fmt: skip


@dataclass(slots=True)
class Call:
    """A checked call of a task, before its arguments: the options of its job."""

    name: str
    # For `Task.using`.
    using: dict[str, Any]
    # What the run needs to know, kept in the job's `meta`.
    own: dict[str, Any]
    expires: float | datetime | timedelta | str | None
    time_limit: float | None
    aware: Callable[[datetime], datetime]

    def repeated(self) -> Call:
        """Return it for a schedule, where an expiry in seconds counts from each of its times."""
        if self.expires is None or isinstance(self.expires, datetime | str):
            return self
        own = {**self.own, "expires_seconds": _seconds(self.expires)}
        return replace(self, own=own, expires=None)

    @property
    def meta(self) -> dict[str, Any]:
        """The job's `meta`."""
        meta: dict[str, Any] = {CALL: self.own} if self.own else {}
        if self.expires is not None:
            meta[EXPIRES] = self._expiry().isoformat()
        return meta

    def _expiry(self) -> datetime:
        match self.expires:
            case str():
                return self.aware(datetime.fromisoformat(self.expires))
            case datetime():
                return self.aware(self.expires)
            case _:
                assert self.expires is not None
                return from_us(SystemClock().now_us() + round(_seconds(self.expires) * SECOND_US))


def _seconds(span: float | timedelta) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def check_call(chosen: Mapping[str, Any]) -> None:
    """Check the options of `apply_async`."""
    stamps = (STAMPED, *(chosen.get(STAMPED) or ()))
    for option, value in chosen.items():
        if value is None or value in ((), [], {}) or option in stamps:
            continue
        if option in _CALL_ADVICE:
            raise Unsupported(f"apply_async({option}=...)", _CALL_ADVICE[option])
        if option == "serializer" and value != "json":
            raise Unsupported(f"apply_async(serializer={value!r})", "leave it out: it is JSON")
        if option == "routing_key" and not chosen.get("queue"):
            raise Unsupported("apply_async(routing_key=...)", "name a queue")
        if option not in _CALL_USED and option not in _CALL_HARMLESS:
            raise Unsupported(
                f"apply_async({option}=...)", "pass it as an argument, or in headers={...}"
            )


def options_of(task: Task) -> dict[str, Any]:
    """Return the options of a task that its calls have, too."""
    own = {"queue": task.queue, "priority": task.priority, "expires": task.expires}
    return {name: value for name, value in own.items() if value is not None}


def headers_of(chosen: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the headers of a call, with its stamps."""
    stamps = stamps_in(chosen)
    given: Mapping[str, Any] | None = chosen.get("headers")
    return {**(given or {}), **stamps} if stamps else given


def eta_of(using: Mapping[str, Any]) -> str | None:
    """Return the time before which a job must not run, if it has one, as `request.eta` says it."""
    if using["run_at"] is not None:
        run_at: datetime = using["run_at"]
        return run_at.isoformat()
    if not using["delay"]:
        return None
    return from_us(SystemClock().now_us() + round(using["delay"] * SECOND_US)).isoformat()
