"""The job and related records that the store, the workers and the user exchange."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us, maybe_from_us
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid, shown
from rowlock.ids import parse_id

T = TypeVar("T")

# The beginning of a stored error. Inside its texts, quotes are escaped.
_ERROR_BEGINS: Final = '{"attempt":'


class JobState(StrEnum):
    """The state of a job. `scheduled`, `ready` and `retrying` differ only by time and attempt."""

    WAITING = "waiting"
    """It waits for other jobs of its workflow."""
    SCHEDULED = "scheduled"
    """`run_at` is in the future, and no attempt has been counted."""
    READY = "ready"
    """It can be claimed now, or as soon as its limit allows it."""
    RUNNING = "running"
    """Claimed under a lease by one worker."""
    RETRYING = "retrying"
    """An attempt failed. It waits for `run_at`."""
    SUCCEEDED = "succeeded"
    """Its handler returned."""
    DEAD = "dead"
    """Given up: attempts used up, failed permanently, or poison."""
    CANCELLED = "cancelled"
    """Cancelled on request, superseded by a newer job with its key, or because of a job for which
    it waited."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended, and stays so unless it is retried."""
        return self in TERMINAL_STATES


TERMINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED})
# Nobody runs it, and it will run at its time, or when its limit allows it.
QUEUED_STATES = frozenset({JobState.SCHEDULED, JobState.READY, JobState.RETRYING})
KEY_HELD_WHILE_KEPT = -1
KEY_HELD_UNTIL_STARTED = -2
# The values of the column in both stores.
_TOKEN_MAX: Final = 2**63 - 1


class JobError(msgspec.Struct, frozen=True, rename={"time_us": "at"}):
    """One failed or lost attempt."""

    attempt: int
    time_us: int
    type: str
    message: str
    traceback: str = ""

    @property
    def time(self) -> datetime:
        """When it failed."""
        return from_us(self.time_us)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The progress that a running job reported."""

    fraction: float
    """From 0 to 1."""
    text: str = ""


class Policy(msgspec.Struct, frozen=True):
    """What to do with a job when it ends or fails. Stored on the job, so any worker can apply it.

    Times are in microseconds. `keep` None means forever. `retry` is the stored form of a policy of
    `rowlock.retry`, None is the default one. `is_partial` is true if the job was enqueued where its
    kind was unknown and only `keep` was chosen. The first worker that knows the kind sets the rest.
    A job does not run any more `expires` after its creation, nor from the time `expires_at` on.
    """

    timeout: int | None = None
    retry: list[Any] | None = None
    keep: int | None = int(config.KEEP_SECONDS_DEFAULT) * config.SECOND_US
    keep_dead: int | None = int(config.KEEP_DEAD_SECONDS_DEFAULT) * config.SECOND_US
    max_crashes: int = config.MAX_CRASHES_DEFAULT
    is_partial: bool = False
    expires: int | None = None
    expires_at: int | None = None

    def encoded(self) -> str:
        """Return the stored form: only what differs from the defaults."""
        # msgspec itself leaves out a value that is the default object, not one that equals it.
        changed = {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if value != getattr(DEFAULT_POLICY, name)
        }
        return msgspec.json.encode(changed).decode()

    def keep_for(self, state: JobState) -> int | None:
        """Return how long to keep a job that ended in `state`."""
        return self.keep_dead if state is JobState.DEAD else self.keep


DEFAULT_POLICY = Policy()
_decode_policy = msgspec.json.Decoder(Policy).decode
_decode_errors = msgspec.json.Decoder(list[JobError]).decode
_decode_progress = msgspec.json.Decoder(Progress).decode
_decode_tags = msgspec.json.Decoder(list[str]).decode


# Jobs of a task all have the same text. The cache has room for jobs with options of their own.
@functools.lru_cache(maxsize=1024)
def decode_policy(text: str | None) -> Policy:
    """Return the policy of a job, or the default if it has none yet or a damaged one."""
    if text is None or text == "{}":
        return DEFAULT_POLICY
    return _read(_decode_policy, text, damaged=DEFAULT_POLICY)


def resolve_policy(own: str | None, known: str) -> str | None:
    """Complete a job's policy by the one known for its kind. None if it stays unchanged."""
    policy = decode_policy(own)
    if own is None:
        return known
    if not policy.is_partial:
        return None
    return msgspec.structs.replace(decode_policy(known), keep=policy.keep).encoded()


