"""The exceptions of the shim, under RQ's names."""

from __future__ import annotations

from rowlock.errors import NotFound


class NoSuchJobError(NotFound):
    """There is no job with that id, or its retention has expired."""
