"""`AsyncResult`: a job with Celery's interface. `EagerResult`: a run without a job."""

from __future__ import annotations

import builtins
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never

from rowlock.contrib.celery import exceptions, states
from rowlock.contrib.celery.exceptions import ChordError, TaskRevokedError
from rowlock.contrib.celery.local import the_app
from rowlock.contrib.compat import (
    Unsupported,
    arguments_of,
    error_again,
    report_text,
    reported,
)
from rowlock.job import Job, JobState
from rowlock.store.ops.finish import PARENT_ENDED

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
CALL: Final = "celery"
"""The key of what the shim has noted in a job's `meta`."""
# A job that was cancelled because of another names it.
_PARENT: Final = re.compile(r"job (\S+), for which it waited")
_PATH_MAX: Final = 1_000
# The key of a result that names other jobs instead of being a value.
REPLACED: Final = "celery.replaced"


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


_KEPT_BY_IDS = "keep the ids of its results, and make AsyncResult(id) of each"
_MISSING_OF_GROUPS: Final[Mapping[str, str]] = {
    "save": _KEPT_BY_IDS,
    "iterate": "call get()",
    "iter_native": "call get()",
    "then": "end the group with a task: group | task",
    "backend": "results are stored with their jobs",
}


class AsyncResult:
    """A job by its id. An unknown id is `PENDING`, as in Celery.

    Args:
        id: The job's id.
        backend: Must be None: results are stored with their jobs.
        task_name: Ignored, because the job has it.
        app: The app. Default: the current one.
        parent: The result of the step before it in a canvas.
    """

    parent: AsyncResult | GroupResult | None = None
    # Those of the steps after it, where the canvas was started.
    children: list[AsyncResult | GroupResult] | None = None

    def __init__(
        self,
        id: str,
        backend: None = None,
        task_name: str | None = None,
        app: Celery | None = None,
        parent: AsyncResult | GroupResult | None = None,
    ) -> None:
        if backend is not None:
            raise Unsupported("AsyncResult(backend=...)", "leave it out")
        self.id = id
        self.parent = parent
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
    def _standing(self) -> Job | None:
        """The job, or the one that took its place."""
        job = self.job
        return None if job is None else standing_for(self._app, job)

    @property
    def status(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what `update_state` said."""
        job = self._standing
        if job is None:
            return states.PENDING
        if _parent_of(job) is not None and call_of(job).get("chord"):
            return states.FAILURE
        shown = _shown(job)
        return _STATUS[job.state] if shown is None else shown.state or states.PENDING

    @property
    def state(self) -> str:
        """The same as `status`."""
        return self.status

    def ready(self) -> bool:
        """Whether it has ended."""
        job = self._standing
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
        job = self._standing
        if job is None:
            return None
        shown = _shown(job)
        if shown is not None:
            return shown.meta
        if job.state.is_terminal:
            return value_of(job) if job.state is JobState.SUCCEEDED else _error_of(self._app, job)
        return None

    @property
    def info(self) -> Any:
        """The same as `result`."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """The traceback of the last failed attempt."""
        job = self._standing
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
            job = self._ended(timeout)
        except builtins.TimeoutError as error:
            raise exceptions.TimeoutError("The operation timed out.") from error
        if job.state is JobState.SUCCEEDED:
            return value_of(job)
        if propagate:
            # As in Celery, the error of the first step that has one.
            for before in reversed(list(_parents(self))):
                before.maybe_throw()
        ended = _error_of(self._app, job)
        if propagate:
            raise ended
        return ended

    def _ended(self, timeout: float | None) -> Job:
        """Wait for the job, and for the one that takes its place."""
        until = None if timeout is None else time.monotonic() + timeout
        job = self._app.wait(self.id, timeout)
        for _ in range(_PATH_MAX):
            other = _replacement(self._app, job)
            if other is None:
                break
            left = None if until is None else max(0.0, until - time.monotonic())
            job = self._app.wait(other.id, left)
        return job

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

    def as_tuple(self) -> tuple[tuple[str, Any], None]:
        """Return its id and those before it in Celery's form for storing."""
        return (self.id, None if self.parent is None else self.parent.as_tuple()), None

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


class ResultSet:
    """Several results as one.

    Args:
        results: The results.
        app: The app. Default: the current one.
    """

    parent: AsyncResult | GroupResult | None = None

    def __init__(
        self, results: Iterable[Any] | None = None, app: Celery | None = None, **_: Any
    ) -> None:
        self.results: list[Any] = list(results or ())
        self._given_app = app

    @property
    def app(self) -> Celery:
        """The app."""
        return the_app() if self._given_app is None else self._given_app

    @property
    def children(self) -> list[Any]:
        """The results."""
        return self.results

    def add(self, result: AsyncResult) -> None:
        """Add a result, once."""
        if result not in self.results:
            self.results.append(result)

    def ready(self) -> bool:
        """Whether all have ended."""
        return all(each.ready() for each in self.results)

    def successful(self) -> bool:
        """Whether all have succeeded."""
        return all(each.successful() for each in self.results)

    def failed(self) -> bool:
        """Whether one is dead."""
        return any(each.failed() for each in self.results)

    def waiting(self) -> bool:
        """Whether one has not ended."""
        return any(not each.ready() for each in self.results)

    def completed_count(self) -> int:
        """Return how many have succeeded."""
        return sum(int(each.successful()) for each in self.results)

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        callback: Callable[..., Any] | None = None,
        **other: Any,
    ) -> list[Any]:
        """Wait for all results, and return them in their order, or call `callback` with each.

        Raises:
            TimeoutError: They have not all ended after `timeout` seconds.
            Exception: The error of the first of them that has one.
        """
        until = None if timeout is None else time.monotonic() + timeout
        found: list[Any] = []
        for each in self.results:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                value = each.get(left, propagate=propagate, **other)
            except Exception:
                # As in Celery, the error of the first step that has one.
                for before in reversed(list(_parents(self))):
                    before.maybe_throw()
                raise
            if callback is None:
                found.append(value)
            else:
                callback(each.id, value)
        return found

    join = get
    join_native = get

    def maybe_throw(self, propagate: bool = True, callback: None = None) -> None:
        """Raise the error that ended one of them, if one did."""
        for each in self.results:
            each.maybe_throw(propagate=propagate)

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Cancel all that have not ended."""
        for each in self.results:
            if not each.ready():
                each.revoke()

    def forget(self) -> None:
        """Delete all. They must have ended."""
        for each in self.results:
            each.forget()

    def __len__(self) -> int:
        return len(self.results)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, place: int) -> Any:
        return self.results[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResultSet) and other.results == self.results

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # its results may change

    def __getattr__(self, name: str) -> Never:
        if name in _MISSING_OF_GROUPS:
            raise Unsupported(f"{type(self).__name__}.{name}", _MISSING_OF_GROUPS[name])
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: [{', '.join(map(str, self.results))}]>"


class GroupResult(ResultSet):
    """The results of a group, in its order.

    Args:
        id: The id of the workflow that the group belongs to.
        results: The results.
        parent: The result of the step before it in a canvas.
        app: The app. Default: the current one.
    """

    def __init__(
        self,
        id: str | None = None,
        results: Iterable[Any] | None = None,
        parent: AsyncResult | GroupResult | None = None,
        app: Celery | None = None,
        **_: Any,
    ) -> None:
        super().__init__(results, app)
        self.id = id
        self.parent = parent

    @classmethod
    def restore(cls, *_: Any, **__: Any) -> Never:
        """Not supported."""
        raise Unsupported("GroupResult.restore", _KEPT_BY_IDS)

    def as_tuple(self) -> tuple[tuple[str | None, Any], list[Any]]:
        """Return the ids of its results and those before it in Celery's form for storing."""
        before = None if self.parent is None else self.parent.as_tuple()
        return (self.id, before), [each.as_tuple() for each in self.results]

    def __str__(self) -> str:
        return str(self.id)


