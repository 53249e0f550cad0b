"""Events of jobs, as listeners get them: single events, and sums of many. Pure.

1. A box holds the events of one process until they are next written: a bounded number of single
   events, then counts for a bounded number of names, then one count for all other names.
2. Sums have a tenant, so that the listeners of a tenant get their own. Only the sums of names that
   did not fit have none, and only listeners to all tenants get them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

import msgspec

from rowlock import config
from rowlock.tally import OTHER, Ended
from rowlock.workflow_rules import WorkflowState


class EventType(StrEnum):
    """The type of an event: of a run or a job or, for a watched job, of its state or progress."""

    ENQUEUED = "enqueued"
    """A job was enqueued."""
    SUCCEEDED = "succeeded"
    """A run succeeded."""
    RETRYING = "retrying"
    """A run failed, and its job waits for the next attempt."""
    DEAD = "dead"
    """A run failed, and its job is dead."""
    CANCELLED = "cancelled"
    """A run ended because its job was cancelled."""
    RELEASED = "released"
    """A run gave its job back without using an attempt."""
    LOST = "lost"
    """A worker found that another worker has its job."""
    WAITING = "waiting"
    """With `job`: it waits for other jobs of its workflow."""
    SCHEDULED = "scheduled"
    """With `job`: it is scheduled for later."""
    READY = "ready"
    """With `job`: it can be claimed now."""
    RUNNING = "running"
    """With `job`: a worker has it."""
    PROGRESS = "progress"
    """With `job`: it reported `progress`."""
    LOG = "log"
    """With `job`: its handler logged `line`."""
    GONE = "gone"
    """With `job`: it was deleted, or its retention has expired. The stream ends."""
    WORKFLOW = "workflow"
    """Nothing of a workflow runs any more, or can run without help: see `workflow`."""
    LIMIT = "limit"
    """A limit or one of its keys was set, unset, paused or resumed: see `change`."""
    DROPPED = "dropped"
    """This listener reads too slowly, and lost `count` events."""


class WorkflowStop(msgspec.Struct, frozen=True, array_like=True):
    """A workflow that has stopped, and how. Stored in this form."""

    id: str
    name: str
    state: WorkflowState


class LimitChange(msgspec.Struct, frozen=True, array_like=True):
    """What was changed in a limit, or in one of its keys. Stored in this form."""

    name: str
    change: Literal["set", "unset", "paused", "resumed"]
    key: str | None = None
    reason: str | None = None


class Event(msgspec.Struct, frozen=True, array_like=True):
    """One event or, if it has no `job_id`, workflow or limit, the number of such events.

    Stored in this form.
    """

    type: EventType
    queue: str
    kind: str
    tenant: str | None = None
    job_id: str | None = None
    attempt: int | None = None
    seconds: float | None = None
    error: str | None = None
    count: int = 1
    workflow: WorkflowStop | None = None
    limit: LimitChange | None = None


def stop_of(workflow: WorkflowStop, tenant: str | None) -> Event:
    """Return the event of a workflow that has stopped."""
    return Event(EventType.WORKFLOW, "", "", tenant, workflow=workflow)


def change_of(limit: LimitChange) -> Event:
    """Return the event of a limit that was changed."""
    return Event(EventType.LIMIT, "", "", limit=limit)


# A queue, a kind and a tenant.
EventName = tuple[str, str, str | None]
_REST: Final[EventName] = (OTHER, OTHER, None)


def event_of(run: Ended) -> Event:
    """Return the event of a run that has ended."""
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
    """The unwritten events of a process, bounded."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._sums: dict[tuple[EventType, EventName], int] = {}

    def __bool__(self) -> bool:
        return bool(self._events or self._sums)

    @property
    def room(self) -> int:
        """The number of single events that still fit."""
        return config.EVENTS_SINGLE_MAX - len(self._events)

    def put(self, event: Event) -> None:
        """Add an event, as a single one if there is room."""
        if self.room > 0:
            self._events.append(event)
        else:
            self.add(event.type, {(event.queue, event.kind, event.tenant): event.count})

    def add(self, type: EventType, counts: Mapping[EventName, int]) -> None:
        """Add counts of events."""
        for name, number in counts.items():
            key = type, name
            if key not in self._sums and len(self._sums) >= config.EVENTS_SINGLE_MAX:
                key = type, _REST
            self._sums[key] = self._sums.get(key, 0) + number

    def take(self) -> list[Event]:
        """Return all events, and empty the box."""
        events = self._events
        events += [
            Event(type, queue, kind, tenant, count=number)
            for (type, (queue, kind, tenant)), number in self._sums.items()
        ]
        self._events, self._sums = [], {}
        return events
