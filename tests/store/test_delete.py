"""Any job can be removed, unless it runs."""

from __future__ import annotations

import pytest

from rowlock.clock import ManualClock
from rowlock.errors import InvalidTransition, LeaseLost, NotFound, OptionInvalid
from rowlock.job import Beat, JobState
from rowlock.store import Store
from tests.store.jobs import (
    UNKNOWN_ID,
    claim,
    claim_one,
    enqueue,
    kept_for,
    put_in_state,
    start,
    state_of,
    stored,
)


@pytest.mark.parametrize("state", [state for state in JobState if state != "running"])
def test_a_job_that_does_not_run_is_removed(store: Store, state: JobState):
    """A deleted job is gone, is not claimed, and its key is free."""
    id = put_in_state(store, state, key="k", key_hold=3_600)
    store.delete(id)

    assert None is state_of(store, id)
    assert claim(store) == []
    assert enqueue(store, key="k").created


def test_a_running_job_is_not_removed(store: Store):
    """A job under a lease must be cancelled first."""
    lease = start(store)
    before = stored(store, lease.id)
    with pytest.raises(InvalidTransition) as caught:
        store.delete(lease.id)

    assert lease.id == caught.value.job_id
    assert before == stored(store, lease.id)


def test_what_is_gone_is_not_found(store: Store):
    """A delete of nothing, of the same again, or of what was removed on success says so."""
    deleted = enqueue(store).id
    store.delete(deleted)
    gone = start(store, policy=kept_for(0))
    store.succeed([gone])
    for id in (UNKNOWN_ID, deleted, gone.id):
        with pytest.raises(NotFound):
            store.delete(id)


def test_a_failed_delete_forgets_nothing(store: Store):
    """An id that is remembered after its row is gone stays so when a delete finds no row."""
    lease = start(store, policy=kept_for(0))
    store.succeed([lease])
    with pytest.raises(NotFound):
        store.delete(lease.id)

    assert not enqueue(store, id=lease.id).created


def test_an_id_that_is_none_is_refused(store: Store):
    """What is no id is a mistake of the caller, on both stores alike."""
    with pytest.raises(OptionInvalid, match="id"):
        store.delete("garbage")


@pytest.mark.parametrize("is_first_given", [False, True])
def test_a_run_of_a_deleted_job_can_not_touch_the_next_one(
    store: Store, clock: ManualClock, is_first_given: bool
):
    """A job that has the id of a deleted one has other tokens: who lost the first lost for good."""
    zombie = start(store, **({"id": UNKNOWN_ID} if is_first_given else {}))
    clock.advance(60)
    store.recover()
    store.delete(zombie.id)
    again = enqueue(store, id=zombie.id)
    lease = claim_one(store)
    with pytest.raises(LeaseLost):
        store.succeed([zombie])

    assert store.heartbeat([zombie]) == [Beat.LOST]
    assert (again.created, lease.token) == (True, again.token + 1)
    assert zombie.token < lease.token
    assert state_of(store, lease.id) == JobState.RUNNING


def test_tokens_of_fresh_ids_start_at_the_beginning(store: Store):
    """Nobody can know an id that was made just now."""
    assert [start(store).token, start(store, key="k").token] == [1, 1]


@pytest.mark.parametrize("end", ["fail", "succeed"])
def test_the_log_goes_with_the_job(store: Store, end: str):
    """Nothing of a deleted job is left."""
    lease = start(store)
    store.log(lease, ["one", "two"])
    if end == "fail":
        store.fail(lease, "boom")
    else:
        store.succeed([lease])
    store.delete(lease.id)

    assert store.read_log(lease.id) == []
