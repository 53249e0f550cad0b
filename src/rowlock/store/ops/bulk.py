"""Bulk: cancel, retry, move, run again or delete many jobs that match, in bounded steps.

1. A walk reads ids without locks, in one order, a bounded number of rows per step. Then it locks
   the jobs that match, in that order, and checks each again against its current row.
2. A step is one transaction, and returns where the next one begins. Jobs that were created, or
   died, after the walk began are not part of it.
3. A stored walk (`bulk`) keeps its place in the row that every step locks. Any number of servers
   may take its next step, one at a time, and no particular server is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, assert_never

import msgspec

from rowlock import codec, config
from rowlock.clock import from_us, maybe_from_us, to_us
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid
from rowlock.filters import JobFilter
from rowlock.ids import new_id, parse_id
from rowlock.job import (
    QUEUED_STATES,
    TERMINAL_STATES,
    BulkResult,
    BulkRetry,
    Count,
    JobState,
    decode_policy,
    state_of,
)
from rowlock.lifecycle import Finish
from rowlock.store import options
from rowlock.store.ops.audit import Actor
from rowlock.store.ops.manage import RUN_AGAIN_COLUMNS, is_visible_to
from rowlock.store.ops.settle import Waiting, finish_waiting
from rowlock.store.ops.waiting import forget_nodes, revive_jobs, waiting_for
from rowlock.store.steps import (
    Batch,
    Begin,
    Commit,
    Op,
    Ring,
    Row,
    Statement,
    Steps,
    reading,
    writing,
)

_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_LIVE_STATES: Final = frozenset(JobState) - TERMINAL_STATES


class BulkAction(StrEnum):
    """What to do to many jobs."""

    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    RUN_NOW = "run_now"
    RESCHEDULE = "reschedule"
    REROUTE = "reroute"
    RUN_AGAIN = "run_again"


class Source(StrEnum):
    """The rows that a walk reads: a table by id, or dead jobs by time, of all or one group."""

    LIVE = "scan_live"
    FINISHED = "scan_finished"
    DEAD = "scan_dead"
    GROUP = "scan_dead/group"


ALLOWED: Final[Mapping[BulkAction, frozenset[JobState]]] = {
    BulkAction.CANCEL: _LIVE_STATES,
    BulkAction.RETRY: frozenset({JobState.DEAD, JobState.CANCELLED}),
    BulkAction.DELETE: frozenset(JobState) - {JobState.RUNNING},
    BulkAction.RUN_NOW: frozenset({JobState.SCHEDULED, JobState.RETRYING}),
    BulkAction.RESCHEDULE: QUEUED_STATES,
    BulkAction.REROUTE: QUEUED_STATES | {JobState.WAITING},
    BulkAction.RUN_AGAIN: TERMINAL_STATES,
}
# Options of the request, and the one action that needs each.
OPTIONS: Final[Mapping[str, BulkAction]] = {
    "to": BulkAction.REROUTE,
    "run_at": BulkAction.RESCHEDULE,
}
# The others have a state that everybody means.
NEEDS_STATE: Final = frozenset(BulkAction) - {BulkAction.CANCEL, BulkAction.RETRY}


class Selection(msgspec.Struct, frozen=True):
    """Which jobs, and what to do to them. `state` None: every job that a cancel can reach.

    `to` is the queue of a reroute, `run_at` the time of a reschedule.
    """

    action: BulkAction
    state: JobState | None
    chosen: JobFilter
    to: str | None = None
    run_at: int | None = None

    @property
    def source(self) -> Source:
        if self.state is JobState.DEAD:
            return Source.DEAD if self.chosen.fingerprint is None else Source.GROUP
        return Source.FINISHED if self.state in TERMINAL_STATES else Source.LIVE

    def holds(self, job: JobRow, *, now: int) -> bool:
        """Whether a job is still in the requested state."""
        return self.state is None or state_of(job, now=now) is self.state


def selection(
    action: BulkAction,
    state: JobState | None,
    chosen: JobFilter,
    *,
    to: str | None = None,
    run_at: datetime | None = None,
) -> Selection:
    """Check what a user wants to do to many jobs. A retry without a state is of dead jobs."""
    if state is None and action is BulkAction.RETRY:
        state = JobState.DEAD
    if state is None and action in NEEDS_STATE:
        raise OptionInvalid("state", f"must be named for a {action}")
    if state is not None and state not in ALLOWED[action]:
        known = ", ".join(each for each in JobState if each in ALLOWED[action])
        raise OptionInvalid("state", f"must be one of {known} for a {action}, not {state}")
    for option, value in {"to": to, "run_at": run_at}.items():
        is_needed = OPTIONS[option] is action
        if (value is not None) != is_needed:
            problem = "is required" if is_needed else "is not used"
            raise OptionInvalid(option, f"{problem} for a {action}")
    chosen.check_state(state)
    return Selection(
        action,
        state,
        chosen,
        to=None if to is None else options.name(to, option="to"),
        run_at=None if run_at is None else to_us(run_at, option="run_at"),
    )


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a walk is: after this id (and time of failure), among the jobs older than its start."""

    until: int
    after: int = -1
    after_id: str = _FIRST_ID


