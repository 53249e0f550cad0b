"""The exceptions of the shim, under RQ's names."""

from __future__ import annotations

from rowlock.errors import InvalidTransition, NotFound


class NoSuchJobError(NotFound):
    """There is no job with that id, or its retention has expired."""


# What requeue, cancel and delete raise for a job in another state.
InvalidJobOperation = InvalidTransition
InvalidJobOperationError = InvalidTransition
