"""Events in the database: workers write them when they settle, and servers read them.

A row that is committed late has an id below others that were already read. So the last rows are
read again, and the reader remembers which ones it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.events import Event
from rowlock.ids import id_at, parse_id
from rowlock.job import Job, LogLine
from rowlock.store.ops.look import get
from rowlock.store.steps import Op, Statement, Steps, reading, writing

_KEPT: Final = {"kept": int(config.EVENTS_KEEP_SECONDS) * config.SECOND_US}
_NEW_MS: Final = int(config.EVENTS_NEW_SECONDS * 1_000)
# Producers' clocks may be ahead of the database's.
_AHEAD_MS: Final = 60_000
_decode = msgspec.json.Decoder(list[Event]).decode


class EventRow(msgspec.Struct, frozen=True):
    """The events that one process wrote at one time."""

    id: int
    at: int
    events: list[Event]


class NewestJob(msgspec.Struct, frozen=True):
    """A job that was enqueued a moment ago."""

    id: str
    queue: str
    kind: str
    tenant: str | None
    at: int


def write_events(events: Sequence[Event]) -> Op[None]:
    """Write events. Not repeated if the answer is lost: a missing event is better than a double."""
    text = msgspec.json.encode(events).decode()

    def steps() -> Steps[None]:
        yield Statement("event_write", {"events": text})

    return writing("write_events", steps)


def last_event() -> Op[int]:
    """The number of the last row, or 0 if there is none."""

    def steps() -> Steps[int]:
        last: int = (yield Statement("event_last"))[0][1]
        return last

    return reading("last_event", steps)


def read_events(after: int) -> Op[list[EventRow]]:
    """The events after a row, in order, limited to one batch of rows."""

    def steps() -> Steps[list[EventRow]]:
        values = {"after": after, "limit": config.EVENTS_ROWS_MAX}
        rows = yield Statement("event_read", values)
        return [EventRow(id, at, _decode(text)) for id, at, text in rows]

    return reading("read_events", steps)


def newest_jobs() -> Op[list[NewestJob]]:
    """The jobs of the last seconds, by their ids, limited to one batch."""

    def steps() -> Steps[list[NewestJob]]:
        now = (yield Statement("event_last"))[0][0] // 1_000
        values = {
            "low": id_at(now - _NEW_MS),
            "high": id_at(now + _AHEAD_MS),
            "limit": config.EVENTS_NEW_MAX,
        }
        rows = yield Statement("newest_jobs", values)
        return [NewestJob(*row) for row in rows]

    return reading("newest_jobs", steps)


def prune_events() -> Op[None]:
    """Remove events whose retention is over."""

    def steps() -> Steps[None]:
        yield Statement("event_prune", _KEPT)

    return writing("prune_events", steps, repeat=steps)


class Watched(msgspec.Struct, frozen=True):
    """The current state of a job, and the log lines that are new to its watcher."""

    job: Job
    lines: list[LogLine]


def watch_job(id: str, *, first_line: int, tenant: str | None = None) -> Op[Watched | None]:
    """A job and its log from a line on. None if it does not exist or is another tenant's."""
    job_id = parse_id(id)
    values = {"id": job_id, "first": first_line, "limit": config.LOG_LINES_MAX}

    def steps() -> Steps[Watched | None]:
        job = yield from get(job_id, tenant=tenant).start()
        if job is None:
            return None
        lines = yield Statement("log_after", values)
        return Watched(job, [LogLine(from_us(at), text) for _, at, text in lines])

    return reading("watch_job", steps)
