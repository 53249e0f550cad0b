"""The reasons why a job is not running, as users get them. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from rowlock.job import Count, JobState


class WhyCode(StrEnum):
    """The reason why a job is not running."""

    FINISHED = "finished"
    """It has ended. See `state`, `since` and its last `error`."""
    RUNNING = "running"
    """A worker holds it. See `worker`, `since`, and `until`, when its lease expires."""
    PAUSED = "paused"
    """Its queue is paused. See `queue`."""
    NOT_DUE = "not_due"
    """It is not due yet. See `until`."""
    BACKOFF = "backoff"
    """It failed and waits for its next attempt. See `until` and `error`."""
    NO_WORKER = "no_worker"
    """No worker has announced itself within the last minute."""
    UNKNOWN_KIND = "unknown_kind"
    """No worker knows its kind. `nearest` has known kinds with similar names."""
    UNSERVED_QUEUE = "unserved_queue"
    """No worker that knows its kind serves its queue. `nearest` has served queues."""
    BEHIND = "behind"
    """Other jobs come first, by priority or time. See `ahead`, and `since` when it is ready."""
    FULL = "full"
    """It is next, but all slots that could run it are taken. See `slots`, `workers`, `since`."""
    NEXT = "next"
    """It is next, and about to start. See `since`."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running: a `code` to match on, a `text` to read, and the details.

    All fields are always present. Those that do not apply to a code are None or empty.
    """

    id: str
    state: JobState
    code: WhyCode
    """The reason, stable and safe to match on."""
    text: str
    """The reason in words. The wording may change."""
    kind: str
    queue: str
    worker: str | None = None
    since: datetime | None = None
    """When it ended, started or became ready."""
    until: datetime | None = None
    """When its lease expires unless it is extended, or when it is due."""
    error: str | None = None
    nearest: list[str] = msgspec.field(default_factory=list[str])
    """If no worker serves its kind or queue: the most similar names that are served."""
    ahead: Count | None = None
    """Number of jobs that come first, exact up to 10,000."""
    slots: int | None = None
    """If all slots that could run it are taken: their number."""
    workers: int | None = None
    """Number of live workers that have these slots."""

    def __str__(self) -> str:
        return self.text
