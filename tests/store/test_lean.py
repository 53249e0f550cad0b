"""Work on many jobs is bounded by bytes, and does not read payloads that it has no use for."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.job import JobState, Lease
from rowlock.lifecycle import Crashed, Failed
from rowlock.store import Settlement, Store
from rowlock.store.ops.bulk import BulkAction, bulk_step, selection
from rowlock.store.ops.manage import job_filter
from rowlock.store.ops.settle import settle
from tests.store.jobs import claim, enqueue_ids

JOBS = 20
CHARACTERS = 300_000
PAYLOAD = '{"text":"' + "x" * CHARACTERS + '"}'
# A tenth of what one copy of all payloads takes.
PEAK_BYTES = JOBS * len(PAYLOAD) // 10


def bury(store: Store, leases: list[Lease]) -> None:
    """As a supervisor does, with leases made by hand."""
    by_hand = [Lease(id=lease.id, token=lease.token) for lease in leases]
    settlements = [Settlement(lease, Crashed("died")) for lease in by_hand]
    store.run(settle(settlements, chance=random.Random(0)))


def release(store: Store, _: list[Lease]) -> None:
    store.release_worker("w1")


def recover(store: Store, _: list[Lease]) -> None:
    store.recover()


def cancel_many(store: Store, _: list[Lease]) -> None:
    store.release_worker("w1")
    wanted = selection(BulkAction.CANCEL, None, job_filter())
    step = store.run(bulk_step(wanted))
    while step.next is not None:
        step = store.run(bulk_step(wanted, step.next))


def retry_dead(store: Store, leases: list[Lease]) -> None:
    by_hand = [Lease(id=lease.id, token=lease.token) for lease in leases]
    dead = Failed("E", "m", permanent=True)
    store.settle([Settlement(lease, dead) for lease in by_hand])
    store.retry_dead(job_filter())


@pytest.mark.parametrize("act", [bury, release, recover, cancel_many, retry_dead])
def test_payloads_stay_where_they_are(
    store: Store, clock: ManualClock, act: Callable[[Store, list[Lease]], None]
):
    """A supervisor that buried 500 large jobs grew to a gigabyte."""
    enqueue_ids(store, JOBS, payload=PAYLOAD)
    leases = claim(store)
    states = {"cancel_many": JobState.CANCELLED}
    clock.advance(60)
    tracemalloc.start()
    try:
        act(store, leases)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    found = [store.get(lease.id) for lease in leases]
    assert peak < PEAK_BYTES
    assert {job.state for job in found} == {states.get(act.__name__, JobState.READY)}
    assert {len(job.payload["text"]) for job in found} == {CHARACTERS}


@pytest.mark.parametrize("action", [BulkAction.CANCEL, BulkAction.RETRY, BulkAction.DELETE])
def test_steps_of_bulk_work_are_bounded_by_bytes(store: Store, monkeypatch, action: BulkAction):
    """They copy jobs from table to table, but for a delete; none is left out."""
    monkeypatch.setattr(config, "BULK_BYTES", 3_000)
    ids = enqueue_ids(store, 10, payload='{"text":"' + "x" * 1_000 + '"}')
    if action is not BulkAction.CANCEL:
        dead = Failed("E", "m", permanent=True)
        store.settle([Settlement(lease, dead) for lease in claim(store)])
    state = None if action is BulkAction.CANCEL else JobState.DEAD
    done, place = [], None
    while True:
        step = store.run(bulk_step(selection(action, state, job_filter()), place))
        done.append(step.done)
        if (place := step.next) is None:
            break

    states = {BulkAction.CANCEL: JobState.CANCELLED, BulkAction.RETRY: JobState.READY}
    found = [store.get(id) for id in ids]
    assert done == ([10] if action is BulkAction.DELETE else [2] * 5)
    assert {job and job.state for job in found} == {states.get(action)}
