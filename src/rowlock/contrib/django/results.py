"""A job as Django's tasks see it: a `TaskResult`."""

from __future__ import annotations

import builtins
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from rowlock.contrib.django.flavour import TaskError, TaskResult, TaskResultStatus
from rowlock.job import Job, JobError, JobState

_STATUSES = {
    JobState.SCHEDULED: TaskResultStatus.READY,
    JobState.READY: TaskResultStatus.READY,
    JobState.RETRYING: TaskResultStatus.READY,
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobState.DEAD: TaskResultStatus.FAILED,
    JobState.CANCELLED: TaskResultStatus.FAILED,
}


def result_of(job: Job, task: Any, *, backend: str) -> Any:
    """The result of a job, whose task as it was declared is `task`."""
    result = TaskResult(
        task=_task_of(job, task, backend=backend),
        id=job.id,
        status=_STATUSES[job.state],
        enqueued_at=moment(job.created_at),
        # Of earlier attempts no more is known than their errors.
        started_at=moment(job.started_at),
        last_attempted_at=moment(job.started_at),
        finished_at=moment(job.finished_at),
        args=job.payload.get("args") or [],
        kwargs=job.payload.get("kwargs") or {},
        backend=backend,
        errors=[_error_of(error) for error in job.errors],
        worker_ids=_workers_of(job),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def _task_of(job: Job, task: Any, *, backend: str) -> Any:
    queues = task.get_backend().queues
    return replace(
        task,
        backend=backend,
        priority=job.priority,
        # Jobs stay where they are when the settings change.
        queue_name=job.queue if not queues or job.queue in queues else task.queue_name,
        run_after=moment(job.run_at) if job.state is JobState.SCHEDULED else None,
    )


def _workers_of(job: Job) -> list[str]:
    """One for each attempt, as their number is counted by; only the last one's name is kept."""
    return [job.worker or ""] * job.attempt


def _error_of(error: JobError) -> Any:
    path = error.type
    if "." not in path:
        # A class of Python's, or a word of ours for what was no exception: a lost lease, a crash.
        path = f"builtins.{path}" if hasattr(builtins, path) else "rowlock.RowlockError"
    return TaskError(exception_class_path=path, traceback=error.traceback or str(error))


def moment(time: datetime | None) -> datetime | None:
    """A time as this project has them: aware, or naive and local."""
    if time is None or settings.USE_TZ:
        return time
    naive: datetime = timezone.make_naive(time)
    return naive


def aware(time: datetime | None) -> datetime | None:
    """A time of this project as rowlock has them."""
    if time is None or timezone.is_aware(time):
        return time
    made: datetime = timezone.make_aware(time)
    return made