def result_from_tuple(r: Any, app: Celery | None = None) -> Any:
    """Return the results that `as_tuple` described."""
    if isinstance(r, AsyncResult | ResultSet):
        return r
    (id, before), results = r
    parent = None if before is None else result_from_tuple(before, app)
    if results is None:
        return AsyncResult(id, app=app, parent=parent)
    return GroupResult(id, [result_from_tuple(each, app) for each in results], parent, app)


@contextmanager
def allow_join_result() -> Iterator[None]:
    """Do nothing: `get()` in a task is always allowed. It takes a slot while it waits."""
    yield


def _parents(result: Any) -> Iterator[Any]:
    for _ in range(_PATH_MAX):
        if result.parent is None:
            return
        result = result.parent
        yield result


# A task that replaces itself, or adds to its chord, has a result that names other jobs.


def replaced_mark(by: str | None = None, value: Any = None, more: Sequence[str] = ()) -> Any:
    """Return the result of a job that names the job in its place, or more jobs of its chord."""
    return {REPLACED: {"by": by, "value": value, "more": list(more)}}


def _mark_of(result: Any) -> Mapping[str, Any] | None:
    if not isinstance(result, Mapping) or result.keys() != {REPLACED}:
        return None
    mark = result[REPLACED]
    return mark if isinstance(mark, Mapping) else None


