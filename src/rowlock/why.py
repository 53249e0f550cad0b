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
    WAITS_FOR_JOBS = "waits_for_jobs"
    """It waits for other jobs of its workflow. See `parents`, `unmet` and `jobs`."""
    STUCK = "stuck"
    """It waits for a job that is dead or cancelled: retry or delete that. See `waits_for`."""
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
    LIMIT_UNKNOWN = "limit_unknown"
    """No worker has declared its limit in this database yet. See `limit`."""
    LIMIT_CLOSED = "limit_closed"
    """Its limit, or its key there, is paused. See `until` and `reason`."""
    LIMIT_ORDER = "limit_order"
    """Its limit has an order, and another job comes first. See `waits_for`."""
    LIMIT_FULL = "limit_full"
    """As many jobs run as its limit allows. See `running`, `allowed`, `since` and `ahead`."""
    LIMIT_RATE = "limit_rate"
    """The rate of its limit allows the next start later. See `until` and `ahead`."""
    LIMIT_TURN = "limit_turn"
    """Other keys of its limit may have their turn first. See `keys` and `ahead`."""
    BEHIND = "behind"
    """Other jobs come first, by priority or time. See `ahead`, and `since` when it is ready."""
    FULL = "full"
    """It is next, but all slots that could run it are taken. See `slots`, `workers`, `since`."""
    NEXT = "next"
    """It is next, and about to start. See `since`."""


class WaitedFor(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another waits for."""

    id: str
    kind: str
    state: JobState


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
    """When it ended, started or became ready. If its limit is full: the start of the longest run
    there."""
    until: datetime | None = None
    """When its lease expires unless it is extended, when it is due, or when its limit opens."""
    error: str | None = None
    nearest: list[str] = msgspec.field(default_factory=list[str])
    """If no worker serves its kind or queue: the most similar names that are served."""
    ahead: Count | None = None
    """Number of jobs that come first, exact up to 10,000."""
    slots: int | None = None
    """If all slots that could run it are taken: their number."""
    workers: int | None = None
    """Number of live workers that have these slots."""
    limit: str | None = None
    """The limit at which it waits. None if it has none, or if another reason comes first."""
    limit_key: str | None = None
    """Its key there, if the limit as a whole is not the reason."""
    running: int | None = None
    """If its limit is full: the number of jobs that run."""
    allowed: int | None = None
    """If its limit is full: the number of jobs that may run."""
    keys: Count | None = None
    """Number of other keys of its limit with waiting jobs, exact up to 1,000."""
    reason: str | None = None
    """If its limit is paused: the reason that was given."""
    waits_for: str | None = None
    """If its limit has an order: the id of the job that comes first. If it is stuck: the id of the
    job that must be retried or deleted."""
    parents: Count | None = None
    """If it waits for jobs: how many there are, exact up to 10,000."""
    unmet: Count | None = None
    """Of these, the number of those that have not ended as it wants."""
    jobs: list[WaitedFor] = msgspec.field(default_factory=list[WaitedFor])
    """Some of those, dead ones first."""

    def __str__(self) -> str:
        return self.text
