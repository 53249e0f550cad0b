"""Workers are known by what they say, and by what they hold."""

from __future__ import annotations

import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.errors import OptionInvalid
from rowlock.store import Store
from tests.store.jobs import claim, claim_one, enqueue_ids


def test_an_announced_worker(store: Store, clock: ManualClock):
    """A worker that announces itself is listed with what it serves and runs."""
    ids = enqueue_ids(store, 2)
    now = from_us(clock.now_us())
    store.announce(worker="w1", queues=["default", "mail"], kinds=["task"], host="box", pid=42)
    claim(store, worker="w1")

    (worker,) = store.workers()
    assert (worker.id, worker.host, worker.pid) == ("w1", "box", 42)
    assert (worker.queues, worker.kinds, worker.running) == (["default", "mail"], ["task"], ids)
    assert (worker.started_at, worker.last_beat_at) == (now, now)


def test_a_worker_announces_itself_again(store: Store, clock: ManualClock):
    """A later word is a beat: it may change what is served, not when the worker started."""
    store.announce(worker="w1", queues=["a"], kinds=[], host="box", pid=42)
    started = from_us(clock.now_us())
    clock.advance(10)
    store.announce(worker="w1", queues=["b"], kinds=["k"], host="box", pid=42)

    (worker,) = store.workers()
    assert (worker.queues, worker.kinds) == (["b"], ["k"])
    assert (started, from_us(clock.now_us())) == (worker.started_at, worker.last_beat_at)


def test_a_worker_departs(store: Store):
    """A worker that says goodbye is gone; to say it twice, or unannounced, does no harm."""
    store.announce(worker="w1", queues=[], kinds=[], host="box", pid=1)
    store.announce(worker="w2", queues=[], kinds=[], host="box", pid=2)
    for _ in range(2):
        store.depart("w1")

    assert [worker.id for worker in store.workers()] == ["w2"]


def test_a_silent_worker_is_known_by_its_leases(store: Store, clock: ManualClock):
    """Who holds a job is listed, though it never announced itself, with its last beat."""
    ids = enqueue_ids(store, 3)
    leases = claim(store, worker="silent", limit=2)
    other = claim_one(store, worker="other")
    clock.advance(5)
    store.heartbeat(leases[:1])

    first, second = store.workers()
    assert (first.id, first.running) == ("other", ids[2:])
    assert (second.id, second.running) == ("silent", ids[:2])
    assert from_us(clock.now_us()) == second.last_beat_at
    store.succeed([*leases, other])
    assert store.workers() == []


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("worker", {"worker": ""}),
        ("worker", {"worker": "w" * 201}),
        ("queues", {"queues": ["\udcff"]}),
        ("queues", {"queues": "default"}),
        ("kinds", {"kinds": ["a\0"]}),
    ],
)
def test_a_bad_announcement_is_refused(store: Store, option: str, options):
    """Names are checked before they are stored."""
    announced = {"worker": "w1", "queues": [], "kinds": [], "host": "box", "pid": 1}
    with pytest.raises(OptionInvalid) as caught:
        store.announce(**{**announced, **options})

    assert caught.value.option == option
    assert store.workers() == []


def test_a_strange_host_is_cleaned(store: Store):
    """A host's name is context: what can't be stored of it is replaced or cut."""
    store.announce(worker="w1", queues=[], kinds=[], host="a\0b\ud800" + "x" * 500, pid=1)

    (worker,) = store.workers()
    assert worker.host.startswith("a\ufffdb\ufffd")
    assert len(worker.host) <= 200
