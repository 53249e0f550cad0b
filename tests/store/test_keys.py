"""One job in flight per tenant, kind and key; what holds the key longer is the job's choice."""

from __future__ import annotations

import pytest

from rowlock.clock import ManualClock
from rowlock.ids import new_id
from rowlock.job import TERMINAL_STATES, JobState
from rowlock.store import Store
from tests.store.jobs import (
    EVERY_JOB,
    claim_one,
    enqueue,
    kept_for,
    made,
    put_in_state,
    start,
    state_of,
    stored,
)

IN_FLIGHT = [state for state in JobState if state not in TERMINAL_STATES]


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_a_key_in_flight_is_answered_by_its_job(store: Store, state: JobState):
    """A second enqueue of a key returns the first job, unchanged, and inserts nothing."""
    id = put_in_state(store, state, key="k", payload='{"a":1}')
    before = stored(store, id)
    again = enqueue(store, key="k", payload='{"b":2}', priority=9)

    assert (again.id, again.state, again.created, again.payload) == (id, state, False, {"a": 1})
    assert before == stored(store, id)
    assert len(store.list(EVERY_JOB)) == 1


@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_the_slot_is_free_when_the_job_is_terminal(store: Store, state: JobState):
    """A key in flight is free again as soon as its job has ended, in whatever way."""
    id = put_in_state(store, state, key="k")
    again = enqueue(store, key="k")

    assert again.created
    assert id != again.id


def test_a_key_belongs_to_its_tenant_and_kind(store: Store):
    """The same key of another tenant, of none, or of another kind is another job."""
    jobs = store.enqueue(
        [
            made(key="k"),
            made(key="k", tenant="a"),
            made(key="k", tenant="b"),
            made(key="k", kind="other"),
            made(key="K"),
        ]
    )

    assert [job.created for job in jobs] == [True] * 5


def test_a_key_spans_queues(store: Store):
    """A key is held whatever the queue of the second enqueue."""
    first = enqueue(store, key="k", queue="a")
    again = enqueue(store, key="k", queue="b")

    assert (again.id, again.queue, again.created) == (first.id, "a", False)


def test_a_key_held_for_seconds(store: Store, clock: ManualClock):
    """A hold in seconds counts from the enqueue, outlives the job's end, and is then over."""
    lease = start(store, key="k", key_hold=60)
    clock.advance(10)
    store.succeed([lease])
    clock.advance(49)
    held = enqueue(store, key="k")
    clock.advance(1)
    free = enqueue(store, key="k")

    assert (held.id, held.state, held.created) == (lease.id, JobState.SUCCEEDED, False)
    assert free.created


def test_a_long_run_holds_its_key_beyond_the_seconds(store: Store, clock: ManualClock):
    """A job in flight holds its key even when its hold in seconds is over."""
    job = enqueue(store, key="k", key_hold=5)
    clock.advance(6)
    again = enqueue(store, key="k")

    assert (again.id, again.created) == (job.id, False)


def test_a_hold_that_ran_out_before_the_end_holds_nothing(store: Store, clock: ManualClock):
    """When a job ends after its seconds are over, its key is free at once."""
    lease = start(store, key="k", key_hold=5)
    clock.advance(6)
    store.succeed([lease])

    assert enqueue(store, key="k").created


def test_a_hold_of_zero_seconds_is_in_flight(store: Store):
    """No seconds at all is the default hold."""
    store.succeed([start(store, key="k", key_hold=0)])

    assert enqueue(store, key="k").created


def test_a_key_held_while_kept(store: Store, clock: ManualClock):
    """A key held while its row is kept is free when retention removes the row."""
    lease = start(store, key="k", key_hold="kept", policy=kept_for(100))
    store.succeed([lease], [{"sum": 3}])
    held = enqueue(store, key="k")
    clock.advance(100)
    removed = store.prune()
    free = enqueue(store, key="k")

    assert (held.id, held.created, held.result) == (lease.id, False, {"sum": 3})
    assert (removed, free.created) == (1, True)


@pytest.mark.parametrize("state", ["dead", "cancelled"])
def test_a_kept_key_is_held_by_any_end(store: Store, state: str):
    """A dead or cancelled job that is kept holds its key as well, until it is deleted."""
    id = put_in_state(store, JobState(state), key="k", key_hold="kept")
    held = enqueue(store, key="k")
    store.delete(id)
    free = enqueue(store, key="k")

    assert (held.id, held.created) == (id, False)
    assert free.created


