"""Schedules: written, paused, run by hand, and fired. Each tick fires once among all schedulers.

1. A tick is claimed by advancing `next_at`, fenced by its old value, in the same transaction that
   enqueues its job: both happen, or neither. After a COMMIT whose answer was lost, `next_at` shows
   whether it happened.
2. On PostgreSQL the due rows are locked first, skipping those that others hold, so that no
   scheduler waits for another. On SQLite the write lock has the same effect.
3. The database's clock decides what is due. The next tick is computed from the time that the clock
   gave, and is always later: a clock that steps back fires nothing again.
4. A schedule that this installation can't read (its time zone is unknown here) is left as it is,
   for other installations, and does not keep any other schedule from firing.

A table of ticks with a unique (name, time) was considered: it would say the same as the fence, and
would have to be pruned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.cron import Cron, parse_cron
from rowlock.errors import NotFound, OptionInvalid, StoreUnavailable
from rowlock.ids import new_id
from rowlock.job import Job
from rowlock.schedule import (
    Fired,
    MissedTicks,
    Schedule,
    ScheduleRow,
    ScheduleSource,
    due_ticks,
    missed_ticks,
    read_meta,
    schedule_of,
)
from rowlock.store import options
from rowlock.store.ops.enqueue import enqueue_within
from rowlock.store.ops.manage import is_visible_to
from rowlock.store.options import NewJob
from rowlock.store.steps import (
    Batch,
    Begin,
    Commit,
    Op,
    Ring,
    Rows,
    Statement,
    Steps,
    reading,
    writing,
)

# Everyone who listens is notified: schedulers check at once whether a tick is due sooner.
_RING = Ring(frozenset({""}))
# A name that is taken when we write and free when we look is being deleted repeatedly.
_LOOKS = 3


class NewSchedule(msgspec.Struct, frozen=True):
    """A checked schedule to write. `job` is what each tick enqueues, under an id of its own."""

    name: str
    job: NewJob
    cron: Cron
    missed: MissedTicks


class _Claim(msgspec.Struct, frozen=True):
    """The ticks of one schedule to fire, and when it is due again."""

    row: ScheduleRow
    ticks: list[int]
    next_at: int


class _Made(NamedTuple):
    """A job that a tick has enqueued. Its payload is not kept until all ticks have fired."""

    id: str
    queue: str
    kind: str


def new_schedule(
    name: str, job: NewJob, *, cron: str, timezone: str = "UTC", missed: str = "skip"
) -> NewSchedule:
    """Check every option of a schedule."""
    if job.replaces:
        raise OptionInvalid("task", "if_held and quiet are for a single job, not for a schedule")
    if job.run_at is not None or job.delay or job.is_resend:
        raise OptionInvalid("task", "delay, run_at and id are for a single job, not for a schedule")
    return NewSchedule(
        name=options.name(name, option="name"),
        job=job,
        cron=parse_cron(cron, timezone=timezone),
        missed=missed_ticks(missed),
    )


def put_schedule(new: NewSchedule) -> Op[Schedule]:
    """Write a schedule. One of the same name is replaced.

    A replaced schedule stays paused if it was. It keeps its next time, unless its expression or its
    time zone changes.
    """

    def steps() -> Steps[Schedule]:
        yield Begin()
        row = yield from _put(new, ScheduleSource.USER)
        yield _RING
        return schedule_of(row)

    return writing("put_schedule", steps, repeat=steps)


def declare_schedules(
    declared: Sequence[NewSchedule], *, kinds: Sequence[str], owns_all: bool = False
) -> Op[list[str]]:
    """Make the schedules that were declared in code match the code.

    Args:
        declared: The schedules of the code. One that a call has taken over is left as it is.
        kinds: The tasks of that code. Their schedules that it does not declare are removed.
        owns_all: No other code declares schedules in this database: remove those of other kinds
            too.

    Returns:
        The names of the schedules that were removed.
    """
    ordered = sorted(declared, key=lambda new: new.name)
    values = {
        "names": [new.name for new in ordered],
        "kinds": list(kinds),
        "owns_all": owns_all,
    }

    def steps() -> Steps[list[str]]:
        yield Begin()
        # First lock all that may be removed, in one order: of two such processes, one waits.
        yield Statement("lock_declared")
        for new in ordered:
            yield from _put(new, ScheduleSource.CODE)
        dropped = yield Statement("drop_undeclared", values)
        yield _RING
        return sorted(row[0] for row in dropped)

    return writing("declare_schedules", steps, repeat=steps)


def _put(new: NewSchedule, source: ScheduleSource) -> Steps[ScheduleRow]:
    for _ in range(_LOOKS):
        found = yield Statement("lock_schedule", {"name": new.name})
        if found:
            known, now = _row_and_now(found)
            if source is ScheduleSource.CODE and known.source == ScheduleSource.USER:
                return known  # A user's call has taken it over.
            return (yield from _change(known, new, source, now=now))
        now = (yield Statement("clock"))[0][0]
        row = _row_of(new, source, next_at=new.cron.next_after(now))
        # Another process may have written it meanwhile: then it is there to be changed.
        if (yield Statement("add_schedule", row._asdict())):
            return row
    raise StoreUnavailable(f"schedule {new.name!r} is being removed by another process; try again")


def _change(
    known: ScheduleRow, new: NewSchedule, source: ScheduleSource, *, now: int
) -> Steps[ScheduleRow]:
    is_same_time = (known.cron, known.timezone) == (new.cron.text, new.cron.timezone)
    next_at = known.next_at if is_same_time else new.cron.next_after(now)
    wanted = _row_of(new, source, next_at=next_at)._replace(
        is_paused=known.is_paused, last_at=known.last_at, last_job_id=known.last_job_id
    )
    if wanted != known:
        yield Statement("change_schedule", wanted._asdict())
    return wanted


def _row_of(new: NewSchedule, source: ScheduleSource, *, next_at: int) -> ScheduleRow:
    job = new.job
    return ScheduleRow(
        name=new.name,
        kind=job.kind,
        queue=job.queue,
        rank=job.rank,
        tenant=job.tenant,
        key=job.key,
        key_hold=job.key_hold,
        payload=job.payload,
        max_attempts=job.max_attempts,
        tags=job.tags,
        meta=job.meta,
        policy=job.policy,
        cron=new.cron.text,
        timezone=new.cron.timezone,
        missed=new.missed.value,
        source=source.value,
        is_paused=False,
        next_at=next_at,
        last_at=None,
        last_job_id=None,
    )


def list_schedules(
    *, after: str = "", limit: int = config.LIST_LIMIT_MAX, tenant: str | None = None
) -> Op[list[Schedule]]:
    """The schedules, ordered by name.

    Args:
        after: The last name of the page before.
        tenant: Only schedules of this tenant. None: all.
    """
    options.integer(limit, option="limit", low=1, high=config.LIST_LIMIT_MAX)
    name = options.name(after, option="after") if after != "" else ""
    values = {"after": name, "limit": limit, "tenant": tenant}

    def steps() -> Steps[list[Schedule]]:
        rows = yield Statement("list_schedules", values)
        return [schedule_of(ScheduleRow._make(row)) for row in rows]

    return reading("list_schedules", steps)


def pause_schedule(name: str, *, tenant: str | None = None) -> Op[Schedule]:
    """Don't fire a schedule until it is resumed. Raises `NotFound`.

    Args:
        tenant: Only a schedule of this tenant; another tenant's is not found.
    """
    return _set_pause(name, is_paused=True, tenant=tenant)


def resume_schedule(name: str, *, tenant: str | None = None) -> Op[Schedule]:
    """Fire a paused schedule again, from its next tick on. Raises `NotFound`.

    Ticks that fell into the pause are not fired later.

    Args:
        tenant: Only a schedule of this tenant; another tenant's is not found.
    """
    return _set_pause(name, is_paused=False, tenant=tenant)


def _set_pause(name: str, *, is_paused: bool, tenant: str | None) -> Op[Schedule]:
    name = options.name(name, option="name")

    def steps() -> Steps[Schedule]:
        yield Begin()
        row, now = _found(name, (yield Statement("lock_schedule", {"name": name})), tenant)
        if bool(row.is_paused) == is_paused:
            return schedule_of(row)
        next_at = row.next_at if is_paused else _cron_of(row).next_after(now)
        values = {"name": name, "is_paused": is_paused, "next_at": next_at}
        yield Statement("pause_schedule", values)
        yield _RING
        return schedule_of(row._replace(is_paused=is_paused, next_at=next_at))

    return writing("pause_schedule", steps, repeat=steps)


def run_schedule_now(name: str, *, tenant: str | None = None) -> Op[Job]:
    """Enqueue a schedule's job at once, paused or not. Keeps its next tick. Raises `NotFound`."""
    name = options.name(name, option="name")
    id = new_id()

    def steps(*, is_resend: bool) -> Steps[Job]:
        yield Begin()
        row, _ = _found(name, (yield Statement("lock_schedule", {"name": name})), tenant)
        jobs = [_job_of(row, id=id, tick=None)]
        (job,) = yield from enqueue_within(jobs, is_resend=is_resend)
        yield Batch("note_runs", ("name", "job_id"), [(name, job.id)])
        return job

    return writing(
        "run_schedule_now",
        lambda: steps(is_resend=False),
        repeat=lambda: steps(is_resend=True),
    )


