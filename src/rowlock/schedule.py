"""Schedules: what is enqueued again and again, when, and what becomes of ticks that were missed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us, maybe_from_us
from rowlock.cron import Cron
from rowlock.errors import OptionInvalid


class MissedTicks(StrEnum):
    """What to do with ticks that nobody was there to fire."""

    SKIP = "skip"
    """Forget those that are more than five minutes old."""
    ONCE = "once"
    """Run one job for all of them."""
    ALL = "all"
    """Run one for each of the last 100."""


class ScheduleSource(StrEnum):
    """Who wrote a schedule: the code of a task, or a call."""

    CODE = "code"
    """A task's `cron`."""
    USER = "user"
    """`app.schedule`."""


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
    """When it last enqueued a job, whether by a tick or by hand."""
    last_job_id: str | None
    """That job's id."""
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
    """The user's view of a row."""
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
    """The context that a schedule gives to its jobs."""
    return {} if text is None else _read_object(text)


# What is stored may be damaged; that must not hide a schedule, nor the others.


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


@dataclass(frozen=True, slots=True)
class Fired:
    """What a look at the schedules did."""

    job_ids: list[str]
    """The ids of new jobs."""
    wait_seconds: float | None
    """The time until the next tick is due, None if there is none."""
    unreadable: list[str]
    """The schedules whose expression or time zone this installation does not know."""
    numbers: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How many of the new jobs are of which queue and kind."""


def missed_ticks(value: str) -> MissedTicks:
    """Check the option `missed`."""
    try:
        return MissedTicks(value)
    except ValueError:
        raise OptionInvalid("missed", f"must be 'skip', 'once' or 'all', not {value!r}") from None


def due_ticks(cron: Cron, missed: MissedTicks, *, next_at: int, now: int) -> list[int]:
    """The ticks to fire of those from `next_at` to `now`, oldest first."""
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