def test_a_key_outlives_a_row_kept_for_no_time(store: Store, clock: ManualClock):
    """A hold in seconds holds also when the row is deleted on success."""
    lease = start(store, key="k", key_hold=3_600, policy=kept_for(0), payload='{"a":1}')
    store.succeed([lease])
    clock.advance(3_599)
    store.prune()
    held = enqueue(store, key="k", payload='{"b":1}')
    clock.advance(1)
    free = enqueue(store, key="k")

    assert (held.id, held.state, held.created) == (lease.id, JobState.SUCCEEDED, False)
    assert free.created


def test_a_key_outlives_a_pruned_row(store: Store, clock: ManualClock):
    """A hold in seconds holds also when retention removes the row before it is over."""
    lease = start(store, key="k", key_hold=3_600, policy=kept_for(60))
    store.succeed([lease])
    clock.advance(61)
    removed = store.prune()
    held = enqueue(store, key="k")
    clock.advance(3_600)
    store.prune()

    assert (removed, state_of(store, lease.id)) == (1, None)
    assert (held.id, held.created) == (lease.id, False)
    assert enqueue(store, key="k").created


def test_duplicates_in_one_batch(store: Store):
    """Of jobs with one key in a batch the first is new, and answers for the others."""
    first, second, third = store.enqueue([made(key="k"), made(key="k"), made(key="k")])

    assert [first.created, second.created, third.created] == [True, False, False]
    assert first.id == second.id == third.id
    assert len(store.list(EVERY_JOB)) == 1


def test_duplicates_of_an_ended_holder_in_one_batch(store: Store):
    """Jobs of a batch whose key an ended job still holds are all answered by that one."""
    id = put_in_state(store, JobState.SUCCEEDED, key="k", key_hold="kept")
    jobs = store.enqueue([made(key="k"), made(key="k"), made()])

    assert [job.id for job in jobs[:2]] == [id, id]
    assert [job.created for job in jobs] == [False, False, True]


def test_many_duplicates_of_an_ended_holder(store: Store):
    """However many jobs of a batch want a key that an ended job holds, all are answered by it."""
    id = put_in_state(store, JobState.SUCCEEDED, key="k", key_hold="kept")
    jobs = store.enqueue([made(key="k") for _ in range(30)])

    assert {(job.id, job.created) for job in jobs} == {(id, False)}


def test_a_resend_is_its_own_job_though_its_key_is_in_flight_again(store: Store):
    """An id that has ended answers for itself, not the job that has its key meanwhile."""
    id = put_in_state(store, JobState.SUCCEEDED, id=new_id(), key="k")
    other = enqueue(store, key="k")
    again = enqueue(store, id=id, key="k")

    assert (again.id, again.state, again.created) == (id, JobState.SUCCEEDED, False)
    assert JobState.READY is state_of(store, other.id)


def test_a_resend_leaves_its_key_to_others(store: Store):
    """In one batch, the resend of an ended job does not stand in the way of a new one's key."""
    id = put_in_state(store, JobState.SUCCEEDED, id=new_id(), key="k")
    again, fresh, third = store.enqueue([made(id=id, key="k"), made(key="k"), made(key="k")])

    assert (again.id, again.created) == (id, False)
    assert [fresh.created, third.created] == [True, False]
    assert fresh.id == third.id != id


def test_a_key_held_while_kept_for_no_time_is_free(store: Store):
    """A row that is not kept holds no key."""
    store.succeed([start(store, key="k", key_hold="kept", policy=kept_for(0))])

    assert enqueue(store, key="k").created


def test_a_retry_holds_its_key_again(store: Store):
    """A job that is taken back from the dead is in flight with its key."""
    id = put_in_state(store, JobState.DEAD, key="k")
    store.retry(id)
    again = enqueue(store, key="k")

    assert (again.id, again.created) == (id, False)


def test_a_retried_job_holds_its_seconds_from_its_creation(store: Store, clock: ManualClock):
    """A retry does not stretch a hold in seconds, nor end it."""
    id = put_in_state(store, JobState.DEAD, key="k", key_hold=60)
    clock.advance(30)
    store.retry(id)
    store.succeed([claim_one(store)])
    held = enqueue(store, key="k")
    clock.advance(30)

    assert (held.id, held.created) == (id, False)
    assert enqueue(store, key="k").created