def decode_errors(text: str | None) -> list[JobError]:
    """Return the errors kept on a job, oldest first. Damaged ones are shown as one."""
    if text is None:
        return []
    shown = JobError(0, 0, "Unreadable", codec.clean_text(text, bytes_max=1024))
    return _read(_decode_errors, text, damaged=[shown])


def _read(decode: Callable[[str], T], text: str, *, damaged: T) -> T:
    """Decode a stored text. If damaged, the job must still be listed, run and settled."""
    try:
        return decode(text)
    except (ValueError, msgspec.MsgspecError):
        return damaged


def encode_errors(errors: Sequence[JobError]) -> str:
    """Return the stored form of a job's errors: the last ones only."""
    return msgspec.json.encode(errors[-config.ERRORS_KEPT :]).decode()


def state_of(row: JobRow, *, now: int) -> JobState:
    """Return the state that users see: for a live row, from its lease, time and attempt."""
    if row.state is not None:
        return JobState(row.state)
    if row.lease_expires_at is not None:
        return JobState.RUNNING
    if row.pending:
        return JobState.WAITING
    if row.run_at <= now:
        return JobState.READY
    return JobState.SCHEDULED if row.attempt == 0 else JobState.RETRYING


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was when it was read. Times are aware UTC, durations seconds."""

    id: str
    kind: str
    payload: dict[str, Any]
    queue: str
    state: JobState
    priority: int = 0
    tenant: str | None = None
    key: str | None = None
    attempt: int = 0
    """0 before the first claim, 1 during the first run."""
    max_attempts: int = config.MAX_ATTEMPTS_DEFAULT
    run_at: datetime
    """It does not run before this time."""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    lease_expires_at: datetime | None = None
    """When its worker loses it unless the lease is extended. None if no worker runs it."""
    worker: str | None = None
    token: int = 0
    """Identifies the last run. It increases with every claim."""
    crashes: int = 0
    """How often its process crashed while it ran in isolation."""
    cancel_requested: bool = False
    """Whether its cancellation was requested."""
    errors: list[JobError] = msgspec.field(default_factory=list[JobError])
    """The last 20 errors of its attempts."""
    result: Any = None
    """The value that its handler returned."""
    progress: Progress | None = None
    tags: list[str] = msgspec.field(default_factory=list[str])
    meta: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    timeout: float | None = None
    """A run that takes longer fails."""
    retry: list[Any] | None = None
    """The stored retry policy, its name and numbers. None is the default policy."""
    keep: float | None = config.KEEP_SECONDS_DEFAULT
    """How long it is kept after it succeeded or was cancelled. None means forever."""
    keep_dead: float | None = config.KEEP_DEAD_SECONDS_DEFAULT
    """How long it is kept after it died. None means forever."""
    max_crashes: int = config.MAX_CRASHES_DEFAULT
    limit: str | None = None
    """The limit under which it runs."""
    limit_key: str | None = None
    """Its key there. Empty if the limit has no keys."""
    workflow: str | None = None
    """The id of the workflow that it belongs to."""
    waits_for: int = 0
    """How many jobs it still waits for."""
    stack: str | None = None
    """Which jobs of its workflow are like it: the id of a `WorkflowStack`."""
    payload_preview: str = ""
    """The beginning of its payload, as JSON text that may be cut anywhere."""
    created: bool = False
    """False if an enqueue returned a job that already existed."""

    # Short, because a shell shows it after every call, and without what may be secret.
    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(id={self.id!r}, kind={self.kind!r}, state={self.state.value!r})"

    @property
    def last_error(self) -> str | None:
        """The latest error as one line, `Type: message`."""
        return str(self.errors[-1]) if self.errors else None


class ListedJob(Job, frozen=True, kw_only=True):
    """A job on a page, without its large fields.

    Its `payload`, `result`, `meta` and `errors` were not read. Reading them raises an error,
    because an empty value would look like the job's own. `last_error` and `payload_preview` are
    available.
    """

    LEFT_OUT: ClassVar = frozenset({"payload", "result", "meta", "errors"})

    last_error_line: str | None = None

    @property
    def last_error(self) -> str | None:
        """The latest error as one line, `Type: message`."""
        return self.last_error_line

    @property  # type: ignore[misc]  # hides the field, which was not read
    def payload(self) -> dict[str, Any]:
        raise _left_out("payload")

    @property  # type: ignore[misc]  # hides the field, which was not read
    def result(self) -> Any:
        raise _left_out("result")

    @property  # type: ignore[misc]  # hides the field, which was not read
    def meta(self) -> dict[str, Any]:
        raise _left_out("meta")

    @property  # type: ignore[misc]  # hides the field, which was not read
    def errors(self) -> list[JobError]:
        raise _left_out("errors")


def _left_out(field: str) -> AttributeError:
    return AttributeError(
        f"{field}: list() leaves out payload, result, meta and errors; call list(..., full=True), "
        "or get(job.id) for one job"
    )


def listed_job_of(row: JobRow, *, now: int) -> ListedJob:
    """Return the user's view of a row of which only the last error was read."""
    last = last_error_of(row)
    shown = job_of(row._replace(payload="{}", errors=None), now=now)
    fields = {**msgspec.structs.asdict(shown), "payload_preview": row.payload}
    line = None if last is None else str(last)
    return ListedJob(**fields, last_error_line=line)


