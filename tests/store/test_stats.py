"""Counts per queue and state: exact to a bound, then lower bounds that say so."""

from __future__ import annotations

from contextlib import closing

import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.errors import OptionInvalid
from rowlock.job import Count, JobState, QueueStats
from rowlock.store import Store, open_store
from rowlock.store.ops.stats import exact_counts, stats, tenant_stats
from rowlock.store.steps import Steps, reading
from tests.store.jobs import (
    claim,
    enqueue,
    enqueue_ids,
    made,
    one_in_each_state,
    put_in_state,
    start,
)


def stats_of(store: Store, queue: str) -> QueueStats:
    (stats,) = store.stats([queue])
    return stats


def fill(store: Store, state: JobState, count: int) -> None:
    """Put so many jobs of a state into the queue `q`."""
    if state is JobState.READY:
        enqueue_ids(store, count, queue="q")
        return
    for _ in range(count):
        put_in_state(store, state, queue="q")


def test_one_of_each(store: Store):
    """Every state of a queue is counted."""
    one_in_each_state(store)

    stats = stats_of(store, "default")
    assert dict.fromkeys(JobState, Count(1, exact=True)) == stats.counts
    assert (stats.queue, stats.is_paused) == ("default", False)


def test_zeros_for_queues_asked_for(store: Store):
    """A queue that is asked for by name is there, with zeros if it is empty."""
    enqueue(store, queue="b")
    stats = store.stats(["c", "b", "a"])

    assert [queue.queue for queue in stats] == ["a", "b", "c"]
    assert [queue.counts[JobState.READY].value for queue in stats] == [0, 1, 0]
    assert dict.fromkeys(JobState, Count(0)) == stats[0].counts
    assert (stats[0].oldest_ready_seconds, stats[0].is_paused) == (None, False)


def test_no_queues(store: Store):
    """An empty store has no queues, and none asked for is none answered."""
    assert (store.stats(), store.stats([])) == ([], [])


@pytest.mark.parametrize("state", list(JobState))
def test_all_queues_in_use(store: Store, state: JobState):
    """Without names every queue is listed that has a job in any state."""
    for queue in ("b", "a"):
        put_in_state(store, state, queue=queue)

    assert [(queue.queue, queue.counts[state].value) for queue in store.stats()] == [
        ("a", 1),
        ("b", 1),
    ]


def test_a_paused_queue_is_listed(store: Store):
    """A queue that is paused is shown so, also when it is empty."""
    store.pause("idle")

    assert [(queue.queue, queue.is_paused) for queue in store.stats()] == [("idle", True)]


def test_a_queue_asked_for_twice_is_counted_once(store: Store):
    """The same name again changes no count."""
    enqueue_ids(store, 3)

    assert [
        queue.counts[JobState.READY].value for queue in store.stats(["default", "default"])
    ] == [3]


def test_kinds_and_priorities_are_summed(store: Store):
    """A queue's jobs are counted whatever lane they wait in."""
    store.enqueue(
        [
            made(kind=kind, priority=priority, delay=delay, tenant=tenant)
            for kind in ("a", "b")
            for priority in (-1, 0, 1)
            for delay in (0, 60)
            for tenant in (None, "t")
        ]
    )

    counts = stats_of(store, "default").counts
    assert (counts[JobState.READY].value, counts[JobState.SCHEDULED].value) == (12, 12)


def test_counts_follow_the_clock(store: Store, clock: ManualClock):
    """Scheduled and retrying jobs are ready when their time has come."""
    put_in_state(store, JobState.RETRYING)
    put_in_state(store, JobState.SCHEDULED)
    before = stats_of(store, "default").counts
    clock.advance(60)
    after = stats_of(store, "default").counts

    assert [before[state].value for state in ("retrying", "scheduled", "ready")] == [1, 1, 0]
    assert [after[state].value for state in ("retrying", "scheduled", "ready")] == [0, 0, 2]


def test_the_age_of_the_oldest_ready_job(store: Store, clock: ManualClock):
    """The age is that of the job that has been due for longest, in any lane."""
    enqueue(store, kind="b", priority=5, delay=2)
    enqueue(store, kind="a", priority=9, delay=3)
    enqueue(store, delay=100)
    none = stats_of(store, "default").oldest_ready_seconds
    clock.advance(10.5)

    assert None is none
    assert stats_of(store, "default").oldest_ready_seconds == 8.5


def test_running_jobs_have_no_age(store: Store, clock: ManualClock):
    """What runs is not waiting."""
    start(store)
    clock.advance(10)

    assert None is stats_of(store, "default").oldest_ready_seconds


