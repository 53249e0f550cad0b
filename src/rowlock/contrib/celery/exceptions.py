"""What tasks raise to steer, and what `AsyncResult.get` raises: under Celery's names."""

from __future__ import annotations

import builtins
from datetime import datetime


class CeleryError(Exception):
    """The base of these, as in Celery."""


class Retry(CeleryError):
    """Made and raised by `task.retry()`: the job runs again after `seconds`."""

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
    """`task.retry()` without `exc`, once there are no retries left."""


class Ignore(CeleryError):
    """Raise to end the job without a result: it is cancelled here."""


class Reject(CeleryError):
    """Raise to give the job back (`requeue=True`), or to fail for good."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(f"rejected: {reason}")


class TaskRevokedError(CeleryError):
    """`get()` of a job that was cancelled."""


class TimeoutError(CeleryError, builtins.TimeoutError):  # Celery's name for it
    """`get(timeout=...)` took longer."""
