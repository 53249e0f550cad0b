"""Jobs whose process died run again, alone; one that kills its process alone is poison."""

from __future__ import annotations

import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.errors import LeaseLost
from rowlock.job import JobState, Policy
from rowlock.store import Store
from tests.store.fencing import lose
from tests.store.jobs import claim, claim_one, enqueue, enqueue_ids, start, state_of, stored


def test_a_crash_is_counted(store: Store, clock: ManualClock):
    """Jobs that ran when their process died are ready again; the crash is counted, no attempt."""
    enqueue_ids(store, 2)
    leases = claim(store)
    store.crash(leases, "signal 9 (out of memory)")

    for lease in leases:
        job = stored(store, lease.id)
        assert (job.state, job.attempt, job.crashes) == (JobState.READY, 0, 1)
        assert job.last_error == "Crashed: signal 9 (out of memory)"
        assert from_us(clock.now_us()) == job.errors[-1].time
    assert [lease.job.crashes for lease in claim(store)] == [1, 1]


def test_a_poisoned_job_is_dead(store: Store):
    """A job that takes down a child alone for the third time is dead, with the evidence."""
    id = enqueue(store).id
    for _ in range(3):
        store.crash([claim_one(store)], "signal 11")

    job = stored(store, id)
    assert (job.state, job.attempt, job.crashes) == (JobState.DEAD, 3, 3)
    assert [error.type for error in job.errors] == ["Crashed", "Crashed", "Poison"]
    assert job.last_error == "Poison: signal 11"


@pytest.mark.parametrize("max_crashes", [1, 2, 5])
def test_how_many_crashes_is_an_option(store: Store, max_crashes: int):
    """A job's own policy says how often it may take down its process."""
    id = enqueue(store, policy=Policy(max_crashes=max_crashes)).id
    for _ in range(max_crashes - 1):
        store.crash([claim_one(store)], "signal 11")
    before = state_of(store, id)
    store.crash([claim_one(store)], "signal 11")

    assert (before, state_of(store, id)) == (JobState.READY, JobState.DEAD)


def test_bystanders_never_die(store: Store):
    """However often its neighbours take down the process, a job gets another run."""
    ids = enqueue_ids(store, 2, max_attempts=2)
    for _ in range(10):
        store.crash(claim(store, limit=2), "signal 9")

    for id in ids:
        job = stored(store, id)
        assert (job.state, job.crashes) == (JobState.READY, 10)
        assert job.attempt < job.max_attempts


def test_the_guilty_one_is_found_in_quarantine(store: Store):
    """Of two that crashed together often, the one that crashes alone is poison."""
    guilty, innocent = enqueue_ids(store, 2)
    for _ in range(3):
        store.crash(claim(store, limit=2), "signal 9")
    first = claim_one(store)
    store.crash([first], "signal 9")
    second = claim_one(store)
    store.succeed([second])

    assert (first.id, state_of(store, guilty)) == (guilty, JobState.DEAD)
    assert (second.id, state_of(store, innocent)) == (innocent, JobState.SUCCEEDED)


def test_a_crash_alone_on_the_last_attempt_is_dead(store: Store):
    """Attempts that are used up are used up, also before the third crash."""
    lease = start(store, max_attempts=1)
    store.crash([lease], "exit code 137")

    assert (
        state_of(store, lease.id),
        stored(store, lease.id).crashes,
        stored(store, lease.id).last_error,
    ) == (JobState.DEAD, 1, "Interrupted: exit code 137")


def test_jobs_that_had_not_started_are_not_counted(store: Store):
    """A supervisor releases what its dead worker had only fetched."""
    enqueue_ids(store, 3)
    running, *waiting = claim(store, worker="dead")
    store.crash([running], "signal 9")
    count = store.release_worker("dead")

    assert count == 2
    assert [
        (stored(store, lease.id).attempt, stored(store, lease.id).crashes)
        for lease in (running, *waiting)
    ] == [(1, 1), (0, 0), (0, 0)]


def test_a_failure_between_crashes_counts_both(store: Store):
    """Failures and crashes share the attempts; only crashes count as crashes."""
    lease = start(store)
    store.crash([lease], "signal 9")
    store.fail(claim_one(store), "boom", delay=0)

    assert (stored(store, lease.id).attempt, stored(store, lease.id).crashes) == (2, 1)


@pytest.mark.parametrize("how", ["fail", "release"])
def test_a_run_that_ends_by_itself_ends_the_quarantine(store: Store, how: str):
    """A bystander runs alone once, not at every later attempt; its crash stays counted."""
    enqueue_ids(store, 2)
    before = claim(store)
    store.crash(before, "signal 9")
    alone = claim(store)
    for lease in alone:
        if how == "fail":
            store.fail(lease, "boom", delay=0)
        else:
            store.release(lease)
    after = claim(store)

    rows = [[lease.row for lease in leases] for leases in (before, alone, after)]
    assert [[(row.quarantined, row.crashes) for row in each if row] for each in rows] == [
        [(False, 0)] * 2,
        [(True, 1)] * 2,
        [(False, 1)] * 2,
    ]


def test_a_run_that_is_cut_short_does_not_end_the_quarantine(store: Store):
    """Nobody knows how it would have ended, so it runs alone once more."""
    enqueue_ids(store, 1)
    store.crash([claim_one(store)], "signal 9")
    claim_one(store, worker="gone")
    store.release_worker("gone")
    row = claim_one(store).row

    assert row is not None
    assert row.quarantined


def test_a_crash_is_fenced(store: Store, clock: ManualClock):
    """A supervisor that comes late for one job settles the others, and is told."""
    lost = lose(store, clock, "running")
    lease = start(store, queue="other")
    with pytest.raises(LeaseLost) as caught:
        store.crash([lost, lease], "signal 9")

    assert caught.value.leases == [lost]
    assert (stored(store, lost.id).crashes, stored(store, lease.id).crashes) == (0, 1)


def test_evidence_can_always_be_recorded(store: Store):
    """What a database refuses of the evidence is cleaned or cut."""
    lease = start(store)
    store.crash([lease], "core \0 dumped \ud800 " + "x" * 200_000)

    (error,) = stored(store, lease.id).errors
    assert error.message.startswith("core \ufffd dumped \ufffd")
    assert len(error.message) < 100_000
