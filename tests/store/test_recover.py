"""Jobs of workers that vanished are found by anyone, and given back by their own rules."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import OptionInvalid
from rowlock.job import JobState
from rowlock.lifecycle import Interrupted
from rowlock.store import Settlement, Store
from rowlock.store.local_state import LocalState
from rowlock.store.ops.hold import begin
from rowlock.store.ops.recover import release_unknown, sweep
from tests.store.jobs import (
    claim,
    claim_one,
    enqueue_ids,
    kept_for,
    start,
    state_of,
    stored,
)


def test_expired_leases_are_given_back(store: Store, clock: ManualClock):
    """A job whose lease expired is ready again at once, its attempt counted, the loss noted."""
    lease = start(store)
    alive = start(store)
    clock.advance(20)
    store.heartbeat([alive])
    clock.advance(10)
    count = store.recover()

    job = stored(store, lease.id)
    assert (count, job.state, job.attempt) == (1, JobState.READY, 1)
    assert (job.last_error, job.worker) == ("LeaseLost: lease expired", None)
    assert from_us(clock.now_us()) == job.errors[-1].time
    assert JobState.RUNNING is state_of(store, alive.id)
    assert store.recover() == 0


def test_a_lost_last_attempt_is_dead(store: Store, clock: ManualClock):
    """A job whose attempts are used up is dead, and counted among the recovered."""
    lease = start(store, max_attempts=1)
    clock.advance(30)

    assert store.recover() == 1
    assert (
        state_of(store, lease.id),
        stored(store, lease.id).finished_at,
    ) == (JobState.DEAD, from_us(clock.now_us()))


def test_only_leases_expired_so_long_ago(store: Store, clock: ManualClock):
    """`older_than` counts from the lease's end."""
    lease = start(store)
    clock.advance(timedelta(seconds=39, microseconds=999_999))
    early = store.recover(older_than=10)
    clock.advance(timedelta(microseconds=1))

    assert early == 0
    assert store.recover(older_than=timedelta(seconds=10)) == 1
    assert JobState.READY is state_of(store, lease.id)


def test_only_the_queues_asked_for(store: Store, clock: ManualClock):
    """Without queues all are swept, with some only those, with none at all nothing."""
    for queue in ("a", "b", "c"):
        start(store, queue=queue)
    clock.advance(31)

    assert store.recover(queues=[]) == 0
    assert store.recover(queues=["b", "nowhere"]) == 1
    assert store.recover() == 2


def test_more_than_a_batch(store: Store, clock: ManualClock):
    """A sweep goes on until nothing is left."""
    total = config.MAINTENANCE_BATCH_ROWS + 7
    enqueue_ids(store, total)
    claim(store, limit=total)
    clock.advance(31)

    assert total == store.recover()
    assert total == store.stats(["default"])[0].counts[JobState.READY].value


def test_the_dead_and_the_living_of_a_sweep(store: Store, clock: ManualClock):
    """One sweep treats each job by its own attempts, flag and retention."""
    again = start(store)
    dead = start(store, max_attempts=1)
    flagged = start(store)
    gone = start(store, policy=kept_for(0))
    for lease in (flagged, gone):
        store.cancel(lease.id)
    clock.advance(31)

    assert store.recover() == 4
    assert [state_of(store, lease.id) for lease in (again, dead, flagged, gone)] == [
        "ready",
        "dead",
        "cancelled",
        None,
    ]


@pytest.mark.parametrize("older_than", [-1, float("nan"), float("inf"), "5", True])
def test_a_bad_age_is_refused(store: Store, clock: ManualClock, older_than):
    """An age is a time that has passed; with any other nothing is recovered."""
    lease = start(store)
    clock.advance(1_000)
    with pytest.raises(OptionInvalid, match="older_than"):
        store.recover(older_than=older_than)
    with pytest.raises(OptionInvalid, match="older_than"):
        store.adopt_orphans(["default"], older_than=older_than)

    assert JobState.RUNNING is state_of(store, lease.id)


