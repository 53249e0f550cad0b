"""Why a job is not running: what stands in its way now, the first reason that applies."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rowlock.clock import from_us
from rowlock.errors import NotFound
from rowlock.job import Job, JobRow, JobState, Why, job_of
from rowlock.store.steps import Batch, Op, Rows, Statement, Steps, reading


def why(id: str) -> Op[Why]:
    """Say what a job waits for. Raises `NotFound`."""

    def steps() -> Steps[Why]:
        rows = yield Statement("get", {"ids": [id]})
        if not rows:
            raise NotFound(f"there is no job {id} (any more)")
        row = JobRow._make(rows[0][:-1])
        job = job_of(row, now=rows[0][-1])
        told = _by_state(job)
        if told is not None:
            return told
        counted = yield Batch("count_queues", ("queue",), [(job.queue,)], {"cap": 1})
        if counted[0][-1]:
            return Why("paused", f"its queue {job.queue!r} is paused")
        workers = yield Statement("workers")
        return _by_workers(job, workers) or (yield from _by_place(row))

    return reading("why", steps)


def _by_state(job: Job) -> Why | None:
    match job.state:
        case JobState.SUCCEEDED | JobState.DEAD | JobState.CANCELLED:
            return Why("finished", f"it is {job.state}, since {_shown(job.finished_at)}")
        case JobState.RUNNING:
            until = _shown(job.lease_expires_at)
            return Why("running", f"worker {job.worker} holds it until {until}")
        case JobState.SCHEDULED:
            return Why("not_due", f"it is not due until {_shown(job.run_at)}")
        case JobState.RETRYING:
            error = job.last_error or "a lost run"
            return Why("backoff", f"it waits until {_shown(job.run_at)}, after {error}")
        case JobState.READY:
            return None


def _shown(moment: datetime | None) -> str:
    return "?" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _by_workers(job: Job, workers: Rows) -> Why | None:
    """Whether anyone who announced itself would take it; a worker without queues serves all."""
    if not workers:
        return Why("no_worker", "no worker has announced itself")
    decode = msgspec.json.Decoder(list[str]).decode
    knowing = [decode(row[5]) for row in workers if job.kind in decode(row[6])]
    if not knowing:
        return Why("unknown_kind", f"no live worker knows the kind {job.kind!r}")
    if not any(not queues or job.queue in queues for queues in knowing):
        return Why("unserved_queue", f"no live worker that knows it serves queue {job.queue!r}")
    return None


def _by_place(row: JobRow) -> Steps[Why]:
    lanes = yield Statement("all_lanes", {"queues": [row.queue]})
    now: int = (yield Statement("clock"))[0][0]
    higher = [lane for lane in lanes if lane[1] < row.rank and lane[3] <= now]
    if higher:
        keys = [lane[:3] for lane in higher]
        counted = yield Batch("count_lanes", ("queue", "rank", "kind"), keys, {"cap": 10_001})
        ahead = sum(lane[1] for lane in counted)
        return Why("behind", f"{ahead:,} jobs of a higher priority are before it")
    since = _shown(from_us(row.run_at))
    return Why("next", f"nothing: it is ready since {since}, and waits for its turn")