class BulkStep(msgspec.Struct, frozen=True):
    """The result of one step. `next` is None at the end. `skipped` are ids whose key is in use."""

    done: int
    skipped: Sequence[str]
    next: Place | None


def bulk_step(
    wanted: Selection, place: Place | None = None, *, per_second: int | None = None
) -> Op[BulkStep]:
    """Take the next step of a walk whose place the caller keeps.

    Args:
        per_second: The rate of the walk, which bounds the step. The caller pauses in between.
    """
    fresh = FreshIds()

    def steps() -> Steps[BulkStep]:
        yield Begin()
        return (yield from step(wanted, place, fresh, limit=step_limit(per_second)))

    # Repeated from the same place: jobs that were already changed no longer match.
    return writing("bulk_step", steps, repeat=steps)


def bulk(wanted: Selection) -> Op[BulkResult]:
    """Act on all jobs that match, one transaction per step."""
    place: Place | None = None
    answer = BulkResult(0, [])
    fresh = FreshIds()

    def steps() -> Steps[BulkResult]:
        nonlocal place, answer
        while True:
            yield Begin()
            taken = yield from step(wanted, place, fresh)
            so_far = BulkResult(answer.done + taken.done, [*answer.skipped, *taken.skipped])
            if taken.next is None:
                return so_far
            yield Commit()
            place, answer = taken.next, so_far

    return writing("bulk", steps, repeat=steps)


def retry_dead(chosen: JobFilter) -> Op[BulkRetry]:
    """Take all dead jobs that match back to ready. Jobs whose key is in use again are skipped."""
    every = bulk(Selection(BulkAction.RETRY, JobState.DEAD, chosen))

    def steps() -> Steps[BulkRetry]:
        answer = yield from every.start()
        return BulkRetry(answer.done, answer.skipped)

    return writing("retry_dead", steps, repeat=steps)


class FreshIds(dict[str, str]):
    """The ids of new jobs, by those of the jobs that are run again.

    They outlast a try: if its COMMIT was not answered, the next one finds the jobs that it made.
    """

    def __missing__(self, id: str) -> str:
        self[id] = made = new_id()
        return made


def count_jobs(chosen: JobFilter, *, state: JobState | None = None) -> Op[Count]:
    """Count the jobs that match, in any state if none is given. Exact up to a bound, and marked."""
    chosen.check_state(state)
    sought = Selection(BulkAction.DELETE, state, chosen)

    def steps() -> Steps[Count]:
        counts = [(yield from count_selected(sought))]
        if state is None:
            counts.append((yield from count_selected(sought, Source.FINISHED)))
        exact = all(count.exact for count in counts)
        return Count(sum(count.value for count in counts), exact=exact)

    return reading("count_jobs", steps)


def count_selected(wanted: Selection, source: Source | None = None) -> Steps[Count]:
    """Count the jobs that match. Exact up to 10,000 in the first 50,000 rows, else "at least"."""
    place: Place | None = yield from _start()
    total = rows = 0
    while place is not None:
        seen = yield from _look(wanted, place, config.MAINTENANCE_BATCH_ROWS, source)
        total, rows, place = total + len(seen.ids), rows + config.BULK_SCAN_ROWS, seen.next
        if place is not None and (
            total >= config.COUNT_EXACT_MAX or rows >= config.LIST_SCAN_ROWS_MAX
        ):
            return Count(total, exact=False)
    return Count(total)


def step(
    wanted: Selection, place: Place | None, fresh: FreshIds, *, limit: int | None = None
) -> Steps[BulkStep]:
    """One step within the caller's transaction, of at most `limit` jobs."""
    here = place or (yield from _start())
    seen = yield from _look(wanted, here, limit or config.MAINTENANCE_BATCH_ROWS)
    if wanted.action in _COPYING:
        seen = yield from _within_bytes(seen, here)
    done, skipped = (yield from _act(wanted, seen.ids, fresh)) if seen.ids else (0, [])
    return BulkStep(done, skipped, seen.next)


