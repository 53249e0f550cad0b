"""Registries: the jobs of a queue that are in a state, read from the database at each look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final, Never

from rowlock import config
from rowlock.app import App
from rowlock.contrib.compat import Unsupported
from rowlock.contrib.rq.job import Job, app_of, status_of
from rowlock.job import Job as RowlockJob
from rowlock.job import JobState

if TYPE_CHECKING:
    from rowlock.contrib.rq.queue import Queue

# More than these are not read into one list.
JOB_IDS_MAX: Final = 10_000

_MISSING: Final[Mapping[str, str]] = {
    "add": "a job is in the registry of its state; enqueue, cancel or retry it",
    "get_expired_job_ids": "expired jobs are removed by the workers",
    "get_expiration_time": "look at finished_at and keep of app.get(id)",
    "add_execution": "the worker does it",
    "remove_execution": "the worker does it",
    "get_job_and_execution_ids": "use get_job_ids()",
    "remove_executions": "the worker does it",
    "get_jobs_to_schedule": "the workers do it",
    "remove_jobs": "the workers do it",
}


def jobs_in(
    app: App, queue: str, *states: JobState, chosen: Callable[[RowlockJob], bool]
) -> list[RowlockJob]:
    """Return the jobs of a queue in these states, in the order in which they run or have run.

    Raises:
        Unsupported: There are more than 10,000.
    """
    found: list[RowlockJob] = []
    for state in states:
        cursor: str | None = None
        while True:
            page = app.list(state=state, queue=queue, limit=config.LIST_LIMIT_MAX, cursor=cursor)
            found += filter(chosen, page.jobs)
            cursor = page.next
            if len(found) > JOB_IDS_MAX:
                raise Unsupported(
                    f"a list of more than {JOB_IDS_MAX:,} jobs",
                    f"page through app.list(state={state.value!r}, queue={queue!r})",
                )
            if cursor is None:
                break
    return sorted(found, key=lambda job: (-job.priority, job.run_at, job.id))


def slice_of(ids: list[str], start: int, end: int) -> list[str]:
    """Return a part of a list as Redis does: both ends are included, -1 is the last."""
    return ids[start:] if end == -1 else ids[start : end + 1]


class JobRegistry:
    """The jobs of one queue in the states of a registry."""

    states: ClassVar[tuple[JobState, ...]] = ()

    def __init__(
        self,
        name: str = "default",
        connection: App | None = None,
        *,
        queue: Queue | None = None,
        **other: object,
    ) -> None:
        for option, value in other.items():
            if value is not None:
                raise Unsupported(f"{type(self).__name__}({option}=...)", "leave it out")
        self.name: str = name if queue is None else queue.name
        self.connection: App = app_of(connection if queue is None else queue.connection)

    def _has(self, job: RowlockJob) -> bool:
        return job.queue == self.name and job.state in self.states

    def get_job_ids(
        self, start: int = 0, end: int = -1, desc: bool = False, cleanup: bool = True
    ) -> list[str]:
        """Return the ids of its jobs, at most 10,000."""
        found = jobs_in(self.connection, self.name, *self.states, chosen=self._has)
        ids = [job.id for job in found]
        return slice_of(ids[::-1] if desc else ids, start, end)

    @property
    def count(self) -> int:
        """The number of its jobs."""
        return len(self.get_job_ids())

    def get_job_count(self, cleanup: bool = True) -> int:
        """Return the number of its jobs."""
        return self.count

    def __len__(self) -> int:
        return self.count

    def __contains__(self, item: Job | str) -> bool:
        found = self.connection.get(item if isinstance(item, str) else item.id)
        return found is not None and self._has(found)

    def get_queue(self) -> Queue:
        """Return its queue."""
        from rowlock.contrib.rq.queue import Queue

        return Queue(self.name, connection=self.connection)

    def remove(self, job: Job | str, pipeline: None = None, delete_job: bool = False) -> None:
        """Delete a job. It must not be running."""
        if not delete_job:
            raise Unsupported("remove(delete_job=False)", "delete or requeue the job")
        self.connection.delete(job if isinstance(job, str) else job.id)

    def requeue(self, job_or_id: Job | str, at_front: bool = False) -> Job:
        """Retry a failed or canceled job."""
        if at_front:
            raise Unsupported("requeue(at_front=True)", "leave it out: it keeps its place")
        id = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        return Job.fetch(id, connection=self.connection).requeue()

    def cleanup(self, *_: object) -> None:
        """Do nothing: the workers remove what has expired."""

    def __getattr__(self, name: str) -> Never:
        if name in _MISSING:
            raise Unsupported(f"{type(self).__name__}.{name}", _MISSING[name])
        raise AttributeError(name)


class StartedJobRegistry(JobRegistry):
    """The jobs that run."""

    states: ClassVar[tuple[JobState, ...]] = (JobState.RUNNING,)


class FinishedJobRegistry(JobRegistry):
    """The jobs that have succeeded, and are kept."""

    states: ClassVar[tuple[JobState, ...]] = (JobState.SUCCEEDED,)


class FailedJobRegistry(JobRegistry):
    """The jobs that have failed for good."""

    states: ClassVar[tuple[JobState, ...]] = (JobState.DEAD,)


class CanceledJobRegistry(JobRegistry):
    """The jobs that were cancelled."""

    states: ClassVar[tuple[JobState, ...]] = (JobState.CANCELLED,)


class DeferredJobRegistry(JobRegistry):
    """The jobs that wait for others."""

    states: ClassVar[tuple[JobState, ...]] = (JobState.WAITING,)


class ScheduledJobRegistry(JobRegistry):
    """The jobs that wait for their time, or for a retry."""

    states: ClassVar[tuple[JobState, ...]] = (JobState.SCHEDULED, JobState.RETRYING)

    def _has(self, job: RowlockJob) -> bool:
        return super()._has(job) and status_of(job) == "scheduled"

    def get_scheduled_time(self, job_or_id: Job | str) -> datetime:
        """Return when a job is due."""
        id = job_or_id if isinstance(job_or_id, str) else job_or_id.id
        return Job.fetch(id, connection=self.connection).due_at

    def schedule(self, job: Job, scheduled_datetime: datetime, pipeline: None = None) -> None:
        """Let a waiting job run at another time."""
        self.connection.reschedule(job.id, scheduled_datetime)
