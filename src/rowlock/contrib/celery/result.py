"""`AsyncResult`: a job with Celery's interface. `EagerResult`: a run without a job."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Never

from rowlock.contrib.celery import exceptions, states
from rowlock.contrib.celery.canvas import INSTEAD
from rowlock.contrib.celery.exceptions import TaskRevokedError
from rowlock.contrib.celery.local import the_app
from rowlock.contrib.compat import Unsupported, error_again, report_text, reported
from rowlock.job import Job, JobState

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery

_STATUS = {
    JobState.WAITING: states.PENDING,
    JobState.SCHEDULED: states.PENDING,
    JobState.READY: states.PENDING,
    JobState.RUNNING: states.STARTED,
    JobState.RETRYING: states.RETRY,
    JobState.SUCCEEDED: states.SUCCESS,
    JobState.DEAD: states.FAILURE,
    JobState.CANCELLED: states.REVOKED,
}
_OWN = {
    f"{each.__module__}.{each.__name__}": each
    for each in (
        exceptions.MaxRetriesExceededError,
        exceptions.Reject,
        exceptions.SoftTimeLimitExceeded,
    )
}
# Names of Celery's results that have no meaning here.
_MISSING: Final[Mapping[str, str]] = {
    "collect": "wait for each result with get()",
    "iterdeps": "wait for each result with get()",
    "graph": "look at the job in the dashboard",
    "then": "wait for the result with get(), or connect signals.task_success in the worker",
    "backend": "results are stored with their jobs; `job` is this one",
}
_STATE_MARK = "celery"


class ReportedState:
    """What `update_state` reported: kept as the text of the job's progress."""

    def __init__(self, state: str | None, meta: Any) -> None:
        self.state = state
        self.meta = meta

    @property
    def text(self) -> str:
        """The text of the progress."""
        return report_text(_STATE_MARK, [self.state, self.meta])

    @property
    def fraction(self) -> float:
        """The share that `current` and `total` say, else 0."""
        meta = self.meta if isinstance(self.meta, Mapping) else {}
        current, total = meta.get("current"), meta.get("total")
        if isinstance(current, int | float) and isinstance(total, int | float) and total:
            return current / total
        return 0.0

    @classmethod
    def of(cls, job: Job) -> ReportedState | None:
        """Return what a job reported last, if it did."""
        found = reported(job, _STATE_MARK)
        return cls(*found) if isinstance(found, list) and len(found) == 2 else None