def last_error_of(row: JobRow) -> JobError | None:
    """Return the last error of such a row."""
    errors = row.errors and row.errors[max(0, row.errors.rfind(_ERROR_BEGINS)) :]
    found = decode_errors(errors and f"[{errors.lstrip('[')}")
    return found[-1] if found else None


def _payload_of(text: str) -> dict[str, Any]:
    """Decode a stored payload. A damaged one is shown under a name of its own."""
    payload: Any = _read(codec.decode, text, damaged=None)
    return payload if isinstance(payload, dict) else {"(unreadable payload)": text}


def job_of(row: JobRow, *, now: int, created: bool = False) -> Job:
    """Return the user's view of a row."""
    policy = decode_policy(row.policy)
    return Job(
        id=row.id,
        kind=row.kind,
        payload=_payload_of(row.payload),
        queue=row.queue,
        state=state_of(row, now=now),
        priority=-row.rank,
        tenant=row.tenant,
        key=row.key,
        attempt=row.attempt,
        max_attempts=row.max_attempts or config.MAX_ATTEMPTS_DEFAULT,
        # A job that waits for others has no time of its own, unless one was given.
        run_at=from_us(row.created_at if row.run_at <= 0 else row.run_at),
        created_at=from_us(row.created_at),
        started_at=maybe_from_us(row.started_at),
        finished_at=maybe_from_us(row.finished_at),
        lease_expires_at=maybe_from_us(row.lease_expires_at),
        worker=row.worker,
        token=row.token,
        crashes=row.crashes,
        cancel_requested=bool(row.cancel_requested),
        errors=decode_errors(row.errors),
        result=_read(codec.decode, row.result, damaged=None) if row.result else None,
        progress=_read(_decode_progress, row.progress, damaged=None) if row.progress else None,
        tags=_read(_decode_tags, row.tags, damaged=[]) if row.tags else [],
        meta=_read(codec.decode, row.meta, damaged={}) if row.meta else {},
        timeout=_seconds(policy.timeout),
        # A copy: policies are shared.
        retry=None if policy.retry is None else [*policy.retry],
        keep=_seconds(policy.keep),
        keep_dead=_seconds(policy.keep_dead),
        max_crashes=policy.max_crashes,
        limit=row.limit_name,
        limit_key=row.limit_key,
        workflow=row.workflow,
        waits_for=row.pending or 0,
        stack=None if row.stack is None else str(row.stack),
        payload_preview=row.payload[: config.PAYLOAD_PREVIEW_CHARACTERS],
        created=created,
    )


