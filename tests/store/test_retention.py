"""Finished jobs are removed when their own time is over, in bounded batches."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.job import JobState, Policy
from rowlock.store import Store
from tests.store.jobs import claim, enqueue_ids, kept_for, put_in_state, start, state_of

MICROSECOND = timedelta(microseconds=1)


def test_kept_for_no_time(store: Store):
    """`keep=0` removes the row as soon as the job has succeeded."""
    lease = start(store, policy=kept_for(0))
    store.succeed([lease], ["lost"])

    assert None is state_of(store, lease.id)


def test_kept_for_a_time(store: Store, clock: ManualClock):
    """A job is there until its time is over, and removed then, not before."""
    id = put_in_state(store, JobState.SUCCEEDED, policy=kept_for(100))
    clock.advance(timedelta(seconds=100) - MICROSECOND)
    early = (store.prune(), state_of(store, id))
    clock.advance(MICROSECOND)

    assert early == (0, JobState.SUCCEEDED)
    assert (store.prune(), state_of(store, id)) == (1, None)


def test_kept_for_ever(store: Store, clock: ManualClock):
    """`keep=None` is never removed."""
    id = put_in_state(store, JobState.SUCCEEDED, policy=kept_for(None))
    clock.advance(timedelta(days=3_650))

    assert (store.prune(), state_of(store, id)) == (0, JobState.SUCCEEDED)


@pytest.mark.parametrize(("state", "days"), [("succeeded", 1), ("cancelled", 1), ("dead", 30)])
def test_the_defaults(store: Store, clock: ManualClock, state: str, days: int):
    """Finished jobs are kept for a day, dead ones for thirty."""
    id = put_in_state(store, JobState(state))
    clock.advance(timedelta(days=days) - MICROSECOND)
    early = store.prune()
    clock.advance(MICROSECOND)

    assert (early, store.prune()) == (0, 1)
    assert None is state_of(store, id)


@pytest.mark.parametrize("keep", [0, 5, None])
def test_dead_jobs_have_a_retention_of_their_own(
    store: Store, clock: ManualClock, keep: float | None
):
    """A job that died stays for a look, however short its success would have been kept."""
    id = put_in_state(store, JobState.DEAD, policy=kept_for(keep))
    clock.advance(timedelta(days=29))

    assert (store.prune(), state_of(store, id)) == (0, JobState.DEAD)


@pytest.mark.parametrize(("keep_dead", "count"), [(5_000_000, 1), (None, 0)])
def test_the_retention_of_dead_jobs_is_an_option(
    store: Store, clock: ManualClock, keep_dead: int | None, count: int
):
    """How long dead jobs are kept is part of the stored policy."""
    put_in_state(store, JobState.DEAD, policy=Policy(keep_dead=keep_dead))
    clock.advance(timedelta(days=3_000))

    assert store.prune() == count


def test_live_jobs_are_never_pruned(store: Store, clock: ManualClock):
    """What is not finished has no end of its time."""
    ids = [
        put_in_state(store, state, policy=kept_for(0))
        for state in (JobState.SCHEDULED, JobState.RETRYING, JobState.RUNNING, JobState.READY)
    ]
    clock.advance(timedelta(days=1_000))

    assert store.prune() == 0
    assert None not in [state_of(store, id) for id in ids]


def test_more_than_a_batch(store: Store, clock: ManualClock):
    """A prune goes on until nothing is left whose time is over."""
    total = config.MAINTENANCE_BATCH_ROWS + 7
    enqueue_ids(store, total, policy=kept_for(10))
    store.succeed(claim(store, limit=total))
    clock.advance(10)

    assert (store.prune(), store.prune()) == (total, 0)


def test_a_retried_job_outlives_its_old_end(store: Store, clock: ManualClock):
    """The retention of a job that went back is that of its next end."""
    id = put_in_state(store, JobState.CANCELLED, policy=kept_for(10))
    store.retry(id)
    clock.advance(20)

    assert (store.prune(), state_of(store, id)) == (0, JobState.READY)


def test_logs_go_with_their_jobs(store: Store, clock: ManualClock):
    """The lines of a job are removed with its row, and no others."""
    leases = [start(store, policy=kept_for(keep)) for keep in (0, 10, 100)]
    for lease in leases:
        store.log(lease, ["line"])
    store.succeed(leases)
    clock.advance(10)
    store.prune()

    assert [len(store.read_log(lease.id)) for lease in leases] == [0, 0, 1]
