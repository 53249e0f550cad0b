"""`get_task_logger` and `get_logger`: ordinary loggers, which the worker's log shows."""

from __future__ import annotations

import logging

base_logger: logging.Logger = logging.getLogger("celery")
task_logger: logging.Logger = logging.getLogger("celery.task")
worker_logger: logging.Logger = logging.getLogger("celery.worker")


def get_logger(name: str) -> logging.Logger:
    """Return the logger of this name."""
    return logging.getLogger(name)


def get_task_logger(name: str) -> logging.Logger:
    """Return the logger of this name. rowlock adds the running job's fields to its lines."""
    return logging.getLogger(name)
