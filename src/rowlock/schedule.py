"""Schedules: jobs that are enqueued repeatedly, and how missed ticks are handled."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us, maybe_from_us
from rowlock.cron import Cron
from rowlock.errors import OptionInvalid


class MissedTicks(StrEnum):
    """What to do with ticks that no scheduler was running to fire."""

    SKIP = "skip"
    """Skip ticks that are more than five minutes old."""
    ONCE = "once"
    """Run one job for all of them."""
    ALL = "all"
    """Run one job for each of the last 100."""


class ScheduleSource(StrEnum):
    """Where a schedule was declared: in the code of a task, or by a call."""

    CODE = "code"
    """The `cron` of a task."""
    USER = "user"
    """A call of `app.schedule`."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was when it was read. Times are aware UTC."""

    name: str
    kind: str
    cron: str
    timezone: str
    missed: MissedTicks
    queue: str
    payload: dict[str, Any]
    priority: int
    tenant: str | None
    key: str | None
    max_attempts: int | None
    tags: list[str]
    is_paused: bool
    next_at: datetime
    """When its next tick is due."""
    last_at: datetime | None
    """When it last enqueued a job, by a tick or manually."""
    last_job_id: str | None
    """The id of the last job that it enqueued."""
    source: ScheduleSource


class ScheduleRow(NamedTuple):
    """A schedule as every statement returns it, in this order of columns."""

    name: str
    kind: str
    queue: str
    rank: int
    tenant: str | None
    key: str | None
    key_hold: int | None
    payload: str
    max_attempts: int | None
    tags: str | None
    meta: str | None
    policy: str | None
    cron: str
    timezone: str
    missed: str
    source: str
    is_paused: bool
    next_at: int
    last_at: int | None
    last_job_id: str | None


def schedule_of(row: ScheduleRow) -> Schedule:
    """Return the user's view of a row."""
    return Schedule(
        name=row.name,
        kind=row.kind,
        cron=row.cron,
        timezone=row.timezone,
        missed=_read_missed(row.missed),
        queue=row.queue,
        payload=_read_object(row.payload),
        priority=-row.rank,
        tenant=row.tenant,
        key=row.key,
        max_attempts=row.max_attempts,
        tags=_read_tags(row.tags),
        is_paused=bool(row.is_paused),
        next_at=from_us(row.next_at),
        last_at=maybe_from_us(row.last_at),
        last_job_id=row.last_job_id,
        source=ScheduleSource(row.source),
    )


def read_meta(text: str | None) -> dict[str, Any]:
    """Decode the context that a schedule gives to its jobs."""
    return {} if text is None else _read_object(text)


# A damaged value must hide neither its schedule nor the others.


def _read_object(text: str) -> dict[str, Any]:
    value = _decoded(text)
    return value if isinstance(value, dict) else {"(unreadable)": text}


def _read_tags(text: str | None) -> list[str]:
    value = None if text is None else _decoded(text)
    return [str(tag) for tag in value] if isinstance(value, list) else []


def _read_missed(text: str) -> MissedTicks:
    return MissedTicks(text) if text in set(MissedTicks) else MissedTicks.SKIP


def _decoded(text: str) -> Any:
    try:
        return codec.decode(text)
    except (ValueError, msgspec.MsgspecError):
        return None


class Fired(msgspec.Struct, frozen=True):
    """The result of firing due schedules."""

    job_ids: list[str]
    """The ids of the new jobs."""
    wait_seconds: float | None
    """The time until the next tick is due, None if there is none."""
    unreadable: list[str]
    """The schedules with an expression or a time zone unknown to this installation."""
    numbers: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter[tuple[str, str]])
    """The number of new jobs per queue and kind."""


def missed_ticks(value: str) -> MissedTicks:
    """Check the option `missed`."""
    try:
        return MissedTicks(value)
    except ValueError:
        raise OptionInvalid("missed", f"must be 'skip', 'once' or 'all', not {value!r}") from None


def due_ticks(cron: Cron, missed: MissedTicks, *, next_at: int, now: int) -> list[int]:
    """Return the ticks from `next_at` to `now` that should fire, oldest first."""
    match missed:
        case MissedTicks.SKIP:
            late = int(config.SCHEDULE_LATE_SECONDS * config.SECOND_US)
            return cron.latest(since=max(next_at, now - late), until=now, limit=1)
        case MissedTicks.ONCE:
            return cron.latest(since=next_at, until=now, limit=1)
        case MissedTicks.ALL:
            return cron.latest(since=next_at, until=now, limit=config.SCHEDULE_MISSED_MAX)
        case _:
            assert_never(missed)
