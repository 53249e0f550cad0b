"""The ways in which a worker loses its lease, for whoever must find out that it did."""

from __future__ import annotations

from typing import Any

from rowlock.clock import ManualClock
from rowlock.job import Lease
from rowlock.store import Store
from tests.store.jobs import claim_one, kept_for, start

# What became of the job since its first worker was paused.
ENDINGS = [
    "recovered",
    "adopted",
    "parked",
    "given_back",
    "running",
    "succeeded",
    "failed",
    "released",
    "dead",
    "cancelled",
    "cancelled_by_recovery",
    "cancelled_by_recovery_and_gone",
    "succeeded_and_gone",
    "pruned",
    "retried",
    "deleted",
]


def lose(store: Store, clock: ManualClock, ending: str, **options: Any) -> Lease:
    """A lease whose job was taken from its worker, and then had that fate."""
    if ending.endswith("_gone"):
        options["policy"] = kept_for(0)
    lease = start(store, **options)
    clock.advance(1_000)
    match ending:
        case "recovered":
            assert store.recover() == 1
        case "adopted":
            assert store.adopt_orphans([lease.job.queue]) == 1
        case "parked":
            assert store.adopt_orphans([lease.job.queue], action="park") == 1
        case "given_back":
            assert store.release_worker(lease.worker) == 1
        case "cancelled_by_recovery" | "cancelled_by_recovery_and_gone":
            store.cancel(lease.id)
            assert store.recover() == 1
        case _:
            again = claim_one(store, worker="w2", queues=[lease.job.queue])
            assert (lease.id, lease.token + 1) == (again.id, again.token)
            _end(store, clock, again, ending)
    return lease


def _end(store: Store, clock: ManualClock, lease: Lease, ending: str) -> None:
    match ending:
        case "succeeded" | "succeeded_and_gone":
            store.succeed([lease])
        case "failed":
            store.fail(lease, "boom")
        case "released":
            store.release(lease)
        case "dead" | "retried" | "deleted":
            store.fail(lease, "boom", permanent=True)
        case "cancelled":
            store.finish_cancelled(lease)
        case "pruned":
            store.succeed([lease])
            clock.advance(100_000)
            assert store.prune() == 1
    if ending == "retried":
        store.retry(lease.id)
    if ending == "deleted":
        store.delete(lease.id)
