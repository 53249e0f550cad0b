"""Celery's exceptions: those that tasks and results raise here, and the others for `except`."""

from __future__ import annotations

import builtins
import traceback
from datetime import datetime
from types import TracebackType
from typing import Any


class CeleryError(Exception):
    """The base of these exceptions, as in Celery."""


class CeleryWarning(UserWarning):
    """The base of Celery's warnings. Nothing here emits it."""


class ImproperlyConfigured(CeleryError):
    """For Celery's own configuration errors. Here `rowlock.OptionInvalid` is raised instead."""


class SecurityError(CeleryError):
    """For Celery's signed messages, which don't exist here."""


class TaskPredicate(CeleryError):
    """The base of exceptions that a task raises to say what becomes of its job."""


class Retry(TaskPredicate):
    """Raised by `task.retry()`: the job runs again after `seconds`."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float | datetime | None = None,
        *,
        seconds: float = 0.0,
    ) -> None:
        self.message = message
        self.exc = exc
        self.when = when
        self.seconds = seconds
        pause = f"at {when}" if isinstance(when, datetime) else f"in {seconds:g}s"
        super().__init__(message or f"Retry {pause}" + ("" if exc is None else f": {exc!r}"))


class Ignore(TaskPredicate):
    """Raise to end the job without a result. It is cancelled."""


class Replaced(Ignore):
    """Raised by `task.replace()`: another task takes its place. `mark` is the job's result."""

    def __init__(self, mark: object) -> None:
        self.mark = mark
        super().__init__("Replaced by new task")


class Reject(TaskPredicate):
    """Raise to give the job back (`requeue=True`), or to fail permanently."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(f"rejected: {reason}")


class TaskError(CeleryError):
    """The base of errors that are about a task."""


class MaxRetriesExceededError(TaskError):
    """Raised by `task.retry()` without `exc` if no retries are left."""

    def __init__(self, *args: object, task_args: Any = (), task_kwargs: Any = None) -> None:
        self.task_args = task_args
        self.task_kwargs: Any = task_kwargs or {}
        super().__init__(*args)


class TaskRevokedError(TaskError):
    """Raised by `get()` for a job that was cancelled."""


class TimeoutError(TaskError, builtins.TimeoutError):  # Celery's name for it
    """Raised by `get(timeout=...)` if the job has not ended in time."""


class NotRegistered(TaskError, KeyError):
    """Raised by `app.tasks[name]` for a name that no task has."""


class AlreadyRegistered(TaskError):
    """For a second task of a name. Here `rowlock.OptionInvalid` is raised instead."""


class InvalidTaskError(TaskError):
    """For messages that can't be read. Here such a job is dead as `PayloadMisfit`."""


class QueueNotFound(TaskError, KeyError):
    """For queues that are not declared. Here every name is a queue."""


class ChordError(TaskError):
    """For a chord whose header failed."""


class BackendError(Exception):
    """For Celery's result backends, which don't exist here."""


class OperationalError(Exception):
    """For a broker that is away. Here `rowlock.StoreUnavailable` is raised instead."""


class SoftTimeLimitExceeded(Exception):
    """Raised inside a task that has run for its `soft_time_limit`, once, at any line."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the run has exceeded its soft time limit",)))


class TimeLimitExceeded(Exception):
    """For the hard limit. `get()` raises `TimeoutError` for a run that exceeded `time_limit`."""


class WorkerLostError(Exception):
    """For a worker that died. Here its jobs run again."""


class WorkerShutdown(SystemExit):
    """For a worker's own threads, which don't run here."""


class WorkerTerminate(SystemExit):
    """For a worker's own threads, which don't run here."""


class ExceptionInfo:
    """The `einfo` of hooks and signals: an exception with its traceback as text."""

    def __init__(self, exception: BaseException) -> None:
        self.exception = exception
        self.type: type[BaseException] = type(exception)
        self.tb: TracebackType | None = exception.__traceback__
        self.internal: bool = False
        self.traceback: str = "".join(traceback.format_exception(exception))

    @property
    def exc_info(self) -> tuple[type[BaseException], BaseException, TracebackType | None]:
        """As `sys.exc_info()`."""
        return self.type, self.exception, self.tb

    def __str__(self) -> str:
        return self.traceback

    def __repr__(self) -> str:
        return f"<ExceptionInfo: {self.exception!r}>"