def test_names_must_be_a_list(store: Store):
    """A lone string is not taken for a list of its letters."""
    with pytest.raises(OptionInvalid, match="queues"):
        store.recover(queues="default")
    with pytest.raises(OptionInvalid, match="queues"):
        store.adopt_orphans("default")


def test_orphans_are_retried(store: Store, clock: ManualClock):
    """Running jobs not heard of for the threshold are ready again, whatever their lease says."""
    lease = start(store)
    store.heartbeat([lease], lease=10_000)
    clock.advance(300)
    count = store.adopt_orphans(["default"])

    job = stored(store, lease.id)
    assert (count, job.state, job.attempt) == (1, JobState.READY, 1)
    assert job.errors[-1].type == "LeaseLost"
    assert "orphaned" in job.errors[-1].message


def test_orphans_that_were_heard_of_are_left(store: Store, clock: ManualClock):
    """The threshold counts from the last beat."""
    lease = start(store)
    clock.advance(299)
    early = store.adopt_orphans(["default"])
    store.heartbeat([lease], lease=10_000)
    clock.advance(299)

    assert (early, store.adopt_orphans(["default"])) == (0, 0)
    assert JobState.RUNNING is state_of(store, lease.id)
    assert store.adopt_orphans(["default"], older_than=299) == 1


def test_an_orphan_without_attempts_left_is_dead(store: Store, clock: ManualClock):
    """Adoption counts the attempt as any other loss does."""
    lease = start(store, max_attempts=1)
    clock.advance(300)

    assert store.adopt_orphans(["default"]) == 1
    assert JobState.DEAD is state_of(store, lease.id)


def test_orphans_are_parked(store: Store, clock: ManualClock):
    """Parked orphans are dead with the reason, whatever attempts they have left."""
    lease = start(store)
    clock.advance(300)
    count = store.adopt_orphans(["default"], action="park")

    job = stored(store, lease.id)
    assert (count, job.state) == (1, JobState.DEAD)
    assert "orphaned" in (job.last_error or "")


def test_orphans_of_other_queues_are_left(store: Store, clock: ManualClock):
    """A worker adopts only on the queues that it serves; without queues it does nothing."""
    lease = start(store, queue="other")
    clock.advance(1_000)

    assert store.adopt_orphans([]) == 0
    assert store.adopt_orphans(["default"]) == 0
    assert JobState.RUNNING is state_of(store, lease.id)


def test_an_unknown_action_is_refused(store: Store):
    """Orphans are retried or parked, nothing else."""
    with pytest.raises(OptionInvalid, match="action"):
        store.adopt_orphans(["default"], action="delete")  # type: ignore[arg-type]  # refused


