"""Processes that migrate a database, claim or enqueue, while others do; they import little."""

from __future__ import annotations

import multiprocessing

from rowlock.store import open_store
from tests.store.jobs import claim_one, drain, enqueue


def migrate_in_a_process(url: str, gate: object, done: multiprocessing.Queue[list[int]]) -> None:
    """Migrate when all are there, and work."""
    gate.wait(30)  # type: ignore[attr-defined]  # a barrier has no public type
    store = open_store(url)
    applied = store.migrate()
    store.succeed([claim_one(store, queues=[enqueue(store, queue="own").queue])])
    store.close()
    done.put(applied)


def claim_in_a_process(url: str, worker: str, claimed: multiprocessing.Queue[list[str]]) -> None:
    """Claim until nothing is left, and say which."""
    store = open_store(url)
    claimed.put(drain(store, worker))
    store.close()


def debounce_in_a_process(
    url: str, name: str, gate: object, done: multiprocessing.Queue[str]
) -> None:
    """Enqueue one key again and again when all are there, and say what the last payload was."""
    store = open_store(url)
    gate.wait(30)  # type: ignore[attr-defined]  # a barrier has no public type
    for number in range(40):
        payload = f'{{"from":"{name}","n":{number}}}'
        enqueue(store, key="k", quiet=3_600, payload=payload)
    store.close()
    done.put(payload)
