"""`Job` with RQ's interface, and the registered functions: by code, never by a row."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, Never, Self, cast
from weakref import WeakKeyDictionary

from rowlock.app import App
from rowlock.context import Context, TimedOut
from rowlock.contrib.compat import (
    CallShape,
    Unsupported,
    is_over,
    loosen,
    report_text,
    reported,
)
from rowlock.contrib.rq.exceptions import NoSuchJobError
from rowlock.contrib.rq.results import Result
from rowlock.job import Job as RowlockJob
from rowlock.job import JobState
from rowlock.task import Task

logger: logging.Logger = logging.getLogger("rowlock.contrib.rq")

# The keys in a job's `meta` that hold its retries, its description, and what it waits for.
RETRY: Final = "rq_retry"
DESCRIPTION: Final = "rq_description"
DEPENDS_ON: Final = "rq_depends_on"

# As in RQ, in seconds.
TIMEOUT_DEFAULT: Final = 180
RESULT_TTL_DEFAULT: Final = 500
FAILURE_TTL_DEFAULT: Final = 31_536_000

# The mark of a saved `meta` in a job's progress.
_SAVED: Final = "rq"

ExceptionHandler = Callable[..., bool | None]
# The handlers of the workers that run in this process, by their app.
exception_handlers: WeakKeyDictionary[App, tuple[ExceptionHandler, ...]] = WeakKeyDictionary()

_shapes: WeakKeyDictionary[Task[..., Any], CallShape] = WeakKeyDictionary()

# Names of RQ's job that have no meaning here.
_MISSING: Final[Mapping[str, str]] = {
    "create": "call queue.enqueue(...)",
    "perform": "call the function, or queue.enqueue(...) and app.drain()",
    "save": "a job is stored when it is enqueued; save_meta() stores its meta",
    "set_status": "cancel, requeue or delete the job",
    "get_position": "look at `rowlock jobs why ID`",
    "results": "use latest_result(), or the errors of app.get(id)",
    "register_dependency": "call queue.enqueue(..., depends_on=...)",
    "heartbeat": "the worker does it",
}

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

    is_stopped: bool = False

    def __init__(self, job: RowlockJob, *, connection: App, context: Context | None = None) -> None:
        self._job = job
        self.connection = connection
        self._context = context
        self.meta: dict[str, Any] = _meta_of(job)

    @classmethod
    def create(cls, *_: Any, **__: Any) -> Never:
        """Not supported."""
        raise Unsupported("Job.create", "call queue.enqueue(...)")

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

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: App | None = None) -> list[Self | None]:
        """Return jobs by their ids, in the same order. None: there is none with that id."""
        app = app_of(connection)
        found = map(app.get, job_ids)
        return [None if each is None else cls(each, connection=app) for each in found]

    def get_id(self) -> str:
        """Return the id."""
        return self.id

    def refresh(self) -> None:
        """Read it again. Raise `NoSuchJobError` if it is gone."""
        self._job = _found(self.connection, self.id)
        self.meta = _meta_of(self._job)

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Return its status."""
        if refresh:
            self.refresh()
        return status_of(self._job)

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

    @property
    def is_deferred(self) -> bool:
        return self.get_status() is JobStatus.DEFERRED

    @property
    def dependency_ids(self) -> list[str]:
        """The ids of the jobs that it waits for, or waited for."""
        return list(self._job.meta.get(DEPENDS_ON) or ())

    @property
    def dependency(self) -> Job | None:
        """The first of them. Raise `NoSuchJobError` if it is gone."""
        ids = self.dependency_ids
        return Job.fetch(ids[0], connection=self.connection) if ids else None

    def fetch_dependencies(self, watch: bool = False, pipeline: None = None) -> list[Job]:
        """Return the jobs that it waits for, or waited for, without those that are gone."""
        found = Job.fetch_many(self.dependency_ids, connection=self.connection)
        return [job for job in found if job is not None]

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

    def get_meta(self, refresh: bool = True) -> dict[str, Any]:
        """Return `meta`, as the job has saved it last."""
        if refresh:
            self.refresh()
        return self.meta

    def save_meta(self) -> None:
        """Store `meta`, in the running job itself. It is kept as the job's progress.

        So it is stored at most twice a second, and the last one, with at most 1,024 bytes. The
        number `progress` in it, from 0 to 1 or to 100, is shown as the job's share.
        """
        if self._context is None:
            raise Unsupported(
                "save_meta() outside of the running job", "pass meta= to enqueue, or save it there"
            )
        share = self.meta.get("progress")
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        fraction = float(share or 0) if is_number else 0.0
        text = report_text(_SAVED, self.meta)
        self._context.progress(fraction / 100 if fraction > 1 else fraction, text)

    def latest_result(self, timeout: float = 0) -> Result | None:
        """Return how it ended, or how its last run did."""
        self.refresh()
        return Result.of(self._job)

    @property
    def args(self) -> tuple[Any, ...]:
        """Always empty: `kwargs` has all arguments."""
        return ()

    @property
    def created_at(self) -> datetime:
        return self._job.created_at

    @property
    def due_at(self) -> datetime:
        """When it is to run."""
        self.refresh()
        return self._job.run_at

    @property
    def timeout(self) -> float | None:
        """Seconds that it may take. None: any."""
        return self._job.timeout

    @property
    def worker_name(self) -> str | None:
        """The worker that runs it, or ran it last."""
        return self._job.worker

    @property
    def description(self) -> str:
        """The description, or else the call."""
        call = ", ".join(f"{name}={value!r}" for name, value in self.kwargs.items())
        text: str = self._job.meta.get(DESCRIPTION) or f"{self.func_name}({call})"
        return text

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

    def cancel(self, enqueue_dependents: bool = False) -> None:
        """Cancel it, and what waits for it. A running job gets a cancel request."""
        if enqueue_dependents:
            raise Unsupported("cancel(enqueue_dependents=True)", "enqueue the others again")
        self.connection.cancel(self.id)

    def delete(self) -> None:
        """Delete it. It must not be running."""
        self.connection.delete(self.id)

    def requeue(self) -> Job:
        """Retry a failed job."""
        return Job(self.connection.retry(self.id), connection=self.connection)

    def __getattr__(self, name: str) -> Never:
        if name in _MISSING:
            raise Unsupported(f"job.{name}", _MISSING[name])
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


