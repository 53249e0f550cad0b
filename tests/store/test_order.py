"""Within a queue: priority, then time, then id; between queues: as the worker lists them."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.errors import OptionInvalid
from rowlock.store import Store
from tests.store.jobs import claim, claim_one, enqueue, enqueue_ids, start


def test_high_priority_first(store: Store):
    """Of jobs that are due, the higher priority is claimed first, whatever its age."""
    ids = {priority: enqueue(store, priority=priority).id for priority in (0, -100, 5, 100, -1)}

    assert [ids[priority] for priority in (100, 5, 0, -1, -100)] == [
        lease.id for lease in claim(store)
    ]


def test_then_by_time(store: Store, clock: ManualClock):
    """Within a priority, what was due first is claimed first."""
    late, early, now = (enqueue(store, delay=delay).id for delay in (20, 10, 0))
    clock.advance(30)
    newest = enqueue(store).id

    assert [lease.id for lease in claim(store)] == [now, early, late, newest]


def test_then_by_id(store: Store):
    """Of jobs due at the same moment, the smaller id is claimed first."""
    ids = enqueue_ids(store, 20)

    assert ids == [lease.id for _ in range(4) for lease in claim(store, limit=5)]


def test_kinds_compete_by_time(store: Store, clock: ManualClock):
    """Jobs of several kinds of one priority are claimed in their common order."""
    ids = []
    for kind in ("b", "a", "c", "a", "b", "c"):
        ids.append(enqueue(store, kind=kind).id)
        clock.advance(1)

    assert ids[:4] == [lease.id for lease in claim(store, limit=4)]
    assert ids[4:] == [lease.id for lease in claim(store, limit=4, kinds=["b", "c"])]


def test_priority_comes_before_kind_and_time(store: Store, clock: ManualClock):
    """Kinds and ages are mixed within a priority only."""
    old = enqueue(store, kind="a").id
    clock.advance(1)
    urgent = [enqueue(store, kind=kind, priority=1).id for kind in ("b", "a")]

    assert [lease.id for lease in claim(store)] == [*urgent, old]


def test_queues_are_strict(store: Store):
    """All of the first queue comes before any of the second, whatever their priorities."""
    second = enqueue(store, queue="b", priority=100).id
    first = [enqueue(store, queue="a", priority=priority).id for priority in (1, -5)]

    assert [lease.id for lease in claim(store, queues=["a", "b"])] == [*first, second]


def test_a_failed_job_stands_by_its_new_time(store: Store, clock: ManualClock):
    """By default a retry queues up behind what became due before it."""
    lease = start(store)
    clock.advance(1)
    other = enqueue(store).id
    store.fail(lease, "boom", delay=5)
    clock.advance(10)

    assert [each.id for each in claim(store)] == [other, lease.id]


def test_a_released_job_keeps_its_place(store: Store, clock: ManualClock):
    """A job given back without a delay is claimed before those that came after it."""
    lease = start(store)
    clock.advance(1)
    other = enqueue(store).id
    store.release(lease)

    assert [each.id for each in claim(store)] == [lease.id, other]


def test_a_lost_job_keeps_its_place(store: Store, clock: ManualClock):
    """A job whose lease expired competes at its old place."""
    lease = start(store)
    clock.advance(1)
    other = enqueue(store).id
    clock.advance(30)

    assert [each.id for each in claim(store)] == [lease.id, other]


def test_a_queue_ordered_by_creation_keeps_the_age_of_retries(store: Store, clock: ManualClock):
    """With order "created" a retry that is due stands where its age puts it."""
    store.set_order("default", "created")
    lease = start(store)
    clock.advance(1)
    other = enqueue(store).id
    store.fail(lease, "boom", delay=5)
    waiting = [each.id for each in claim(store, limit=10)]
    clock.advance(5)
    late = enqueue(store).id

    assert waiting == [other]
    assert [each.id for each in claim(store)] == [lease.id, late]


def test_creation_order_compares_ages_of_retries(store: Store, clock: ManualClock):
    """Of two retries the older job comes first, though it became due later."""
    store.set_order("default", "created")
    older = start(store)
    clock.advance(1)
    younger = start(store)
    store.fail(older, "boom", delay=20)
    store.fail(younger, "boom", delay=10)
    clock.advance(30)

    assert [each.id for each in claim(store)] == [older.id, younger.id]


def test_creation_order_among_more_retries_than_a_batch(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """They are promoted in several transactions, and claimed by age, though due the other way."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 3)
    store.set_order("default", "created")
    ids = []
    for number in range(10):
        lease = start(store)
        ids.append(lease.id)
        store.fail(lease, "boom", delay=100 - number)
        clock.advance(1)
    clock.advance(100)

    assert [each.id for each in claim(store, limit=4)] == ids[:4]
    assert [each.id for each in claim(store, limit=10)] == ids[4:]


def test_the_order_can_be_set_back(store: Store, clock: ManualClock):
    """A queue's order is an option that can be changed at any time."""
    store.set_order("default", "created")
    store.set_order("default", "run_at")
    lease = start(store)
    clock.advance(1)
    other = enqueue(store).id
    store.fail(lease, "boom", delay=5)
    clock.advance(5)

    assert [each.id for each in claim(store)] == [other, lease.id]


def test_the_order_of_a_queue_leaves_its_pause(store: Store):
    """Pause and order are set apart from each other."""
    store.pause("default")
    store.set_order("default", "created")
    enqueue(store)
    paused = claim(store)
    store.resume("default")

    assert paused == []
    assert claim_one(store)


def test_an_unknown_order_is_refused(store: Store):
    """There are two orders, and a typo is neither."""
    with pytest.raises(OptionInvalid, match="order"):
        store.set_order("default", "newest")  # type: ignore[arg-type]  # what is refused
