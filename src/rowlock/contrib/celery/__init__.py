"""A shim for code written for Celery, on rowlock.

    from rowlock.contrib.celery import Celery, shared_task      # from celery import ...

Modules have Celery's names: `signals`, `schedules`, `exceptions`, `states`, `result`, `canvas`,
`utils.log`. Unsupported features raise `Unsupported`, which says what to do instead. See
docs/how-to/from-celery.md for differences in behaviour.
"""

from __future__ import annotations

from rowlock.contrib.celery import exceptions
from rowlock.contrib.celery.app import Celery, shared_task
from rowlock.contrib.celery.app.task import Task
from rowlock.contrib.celery.canvas import (
    Signature,
    chain,
    chord,
    chunks,
    group,
    maybe_signature,
    signature,
    subtask,
    xmap,
    xstarmap,
)
from rowlock.contrib.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    TaskRevokedError,
)
from rowlock.contrib.celery.local import current_app, current_task, replace_celery
from rowlock.contrib.celery.result import AsyncResult
from rowlock.contrib.celery.schedules import crontab
from rowlock.contrib.celery.utils import uuid
from rowlock.contrib.compat import TaskFailed, Unsupported

TimeoutError = exceptions.TimeoutError  # Celery's name for it

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
    "current_app",
    "current_task",
    "group",
    "maybe_signature",
    "replace_celery",
    "shared_task",
    "signature",
    "subtask",
    "uuid",
    "xmap",
    "xstarmap",
]
