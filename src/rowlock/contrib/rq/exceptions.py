"""What is raised, under RQ's names."""

from __future__ import annotations

from rowlock.errors import NotFound


class NoSuchJobError(NotFound):
    """There is no job of that id (any more)."""
