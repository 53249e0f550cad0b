"""Manage workflows: cancel, retry, and note that they have ended.

1. A cancel takes the jobs that wait for others first, so that none of them is released by the end
   of another. It is noted in the workflow, and then goes batch by batch: if it is cut short, a
   sweep takes it up. Until it is done, no job can be retried.
2. A retry takes back the dead jobs, and those that were cancelled because of them. Each then waits
   again for the jobs that have not ended as it wants.
3. A sweep notes that a workflow has no live job any more. From then on its jobs are kept for their
   time. It looks at the workflow under its lock, which a retry takes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from rowlock import config
from rowlock.columns import JobRow
from rowlock.errors import InvalidTransition
from rowlock.events import WorkflowStop, stop_of
from rowlock.ids import parse_id
from rowlock.job import JobState, decode_policy
from rowlock.lifecycle import Finish
from rowlock.store.ops.bulk import fitting_rows
from rowlock.store.ops.finish import Ending, ending_of, finish_within
from rowlock.store.ops.manage import is_visible_to
from rowlock.store.ops.waiting import revive_jobs
from rowlock.store.ops.workflow_info import read_workflow, unknown_workflow
from rowlock.store.steps import Begin, Commit, Op, Ring, Statement, Steps, reading, writing

_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
# Before all stacks.
_FIRST_STACK: Final = -1
_TENANT: Final = 8


def cancel_workflow(id: str | UUID, *, tenant: str | None = None) -> Op[int]:
    """Cancel all jobs of a workflow that have not ended. Returns their number.

    Jobs that run are asked to end. Nothing can be added to the workflow any more.

    Args:
        tenant: Only a workflow of this tenant; another tenant's is not found.
    """
    workflow = parse_id(id)
    total = 0

    def steps() -> Steps[int]:
        nonlocal total
        yield Begin()
        yield from _check_known(workflow, tenant)
        yield Statement("note_cancelled", {"workflow": workflow})
        number = 0
        while True:
            # Without the lock of the workflow, which a job that adds others takes after its own.
            yield Commit()
            total += number
            yield Begin()
            number = yield from _cancel_some(workflow)
            if number == 0:
                return total

    return writing("cancel_workflow", steps, repeat=steps)


def _check_known(workflow: str, tenant: str | None) -> Steps[None]:
    found = yield Statement("lock_workflow", {"ids": [workflow]})
    if not found or not is_visible_to(found[0][_TENANT], caller=tenant):
        raise unknown_workflow(workflow)


def _cancel_some(workflow: str) -> Steps[int]:
    """Cancel a batch of jobs. Return how many."""
    values = {"workflow": workflow, "limit": config.MAINTENANCE_BATCH_ROWS}
    rows = yield Statement("nodes_to_cancel/waiting", values)
    if not rows:
        rows = yield Statement("nodes_to_cancel", values)
    found = sorted(row[0] for row in rows)
    ids = found[: (yield from fitting_rows(found))]
    if not ids:
        return 0
    running: list[JobRow] = []
    endings: list[Ending] = []
    for row in (yield Statement("lock_leases", {"ids": ids})):
        job, taken = JobRow._make(row[:-2]), bool(row[-2])
        if job.lease_expires_at is not None:
            running.append(job)
            continue
        keep = decode_policy(job.policy).keep_for(JobState.CANCELLED)
        step = Finish(JobState.CANCELLED, keep, job.crashes)
        endings.append(ending_of(job, step, taken=taken, leased=False))
    if running:
        yield Statement("request_cancel", {"ids": [job.id for job in running]})
        yield Ring(frozenset(job.queue for job in running))
    yield from finish_within(endings, workflow)
    # One that ended meanwhile counts too: there may be others behind it.
    return len(ids)


def retry_workflow(id: str | UUID, *, tenant: str | None = None) -> Op[int]:
    """Retry the dead jobs of a workflow, and those that were cancelled because of them.

    Returns their number. Jobs whose key is in flight again are left out.

    Args:
        tenant: Only a workflow of this tenant; another tenant's is not found.
    """
    workflow = parse_id(id)
    total = 0
    until: int | None = None

    def steps() -> Steps[int]:
        nonlocal total, until
        yield Begin()
        yield from _check_known(workflow, tenant)
        if until is None:
            # A job that dies again meanwhile is not taken back again.
            until = (yield Statement("clock"))[0][0]
        for state in (JobState.DEAD, JobState.CANCELLED):
            place = (_FIRST_STACK, _FIRST_ID)
            while True:
                revived, last = yield from _retry_some(workflow, state, until, place)
                if last is None:
                    break
                yield Commit()
                total, place = total + revived, last
                yield Begin()
        return total

    return writing("retry_workflow", steps, repeat=steps)


def _retry_some(
    workflow: str, state: JobState, until: int, place: tuple[int, str]
) -> Steps[tuple[int, tuple[int, str] | None]]:
    """Retry a batch of jobs. Return how many, and the place of the last, if there was one."""
    values = {"workflow": workflow, "state": state.value, "until": until}
    page = {"after_stack": place[0], "after_id": place[1], "limit": config.MAINTENANCE_BATCH_ROWS}
    rows = yield Statement("nodes_to_retry", {**values, **page})
    rows = rows[: (yield from fitting_rows([row[0] for row in rows]))]
    if not rows:
        return 0, None
    locked = yield Statement("lock_finished", {"ids": sorted(row[0] for row in rows)})
    jobs = [JobRow._make(row[:-1]) for row in locked]
    # One that another has retried may have succeeded since the look: that is final.
    revived = yield from revive_jobs([job for job in jobs if job.state != JobState.SUCCEEDED])
    for id, reason in revived.refused.items():
        raise InvalidTransition(id, reason)
    return len(revived.done), (rows[-1][1], rows[-1][0])


class Tended(NamedTuple):
    """Workflows that must be cancelled, and where to continue. None: at the beginning."""

    to_cancel: Sequence[str]
    next: str | None


def tend_workflows(after: str | None = None) -> Op[Tended]:
    """Note which of some open workflows have ended, and find those that must be cancelled.

    Their deadline has passed, or they were cancelled and that was cut short.
    """
    most = config.MAINTENANCE_BATCH_ROWS

    def steps() -> Steps[Tended]:
        looked = yield Statement("open_workflows", {"after": after or _FIRST_ID, "limit": most})
        to_cancel: list[str] = []
        for id, has_live, must_cancel in looked:
            if not has_live:
                yield from _end(id)
            elif must_cancel:
                to_cancel.append(id)
        return Tended(to_cancel, looked[-1][0] if len(looked) == most else None)

    return writing("tend_workflows", steps, repeat=steps)


def needs_tending(after: str | None = None) -> Op[bool]:
    """Whether one of some open workflows has ended, or must be cancelled.

    It takes no lock, and writes nothing: most of the time there is nothing to do.
    """
    most = config.MAINTENANCE_BATCH_ROWS

    def steps() -> Steps[bool]:
        looked = yield Statement("open_workflows", {"after": after or _FIRST_ID, "limit": most})
        is_due = any(not has_live or must_cancel for _, has_live, must_cancel in looked)
        return is_due or len(looked) == most

    return reading("needs_tending", steps)


def _end(workflow: str) -> Steps[None]:
    values = {"workflow": workflow, "limit": config.MAINTENANCE_BATCH_ROWS}
    while True:
        yield Begin()
        yield Statement("lock_workflow", {"ids": [workflow]})
        if (yield Statement("live_of_workflow", values)):
            yield Commit()
            return
        kept = yield Statement("keep_nodes", values)
        if len(kept) < config.MAINTENANCE_BATCH_ROWS:
            if (yield Statement("note_ended", values)):
                yield from _publish_end(workflow)
            yield Commit()
            return
        yield Commit()


def _publish_end(workflow: str) -> Steps[None]:
    """Write the event of a workflow that has ended, in the transaction that notes it."""
    info = yield from read_workflow(workflow)
    if info is not None:
        event = stop_of(WorkflowStop(info.id, info.name, info.state), info.tenant)
        yield Statement("event_write", {"events": msgspec.json.encode([event]).decode()})
