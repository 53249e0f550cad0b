"""The exceptions that tasks and `AsyncResult.get` raise, under Celery's names."""

from __future__ import annotations

import builtins
from datetime import datetime


class CeleryError(Exception):
    """The base of these exceptions, as in Celery."""


class Retry(CeleryError):
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
        super().__init__(message or f"retry in {seconds:g} s: {exc!r}")


class MaxRetriesExceededError(CeleryError):
    """Raised by `task.retry()` without `exc` if no retries are left."""


class Ignore(CeleryError):
    """Raise to end the job without a result. It is cancelled."""


class Reject(CeleryError):
    """Raise to give the job back (`requeue=True`), or to fail permanently."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(f"rejected: {reason}")


class TaskRevokedError(CeleryError):
    """Raised by `get()` for a job that was cancelled."""


class TimeoutError(CeleryError, builtins.TimeoutError):  # Celery's name for it
    """Raised by `get(timeout=...)` if the job has not ended in time."""
