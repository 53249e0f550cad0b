"""A database's clock is set forward: no healthy worker loses its jobs, abandoned ones return."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.job import JobState, Lease
from rowlock.store import Store
from rowlock.store.local_state import ClockWatch, LocalState
from rowlock.store.ops.recover import Seen, sweep
from tests.store.jobs import claim, claim_one, enqueue, start, state_of, stored

HOUR = 3_600.0
STEPS = [config.CLOCK_STEP_SECONDS + 29, 60.0, HOUR]


class Sweeper:
    """Sweeps a store as a janitor does, every 2.5 seconds of the test's clock."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock
        self._local = LocalState(ClockWatch(clock))
        self._seen: Seen = {}

    def sweep(self) -> None:
        self._seen = self._store.run(sweep(self._local, self._seen))

    def sweep_for(self, seconds: float, *beaten: Lease, beat_seconds: float = 10.0) -> None:
        """Let time pass; the worker of `beaten` extends its leases as ever."""
        passed, beat_at = 0.0, beat_seconds
        while passed < seconds:
            self._clock.advance(config.SWEEP_SECONDS)
            passed += config.SWEEP_SECONDS
            if beaten and passed >= beat_at:
                self._store.heartbeat(beaten, lease=3 * beat_seconds)
                beat_at += beat_seconds
            self.sweep()


@pytest.fixture
def sweeper(store: Store, clock: ManualClock) -> Sweeper:
    return Sweeper(store, clock)


@pytest.mark.parametrize("seconds", STEPS)
def test_a_worker_that_beats_keeps_its_jobs(
    store: Store, clock: ManualClock, sweeper: Sweeper, seconds: float
):
    """The clock steps between two sweeps: what is extended a third of a lease later stays."""
    lease = start(store)
    sweeper.sweep()
    clock.step(seconds)
    sweeper.sweep_for(60, lease)

    job = stored(store, lease.id)
    assert (job.state, job.token, job.errors) == (JobState.RUNNING, lease.token, [])


@pytest.mark.parametrize("seconds", STEPS)
def test_an_abandoned_lease_is_taken_after_a_step(
    store: Store, clock: ManualClock, sweeper: Sweeper, seconds: float
):
    """A third of its length later, and a few looks, nobody has extended it: it is given back."""
    lease, kept = start(store), start(store)
    sweeper.sweep()
    clock.step(seconds)
    sweeper.sweep_for(7.5, kept)
    early = state_of(store, lease.id)
    sweeper.sweep_for(20, kept)

    assert (early, state_of(store, lease.id)) == (JobState.RUNNING, JobState.READY)
    assert state_of(store, kept.id) is JobState.RUNNING


def test_a_long_lease_waits_for_a_beat_of_its_own(
    store: Store, clock: ManualClock, sweeper: Sweeper
):
    """Its worker beats every two minutes; the leases of others don't wait that long."""
    enqueue(store), enqueue(store)
    long = claim_one(store, lease=360)
    short = claim_one(store, lease=6)
    sweeper.sweep()
    clock.step(HOUR)
    sweeper.sweep_for(12.5)
    states = state_of(store, long.id), state_of(store, short.id)
    sweeper.sweep_for(250, long, beat_seconds=100)

    assert states == (JobState.RUNNING, JobState.READY)
    assert stored(store, long.id).token == long.token


def test_a_lease_that_was_given_after_the_step_expires_as_ever(
    store: Store, clock: ManualClock, sweeper: Sweeper
):
    """Ordinary recovery is as quick as without a step."""
    sweeper.sweep()
    clock.step(HOUR)
    sweeper.sweep()
    lease = start(store)
    clock.advance(30)
    sweeper.sweep()
    clock.advance(config.SWEEP_SECONDS)
    sweeper.sweep()

    assert state_of(store, lease.id) is JobState.READY


def test_a_sweeper_that_was_stopped_sees_no_step(
    store: Store, clock: ManualClock, sweeper: Sweeper
):
    """Its own clock ran on: what expired meanwhile is taken by the second look."""
    lease = start(store)
    sweeper.sweep()
    clock.advance(HOUR)
    sweeper.sweep()
    clock.advance(config.SWEEP_SECONDS)
    sweeper.sweep()

    assert state_of(store, lease.id) is JobState.READY


def test_a_clock_that_steps_again_and_again(store: Store, clock: ManualClock, sweeper: Sweeper):
    """Each step starts the wait anew; after the last one the abandoned lease is taken."""
    lease, kept = start(store), start(store)
    sweeper.sweep()
    for _ in range(4):
        clock.step(HOUR)
        sweeper.sweep_for(7.5)
        store.heartbeat([kept])
    early = state_of(store, lease.id)
    sweeper.sweep_for(20, kept)

    assert (early, state_of(store, lease.id)) == (JobState.RUNNING, JobState.READY)
    assert state_of(store, kept.id) is JobState.RUNNING


def test_a_claim_takes_nothing_from_a_healthy_worker(store: Store, clock: ManualClock):
    """It gives back expired leases by itself, and waits for a beat as sweeps do."""
    kept, lost = start(store), start(store)
    clock.step(HOUR)
    taken = claim(store, worker="w2")
    clock.advance(10)
    store.heartbeat([kept])
    clock.advance(config.CLOCK_STEP_SLACK_SECONDS)
    again = claim(store, worker="w2")

    assert taken == []
    assert [lease.id for lease in again] == [lost.id]
    assert stored(store, kept.id).token == kept.token


def test_recovery_that_is_asked_for_does_not_wait(store: Store, clock: ManualClock):
    """Whoever calls `recover` says that the lease counts as it stands."""
    lease = start(store)
    claim(store)
    clock.step(HOUR)

    assert (store.recover(), state_of(store, lease.id)) == (1, JobState.READY)


def test_slow_answers_are_no_step():
    """The database's time lies anywhere between the question and the answer."""
    clock = ManualClock()
    watch = ClockWatch(clock)
    watch.note(clock.now_us(), since=watch.monotonic())
    # Asked, answered by the database only 30 seconds later.
    asked = watch.monotonic()
    clock.advance(30)
    watch.note(clock.now_us(), since=asked)
    # Answered at once, but heard of 30 seconds later.
    asked, answer = watch.monotonic(), clock.now_us()
    clock.advance(30)
    watch.note(answer, since=asked)
    watch.note(clock.now_us(), since=watch.monotonic())

    assert watch.doubt() == ClockWatch(clock).doubt()


def test_a_clock_that_is_set_back_is_no_step():
    """Leases last longer then; nothing is taken too early."""
    clock = ManualClock()
    watch = ClockWatch(clock)
    watch.note(clock.now_us(), since=watch.monotonic())
    watch.note(clock.now_us() - 60_000_000, since=watch.monotonic())

    assert watch.doubt() == ClockWatch(clock).doubt()
