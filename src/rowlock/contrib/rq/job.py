"""`Job`: a job as RQ's scripts look at it."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from rowlock.app import App
from rowlock.contrib.compat import Unsupported, is_over
from rowlock.contrib.rq.exceptions import NoSuchJobError
from rowlock.job import Job as RowlockJob
from rowlock.job import JobState

# Where a job's `meta` says how it is retried.
RETRY: Final = "rq_retry"


class JobStatus(StrEnum):
    """The words that `get_status` gives."""

    QUEUED = "queued"
    FINISHED = "finished"
    FAILED = "failed"
    STARTED = "started"
    SCHEDULED = "scheduled"
    CANCELED = "canceled"


class Job:
    """A job as RQ's scripts look at it."""

    def __init__(self, job: RowlockJob, *, connection: App) -> None:
        self._job = job
        self.connection = connection

    @classmethod
    def fetch(cls, id: str, connection: App | None = None) -> Self:
        """A job by its id. Raises `NoSuchJobError`."""
        app = app_of(connection)
        return cls(_found(app, id), connection=app)

    @classmethod
    def exists(cls, job_id: str, connection: App | None = None) -> bool:
        """Whether there is such a job."""
        return app_of(connection).get(job_id) is not None

    @property
    def id(self) -> str:
        """Its id, a UUID."""
        return self._job.id

    def get_id(self) -> str:
        """The same as `id`."""
        return self.id

    def refresh(self) -> None:
        """Read it again. Raises `NoSuchJobError`."""
        self._job = _found(self.connection, self.id)

    def get_status(self, refresh: bool = True) -> JobStatus:
        """What has become of it."""
        if refresh:
            self.refresh()
        return _status_of(self._job)

    @property
    def is_finished(self) -> bool:
        return self.get_status() is JobStatus.FINISHED

    @property
    def is_failed(self) -> bool:
        return self.get_status() is JobStatus.FAILED

    @property
    def is_queued(self) -> bool:
        return self.get_status() is JobStatus.QUEUED

    @property
    def is_started(self) -> bool:
        return self.get_status() is JobStatus.STARTED

    @property
    def is_scheduled(self) -> bool:
        return self.get_status() is JobStatus.SCHEDULED

    @property
    def is_canceled(self) -> bool:
        return self.get_status() is JobStatus.CANCELED

    def return_value(self, refresh: bool = False) -> Any:
        """What the function returned; None before."""
        if refresh or not self._job.state.is_terminal:
            self.refresh()
        return self._job.result

    @property
    def result(self) -> Any:
        """The same as `return_value()`."""
        return self.return_value()

    @property
    def exc_info(self) -> str | None:
        """The traceback of its last failure."""
        self.refresh()
        return self._job.errors[-1].traceback if self._job.errors else None

    @property
    def meta(self) -> dict[str, Any]:
        """What was given with it."""
        return {name: each for name, each in self._job.meta.items() if name != RETRY}

    @property
    def func_name(self) -> str:
        return self._job.kind

    @property
    def kwargs(self) -> dict[str, Any]:
        """All of its arguments, by name: those that were given by position too."""
        return dict(self._job.payload)

    @property
    def origin(self) -> str:
        """Its queue."""
        return self._job.queue

    @property
    def enqueued_at(self) -> datetime:
        return self._job.created_at

    @property
    def started_at(self) -> datetime | None:
        return self._job.started_at

    @property
    def ended_at(self) -> datetime | None:
        return self._job.finished_at

    def cancel(self) -> None:
        """Cancel it; one that runs is asked to end."""
        self.connection.cancel(self.id)

    def delete(self) -> None:
        """Remove it; it must not run."""
        self.connection.delete(self.id)

    def requeue(self) -> Job:
        """Take a failed job back."""
        return Job(self.connection.retry(self.id), connection=self.connection)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


current: ContextVar[Job | None] = ContextVar("rowlock_rq", default=None)


def get_current_job(connection: App | None = None) -> Job | None:
    """The job that runs here; None outside of one."""
    return current.get()


def _status_of(found: RowlockJob) -> JobStatus:
    match found.state:
        case JobState.SCHEDULED:
            return JobStatus.SCHEDULED
        case JobState.RETRYING:
            return JobStatus.QUEUED if is_over(found.run_at) else JobStatus.SCHEDULED
        case JobState.READY:
            return JobStatus.QUEUED
        case JobState.RUNNING:
            return JobStatus.STARTED
        case JobState.SUCCEEDED:
            return JobStatus.FINISHED
        case JobState.DEAD:
            return JobStatus.FAILED
        case JobState.CANCELLED:
            return JobStatus.CANCELED


def _found(app: App, id: str) -> RowlockJob:
    found = app.get(id)
    if found is None:
        raise NoSuchJobError(f"No such job: {id}")
    return found


def app_of(connection: object) -> App:
    """The app that is given as a connection."""
    if isinstance(connection, App):
        return connection
    raise Unsupported(
        f"connection={type(connection).__name__}", "give the rowlock.App: Queue('mail', app)"
    )
