"""What `rowlock jobs show` prints about one job: the fields that are set. JSON has them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rowlock.cli import show

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.job import Job

Detail = tuple[str, show.Cell | str]


def job_details(job: Job, *, now: datetime) -> Iterator[Detail]:
    """Yield the fields of a job: state, identity, times, options, errors and result."""
    yield "id", show.Cell(job.id, "bold")
    yield "state", show.Cell(f"{job.state} {when(job, now=now)}", show.STATE_STYLES[job.state])
    yield from _identity(job)
    yield from _times(job, now=now)
    yield from _rules(job)
    yield from _results(job)


def when(job: Job, *, now: datetime) -> str:
    """Return the time that matters most in a job's state."""
    if job.finished_at is not None:
        return f"{show.short_age((now - job.finished_at).total_seconds())} ago"
    if job.state == "running" and job.started_at is not None:
        return f"for {show.short_age((now - job.started_at).total_seconds())}"
    if job.state == "ready":
        return f"since {show.short_age((now - job.run_at).total_seconds())}"
    return f"in {show.short_age((job.run_at - now).total_seconds())}"


def _identity(job: Job) -> Iterator[Detail]:
    yield "kind", job.kind
    yield "queue", job.queue
    if job.priority:
        yield "priority", str(job.priority)
    for name, value in (("tenant", job.tenant), ("key", job.key)):
        if value is not None:
            yield name, value
    if job.tags:
        yield "tags", ", ".join(job.tags)
    if job.meta:
        yield "meta", show.as_json(job.meta)
    yield "payload", show.as_json(job.payload)


def _times(job: Job, *, now: datetime) -> Iterator[Detail]:
    yield "created", _moment(job.created_at, now=now)
    if job.run_at > job.created_at:
        yield "due", _moment(job.run_at, now=now)
    if job.started_at is not None:
        yield "started", _moment(job.started_at, now=now)
    if job.finished_at is not None:
        ran = ""
        if job.started_at is not None and job.started_at <= job.finished_at:
            ran = f", after {show.age((job.finished_at - job.started_at).total_seconds())}"
        yield "finished", f"{_moment(job.finished_at, now=now)}{ran}"
    if job.worker is not None:
        until = job.lease_expires_at
        yield "worker", job.worker + (f", until {_moment(until, now=now)}" if until else "")


def _moment(moment: datetime, *, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    near = f"{show.short_age(seconds)} ago" if seconds >= 0 else f"in {show.short_age(-seconds)}"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z ({near})"


def _rules(job: Job) -> Iterator[Detail]:
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    if job.crashes:
        yield "crashes", f"{job.crashes} of {job.max_crashes}"
    if job.cancel_requested:
        yield "cancel", "requested"
    if job.timeout is not None:
        yield "timeout", show.age(job.timeout)
    if job.retry:
        yield "retry", f"{job.retry[0]}({', '.join(map(str, job.retry[1:]))})"
    if job.state not in ("dead", "cancelled"):
        yield "keep", "forever" if job.keep is None else show.age(job.keep)


def _results(job: Job) -> Iterator[Detail]:
    if job.progress is not None:
        yield "progress", f"{job.progress.fraction:.0%} {job.progress.text}".strip()
    if job.result is not None:
        yield "result", show.as_json(job.result)
    for error in job.errors:
        title = f"attempt {error.attempt}, {error.time:%Y-%m-%d %H:%M:%S}Z: {error}"
        yield "error", show.Cell(f"{title}\n{error.traceback}".rstrip(), "red")
