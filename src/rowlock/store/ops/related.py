"""Related: the job that a job follows, and those that follow it. Bounded reads, no locks.

A job of `enqueue_on_success` carries its parent's id in `meta`. Those of a parent are looked for
among the ids that were made while it ran, so that no index is needed that every enqueue would pay
for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from rowlock import config
from rowlock.columns import JobRow
from rowlock.errors import OptionInvalid
from rowlock.ids import id_at, parse_id
from rowlock.job import Job, job_of
from rowlock.store.ops.manage import is_seen
from rowlock.store.options import PARENT, parent_mark
from rowlock.store.steps import Op, Statement, Steps, reading

# Ids are made by a worker's clock, the times of a run by the database's.
_MARGIN: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Related:
    """The job that was followed, if it is still there, and the jobs that follow, oldest first."""

    parent: Job | None = None
    follow_ups: list[Job] = field(default_factory=list[Job])


def related(job: Job, *, tenant: str | None = None) -> Op[Related]:
    """What a job follows and what follows it, as far as a tenant may see it."""

    def steps() -> Steps[Related]:
        parent = yield from _parent(job)
        follow_ups = yield from _follow_ups(job)
        seen = [each for each in follow_ups if is_seen(each.tenant, by=tenant)]
        is_visible = parent is not None and is_seen(parent.tenant, by=tenant)
        return Related(parent if is_visible else None, seen)

    return reading("related", steps)


def _parent(job: Job) -> Steps[Job | None]:
    named = job.meta.get(PARENT)
    try:
        parent = parse_id(named) if isinstance(named, str) else None
    except OptionInvalid:
        parent = None
    if parent is None:
        return None
    rows = yield Statement("get", {"ids": [parent]})
    return job_of(JobRow._make(rows[0][:-1]), now=rows[0][-1]) if rows else None


def _follow_ups(job: Job) -> Steps[list[Job]]:
    if job.started_at is None or job.finished_at is None:
        return []
    values = {
        "mark": parent_mark(job.id),
        "low": _id_of(job.started_at - _MARGIN),
        "high": _id_of(job.finished_at + _MARGIN),
        "scan": config.LIST_SCAN_ROWS_MAX,
        "limit": config.LIST_LIMIT_DEFAULT,
    }
    rows = yield Statement("follow_ups", values)
    found = [job_of(JobRow._make(row[:-1]), now=row[-1]) for row in rows]
    # The statement looks for text, which may also stand deeper in what the user put there.
    following = [each for each in found if each.meta.get(PARENT) == job.id]
    return sorted(following, key=lambda each: each.id)


def _id_of(moment: datetime) -> str:
    return id_at(int(moment.timestamp() * 1000))
