"""Heartbeats from a thread."""

from __future__ import annotations

import threading
import time

import pytest

from rowlock import config
from rowlock.chaos.proxy import FaultyProxy, Mode
from rowlock.job import Beat, Lease
from rowlock.store import open_store
from rowlock.store.options import new_job
from rowlock.worker.beats import Beats

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


def held(store) -> Lease:
    store.enqueue([new_job(kind="task", payload="{}")])
    (lease,) = store.claim(worker="w", queues=["default"], lease=LEASE_SECONDS)
    return lease


def beats_of(store) -> tuple[Beats, list[tuple[str, Beat]]]:
    """Beats, and what they tell."""
    told: list[tuple[str, Beat]] = []
    beats = Beats(
        store,
        lease_seconds=LEASE_SECONDS,
        on_beat=lambda lease, beat: told.append((lease.id, beat)),
    )
    return beats, told


def test_lease_is_extended_while_it_is_held(store):
    """A run keeps its lease for longer than the lease, and others can't claim it."""
    lease = held(store)
    beats, told = beats_of(store)
    with beats:
        beats.hold(lease)
        first = store.get(lease.id).lease_expires_at
        wait_until(
            lambda: (
                (store.get(lease.id).lease_expires_at - first).total_seconds() > 2 * LEASE_SECONDS
            )
        )

        assert store.claim(worker="other", queues=["default"]) == []
        assert told == []


def test_cancel_is_seen(store):
    """A request to cancel is told with the next beat."""
    lease = held(store)
    beats, told = beats_of(store)
    with beats:
        beats.hold(lease)
        store.cancel(lease.id)
        wait_until(lambda: told)

    assert told[0] == (lease.id, Beat.CANCEL_REQUESTED)


def test_lost_lease_is_seen(store):
    """A lease that was taken away is told with the next beat."""
    lease = held(store)
    beats, told = beats_of(store)
    with beats:
        beats.hold(lease)
        store.release_worker("w")
        wait_until(lambda: told)

    assert told[0] == (lease.id, Beat.LOST)


def test_a_dropped_lease_is_not_beaten_for(store):
    """What is settled is nobody's concern any more."""
    lease = held(store)
    beats, told = beats_of(store)
    with beats:
        beats.hold(lease)
        beats.drop(lease)
        store.release_worker("w")
        other = held(store)
        beats.hold(other)
        store.cancel(other.id)
        wait_until(lambda: told)

    assert {id for id, _ in told} == {other.id}


def has_grown(store, lease) -> bool:
    """Whether it was extended since it was claimed."""
    return store.get(lease.id).lease_expires_at > lease.expires_at


def test_handlers_can_not_keep_the_connections_from_the_beats(postgres_url):
    """All of the app's connections are busy: the lease is extended all the same."""
    store = open_store(postgres_url)
    looking = open_store(postgres_url)
    lease = held(store)
    pool = store.engine.pool
    busy = [pool.take() for _ in range(config.POSTGRES_POOL_MAX)]
    beats, told = beats_of(store)
    with beats:
        beats.hold(lease)
        wait_until(lambda: has_grown(looking, lease))
    for connection in busy:
        pool.give(connection, is_sound=True)
    store.close()
    looking.close()

    assert told == []


def test_a_silent_network_holds_up_one_beat_only(postgres_url):
    """A beat without an answer is given up after a third of the lease, not after a call's time."""
    looking = open_store(postgres_url)
    with FaultyProxy(postgres_url) as proxy:
        store = open_store(f"{proxy.url}?call_timeout=600")
        lease = held(store)
        beats, _ = beats_of(store)
        with beats:
            beats.hold(lease)
            wait_until(lambda: has_grown(looking, lease))
            proxy.mode = Mode.BLACKHOLE
            threading.Event().wait(LEASE_SECONDS)
            silent = looking.get(lease.id).lease_expires_at
            proxy.mode = Mode.PASS
            wait_until(lambda: looking.get(lease.id).lease_expires_at > silent)
        store.close()
    looking.close()


def test_beats_do_not_stay_in_step(store):
    """Each comes a little earlier than a third of the lease, and each a little differently."""
    beats, _ = beats_of(store)
    pauses = []
    waiting = threading.Event()

    class Over(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            if len(pauses) == 20:
                waiting.set()
                return super().wait()
            return False

    beats._over = Over()
    with beats:
        assert waiting.wait(10)

    assert len(set(pauses)) == 20
    assert all(0.8 * LEASE_SECONDS / 3 <= pause <= LEASE_SECONDS / 3 for pause in pauses)
