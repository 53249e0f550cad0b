"""What projects import from `celery.utils`."""

from __future__ import annotations

from rowlock.ids import new_id


def uuid() -> str:
    """Return a new id for a job."""
    return new_id()


gen_unique_id = uuid

__all__ = ["gen_unique_id", "uuid"]