def _replacement(app: Celery, job: Job) -> Job | None:
    """Return the job in the place of one that has succeeded. It is of the same workflow."""
    mark = _mark_of(job.result)
    by = None if mark is None else mark.get("by")
    found = app.get(by) if isinstance(by, str) else None
    is_own = found is not None and found.workflow is not None and found.workflow == job.workflow
    return found if is_own else None


def standing_for(app: Celery, job: Job) -> Job:
    """Return a job, or the one that took its place."""
    for _ in range(_PATH_MAX):
        other = _replacement(app, job)
        if other is None:
            break
        job = other
    return job


def value_of(job: Job) -> Any:
    """Return what a job returned."""
    mark = _mark_of(job.result)
    return job.result if mark is None or mark.get("by") is not None else mark.get("value")


def resolved(app: Celery, job: Job, value: Any) -> Any:
    """Return an argument that is the result of other jobs, with the values of those it names."""
    if isinstance(value, list):
        return [each for part in value for each in _values(app, job, part)]
    found = _values(app, job, value)
    return found[0] if found else None


def _values(app: Celery, job: Job, value: Any) -> list[Any]:
    mark = _mark_of(value)
    if mark is None:
        return [value]
    more = mark.get("more") or []
    others = [mark["by"]] if mark.get("by") is not None else more
    values = [] if mark.get("by") is not None else [mark.get("value")]
    for id in others:
        other = app.get(str(id))
        if other is None or other.workflow != job.workflow:
            # Only jobs of the same workflow may be read.
            return [value]
        values.append(value_of(standing_for(app, other)))
    return values


def _shown(job: Job) -> ReportedState | None:
    """Return the reported state that stands for the job's own: while it runs, or if ignored."""
    last = job.errors[-1] if job.errors else None
    is_ignored = (
        last is not None and last.type == "Cancelled" and last.message.startswith("ignored")
    )
    if job.state is JobState.RUNNING or (job.state is JobState.CANCELLED and is_ignored):
        return ReportedState.of(job)
    return None


def call_of(job: Job) -> Mapping[str, Any]:
    """Return what the shim has noted in a job's `meta`."""
    own = job.meta.get(CALL)
    return own if isinstance(own, Mapping) else {}


def _parent_of(job: Job) -> str | None:
    """Return the id of the job because of which it was cancelled, if it was."""
    last = job.errors[-1] if job.errors else None
    if job.state is not JobState.CANCELLED or last is None or last.type != PARENT_ENDED:
        return None
    found = _PARENT.search(last.message)
    return None if found is None else found[1]


def _error_of(app: Celery, job: Job) -> Exception:
    """Return the error of a job. One that was cancelled because of another has that one's.

    As in Celery, the body of a chord has a `ChordError` about it.
    """
    path: list[tuple[Job, str]] = []
    ended: Job | None = job
    while ended is not None and len(path) < _PATH_MAX:
        parent = _parent_of(ended)
        if parent is None:
            break
        path.append((ended, parent))
        ended = app.get(parent)
    error = TaskRevokedError("revoked") if ended is None else _own_error_of(ended)
    for step, parent in reversed(path):
        if call_of(step).get("chord"):
            cause, error = error, ChordError(f"Dependency {parent} raised {error!r}")
            error.__cause__ = cause
    return error


def _own_error_of(job: Job) -> Exception:
    last = job.errors[-1] if job.errors else None
    if job.state is JobState.CANCELLED or last is None:
        is_told = last is not None and last.type == "Cancelled"
        return TaskRevokedError(last.message if is_told and last is not None else "revoked")
    return _known_error(last.type, last.message) or error_again(last.type, last.message, _OWN)


def _known_error(type_name: str, message: str) -> Exception | None:
    """Recreate an error of a class that this process has imported already.

    Nothing is imported or called because a row names it: not even the `__init__` of the class.
    """
    module, _, name = type_name.rpartition(".")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    if found.__module__ != module:
        return None
    try:
        error: Exception = BaseException.__new__(found, *arguments_of(message))
        str(error)
    except Exception:  # noqa: BLE001  # one that needs its `__init__`: it comes as a TaskFailed
        return None
    return error
