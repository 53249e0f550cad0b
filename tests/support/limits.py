"""Limits and jobs under them, in short forms."""

from __future__ import annotations

from typing import Any

from rowlock.job import Job
from rowlock.limits import Limit
from rowlock.store import Store
from rowlock.store.options import LimitPlace, new_job


def declare(store: Store, name: str, **rules: Any) -> None:
    """Write a limit to the database."""
    store.declare_limits([Limit(name, **rules).declared])


def put(store: Store, name: str, at: str = "", *, jobs: int = 1, **options: Any) -> list[Job]:
    """Enqueue jobs under a limit."""
    place = LimitPlace(name, at, options.pop("is_ordered", False))
    values = {"kind": "task", "payload": "{}", **options}
    return list(store.enqueue([new_job(limit=place, **values) for _ in range(jobs)]))
