"""Manage jobs and queues: cancel, retry, move in time or to a queue, delete, pause, retention."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Unpack
from uuid import UUID

import msgspec

from rowlock import config
from rowlock.clock import duration_us, to_us
from rowlock.columns import JobRow
from rowlock.errors import InvalidTransition, NotFound, OptionInvalid
from rowlock.filters import FILTERS, FilterOptions, JobFilter
from rowlock.ids import new_id, parse_id
from rowlock.job import (
    Cancellation,
    CancelOutcome,
    Job,
    JobState,
    decode_policy,
    job_of,
)
from rowlock.lifecycle import Finish
from rowlock.store import options
from rowlock.store.ops.finish import REMEMBER_US, removed
from rowlock.store.ops.settle import Waiting, finish_waiting
from rowlock.store.ops.waiting import forget_nodes, revive_jobs, waiting_for
from rowlock.store.steps import Batch, Begin, Commit, Op, Ring, Rows, Statement, Steps, writing

RUN_AGAIN_COLUMNS: Final = ("id", "new_id", "payload")
# A job that moves between the tables while we look is found on the next look.
_LOOKS = 3
_PRUNED: Final = {
    "audit_kept": int(config.AUDIT_KEEP_SECONDS) * config.SECOND_US,
    "bulk_kept": int(config.BULK_KEEP_SECONDS) * config.SECOND_US,
    "workflows_kept": REMEMBER_US,
    "answers_kept": int(config.IDEMPOTENCY_KEEP_SECONDS) * config.SECOND_US,
}
_PRUNES: Final = (
    "drop_holds",
    "drop_answers",
    "drop_audit",
    "drop_bulk",
    "drop_sessions",
    "drop_logins",
    "drop_keys",
)


def job_filter(**chosen: Unpack[FilterOptions]) -> JobFilter:
    """Check a user's filters."""
    options.refuse_unknown(chosen, FilterOptions.__annotations__)
    given: Mapping[str, Any] = chosen
    return JobFilter(**{name: _checked(name, given.get(name)) for name in FILTERS})


def _checked(name: str, value: Any) -> Any:
    if value is None:
        return None
    if FILTERS[name].is_time:
        return to_us(value, option=name)
    return options.name(value, option=name)


def is_visible_to(tenant: str | None, *, caller: str | None) -> bool:
    """Whether a tenant's jobs are visible to a caller bound to `caller`. None: not bound."""
    return caller is None or tenant == caller


def cancel(id: str | UUID, *, tenant: str | None = None) -> Op[Cancellation]:
    """Stop a job: at once if it waits, otherwise by a request to its worker. Raises `NotFound`.

    Args:
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id = parse_id(id)

    def steps() -> Steps[Cancellation]:
        yield Begin()
        for _ in range(_LOOKS):
            live = yield Statement("lock_leases", {"ids": [id]})
            if live:
                job, taken = JobRow._make(live[0][:-2]), bool(live[0][-2])
                _check_visible(job, tenant)
                return (yield from cancel_live(job, taken=taken))
            ended = yield Statement("lock_finished", {"ids": [id]})
            if ended:
                job = JobRow._make(ended[0][:-1])
                _check_visible(job, tenant)
                return Cancellation(CancelOutcome.ALREADY_TERMINAL, JobState(job.state or ""))
        raise unknown_job(id)

    return writing("cancel", steps, repeat=steps)


def _check_visible(job: JobRow, tenant: str | None) -> None:
    if not is_visible_to(job.tenant, caller=tenant):
        raise unknown_job(job.id)


def unknown_job(id: str) -> NotFound:
    """The error for a job that does not exist, or that the caller may not see."""
    return NotFound(f"there is no job {id} (finished jobs are removed after their retention)")


def cancel_live(job: JobRow, *, taken: bool) -> Steps[Cancellation]:
    """Stop a live job that this transaction has locked."""
    if job.lease_expires_at is not None:
        yield Statement("request_cancel", {"ids": [job.id]})
        # Where notifications work, the worker must learn of it at once.
        yield Ring(frozenset({job.queue}))
        return Cancellation(CancelOutcome.PENDING_ON_WORKER, JobState.RUNNING)
    keep = decode_policy(job.policy).keep_for(JobState.CANCELLED)
    ending = Finish(JobState.CANCELLED, keep, job.crashes)
    yield from finish_waiting([Waiting(job, ending, taken=taken)])
    return Cancellation(CancelOutcome.CANCELLED, JobState.CANCELLED)


def retry(id: str | UUID, payload: str | None = None, *, tenant: str | None = None) -> Op[Job]:
    """Take a dead or cancelled job back to ready, like a new job.

    A job of a workflow waits again for the jobs that have not ended as it wants.

    Args:
        payload: Another payload, as JSON text.
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id = parse_id(id)

    def steps() -> Steps[Job]:
        yield Begin()
        for _ in range(_LOOKS):
            ended = yield Statement("lock_finished", {"ids": [id]})
            if ended:
                job = JobRow._make(ended[0][:-1])
                _check_visible(job, tenant)
                return (yield from _revive(job, payload))
            yield from _refuse_live(id, tenant)
        raise unknown_job(id)

    return writing("retry", steps)


