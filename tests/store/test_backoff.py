"""How long a failed job waits is what its stored policy says, whoever applies it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.job import JobState, Policy
from rowlock.store import Store
from tests.store.jobs import claim_one, enqueue, start, stored


def waits(store: Store, clock: ManualClock, retry: list[Any] | None, failures: int) -> list[float]:
    """Seconds that a job waits after each of its failures."""
    policy = None if retry is None else Policy(retry=retry)
    id = enqueue(store, policy=policy, max_attempts=100).id
    delays = []
    for _ in range(failures):
        store.fail(claim_one(store, lease=10**8), "boom")
        wait = stored(store, id).run_at - from_us(clock.now_us())
        delays.append(wait.total_seconds())
        clock.advance(wait)
    return delays


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (["fixed", 7.5], [7.5] * 4),
        (["exponential", 1.0, 2.0**20], [2, 4, 8, 16]),
        (["exponential", 1.0, 10.0], [2, 4, 8, 10]),
        (["doubling", 60.0, 3600.0], [60, 120, 240, 480, 960, 1920, 3600, 3600]),
    ],
)
def test_the_stored_policy_is_applied(store: Store, clock: ManualClock, retry, expected):
    """After attempt n the job waits for what its policy's table says."""
    assert waits(store, clock, retry, len(expected)) == expected


@pytest.mark.parametrize("retry", [None, ["jitter", 1.0, 10_800.0]])
def test_jitter_is_the_default(store: Store, clock: ManualClock, retry):
    """Without a policy a job waits a random time that triples with each attempt."""
    for attempt, delay in enumerate(waits(store, clock, retry, 8), start=1):
        assert 3**attempt / 2 <= delay <= 3**attempt


def test_a_policy_that_nobody_knows_is_jitter(store: Store, clock: ManualClock):
    """A policy stored by a newer version, or damaged, does not stop a failure's record."""
    (delay,) = waits(store, clock, ["golden_ratio", 1.0], 1)

    assert 1 <= delay <= 3


def test_a_delay_given_overrides_the_policy(store: Store, clock: ManualClock):
    """The worker that ran the handler may know better."""
    lease = start(store, policy=Policy(retry=["fixed", 100.0]))
    store.fail(lease, "boom", delay=timedelta(seconds=3))

    assert from_us(clock.now_us() + 3_000_000) == stored(store, lease.id).run_at


def test_a_delay_of_nothing_is_at_once(store: Store):
    """A failed job that need not wait is ready."""
    lease = start(store)
    store.fail(lease, "boom", delay=0)

    assert (stored(store, lease.id).state, stored(store, lease.id).attempt) == (JobState.READY, 1)
    assert claim_one(store).job.attempt == 2


def test_a_lost_lease_waits_for_nothing(store: Store, clock: ManualClock):
    """Backoff is for failures: a job whose worker vanished is ready at once."""
    lease = start(store, policy=Policy(retry=["fixed", 100.0]))
    clock.advance(31)
    store.recover()

    assert JobState.READY is stored(store, lease.id).state