# These copy whole rows, with their payloads.
_COPYING: Final = frozenset({BulkAction.CANCEL, BulkAction.RETRY, BulkAction.RUN_AGAIN})


def _start() -> Steps[Place]:
    return Place((yield Statement("clock"))[0][0])


class _Seen(msgspec.Struct, frozen=True):
    """The matching ids among the rows that were read, their places, and where to continue."""

    ids: list[str]
    at: list[int]
    next: Place | None


def _look(
    wanted: Selection, place: Place, limit: int, source: Source | None = None
) -> Steps[_Seen]:
    values = {
        **wanted.chosen.parameters(),
        "state": wanted.state,
        "created_until": place.until,
        "after": place.after,
        "after_id": place.after_id,
        "scan": config.BULK_SCAN_ROWS,
        "limit": limit,
    }
    rows = yield Statement((source or wanted.source).value, values)
    fitting = [row for row in rows if row[0] is not None]
    ids, at = [row[0] for row in fitting], [row[1] for row in fitting]
    _, _, read, last_id, last_at = rows[0]
    if len(ids) >= limit:
        return _Seen(ids, at, Place(place.until, at[-1], ids[-1]))
    if read < config.BULK_SCAN_ROWS:
        return _Seen(ids, at, None)
    return _Seen(ids, at, Place(place.until, last_at, last_id))


def _within_bytes(seen: _Seen, place: Place) -> Steps[_Seen]:
    """The first jobs, at least one, whose rows one transaction should copy between the tables.

    With 500 jobs of a mebibyte each, a server's `statement_timeout` would end every step.
    """
    count = yield from fitting_rows(seen.ids)
    if count == len(seen.ids):
        return seen
    last = Place(place.until, seen.at[count - 1], seen.ids[count - 1])
    return _Seen(seen.ids[:count], seen.at[:count], last)


def fitting_rows(ids: list[str]) -> Steps[int]:
    """How many of the first jobs one transaction should copy between the tables: at least one."""
    if len(ids) < 2:
        return len(ids)
    sizes: dict[str, int] = dict((yield Statement("sizes", {"ids": ids})))
    total = 0
    for count, id in enumerate(ids):
        total += sizes.get(id, 0)
        if count and total > config.BULK_BYTES:
            return count
    return len(ids)


def _act(wanted: Selection, ids: list[str], fresh: FreshIds) -> Steps[tuple[int, Sequence[str]]]:
    """Lock jobs and act on those that still match. Return how many, and which were skipped."""
    jobs, taken = yield from _lock(wanted, ids)
    if not jobs:
        return 0, []
    match wanted.action:
        case BulkAction.CANCEL:
            done = yield from _cancel(jobs, taken)
        case BulkAction.RETRY:
            done = (yield from revive_jobs(jobs)).done
        case BulkAction.DELETE:
            done = yield from _delete(jobs)
        case BulkAction.RUN_NOW | BulkAction.RESCHEDULE:
            done = yield from _set("set_run_at", jobs, {"run_at": wanted.run_at})
        case BulkAction.REROUTE:
            done = yield from _set("set_queue", jobs, {"queue": wanted.to})
        case BulkAction.RUN_AGAIN:
            done = yield from _run_again(jobs, fresh)
        case _:
            assert_never(wanted.action)
    return len(done), [job.id for job in jobs if job.id not in done]


def _lock(wanted: Selection, ids: list[str]) -> Steps[tuple[list[JobRow], list[bool]]]:
    """Lock the jobs that still match. Say of each whether its last lease was taken away."""
    if wanted.source is Source.LIVE:
        rows = yield Statement("lock_leases", {"ids": ids})
        live = [(JobRow._make(row[:-2]), bool(row[-2]), row[-1]) for row in rows]
    else:
        rows = yield Statement("lock_finished", {"ids": ids})
        live = [(JobRow._make(row[:-1]), False, row[-1]) for row in rows]
    fitting = [(job, taken) for job, taken, now in live if wanted.holds(job, now=now)]
    return [job for job, _ in fitting], [taken for _, taken in fitting]