@pytest.mark.parametrize(
    "state", ["ready", "scheduled", "running", "retrying", "dead", "cancelled"]
)
def test_beyond_the_bound_counts_are_marked(
    store: Store, monkeypatch: pytest.MonkeyPatch, state: str
):
    """A count is exact up to the bound, and beyond it at least the bound and marked."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    fill(store, JobState(state), 3)
    exact = stats_of(store, "q").counts[JobState(state)]
    fill(store, JobState(state), 2)
    beyond = stats_of(store, "q").counts[JobState(state)]

    assert exact == Count(3, exact=True)
    assert beyond == Count(3, exact=False)


def test_lanes_beyond_the_bound_are_added_up(store: Store, monkeypatch: pytest.MonkeyPatch):
    """What is known of each lane is known of the queue: at least as many, and no guess."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    store.enqueue([made(queue="q", kind=kind) for kind in ["a"] * 50 + ["b"] * 2 + ["c"] * 9])

    assert stats_of(store, "q").counts[JobState.READY] == Count(8, exact=False)


def test_nothing_is_known_of_what_is_scheduled_beside_many_retries(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """Both wait in the same lanes; a difference of lower bounds would be a guess."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    fill(store, JobState.RETRYING, 5)
    fill(store, JobState.SCHEDULED, 1)

    counts = stats_of(store, "q").counts
    assert counts[JobState.RETRYING] == Count(3, exact=False)
    assert counts[JobState.SCHEDULED] == Count(0, exact=False)


def test_beyond_the_bound_successes_are_at_least_those_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """A queue's number is what was counted among the newest, never a share of the whole."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 10)
    for queue, count in (("old", 4), ("a", 6)):
        enqueue_ids(store, count, queue=queue)
        store.succeed(claim(store, queues=[queue]))
    exact = [stats_of(store, queue).counts[JobState.SUCCEEDED] for queue in ("old", "a", "none")]
    enqueue_ids(store, 30, queue="b")
    store.succeed(claim(store, queues=["b"]))
    seen = [stats_of(store, queue).counts[JobState.SUCCEEDED] for queue in ("old", "b", "none")]

    assert exact == [Count(4), Count(6), Count(0)]
    assert seen == [Count(0, exact=False), Count(10, exact=False), Count(0, exact=False)]


def test_exact_counts_have_no_bound(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Of every queue and state, whatever `stats` stops at."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 2)
    one_in_each_state(store)
    enqueue_ids(store, 30, queue="b")
    store.succeed(claim(store, queues=["b"]))
    enqueue_ids(store, 20, queue="b")
    found = store.run(exact_counts())

    assert dict.fromkeys(JobState, 1) == {
        state: number for (queue, state), number in found.items() if queue == "default"
    }
    assert (found["b", JobState.SUCCEEDED], found["b", JobState.READY]) == (30, 20)


def test_a_tenants_counts_say_when_they_are_cut(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Of more jobs than are read, the counts are lower bounds, whatever their state."""
    monkeypatch.setattr(config, "LIST_SCAN_ROWS_MAX", 5)
    store.enqueue([made(queue="q", tenant="acme") for _ in range(9)])
    (waiting,) = store.run(tenant_stats("acme", ["q"]))
    claim(store, queues=["q"], limit=9)
    (running,) = store.run(tenant_stats("acme", ["q"]))

    assert waiting.counts[JobState.READY] == Count(5, exact=False)
    assert waiting.counts[JobState.SCHEDULED] == Count(0, exact=False)
    assert waiting.counts[JobState.RUNNING] == Count(0)
    assert running.counts[JobState.RUNNING] == Count(5, exact=False)
    assert running.counts[JobState.READY] == Count(0)


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_job_that_moves_meanwhile_is_counted_once(any_url: str, tenant: str | None):
    """Whatever others do between the statements of a look, every job is in one place in it."""
    with closing(open_store(any_url)) as store, closing(open_store(any_url)) as other:
        other.migrate()
        other.enqueue([made(queue="q", tenant=tenant) for _ in range(4)])
        look = stats(["q"]) if tenant is None else tenant_stats(tenant, ["q"])

        def disturbed() -> Steps[list[QueueStats]]:
            steps = look.start()
            step = next(steps)
            while True:
                rows = yield step
                for lease in other.claim(worker="w", queues=["q"], limit=1):
                    other.succeed([lease])
                try:
                    step = steps.send(rows)
                except StopIteration as end:
                    return end.value

        (seen,) = store.run(reading("stats", disturbed))
        (after,) = store.stats(["q"])

    assert sum(count.value for count in seen.counts.values()) == 4
    assert after.counts[JobState.SUCCEEDED].value > seen.counts[JobState.SUCCEEDED].value


def test_names_must_be_a_list(store: Store):
    """A lone string is not taken for a list of its letters."""
    with pytest.raises(OptionInvalid, match="queues"):
        store.stats("default")