def expiry_of(row: JobRow) -> str | None:
    """Return why a claimed job must not run any more, because it has expired. None if it may."""
    policy = decode_policy(row.policy)
    assert row.started_at is not None
    ends = [] if policy.expires_at is None else [policy.expires_at]
    if policy.expires is not None:
        ends.append(row.created_at + policy.expires)
    end = min(ends, default=None)
    if end is None or row.started_at < end:
        return None
    return f"it expired at {from_us(end):%Y-%m-%d %H:%M:%S} UTC, before this run"


def timeout_of(row: JobRow) -> float | None:
    """Return a job's timeout in seconds."""
    return _seconds(decode_policy(row.policy).timeout)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / config.SECOND_US


class ClaimNote:
    """One row of the table `claim`, and which leases may still be found by it alone.

    Whoever settles the last of them removes the row. `open` are the ids of jobs whose end is not
    known to be committed: a row that is removed while one of them runs would hide its lease from
    recovery. A row that nobody removes is removed by a sweep.
    """

    __slots__ = ("id", "open")

    def __init__(self, id: str, open: set[str]) -> None:
        self.id: str = id
        self.open: set[str] = open


class Lease:
    """The right to run a job: its id and a token that no other run of it has had.

    A lease from a claim carries its job. One that you make from an id and a token has no job, but
    can settle and heartbeat like any other.
    """

    __slots__ = ("_job", "_now", "claim", "id", "row", "token", "worker")

    id: str
    """The job's id."""
    token: int
    """Identifies this run. It increases with every claim."""
    worker: str
    """The worker that holds it."""

    def __init__(self, *, id: str, token: int, worker: str = "") -> None:
        self.id = parse_id(id)
        is_number = isinstance(token, int) and not isinstance(token, bool)
        if not is_number or not 0 <= token <= _TOKEN_MAX:
            problem = f"must be a whole number from 0 to {_TOKEN_MAX}, not {shown(token)}"
            raise OptionInvalid("token", problem)
        self.token = token
        self.worker = worker
        self.row: JobRow | None = None
        self.claim: ClaimNote | None = None
        self._now = 0
        self._job: Job | None = None

    @classmethod
    def of_row(cls, row: JobRow, *, now: int, claim: ClaimNote | None = None) -> Lease:
        lease = cls.__new__(cls)  # Stored values need no check.
        lease.id, lease.token, lease.worker = row.id, row.token, row.worker or ""
        lease.row, lease.claim, lease._now, lease._job = row, claim, now, None
        return lease

    @property
    def job(self) -> Job:
        """The job as it was claimed. Decoded on first access, because not every run needs it."""
        if self._job is None:
            if self.row is None:
                raise ValueError(
                    f"the lease of job {self.id} holds no job, because no claim returned it;"
                    " get the job by its id"
                )
            self._job = job_of(self.row, now=self._now)
        return self._job

    @property
    def expires_at(self) -> datetime | None:
        """When it expires unless it is extended. None if no claim returned it."""
        return None if self.row is None else maybe_from_us(self.row.lease_expires_at)

    def __repr__(self) -> str:
        return f"Lease(id={self.id!r}, token={self.token}, worker={self.worker!r})"


class Beat(StrEnum):
    """The result of a heartbeat for one lease."""

    KEPT = "kept"
    """The lease is extended."""
    LOST = "lost"
    """Another worker holds the job, or it has ended."""
    CANCEL_REQUESTED = "cancel_requested"
    """The lease is extended, and the job's cancellation was requested."""