def test_more_orphans_than_a_batch(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    """Adoption goes on until nothing is left."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 3)
    enqueue_ids(store, 8)
    claim(store)
    clock.advance(300)

    assert store.adopt_orphans(["default"]) == 8


def test_a_worker_gives_all_back(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Every lease of a worker is given back uncounted, and those of others are left."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 3)
    ids = enqueue_ids(store, 7, max_attempts=2)
    claim(store, worker="leaving")
    other = start(store, queue="other")
    count = store.release_worker("leaving")

    assert count == 7
    assert {
        (job.state, job.attempt, job.worker, len(job.errors))
        for job in (stored(store, id) for id in ids)
    } == {(JobState.READY, 0, None, 0)}
    assert JobState.RUNNING is state_of(store, other.id)
    assert store.release_worker("leaving") == 0
    assert store.release_worker("nobody") == 0


@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_gives_back_what_runs_at_most_once(store: Store, begun: bool):
    """Only what is known not to have begun can be run by another."""
    id = enqueue_ids(store, 1, max_attempts=1)[0]
    store.claim(worker="leaving", queues=["default"], begun=begun)
    count = store.release_worker("leaving")

    job = stored(store, id)
    assert (count, job.state) == (1, JobState.DEAD if begun else JobState.READY)
    assert [error.type for error in job.errors] == (["Interrupted"] if begun else [])


def test_losses_of_runs_that_may_not_have_begun(store: Store, clock: ManualClock):
    """They are noted and not counted; after two in a row, the mark tells what has begun."""
    id = enqueue_ids(store, 1, max_attempts=2)[0]
    seen = []
    for marked in (False, False, False, True, True):
        (lease,) = store.claim(worker="w", queues=["default"], begun=False)
        if marked:
            assert store.run(begin([lease])) == {(id, lease.token)}
        clock.advance(31)
        store.recover()
        job = stored(store, id)
        seen.append((job.state, job.attempt, job.crashes, len(job.errors)))

    assert seen == [
        (JobState.READY, 0, 0, 1),
        (JobState.READY, 0, 0, 2),
        # A suspect by now, and known not to have begun.
        (JobState.READY, 0, 0, 2),
        (JobState.READY, 1, 1, 3),
        (JobState.DEAD, 2, 2, 4),
    ]
    assert not store.run(begin([lease]))


def test_at_most_once_and_never_begun(store: Store, clock: ManualClock):
    """However often its workers vanish, a job whose run never began is not counted."""
    id = enqueue_ids(store, 1, max_attempts=1)[0]
    for _ in range(config.INTERRUPTIONS_MAX + 5):
        store.claim(worker="w", queues=["default"], begun=False)
        clock.advance(31)
        store.recover()

    job = stored(store, id)
    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, [])


def test_a_mark_is_fenced(store: Store, clock: ManualClock):
    """Who has lost a lease can't mark its run, whether another has it or nobody does."""
    enqueue_ids(store, 1)
    (old,) = store.claim(worker="w", queues=["default"], begun=False)
    clock.advance(31)
    store.recover()
    nobodys = store.run(begin([old]))
    (new,) = store.claim(worker="v", queues=["default"], begun=False)

    assert (nobodys, store.run(begin([old]))) == (set(), set())
    assert store.run(begin([new, new])) == {(new.id, new.token)}


def test_interruptions_have_a_bound(store: Store):
    """A job that is interrupted again and again ends dead, with all of it in its errors."""
    id = enqueue_ids(store, 1)[0]
    for _ in range(config.INTERRUPTIONS_MAX):
        (lease,) = claim(store)
        store.settle([Settlement(lease, Interrupted("stopped"))])

    job = stored(store, id)
    assert (job.state, job.attempt) == (JobState.DEAD, 1)
    assert [error.type for error in job.errors] == ["Interrupted"] * config.INTERRUPTIONS_MAX


def test_a_worker_given_back_is_noticed_once_more(store: Store):
    """A claim of the dead that was still on its way is given back by a second call."""
    enqueue_ids(store, 2)
    claim_one(store, worker="dead")
    first = store.release_worker("dead")
    claim(store, worker="dead")

    assert (first, store.release_worker("dead")) == (1, 2)


@pytest.mark.parametrize("worker", ["", "w" * 201, "a\0"])
def test_a_bad_worker_is_refused(store: Store, worker: str):
    """A worker has a name."""
    with pytest.raises(OptionInvalid, match="worker"):
        store.release_worker(worker)


def test_leases_that_a_worker_does_not_know_are_given_back(store: Store, monkeypatch):
    """Uncounted, and behind any number of those that it knows: they never fill a batch."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)
    enqueue_ids(store, 12)
    leases = claim(store, worker="unsure")
    known = {(lease.id, lease.token) for lease in leases[:7]}
    count = store.run(release_unknown("unsure", known=known))
    jobs = [stored(store, lease.id) for lease in leases]

    assert count == 5
    assert [(job.state, job.attempt) for job in jobs] == [(JobState.RUNNING, 1)] * 7 + [
        (JobState.READY, 0)
    ] * 5
    assert store.run(release_unknown("nobody", known=set())) == 0


def test_slow_sweeps_take_it_as_well(store: Store, clock: ManualClock):
    """Looks that are held up again and again, as by many writers, give it back with the fourth."""
    lease = start(store)
    clock.advance(31)
    seen, states = store.run(sweep(LocalState(), {})), []
    for _ in range(3):
        clock.advance(config.SWEEP_STALE_SECONDS + 1)
        seen = store.run(sweep(LocalState(), seen))
        states.append(state_of(store, lease.id))

    assert states == [JobState.RUNNING, JobState.RUNNING, JobState.READY]


def test_a_sweep_takes_what_two_looks_have_found(store: Store, clock: ManualClock):
    """The first look only notes it; the second, a little later, gives it back."""
    lease = start(store)
    clock.advance(31)
    seen = store.run(sweep(LocalState(), {}))
    at_first = state_of(store, lease.id)
    clock.advance(2.5)
    store.run(sweep(LocalState(), seen))

    assert JobState.RUNNING is at_first
    assert (
        state_of(store, lease.id),
        stored(store, lease.id).last_error,
    ) == (JobState.READY, "LeaseLost: lease expired")


def test_a_sweep_leaves_what_was_beaten_for_between_the_looks(store: Store, clock: ManualClock):
    """A worker that could not reach the database for a while comes back in time."""
    lease = start(store)
    clock.advance(31)
    seen = store.run(sweep(LocalState(), {}))
    store.heartbeat([lease])
    clock.advance(2.5)
    store.run(sweep(LocalState(), seen))

    assert JobState.RUNNING is state_of(store, lease.id)


def test_a_sweep_that_was_held_up_takes_nothing(store: Store, clock: ManualClock):
    """If it had to wait, so had the beats: what it saw before that does not count."""
    lease = start(store)
    clock.advance(31)
    seen = store.run(sweep(LocalState(), {}))
    clock.advance(30)
    seen = store.run(sweep(LocalState(), seen))
    held_up = state_of(store, lease.id)
    clock.advance(2.5)
    store.run(sweep(LocalState(), seen))

    assert (held_up, state_of(store, lease.id)) == (JobState.RUNNING, JobState.READY)


def test_a_sweep_takes_a_new_lease_only_after_two_looks(store: Store, clock: ManualClock):
    """What was seen is a lease, not a job: the next run of the same job starts anew."""
    start(store)
    clock.advance(31)
    seen = store.run(sweep(LocalState(), {}))
    store.recover()
    again = claim_one(store, lease=1)
    clock.advance(2.5)
    store.run(sweep(LocalState(), seen))

    assert (
        stored(store, again.id).token,
        state_of(store, again.id),
    ) == (again.token, JobState.RUNNING)


def test_a_sweep_takes_many_in_batches(store: Store, clock: ManualClock):
    """More than one transaction's worth, all of them at the second look."""
    count = 2 * config.MAINTENANCE_BATCH_ROWS + 1
    enqueue_ids(store, count)
    claim(store, limit=count)
    clock.advance(31)
    seen = store.run(sweep(LocalState(), {}))
    clock.advance(2.5)
    store.run(sweep(LocalState(), seen))

    assert count == len(seen)
    assert count == len(claim(store, limit=2 * count))


def test_a_lease_does_not_need_its_workers_row(store: Store, clock: ManualClock):
    """A worker that is listed no more, or never was, holds its jobs, and loses them, as any."""
    store.announce(worker="w1", queues=["default"], kinds=[], host="h", pid=1)
    listed = start(store)
    store.depart("w1")
    clock.advance(29)
    before = store.recover()
    clock.advance(1)

    assert (before, store.recover()) == (0, 1)
    assert JobState.READY is state_of(store, listed.id)


def test_leases_that_live_are_in_nobodys_way(store: Store, clock: ManualClock):
    """More living leases than two batches, of jobs that came earlier: the expired one is found."""
    enqueue_ids(store, 1_200)
    assert len(claim(store, limit=1_000, lease=3_600)) == 1_000
    assert len(claim(store, limit=200, lease=3_600)) == 200
    lost = start(store)
    clock.advance(31)

    assert store.recover() == 1
    assert JobState.READY is state_of(store, lost.id)
