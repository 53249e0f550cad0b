"""Eight processes race: keyed enqueues make one job a key, and each job is claimed once.

python -m benchmarks.races
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TypeVar

from rowlock.store import JobFilter, open_store
from rowlock.store.options import new_job
from rowlock.testing import ThrowAwayPostgres

PROCESSES = 8
KEYED = 20_000
KEYS = 5_000
JOBS = 20_000
BATCH = 50

T = TypeVar("T")


def enqueue_keyed(url: str, number: int, answers: Queue[tuple[int, int]]) -> None:
    """A share of the keyed enqueues, one by one, in an order of this process's own."""
    store = open_store(url)
    created = 0
    share = KEYED // PROCESSES
    for place in range(share):
        key = f"key-{(place * 7919 + number * 613) % KEYS}"
        (job,) = store.enqueue([new_job(kind="keyed", payload="{}", key=key, queue="keyed")])
        created += job.created
    store.close()
    answers.put((share, created))


def claim_all(url: str, number: int, answers: Queue[list[str]]) -> None:
    """Claim and settle until nothing is left; the ids that were got."""
    store = open_store(url)
    got: list[str] = []
    while leases := store.claim(worker=f"w{number}", queues=["plain"], limit=BATCH):
        got += [lease.id for lease in leases]
        store.succeed(leases)
    store.close()
    answers.put(got)


def race(target: Callable[[str, int, Queue[T]], None], url: str) -> tuple[list[T], float]:
    context = multiprocessing.get_context("spawn")
    answers: Queue[T] = context.Queue()
    crew = [
        context.Process(target=target, args=(url, number, answers)) for number in range(PROCESSES)
    ]
    start = time.perf_counter()
    for process in crew:
        process.start()
    found = [answers.get(timeout=600) for _ in crew]
    took = time.perf_counter() - start
    for process in crew:
        process.join()
        assert process.exitcode == 0
    return found, took


def report(name: str, url: str) -> None:
    store = open_store(url)
    store.migrate()
    enqueued, took = race(enqueue_keyed, url)
    sent = sum(share for share, _ in enqueued)
    made = sum(created for _, created in enqueued)
    counted = store.stats(["keyed"])[0].counts
    stored = sum(count.value for count in counted.values())
    print(f"{name}: {sent:,} keyed enqueues of {KEYS:,} keys made {made:,} jobs", end="")
    print(f" ({stored:,} stored) in {took:.1f} s")
    assert made == stored == KEYS
    ids = {
        job.id
        for job in store.enqueue(
            [new_job(kind="plain", payload="{}", queue="plain") for _ in range(JOBS)]
        )
    }
    claimed, took = race(claim_all, url)
    times = Counter(id for got in claimed for id in got)
    print(f"{name}: {JOBS:,} jobs claimed by {PROCESSES} processes in {took:.1f} s,", end=" ")
    print(f"twice {sum(n > 1 for n in times.values())}, never {len(ids - set(times))},", end=" ")
    print(f"shares {sorted(len(got) for got in claimed)}")
    assert set(times) == ids
    assert set(times.values()) == {1}
    assert not store.list(JobFilter(queue="plain"), state="running").jobs
    store.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        report("SQLite", f"sqlite:///{Path(directory) / 'races.db'}")
    with ThrowAwayPostgres(durable=True) as server:
        report("PostgreSQL", server.url)


if __name__ == "__main__":
    main()