def _revive(job: JobRow, payload: str | None) -> Steps[Job]:
    """Take back a finished job that this transaction has locked."""
    if job.state == JobState.SUCCEEDED:
        raise InvalidTransition(job.id, "succeeded; only dead and cancelled jobs can be retried")
    revived = yield from revive_jobs([job], payload)
    if not revived.done:
        problem = revived.refused.get(job.id, "its key is in flight again, held by another job")
        raise InvalidTransition(job.id, problem)
    return (yield from _read(job.id))


def _refuse_live(id: str, tenant: str | None) -> Steps[None]:
    for row in (yield Statement("lock_leases", {"ids": [id]})):
        _check_visible(JobRow._make(row[:-2]), tenant)
        raise InvalidTransition(id, "is not finished; only dead and cancelled jobs can be retried")


def run_now(id: str | UUID, *, tenant: str | None = None) -> Op[Job]:
    """Make a scheduled or retrying job due now. A job that is ready stays as it is.

    Args:
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id = parse_id(id)

    def steps() -> Steps[Job]:
        job, now = yield from _lock_waiting(id, tenant)
        if job.run_at > now:
            yield Statement("set_run_at", {"ids": [id], "run_at": None})
            yield Ring(frozenset({job.queue}))
        return (yield from _read(id))

    return writing("run_now", steps, repeat=steps)


def reschedule(
    id: str | UUID,
    run_at: datetime | None = None,
    *,
    delay: float | timedelta | None = None,
    tenant: str | None = None,
) -> Op[Job]:
    """Change when a job that waits is due. Its attempts stay as they are.

    Args:
        run_at: The new time, with a time zone. A time in the past means now.
        delay: Instead of `run_at`: from now on, in seconds or as a timedelta.
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id = parse_id(id)
    if (run_at is None) == (delay is None):
        raise OptionInvalid("run_at", "give either run_at or delay")
    at = None if run_at is None else to_us(run_at, option="run_at")
    wait = 0 if delay is None else duration_us(delay, option="delay")

    def steps() -> Steps[Job]:
        job, now = yield from _lock_waiting(id, tenant)
        yield Statement("set_run_at", {"ids": [id], "run_at": now + wait if at is None else at})
        yield Ring(frozenset({job.queue}))
        return (yield from _read(id))

    return writing("reschedule", steps, repeat=steps)


def reroute(id: str | UUID, queue: str, *, tenant: str | None = None) -> Op[Job]:
    """Move a job that waits to another queue.

    Args:
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id, queue = parse_id(id), options.name(queue, option="queue")

    def steps() -> Steps[Job]:
        yield from _lock_waiting(id, tenant, may_wait=True)
        yield Statement("set_queue", {"ids": [id], "queue": queue})
        yield Ring(frozenset({queue}))
        return (yield from _read(id))

    return writing("reroute", steps, repeat=steps)


def _lock_waiting(
    id: str, tenant: str | None, *, may_wait: bool = False
) -> Steps[tuple[JobRow, int]]:
    """Lock a job that waits to be run. Return it, and the time.

    `may_wait`: it may also be one that waits for other jobs.
    """
    yield Begin()
    for _ in range(_LOOKS):
        for row in (yield Statement("lock_leases", {"ids": [id]})):
            job = JobRow._make(row[:-2])
            _check_visible(job, tenant)
            if job.lease_expires_at is not None:
                raise InvalidTransition(id, "is running; only a job that waits can be moved")
            if job.pending and not may_wait:
                raise InvalidTransition(
                    id, "waits for other jobs and runs after them, so its time can't be set"
                )
            return job, row[-1]
        for row in (yield Statement("lock_finished", {"ids": [id]})):
            job = JobRow._make(row[:-1])
            _check_visible(job, tenant)
            raise InvalidTransition(id, f"is {job.state}; to run its payload again, use run_again")
    raise unknown_job(id)


def _read(id: str) -> Steps[Job]:
    row = (yield Statement("get", {"ids": [id]}))[0]
    return job_of(JobRow._make(row[:-1]), now=row[-1])


def run_again(id: str | UUID, payload: str | None = None, *, tenant: str | None = None) -> Op[Job]:
    """Enqueue an ended job again, as a new job with its payload and options.

    The new job names the old one in its `meta`, as `run_again_of`. It has the key of the old one
    too, even if that key is still held by a job that has ended. If a live job has the key, this
    raises `InvalidTransition`.

    Args:
        payload: Another payload, as JSON text.
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id, fresh = parse_id(id), new_id()

    def again() -> Steps[Job]:
        yield Begin()
        ended = yield Statement("lock_finished", {"ids": [id]})
        if not ended:
            for row in (yield Statement("lock_leases", {"ids": [id]})):
                _check_visible(JobRow._make(row[:-2]), tenant)
                raise InvalidTransition(id, "has not ended; only an ended job can be run again")
            raise unknown_job(id)
        _check_visible(JobRow._make(ended[0][:-1]), tenant)
        made = yield Batch("run_again", RUN_AGAIN_COLUMNS, [(id, fresh, payload)])
        if not made:
            raise InvalidTransition(id, "its key is in flight, held by another job")
        yield Ring(frozenset({made[0][1]}))
        return msgspec.structs.replace((yield from _read(fresh)), created=True)

    def repeat() -> Steps[Job]:
        """The first try may have been committed."""
        found = yield Statement("get", {"ids": [fresh]})
        if not found:
            return (yield from again())
        row = found[0]
        return job_of(JobRow._make(row[:-1]), now=row[-1], created=True)

    return writing("run_again", again, repeat=repeat)


