"""A cancel ends what waits at once, and asks the worker of what runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.errors import NotFound, OptionInvalid
from rowlock.job import TERMINAL_STATES, CancelOutcome, JobState, Lease
from rowlock.store import Store
from tests.store.jobs import (
    UNKNOWN_ID,
    claim,
    kept_for,
    put_in_state,
    start,
    state_of,
    stored,
)


@pytest.mark.parametrize("state", ["scheduled", "ready", "retrying"])
def test_a_waiting_job_is_cancelled_at_once(store: Store, clock: ManualClock, state: str):
    """A job that nobody runs is cancelled, and never claimed."""
    id = put_in_state(store, JobState(state))
    answer = store.cancel(id)
    clock.advance(1_000)

    assert (answer.outcome, answer.state) == ("cancelled", "cancelled")
    assert claim(store) == []
    assert JobState.CANCELLED is state_of(store, id)
    assert from_us(clock.now_us() - 1_000_000_000) == stored(store, id).finished_at


def test_a_running_job_is_asked(store: Store):
    """The flag is set for the worker to see; the job goes on until the worker ends it."""
    lease = start(store)
    answer = store.cancel(lease.id)
    again = store.cancel(lease.id)

    assert (answer.outcome, answer.state) == (CancelOutcome.PENDING_ON_WORKER, JobState.RUNNING)
    assert answer == again
    assert (
        state_of(store, lease.id),
        stored(store, lease.id).cancel_requested,
    ) == (JobState.RUNNING, True)


@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_an_ended_job_stays_as_it_is(store: Store, state: JobState):
    """A cancel that comes too late is told the state, and changes nothing."""
    id = put_in_state(store, state)
    before = stored(store, id)
    answer = store.cancel(id)

    assert (answer.outcome, answer.state) == (CancelOutcome.ALREADY_TERMINAL, state)
    assert before == stored(store, id)


def test_an_unknown_job_is_not_found(store: Store):
    """A cancel of nothing says so, by its code."""
    with pytest.raises(NotFound) as caught:
        store.cancel(UNKNOWN_ID)

    assert caught.value.code == "not_found"


def test_an_id_that_is_none_is_refused(store: Store):
    """What is no id is a mistake of the caller, on both stores alike."""
    with pytest.raises(OptionInvalid, match="id"):
        store.cancel("garbage")


def test_a_success_in_spite_of_a_cancel(store: Store):
    """A job that succeeds though it was asked to stop has succeeded."""
    lease = start(store)
    store.cancel(lease.id)
    store.succeed([lease], ["done"])

    assert (
        state_of(store, lease.id),
        stored(store, lease.id).result,
    ) == (JobState.SUCCEEDED, "done")


FLAGGED_ENDINGS: dict[str, Callable[[Store, Lease], object]] = {
    "fail": lambda store, lease: store.fail(lease, "boom"),
    "fail for good": lambda store, lease: store.fail(lease, "boom", permanent=True),
    "release": lambda store, lease: store.release(lease),
    "release for later": lambda store, lease: store.release(lease, delay=60),
    "finish_cancelled": lambda store, lease: store.finish_cancelled(lease),
    "crash": lambda store, lease: store.crash([lease], "signal 9"),
    "recover": lambda store, lease: store.recover(),
    "claim": lambda store, lease: claim(store, worker="w2"),
    "adopt": lambda store, lease: store.adopt_orphans(["default"]),
    "park": lambda store, lease: store.adopt_orphans(["default"], action="park"),
    "release_worker": lambda store, lease: store.release_worker(lease.worker),
}


@pytest.mark.parametrize("ending", FLAGGED_ENDINGS)
@pytest.mark.parametrize("max_attempts", [1, 20])
def test_every_other_end_is_cancelled(
    store: Store, clock: ManualClock, ending: str, max_attempts: int
):
    """With the flag set, every outcome but success ends cancelled, whoever settles it."""
    lease = start(store, max_attempts=max_attempts)
    store.cancel(lease.id)
    clock.advance(1_000)
    FLAGGED_ENDINGS[ending](store, lease)

    assert (
        state_of(store, lease.id),
        stored(store, lease.id).cancel_requested,
    ) == (JobState.CANCELLED, True)
    assert claim(store) == []


def test_the_error_of_a_cancelled_run_is_kept(store: Store):
    """What a flagged run failed with is recorded, though it is no reason to try again."""
    lease = start(store)
    store.cancel(lease.id)
    store.fail(lease, "interrupted")

    assert stored(store, lease.id).last_error == "Error: interrupted"


def test_a_cancelled_job_is_kept_as_its_policy_says(store: Store, clock: ManualClock):
    """Retention of a cancelled job is its `keep`, also none at all."""
    kept = put_in_state(store, JobState.READY, policy=kept_for(60))
    gone = put_in_state(store, JobState.READY, policy=kept_for(0))
    for id in (kept, gone):
        store.cancel(id)
    clock.advance(60)

    assert (state_of(store, kept), state_of(store, gone)) == (JobState.CANCELLED, None)
    assert store.prune() == 1