def delete_schedule(name: str) -> Op[None]:
    """Remove a schedule. Jobs that it has enqueued stay. Raises `NotFound`."""
    name = options.name(name, option="name")

    def steps() -> Steps[None]:
        # In a transaction: if the answer to a lone statement is lost, nobody knows whether it ran.
        yield Begin()
        if not (yield Statement("drop_schedule", {"name": name})):
            raise _unknown(name)

    return writing("delete_schedule", steps)


def fire_due() -> Op[Fired]:
    """Enqueue the jobs of all due ticks, each once among any number of callers."""

    jobs, unreadable = list[_Made](), list[str]()
    after_at, after_name = -1, ""

    def steps() -> Steps[Fired]:
        nonlocal after_at, after_name
        yield Begin()
        now = (yield Statement("clock"))[0][0]
        while True:
            place = {"until": now, "after_at": after_at, "after_name": after_name}
            limit = {"limit": config.SCHEDULE_BATCH_ROWS}
            found = yield Statement("due_schedules", {**place, **limit})
            rows = [ScheduleRow._make(row) for row in found]
            claims = [claim for row in rows if (claim := _claim_of(row, now=now))]
            unread = sorted({row.name for row in rows} - {claim.row.name for claim in claims})
            fired = yield from _fire(claims)
            if len(rows) < config.SCHEDULE_BATCH_ROWS:
                break
            yield Commit()
            jobs.extend(fired)
            unreadable.extend(unread)
            after_at, after_name = rows[-1].next_at, rows[-1].name
            yield Begin()
        # Not the due ones that were skipped: another process has them, or they are unreadable here.
        waits = yield Statement("next_schedule", {"since": now})
        return _fired([*jobs, *fired], _wait_seconds(waits), [*unreadable, *unread])

    return writing("fire_due", steps, repeat=steps)