def delete(id: str | UUID, *, cascade: bool = False, tenant: str | None = None) -> Op[None]:
    """Remove a job that is not running. Raises `NotFound`, `InvalidTransition`.

    Args:
        cascade: Also if other jobs wait for it. Those that need its success are cancelled.
        tenant: Only a job of this tenant; another tenant's is not found.
    """
    id = parse_id(id)

    def steps() -> Steps[None]:
        yield Begin()
        for _ in range(_LOOKS):
            live = yield Statement("lock_leases", {"ids": [id]})
            ended = [] if live else (yield Statement("lock_finished", {"ids": [id]}))
            if not live and not ended:
                continue
            job = JobRow._make(live[0][:-2] if live else ended[0][:-1])
            _check_visible(job, tenant)
            if job.lease_expires_at is not None:
                raise InvalidTransition(id, "is running; cancel it first, then delete it")
            if not cascade and (yield from waiting_for([job])):
                problem = "other jobs wait for it; to delete it and cancel them, use cascade"
                raise InvalidTransition(id, problem)
            yield Statement("delete_live" if live else "forget", {"ids": [id]})
            yield Statement("unlog", {"ids": [id]})
            yield from forget_nodes([job])
            return
        raise unknown_job(id)

    return writing("delete", steps)


def pause(queue: str) -> Op[None]:
    """Claim nothing from a queue until it is resumed. Jobs can still be enqueued.

    Jobs that workers have already claimed are run. So a few may begin after this has returned:
    usually within 0.1 seconds, rarely up to 3.
    """
    return _set_pause(queue, is_paused=True)


def resume(queue: str) -> Op[None]:
    """Claim from a paused queue again."""
    return _set_pause(queue, is_paused=False)


def _set_pause(queue: str, *, is_paused: bool) -> Op[None]:
    values = {"queue": options.name(queue, option="queue"), "is_paused": is_paused}

    def steps() -> Steps[None]:
        yield Statement("set_pause", values)
        yield Ring(frozenset({queue}))

    return writing("set_pause", steps, repeat=steps)


def set_order(queue: str, order: Literal["run_at", "created"]) -> Op[None]:
    """Set the order of retries in a queue: by the time they are due (default), or by their age."""
    if order not in ("run_at", "created"):
        raise OptionInvalid("order", f"must be 'run_at' or 'created', not {order!r}")
    values = {"queue": options.name(queue, option="queue"), "by_age": order == "created"}

    def steps() -> Steps[None]:
        yield Statement("set_order", values)

    return writing("set_order", steps, repeat=steps)


def prune(*, batch_rows: int = config.MAINTENANCE_BATCH_ROWS) -> Op[int]:
    """Remove finished jobs whose retention is over, in bounded batches. Returns their number.

    Expired keys, first answers, sessions, audit entries and records of bulk operations are removed,
    too.
    """
    values = {**_PRUNED, "limit": batch_rows}

    total = 0

    def steps() -> Steps[int]:
        nonlocal total
        while True:
            yield Begin()
            rows = yield Statement("expired", values)
            others = 0
            for statement in _PRUNES:
                others = max(others, len((yield Statement(statement, values))))
            workflows = [row[0] for row in (yield Statement("drop_workflows", values))]
            if workflows:
                yield Statement("drop_stacks", {"ids": workflows})
            others = max(others, len(workflows))
            if rows:
                yield from _drop(rows)
            if max(len(rows), others) < batch_rows:
                return total + len(rows)
            yield Commit()
            total += len(rows)

    return writing("prune", steps, repeat=steps)


def _drop(rows: Rows) -> Steps[None]:
    logged = sorted(id for id, lines, _, _ in rows if lines)
    if logged:
        yield Statement("unlog", {"ids": logged})
    yield Statement("drop_finished", {"ids": sorted(row[0] for row in rows)})
    # What still waits for a job that is dead, or for the retry of a cancelled one, waits in vain.
    yield from removed(sorted(id for id, _, is_node, is_lost in rows if is_node and is_lost))
    nodes = sorted(id for id, _, is_node, _ in rows if is_node)
    if nodes:
        yield Statement("drop_edges", {"ids": nodes})