def _meta_of(job: RowlockJob) -> dict[str, Any]:
    """Return what the job saved last, or what was enqueued with it."""
    saved = reported(job, _SAVED)
    if isinstance(saved, dict):
        return saved
    own = (RETRY, DESCRIPTION, DEPENDS_ON)
    return {name: each for name, each in job.meta.items() if name not in own}


current: ContextVar[Job | None] = ContextVar("rowlock_rq", default=None)


def get_current_job(connection: App | None = None) -> Job | None:
    """Return the running job, None outside of one."""
    return current.get()


def status_of(found: RowlockJob) -> JobStatus:
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


def cancel_job(
    job_id: str, connection: App | None = None, enqueue_dependents: bool = False
) -> None:
    """Cancel a job by its id."""
    Job.fetch(job_id, connection=connection).cancel(enqueue_dependents)


def requeue_job(job_id: str, connection: App | None = None) -> Job:
    """Retry a failed job by its id."""
    return Job.fetch(job_id, connection=connection).requeue()


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

    def __repr__(self) -> str:
        interval = self.intervals[0] if len(self.intervals) == 1 else self.intervals
        return f"Retry(max={self.max}, interval={interval}, enqueue_at_front=False)"


class Dependency:
    """The jobs that a job waits for, as in RQ.

    Args:
        jobs: A job, its id, or several of them.
        allow_failure: Whether it also runs if one of them has failed.
        enqueue_at_front: Not supported.
    """

    def __init__(
        self,
        jobs: Job | str | Iterable[Job | str],
        allow_failure: bool = False,
        enqueue_at_front: bool = False,
    ) -> None:
        if enqueue_at_front:
            raise Unsupported("Dependency(enqueue_at_front=True)", "enqueue it with at_front=True")
        several = [jobs] if isinstance(jobs, Job | str) else list(jobs)
        if not all(isinstance(job, Job | str) for job in several):
            raise ValueError(
                "jobs: must contain objects of type Job and/or strings representing Job ids"
            )
        if not several:
            raise ValueError("jobs: cannot be empty.")
        self.dependencies: list[Job | str] = several
        self.allow_failure = allow_failure

    @classmethod
    def of(cls, depends_on: DependsOn | None) -> Dependency | None:
        """Return what `depends_on` means. As in RQ, one that may fail lets all of them fail."""
        if not depends_on:
            return None
        is_one = isinstance(depends_on, Job | str | Dependency)
        several: list[Any] = [depends_on] if is_one else list(cast("Iterable[Any]", depends_on))
        jobs: list[Job | str] = []
        for each in several:
            jobs += each.dependencies if isinstance(each, Dependency) else [each]
        can_fail = any(isinstance(each, Dependency) and each.allow_failure for each in several)
        return cls(jobs, allow_failure=can_fail)

    @property
    def ids(self) -> list[str]:
        """The ids of the jobs."""
        return [job if isinstance(job, str) else job.id for job in self.dependencies]

    def known_to(self, app: App) -> list[str]:
        """Return the ids of those that exist. As in RQ, nothing waits for one that is gone."""
        return [id for id in self.ids if app.get(id) is not None]