class CancelOutcome(StrEnum):
    """The effect of a cancel."""

    CANCELLED = "cancelled"
    """The job was scheduled, ready or retrying, and is cancelled now."""
    PENDING_ON_WORKER = "pending_on_worker"
    """It is running. Its handler sees the request. If its worker crashes, it ends cancelled."""
    ALREADY_TERMINAL = "already_terminal"
    """It had already ended, and nothing changed. `state` says how it ended."""


class Cancellation(msgspec.Struct, frozen=True):
    """The result of a cancel: its effect, and the state of the job now."""

    outcome: CancelOutcome
    state: JobState


def bare_lease(id: str, token: int) -> Lease:
    """A lease of which only the id and the token are known, from a claim: they need no check."""
    lease = Lease.__new__(Lease)
    lease.id, lease.token, lease.worker = id, token, ""
    lease.row = lease.claim = lease._job = None
    lease._now = 0
    return lease


class Page(msgspec.Struct, frozen=True):
    """One page of a listing. You can iterate over its jobs.

    A page reads a bounded number of rows. So it may hold fewer jobs than its limit, even none, and
    still have a `next`.
    """

    jobs: list[Job]
    next: str | None = None
    """The cursor of the following page, None at the end."""

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


class BulkRetry(msgspec.Struct, frozen=True):
    """The result of retrying many jobs."""

    retried: int
    """Number of jobs moved back to ready."""
    skipped: Sequence[str]
    """The ids of the jobs that were skipped, because another job or workflow has their key."""


class BulkResult(msgspec.Struct, frozen=True):
    """The result of acting on many jobs."""

    done: int
    """Number of jobs that were acted on."""
    skipped: Sequence[str]
    """The ids of the jobs that were skipped because another job with their key is in flight."""


class Count(msgspec.Struct, frozen=True):
    """A number of jobs. Counting stops at 10,000, so an inexact count is a lower bound."""

    value: int
    exact: bool = True
    """False if there are at least this many."""


class QueueStats(msgspec.Struct, frozen=True):
    """One queue at a glance."""

    queue: str
    counts: dict[JobState, Count]
    oldest_ready_seconds: float | None
    """How long the oldest ready job has been ready. None if there is none."""
    is_paused: bool


class QueueSlots(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a worker for one queue, and how many of them are taken."""

    slots: int
    busy: int = 0


class WorkerVitals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures that a worker reports. None if it or its system does not report one."""

    slots: int | None = None
    """Number of jobs that it can run at once."""
    busy: int | None = None
    """Number of slots taken by runs that have begun."""
    ahead: int | None = None
    """Number of claimed jobs that have not begun. They wait for a slot, for a moment."""
    queue_slots: dict[str, QueueSlots] = msgspec.field(default_factory=dict[str, QueueSlots])
    """The slots of queues that have their own (`-q media:6`)."""
    memory_bytes: int | None = None
    """Its resident memory."""
    lost: int | None = None
    """Leases lost since it started."""
    limits: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The numbers of the limits that its code declares, in a few words. At most 100."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that has announced itself or holds a lease."""

    id: str
    host: str = ""
    pid: int = 0
    queues: list[str] = msgspec.field(default_factory=list[str])
    kinds: list[str] = msgspec.field(default_factory=list[str])
    started_at: datetime | None = None
    last_beat_at: datetime | None = None
    running: list[str] = msgspec.field(default_factory=list[str])
    """The ids of the jobs that it holds. `vitals` says how many of them have begun."""
    vitals: WorkerVitals = WorkerVitals()

    def is_live_at(self, now: datetime) -> bool:
        """Whether it has announced itself recently."""
        if self.started_at is None or self.last_beat_at is None:
            return False
        return (now - self.last_beat_at).total_seconds() <= config.WORKER_SILENT_SECONDS


class LogLine(msgspec.Struct, frozen=True):
    """One line that a handler wrote with `ctx.log`."""

    time: datetime
    text: str
