"""`Job` with RQ's interface, and the registered functions: by code, never by a row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from rowlock.app import App
from rowlock.context import Context, TimedOut
from rowlock.contrib.compat import Unsupported, handler_for, is_over
from rowlock.contrib.rq.exceptions import NoSuchJobError
from rowlock.job import Job as RowlockJob
from rowlock.job import JobState
from rowlock.task import Task

# The key in a job's `meta` that holds its retries.
RETRY: Final = "rq_retry"

# As in RQ, in seconds.
TIMEOUT_DEFAULT: Final = 180
RESULT_TTL_DEFAULT: Final = 500
FAILURE_TTL_DEFAULT: Final = 31_536_000

# A failed run sets its delay here, because the retry policy sees only the error.
_DELAY = "rowlock_rq_delay"


class JobStatus(StrEnum):
    """The values of `get_status`."""

    QUEUED = "queued"
    FINISHED = "finished"
    FAILED = "failed"
    STARTED = "started"
    SCHEDULED = "scheduled"
    CANCELED = "canceled"
    DEFERRED = "deferred"


class Job:
    """A job with RQ's interface."""

    def __init__(self, job: RowlockJob, *, connection: App) -> None:
        self._job = job
        self.connection = connection

    @classmethod
    def fetch(cls, id: str, connection: App | None = None) -> Self:
        """Return a job by its id. Raise `NoSuchJobError` if there is none."""
        app = app_of(connection)
        return cls(_found(app, id), connection=app)

    @classmethod
    def exists(cls, job_id: str, connection: App | None = None) -> bool:
        """Return whether there is such a job."""
        return app_of(connection).get(job_id) is not None

    @property
    def id(self) -> str:
        """The id, a UUID."""
        return self._job.id

    def get_id(self) -> str:
        """Return the id."""
        return self.id

    def refresh(self) -> None:
        """Read it again. Raise `NoSuchJobError` if it is gone."""
        self._job = _found(self.connection, self.id)

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Return its status."""
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
        """Return the function's result, None before it has ended."""
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
        """The `meta` that was passed with it."""
        return {name: each for name, each in self._job.meta.items() if name != RETRY}

    @property
    def func_name(self) -> str:
        return self._job.kind

    @property
    def kwargs(self) -> dict[str, Any]:
        """All of its arguments by name, including those passed by position."""
        return dict(self._job.payload)

    @property
    def origin(self) -> str:
        """The name of its queue."""
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
        """Cancel it. A running job gets a cancel request."""
        self.connection.cancel(self.id)

    def delete(self) -> None:
        """Delete it. It must not be running."""
        self.connection.delete(self.id)

    def requeue(self) -> Job:
        """Retry a failed job."""
        return Job(self.connection.retry(self.id), connection=self.connection)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


current: ContextVar[Job | None] = ContextVar("rowlock_rq", default=None)


def get_current_job(connection: App | None = None) -> Job | None:
    """Return the running job, None outside of one."""
    return current.get()


def _status_of(found: RowlockJob) -> JobStatus:
    match found.state:
        case JobState.WAITING:
            return JobStatus.DEFERRED
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
    """Return the app that was passed as a connection."""
    if isinstance(connection, App):
        return connection
    raise Unsupported(
        f"connection={type(connection).__name__}", "pass the rowlock.App: Queue('mail', app)"
    )


class Retry:
    """How often to retry a failed job, and the delays in seconds, as in RQ."""

    def __init__(
        self, max: int, interval: int | Iterable[int] = 0, enqueue_at_front: bool = False
    ) -> None:
        if max < 1:
            raise ValueError("max: please enter a value greater than 0")
        if enqueue_at_front:
            raise Unsupported("Retry(enqueue_at_front=True)", "leave it out: it keeps its place")
        self.max = max
        self.intervals: list[int] = [interval] if isinstance(interval, int) else list(interval)
        if any(each < 0 for each in self.intervals):
            raise ValueError("interval: negative numbers are not allowed")


def register(app: App, function: Callable[..., Any]) -> Task[..., Any]:
    """Let an app run a function's jobs. Call it where the worker imports it.

    The kind is the function's path, `module.name`. A second function with that path is rejected.
    """
    if inspect.ismethod(function) or not hasattr(function, "__qualname__"):
        raise Unsupported(f"{function!r:.100}", "use a plain function of a module")
    if function.__module__ == "__main__":
        raise ValueError("Functions from the __main__ module cannot be processed by workers")
    name = f"{function.__module__}.{function.__qualname__}"
    known = app.find(name)
    if known is not None:
        _refuse_namesake(known, function)
        return known

    def call(context: Context, arguments: Mapping[str, Any]) -> Any:
        return _run(app, function, context, arguments)

    decorate = app.task(
        name=name,
        max_attempts=1,
        retry=_delay_of,
        timeout=TIMEOUT_DEFAULT,
        keep=RESULT_TTL_DEFAULT,
    )
    return decorate(handler_for(function, call))


def _refuse_namesake(known: Task[..., Any], function: Callable[..., Any]) -> None:
    """Reject another function with the same name, such as a lambda: the first would run."""
    is_nameless = "<" in function.__qualname__
    if is_nameless and inspect.unwrap(known.function) is not inspect.unwrap(function):
        raise Unsupported(
            f"another function by the name of {known.name}", "use a plain function of a module"
        )


def _run(
    app: App, function: Callable[..., Any], context: Context, arguments: Mapping[str, Any]
) -> Any:
    before = current.set(Job(context.job, connection=app))
    try:
        result = function(**arguments)
    except (Exception, TimedOut) as error:
        setattr(error, _DELAY, _interval(context))
        raise
    finally:
        current.reset(before)
    if isinstance(result, Retry):
        raise Unsupported("a Retry that is returned", "raise, and enqueue with retry=Retry(...)")
    return result


def _interval(context: Context) -> float:
    """Return the delay as RQ computes it: with too few intervals, the first is repeated."""
    stored = context.job.meta.get(RETRY)
    if not isinstance(stored, Mapping) or not stored["intervals"]:
        return 0.0
    intervals: list[float] = stored["intervals"]
    left: int = stored["max"] - context.attempt + 1
    return intervals[min(max(len(intervals) - left, 0), len(intervals) - 1)]


def _delay_of(attempt: int, error: BaseException | None) -> float:
    delay: float = getattr(error, _DELAY, 0.0)
    return delay
