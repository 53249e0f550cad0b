"""Heartbeats from a thread."""

from __future__ import annotations

import threading
import time

import pytest

from rowlock.store import open_store
from rowlock.store.options import new_job
from rowlock.worker.beats import Beats, Run

LEASE_SECONDS = 0.6


@pytest.fixture
def store(any_url):
    store = open_store(any_url)
    yield store
    store.close()


def wait_until(condition, *, seconds: float = 10.0) -> None:
    """Give another thread time; fail if it does not come to pass."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        pause.wait(0.01)


def held(store) -> Run:
    store.enqueue([new_job(kind="task", payload="{}")])
    (lease,) = store.claim(worker="w", queues=["default"], lease=LEASE_SECONDS)
    return lease


def test_lease_is_extended_while_it_is_held(store):
    """A run keeps its lease for longer than the lease, and others can't claim it."""
    lease = held(store)
    with Beats(store, lease_seconds=LEASE_SECONDS) as beats:
        beats.hold(lease)
        first = store.get(lease.id).lease_expires_at
        wait_until(
            lambda: (
                (store.get(lease.id).lease_expires_at - first).total_seconds() > 2 * LEASE_SECONDS
            )
        )

        assert [] == store.claim(worker="other", queues=["default"])


def test_cancel_is_seen(store):
    """A request to cancel reaches the run with the next beat."""
    lease = held(store)
    with Beats(store, lease_seconds=LEASE_SECONDS) as beats:
        run = beats.hold(lease)
        store.cancel(lease.id)
        wait_until(lambda: run.cancel_requested)

        assert not run.is_lost


def test_lost_lease_is_seen(store):
    """A lease that was taken away is noticed with the next beat."""
    lease = held(store)
    with Beats(store, lease_seconds=LEASE_SECONDS) as beats:
        run = beats.hold(lease)
        store.release_worker("w")
        wait_until(lambda: run.is_lost)

        assert not run.cancel_requested