def _cancel(jobs: list[JobRow], taken: list[bool]) -> Steps[set[str]]:
    running = [job for job in jobs if job.lease_expires_at is not None]
    if running:
        yield Statement("request_cancel", {"ids": [job.id for job in running]})
        yield Ring(frozenset(job.queue for job in running))
    waiting = [
        Waiting(job, _ended(job), taken=was_taken)
        for job, was_taken in zip(jobs, taken, strict=True)
        if job.lease_expires_at is None
    ]
    done = yield from finish_waiting(waiting)
    return done | {job.id for job in running}


def _ended(job: JobRow) -> Finish:
    keep = decode_policy(job.policy).keep_for(JobState.CANCELLED)
    return Finish(JobState.CANCELLED, keep, job.crashes)


def _set(statement: str, jobs: list[JobRow], values: Mapping[str, object]) -> Steps[set[str]]:
    """Change jobs that wait."""
    rows = yield Statement(statement, {"ids": [job.id for job in jobs], **values})
    yield Ring(frozenset(row[1] for row in rows))
    return {row[0] for row in rows}


def _run_again(jobs: list[JobRow], fresh: FreshIds) -> Steps[set[str]]:
    rows = [(job.id, fresh[job.id], None) for job in jobs]
    made = yield Batch("run_again", RUN_AGAIN_COLUMNS, rows)
    if made:
        yield Ring(frozenset(row[1] for row in made))
    known = {row[0] for row in made}
    if len(known) < len(rows):
        # Made by an earlier try of ours, or a live job has the key.
        left = [new for _, new, _ in rows if new not in known]
        known |= {row[0] for row in (yield Statement("owners", {"ids": left}))}
    return {id for id, new, _ in rows if new in known}


def _delete(jobs: list[JobRow]) -> Steps[set[str]]:
    """Remove jobs that are not running, and that no other waits for."""
    awaited = yield from waiting_for(jobs)
    idle = [job for job in jobs if job.lease_expires_at is None and job.id not in awaited]
    ids = [job.id for job in idle]
    is_live = jobs[0].state is None
    gone = {
        row[0] for row in (yield Statement("delete_live" if is_live else "forget", {"ids": ids}))
    }
    yield Statement("unlog", {"ids": ids})
    yield from forget_nodes([job for job in idle if job.id in gone])
    return gone


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a bulk operation. `total` is how many jobs matched when it began.

    `problem` says why it ended early.
    """

    id: str
    action: BulkAction
    state: JobState | None
    chosen: JobFilter
    to: str | None
    run_at: datetime | None
    per_second: int | None
    actor: str
    tenant: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    total: Count
    done: int
    skipped: int
    skipped_ids: list[str]
    problem: str | None


class _StoredSelection(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored form of which jobs to act on."""

    state: JobState | None
    chosen: dict[str, Any]
    per_second: int | None = None
    to: str | None = None
    run_at: int | None = None


class TooMany(msgspec.Struct, frozen=True):
    """The operation was not begun: more jobs match than were expected."""

    count: Count


def count_bulk(wanted: Selection) -> Op[Count]:
    """Count the jobs that match now. Exact up to a bound, and marked."""
    return reading("count_bulk", lambda: count_selected(wanted))


def start_bulk(
    wanted: Selection, *, id: str, expected: int, actor: Actor, per_second: int | None = None
) -> Op[Bulk | TooMany]:
    """Store a bulk operation, unless more jobs match than the caller expects.

    Args:
        per_second: At most this many jobs per second. None: no limit.
    """
    id = parse_id(id)

    def steps() -> Steps[Bulk | TooMany]:
        yield Begin()
        # Repeated after a lost answer: the operation is there already.
        known = yield Statement("bulk_get", {"id": id})
        if known:
            return _bulk(known[0])
        count = yield from count_selected(wanted)
        if count.value > expected:
            return TooMany(count)
        now: int = (yield Statement("clock"))[0][0]
        values = _values(id, wanted, count, actor, now=now, per_second=per_second)
        yield Statement("bulk_add", values)
        return _bulk((yield Statement("bulk_get", {"id": id}))[0])

    return writing("start_bulk", steps, repeat=steps)


def _values(
    id: str,
    wanted: Selection,
    count: Count,
    actor: Actor,
    *,
    now: int,
    per_second: int | None,
) -> dict[str, object]:
    given = _given(wanted.chosen)
    stored = _StoredSelection(wanted.state, given, per_second, wanted.to, wanted.run_at)
    return {
        "id": id,
        "total": count.value,
        "is_exact": count.exact,
        "actor": codec.clean_text(actor.name, bytes_max=config.NAME_CHARACTERS_MAX),
        "tenant": actor.tenant,
        "action": wanted.action.value,
        "chosen": msgspec.json.encode(stored).decode(),
        "place": msgspec.json.encode(Place(now)).decode(),
    }