class AsyncResult:
    """A job by its id. An unknown id is `PENDING`, as in Celery.

    Args:
        id: The job's id.
        backend: Must be None: results are stored with their jobs.
        task_name: Ignored, because the job has it.
        app: The app. Default: the current one.
        parent: Must be None.
    """

    parent: None = None
    children: None = None

    def __init__(
        self,
        id: str,
        backend: None = None,
        task_name: str | None = None,
        app: Celery | None = None,
        parent: None = None,
    ) -> None:
        if backend is not None or parent is not None:
            raise Unsupported("AsyncResult(backend=..., parent=...)", "leave them out")
        self.id = id
        self._app = the_app() if app is None else app

    @property
    def task_id(self) -> str:
        """The same as `id`."""
        return self.id

    @property
    def app(self) -> Celery:
        """The app."""
        return self._app

    @property
    def job(self) -> Job | None:
        """The job as rowlock's `Job`. None if it does not exist, or its retention has expired."""
        return self._app.get(self.id)

    @property
    def status(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what `update_state` said."""
        job = self.job
        if job is None:
            return states.PENDING
        shown = _shown(job)
        return _STATUS[job.state] if shown is None else shown.state or states.PENDING

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
        return self.status == states.SUCCESS

    def failed(self) -> bool:
        """Whether it is dead."""
        return self.status == states.FAILURE

    @property
    def result(self) -> Any:
        """What it returned, the error that ended it, or the `meta` of `update_state`."""
        job = self.job
        if job is None:
            return None
        shown = _shown(job)
        if shown is not None:
            return shown.meta
        if job.state.is_terminal:
            return job.result if job.state is JobState.SUCCEEDED else _error_of(job)
        return None

    @property
    def info(self) -> Any:
        """The same as `result`."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """The traceback of the last failed attempt."""
        job = self.job
        return job.errors[-1].traceback if job is not None and job.errors else None

    @property
    def name(self) -> str | None:
        """The name of its task."""
        job = self.job
        return None if job is None else job.kind

    @property
    def kwargs(self) -> dict[str, Any] | None:
        """All of its arguments by name, also those given by position."""
        job = self.job
        return None if job is None else job.payload

    @property
    def queue(self) -> str | None:
        """The name of its queue."""
        job = self.job
        return None if job is None else job.queue

    @property
    def worker(self) -> str | None:
        """The worker that runs it, or ran it last."""
        job = self.job
        return None if job is None else job.worker

    @property
    def retries(self) -> int | None:
        """How many retries it has had."""
        job = self.job
        return None if job is None else max(0, job.attempt - 1)

    @property
    def date_done(self) -> datetime | None:
        """When it ended."""
        job = self.job
        return None if job is None else job.finished_at

    def get(self, timeout: float | None = None, propagate: bool = True, **other: Any) -> Any:
        """Wait for the result.

        Raises:
            TimeoutError: It has not ended after `timeout` seconds.
            TaskRevokedError: It was cancelled.
            NotFound: There is no such job. Celery would wait forever.
            Exception: The error that ended it if it is one of Python's own, else `TaskFailed`.
        """
        for option, value in other.items():
            if option in ("callback", "on_message", "on_interval") and value is not None:
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

    def maybe_throw(self, propagate: bool = True, callback: None = None) -> Any:
        """Raise the error that ended it, if one did. Returns the result so far."""
        result = self.result
        if propagate and self.ready() and isinstance(result, Exception):
            raise result
        return result

    maybe_reraise = maybe_throw

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Cancel it. A running task gets a cancel request, whether `terminate` is set or not."""
        self._app.cancel(self.id)

    def forget(self) -> None:
        """Delete it. It must have ended."""
        self._app.delete(self.id)

    def as_tuple(self) -> tuple[tuple[str, None], None]:
        """Return its id in Celery's form for storing."""
        return (self.id, None), None

    def __getattr__(self, name: str) -> Never:
        if name in _MISSING:
            raise Unsupported(f"AsyncResult.{name}", _MISSING[name])
        raise AttributeError(name)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, AsyncResult) and other.id == self.id) or other == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class EagerResult(AsyncResult):
    """The result of `apply()`, which has run already."""

    def __init__(self, id: str, result: Any, state: str, *, name: str) -> None:
        self.id = id
        self._result = result
        self._state = state
        self._name = name

    @property
    def status(self) -> str:
        """SUCCESS, FAILURE, REVOKED, IGNORED or REJECTED."""
        return self._state

    @property
    def result(self) -> Any:
        """What it returned, or the error that ended it."""
        return self._result

    @property
    def traceback(self) -> str | None:
        """The traceback of its error."""
        if not isinstance(self._result, BaseException):
            return None
        return exceptions.ExceptionInfo(self._result).traceback

    @property
    def name(self) -> str:
        """The name of its task."""
        return self._name

    def ready(self) -> bool:
        """Always true."""
        return True

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        """Return the result, or raise the error that ended it."""
        if propagate and self._state in states.PROPAGATE_STATES:
            raise self._result
        return self._result

    wait = get

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Do nothing: it has run already."""

    def forget(self) -> None:
        """Do nothing: nothing was stored."""

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"


def GroupResult(*_: object, **__: object) -> Never:  # noqa: N802  # Celery's name for it
    """Raise `Unsupported`."""
    raise Unsupported("GroupResult", INSTEAD["group"])


def ResultSet(*_: object, **__: object) -> Never:  # noqa: N802  # Celery's name for it
    """Raise `Unsupported`."""
    raise Unsupported("ResultSet", INSTEAD["group"])


@contextmanager
def allow_join_result() -> Iterator[None]:
    """Do nothing: `get()` in a task is always allowed. It takes a slot while it waits."""
    yield


def _shown(job: Job) -> ReportedState | None:
    """Return the reported state that stands for the job's own: while it runs, or if ignored."""
    last = job.errors[-1] if job.errors else None
    is_ignored = (
        last is not None and last.type == "Cancelled" and last.message.startswith("ignored")
    )
    if job.state is JobState.RUNNING or (job.state is JobState.CANCELLED and is_ignored):
        return ReportedState.of(job)
    return None


def _error_of(job: Job) -> Exception:
    last = job.errors[-1] if job.errors else None
    if job.state is JobState.CANCELLED or last is None:
        is_told = last is not None and last.type == "Cancelled"
        return TaskRevokedError(last.message if is_told and last is not None else "revoked")
    return error_again(last.type, last.message, _OWN)