def _fired(jobs: Sequence[_Made], wait_seconds: float | None, unreadable: list[str]) -> Fired:
    numbers = Counter((job.queue, job.kind) for job in jobs)
    return Fired([job.id for job in jobs], wait_seconds, unreadable, numbers)


def _wait_seconds(waits: Rows) -> float | None:
    return max(0, waits[0][0]) / config.SECOND_US if waits else None


def _claim_of(row: ScheduleRow, *, now: int) -> _Claim | None:
    try:
        cron, missed = _cron_of(row), missed_ticks(row.missed)
    except OptionInvalid:
        return None
    ticks = due_ticks(cron, missed, next_at=row.next_at, now=now)
    next_at = cron.next_after(now)
    assert next_at > now >= row.next_at
    return _Claim(row, ticks, next_at)


def _fire(claims: Sequence[_Claim]) -> Steps[list[_Made]]:
    if not claims:
        return []
    moves = [(claim.row.name, claim.row.next_at, claim.next_at) for claim in claims]
    moved = yield Batch("advance_schedules", ("name", "expected_at", "next_at"), moves)
    ours = {row[0] for row in moved}
    by_id = {
        (id := new_id()): (claim.row.name, _job_of(claim.row, id=id, tick=tick))
        for claim in claims
        if claim.row.name in ours
        for tick in claim.ticks
    }
    if not by_id:
        return []
    jobs = yield from enqueue_within([job for _, job in by_id.values()], is_resend=False)
    # In the order of their ticks, so that the last job of each name is kept.
    last = dict(zip((name for name, _ in by_id.values()), (job.id for job in jobs), strict=True))
    yield Batch("note_runs", ("name", "job_id"), sorted(last.items()))
    return [_Made(job.id, job.queue, job.kind) for job in jobs if job.created]


def _job_of(row: ScheduleRow, *, id: str, tick: int | None) -> NewJob:
    """The job that a schedule enqueues. A run by hand belongs to no tick."""
    origin = {"schedule": row.name}
    if tick is not None:
        origin["tick"] = from_us(tick).isoformat()
    meta = {**read_meta(row.meta), **origin}
    return NewJob(
        id=id,
        kind=row.kind,
        queue=row.queue,
        rank=row.rank,
        tenant=row.tenant,
        key=row.key,
        key_hold=row.key_hold,
        payload=row.payload,
        max_attempts=row.max_attempts,
        run_at=None,
        delay=0,
        tags=row.tags,
        meta=msgspec.json.encode(meta).decode(),
        policy=row.policy,
        is_resend=False,
    )


def _cron_of(row: ScheduleRow) -> Cron:
    return parse_cron(row.cron, timezone=row.timezone)


def _found(name: str, rows: Rows, tenant: str | None) -> tuple[ScheduleRow, int]:
    if not rows:
        raise _unknown(name)
    row, now = _row_and_now(rows)
    if not is_visible_to(row.tenant, caller=tenant):
        raise _unknown(name)
    return row, now


def _row_and_now(rows: Rows) -> tuple[ScheduleRow, int]:
    return ScheduleRow._make(rows[0][:-1]), rows[0][-1]


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}; `rowlock cron list` lists all schedules")