DependsOn = Job | str | Dependency | Iterable[Job | str | Dependency]
"""What `depends_on` takes."""


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

    shape = CallShape(function)

    def call(context: Context, arguments: Mapping[str, Any]) -> Any:
        args, kwargs = shape.call(arguments)
        return _run(app, partial(function, *args, **kwargs), context)

    decorate = app.task(
        name=name,
        max_attempts=1,
        retry=_delay_of,
        timeout=TIMEOUT_DEFAULT,
        keep=RESULT_TTL_DEFAULT,
    )
    task = decorate(shape.handler(call))
    loosen(task)
    _shapes[task] = shape
    return task


def shape_of(task: Task[..., Any]) -> CallShape:
    """Return how calls of a task become payloads. It need not be registered by `register`."""
    return _shapes.get(task) or CallShape(task.function)


def _refuse_namesake(known: Task[..., Any], function: Callable[..., Any]) -> None:
    """Reject another function with the same name, such as a lambda: the first would run."""
    is_nameless = "<" in function.__qualname__
    if is_nameless and inspect.unwrap(known.function) is not inspect.unwrap(function):
        raise Unsupported(
            f"another function by the name of {known.name}", "use a plain function of a module"
        )


def _run(app: App, function: Callable[[], Any], context: Context) -> Any:
    job = Job(context.job, connection=app, context=context)
    before = current.set(job)
    try:
        result = function()
    except (Exception, TimedOut) as error:
        setattr(error, _DELAY, _interval(context))
        _handle(app, job, error)
        raise
    finally:
        current.reset(before)
    if isinstance(result, Retry):
        raise Unsupported("a Retry that is returned", "raise, and enqueue with retry=Retry(...)")
    return result


def _handle(app: App, job: Job, error: BaseException) -> None:
    """Call the handlers of the worker. What they raise is logged."""
    for handler in exception_handlers.get(app, ()):
        try:
            goes_on = handler(job, type(error), error, error.__traceback__)
        except Exception:
            logger.exception("job %s: its exception handler %r raised", job.id, handler)
            goes_on = None
        if goes_on is not None and not goes_on:
            return


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