def _given(chosen: JobFilter) -> dict[str, Any]:
    return {name: value for name, value in chosen.values().items() if value is not None}


def get_bulk(id: str, *, tenant: str | None = None) -> Op[Bulk | None]:
    """The state of a bulk operation. None if it does not exist or belongs to another tenant."""
    bulk_id = parse_id(id)

    def steps() -> Steps[Bulk | None]:
        rows = yield Statement("bulk_get", {"id": bulk_id})
        found = _bulk(rows[0]) if rows else None
        return found if found is not None and is_visible_to(found.tenant, caller=tenant) else None

    return reading("get_bulk", steps)


def running_bulks() -> Op[list[str]]:
    """The ids of bulk operations that have not ended."""

    def steps() -> Steps[list[str]]:
        rows = yield Statement("bulk_running", {"limit": config.LIST_LIMIT_MAX})
        return [row[0] for row in rows]

    return reading("running_bulks", steps)


class Advance(msgspec.Struct, frozen=True):
    """Whether more is to be done, and after how many seconds, at the requested rate."""

    is_more: bool
    wait_seconds: float = 0.0


def advance_bulk(id: str) -> Op[Advance]:
    """Take the next step if it is due. Do nothing if another process is taking it."""

    def steps() -> Steps[Advance]:
        yield Begin()
        rows = yield Statement("bulk_lock", {"id": id})
        if not rows:
            return Advance(is_more=False)
        bulk, place = _bulk(rows[0][:-1]), msgspec.json.decode(rows[0][-1], type=Place)
        limit = step_limit(bulk.per_second)
        pause = 0.0 if bulk.per_second is None else limit / bulk.per_second
        is_first = place == Place(place.until)
        now: int = (yield Statement("clock"))[0][0]
        left = pause - (now - to_us(bulk.updated_at, option="now")) / config.SECOND_US
        if left > 0 and not is_first:
            return Advance(is_more=True, wait_seconds=left)
        taken = yield from step(_selection_of(bulk), place, FreshIds(), limit=limit)
        yield Statement("bulk_move", _moved(bulk, taken, place))
        return Advance(taken.next is not None, pause)

    return writing("advance_bulk", steps, repeat=steps)


def _selection_of(bulk: Bulk) -> Selection:
    at = None if bulk.run_at is None else to_us(bulk.run_at, option="run_at")
    return Selection(bulk.action, bulk.state, bulk.chosen, to=bulk.to, run_at=at)


def step_limit(per_second: int | None) -> int:
    """How many jobs one step may take: with a rate, those of half a second."""
    if per_second is None:
        return config.MAINTENANCE_BATCH_ROWS
    return max(1, min(config.MAINTENANCE_BATCH_ROWS, per_second // 2))


def _moved(bulk: Bulk, taken: BulkStep, place: Place) -> dict[str, object]:
    named = [*bulk.skipped_ids, *taken.skipped][: config.BULK_SKIPPED_MAX]
    return {
        "id": bulk.id,
        "done": taken.done,
        "skipped": len(taken.skipped),
        "skipped_ids": msgspec.json.encode(named).decode(),
        "place": msgspec.json.encode(taken.next or place).decode(),
        "is_over": taken.next is None,
    }


def fail_bulk(id: str, problem: str) -> Op[None]:
    """End a bulk operation where it stands, and store why."""
    text = codec.clean_text(problem, bytes_max=config.PROGRESS_TEXT_BYTES_MAX)

    def steps() -> Steps[None]:
        yield Statement("bulk_fail", {"id": id, "problem": text})

    return writing("fail_bulk", steps, repeat=steps)


def _bulk(row: Row) -> Bulk:
    stored = msgspec.json.decode(row[5], type=_StoredSelection)
    return Bulk(
        id=row[0],
        created_at=from_us(row[1]),
        updated_at=from_us(row[2]),
        finished_at=maybe_from_us(row[3]),
        action=BulkAction(row[4]),
        state=stored.state,
        chosen=JobFilter(**stored.chosen),
        to=stored.to,
        run_at=maybe_from_us(stored.run_at),
        per_second=stored.per_second,
        actor=row[6],
        tenant=row[7],
        total=Count(row[8], exact=bool(row[9])),
        done=row[10],
        skipped=row[11],
        skipped_ids=msgspec.json.decode(row[12], type=list[str]),
        problem=row[13],
    )
