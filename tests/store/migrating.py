"""A process that migrates a database while others do; it imports little, to start soon."""

from __future__ import annotations

import multiprocessing

from rowlock.store import open_store
from tests.store.jobs import claim_one, enqueue


def migrate_in_a_process(url: str, gate: object, done: multiprocessing.Queue[list[int]]) -> None:
    """Migrate when all are there, and work."""
    gate.wait(30)  # type: ignore[attr-defined]  # a barrier has no public type
    store = open_store(url)
    applied = store.migrate()
    store.succeed([claim_one(store, queues=[enqueue(store, queue="own").queue])])
    store.close()
    done.put(applied)
