"""A thin shim for code written for Celery: its common subset, on rowlock.

    from rowlock.contrib.celery import Celery, shared_task      # from celery import ...

Unsupported features raise `Unsupported`, which says what to do instead. See
docs/how-to/from-celery.md for differences in behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from rowlock.contrib.celery import exceptions
from rowlock.contrib.celery.app import Celery, shared_task
from rowlock.contrib.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    TaskRevokedError,
)
from rowlock.contrib.celery.result import AsyncResult
from rowlock.contrib.celery.schedules import crontab
from rowlock.contrib.celery.task import Signature, Task, no_canvas
from rowlock.contrib.compat import TaskFailed, Unsupported

TimeoutError = exceptions.TimeoutError  # Celery's name for it
# Not supported: each says what to do instead.
chain: Callable[..., Never] = no_canvas
group: Callable[..., Never] = no_canvas
chord: Callable[..., Never] = no_canvas
chunks: Callable[..., Never] = no_canvas

__all__ = [
    "AsyncResult",
    "Celery",
    "Ignore",
    "MaxRetriesExceededError",
    "Reject",
    "Retry",
    "Signature",
    "Task",
    "TaskFailed",
    "TaskRevokedError",
    "TimeoutError",
    "Unsupported",
    "chain",
    "chord",
    "chunks",
    "crontab",
    "group",
    "shared_task",
]
