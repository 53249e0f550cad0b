"""`AsyncResult`: a job with Celery's interface."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from rowlock.contrib.celery import exceptions
from rowlock.contrib.celery.exceptions import TaskRevokedError
from rowlock.contrib.compat import Unsupported, error_again
from rowlock.job import Job, JobState

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery

_STATUS = {
    JobState.WAITING: "PENDING",
    JobState.SCHEDULED: "PENDING",
    JobState.READY: "PENDING",
    JobState.RUNNING: "STARTED",
    JobState.RETRYING: "RETRY",
    JobState.SUCCEEDED: "SUCCESS",
    JobState.DEAD: "FAILURE",
    JobState.CANCELLED: "REVOKED",
}
_OWN = {
    f"{each.__module__}.{each.__name__}": each
    for each in (exceptions.MaxRetriesExceededError, exceptions.Reject)
}


class AsyncResult:
    """A job by its id. An unknown id is `PENDING`, as in Celery."""

    def __init__(self, id: str, *, app: Celery) -> None:
        self.id = id
        self._app = app

    @property
    def task_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def job(self) -> Job | None:
        """The job as rowlock's `Job`. None if it does not exist, or its retention has expired."""
        return self._app.get(self.id)

    @property
    def status(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED."""
        job = self.job
        return "PENDING" if job is None else _STATUS[job.state]

    @property
    def state(self) -> str:
        """The same as `status`."""
        return self.status

    def ready(self) -> bool:
        """Whether it has ended."""
        job = self.job
        return job is not None and job.state.is_terminal

    def successful(self) -> bool:
        """Whether it has succeeded."""
        return self.status == "SUCCESS"

    def failed(self) -> bool:
        """Whether it is dead."""
        return self.status == "FAILURE"

    @property
    def result(self) -> Any:
        """The value that it returned, or the error that ended it. None before."""
        job = self.job
        if job is None or not job.state.is_terminal:
            return None
        return job.result if job.state is JobState.SUCCEEDED else _error_of(job)

    @property
    def info(self) -> Any:
        """The same as `result`."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """The traceback of the last failed attempt."""
        job = self.job
        return job.errors[-1].traceback if job is not None and job.errors else None

    def get(self, timeout: float | None = None, propagate: bool = True, **other: Any) -> Any:
        """Wait for the result.

        Raises:
            TimeoutError: It has not ended after `timeout` seconds.
            TaskRevokedError: It was cancelled.
            NotFound: There is no such job. Celery would wait forever.
            Exception: The error that ended it if it is one of Python's own, else `TaskFailed`.
        """
        for option in other:
            if option not in ("interval", "disable_sync_subtasks"):
                raise Unsupported(f"get({option}=...)", "leave it out")
        try:
            job = self._app.wait(self.id, timeout)
        except builtins.TimeoutError as error:
            raise exceptions.TimeoutError("The operation timed out.") from error
        if job.state is JobState.SUCCEEDED:
            return job.result
        ended = _error_of(job)
        if propagate:
            raise ended
        return ended

    wait = get

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Cancel it. A running task gets a cancel request, whether `terminate` is set or not."""
        self._app.cancel(self.id)

    def forget(self) -> None:
        """Delete it. It must have ended."""
        self._app.delete(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def _error_of(job: Job) -> Exception:
    last = job.errors[-1] if job.errors else None
    if job.state is JobState.CANCELLED or last is None:
        is_told = last is not None and last.type == "Cancelled"
        return TaskRevokedError(last.message if is_told and last is not None else "revoked")
    return error_again(last.type, last.message, _OWN)
