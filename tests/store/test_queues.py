"""A queue is any name; it can be paused and resumed."""

from __future__ import annotations

import pytest

from rowlock.clock import ManualClock
from rowlock.errors import OptionInvalid
from rowlock.job import Beat, JobState
from rowlock.store import Store
from tests.store.jobs import claim, enqueue, start, state_of, stored


def test_a_paused_queue_is_resumed(store: Store):
    """Jobs are accepted while a queue is paused, and claimed after."""
    store.pause("default")
    job = enqueue(store)
    paused = claim(store)
    store.resume("default")

    assert paused == []
    assert [lease.id for lease in claim(store)] == [job.id]


def test_pause_and_resume_can_be_repeated(store: Store):
    """To pause what is paused, or resume what is not, changes nothing."""
    for _ in range(2):
        store.pause("a")
        store.resume("b")

    assert {queue.queue: queue.is_paused for queue in store.stats(["a", "b"])} == {
        "a": True,
        "b": False,
    }


def test_a_pause_is_of_one_queue(store: Store):
    """Others go on."""
    job = enqueue(store, queue="b")
    store.pause("a")

    assert [lease.id for lease in claim(store, queues=["a", "b"])] == [job.id]


def test_running_jobs_of_a_paused_queue_go_on(store: Store):
    """A pause stops claims; what runs is extended and settled."""
    lease = start(store)
    store.pause("default")
    beats = store.heartbeat([lease])
    store.succeed([lease])

    assert beats == [Beat.KEPT]
    assert JobState.SUCCEEDED is state_of(store, lease.id)


def test_expired_leases_of_a_paused_queue_wait(store: Store, clock: ManualClock):
    """A lost job of a paused queue is given back, and not claimed."""
    lease = start(store)
    store.pause("default")
    clock.advance(31)

    assert claim(store) == []
    assert (state_of(store, lease.id), stored(store, lease.id).attempt) == (JobState.READY, 1)


def test_the_tenants_of_a_paused_queue_wait(store: Store):
    """A pause holds for claims of some tenants as well."""
    enqueue(store, tenant="acme")
    store.pause("default")

    assert claim(store, tenants=["acme"]) == []


@pytest.mark.parametrize("queue", ["", "q" * 201, "a\0b"])
def test_a_bad_name_is_refused(store: Store, queue: str):
    """What is no queue can't be paused, resumed or ordered, and leaves no trace."""
    for act in (store.pause, store.resume, lambda name: store.set_order(name, "created")):
        with pytest.raises(OptionInvalid, match="queue"):
            act(queue)

    assert store.stats() == []
