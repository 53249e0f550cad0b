"""Why a job is not running, as users are told it. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from rowlock.job import Count, JobState


class WhyCode(StrEnum):
    """What a job waits for."""

    FINISHED = "finished"
    """Nothing: it has ended. `state`; `since`; `error`, its last one."""
    RUNNING = "running"
    """Nothing: a worker holds it. `worker`; `since`; `until`, when its lease ends."""
    PAUSED = "paused"
    """Its queue is paused. `queue`."""
    NOT_DUE = "not_due"
    """Its time has not come. `until`."""
    BACKOFF = "backoff"
    """It failed and waits for its next attempt. `until`; `error`."""
    NO_WORKER = "no_worker"
    """No worker was heard of within the last minute."""
    UNKNOWN_KIND = "unknown_kind"
    """None of them knows its kind. `nearest`: the kinds they know whose names are most like it."""
    UNSERVED_QUEUE = "unserved_queue"
    """None that knows its kind serves its queue. `nearest`: such queues."""
    BEHIND = "behind"
    """Others come first: of a higher priority, or earlier. `ahead`; `since`, when it was ready."""
    FULL = "full"
    """It is next, and all slots that could take it are taken. `slots`; `workers`; `since`."""
    NEXT = "next"
    """Nothing: it is next. `since`."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What a job waits for: `code` to match on, `text` to read, and what they are about.

    All fields are always there; those that say nothing for a code are None or empty.
    """

    id: str
    state: JobState
    code: WhyCode
    """To match on."""
    text: str
    """To be read by people; it may change."""
    kind: str
    queue: str
    worker: str | None = None
    since: datetime | None = None
    """When it ended, was started or became ready."""
    until: datetime | None = None
    """When its lease ends unless it is extended, or when it is due."""
    error: str | None = None
    nearest: list[str] = msgspec.field(default_factory=list[str])
    """Of a kind or queue that nobody serves: the names most like it that somebody does."""
    ahead: Count | None = None
    """How many jobs come first, exact to 10,000."""
    slots: int | None = None
    """If all slots that could take it are taken: how many there are."""
    workers: int | None = None
    """The number of live workers that have these slots."""

    def __str__(self) -> str:
        return self.text
