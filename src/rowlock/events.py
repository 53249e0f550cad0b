"""What happened to jobs, as it is told to whoever listens: single events, and sums of many. Pure.

1. A box holds what one process has to tell until it is next written: so many single events, then
   counts by name, so many of those, then counts of all others together.
2. Sums are told apart by tenant, so that a tenant's listeners hear of their own; only those of more
   names than fit have none, and are for those who hear of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from rowlock import config
from rowlock.tally import OTHER, Ended


class EventType(StrEnum):
    """What happened: to a run or a job, or, of a job that is watched, its state or its notes."""

    ENQUEUED = "enqueued"
    """A job is there."""
    SUCCEEDED = "succeeded"
    """A run ended well."""
    RETRYING = "retrying"
    """A run failed, and its job waits for the next attempt."""
    DEAD = "dead"
    """A run failed, and its job was given up."""
    CANCELLED = "cancelled"
    """A run ended because that was asked for."""
    RELEASED = "released"
    """A run gave its job back, uncounted."""
    LOST = "lost"
    """A worker found that another has its job."""
    SCHEDULED = "scheduled"
    """With `job`: the state that it is in now, as are `ready`, `running` and the states above."""
    READY = "ready"
    """With `job`: it may be claimed now."""
    RUNNING = "running"
    """With `job`: a worker has it."""
    PROGRESS = "progress"
    """With `job`: how far it says it is, in `progress`."""
    LOG = "log"
    """With `job`: a line that its handler logged, in `line`."""
    GONE = "gone"
    """With `job`: it was deleted, or its time was over. The stream ends."""
    DROPPED = "dropped"
    """This listener reads too slowly: `count` events of the last ones were left out."""


class Event(msgspec.Struct, frozen=True, array_like=True):
    """One thing that happened, or (`job_id` None) how often it did; stored as it is."""

    type: EventType
    queue: str
    kind: str
    tenant: str | None = None
    job_id: str | None = None
    attempt: int | None = None
    seconds: float | None = None
    error: str | None = None
    count: int = 1


# A queue, a kind and a tenant.
EventName = tuple[str, str, str | None]
_REST: Final[EventName] = (OTHER, OTHER, None)


def event_of(run: Ended) -> Event:
    """A run that has ended."""
    return Event(
        EventType(run.end.value),
        run.queue,
        run.kind,
        run.tenant,
        run.id,
        run.attempt,
        None if run.run_us is None else run.run_us / config.SECOND_US,
        run.error,
    )


class EventBox:
    """What a process has to tell, bounded."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._sums: dict[tuple[EventType, EventName], int] = {}

    def __bool__(self) -> bool:
        return bool(self._events or self._sums)

    @property
    def room(self) -> int:
        """For how many single events there is room."""
        return config.EVENTS_SINGLE_MAX - len(self._events)

    def put(self, event: Event) -> None:
        """Tell of one thing, by itself if there is room."""
        if self.room > 0:
            self._events.append(event)
        else:
            self.add(event.type, {(event.queue, event.kind, event.tenant): event.count})

    def add(self, type: EventType, counts: Mapping[EventName, int]) -> None:
        """Tell how often something happened."""
        for name, number in counts.items():
            key = type, name
            if key not in self._sums and len(self._sums) >= config.EVENTS_SINGLE_MAX:
                key = type, _REST
            self._sums[key] = self._sums.get(key, 0) + number

    def take(self) -> list[Event]:
        """All there is to tell; the box is empty then."""
        events = self._events
        events += [
            Event(type, queue, kind, tenant, count=number)
            for (type, (queue, kind, tenant)), number in self._sums.items()
        ]
        self._events, self._sums = [], {}
        return events
