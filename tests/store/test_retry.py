"""A retry takes dead and cancelled jobs back, as new; what is in its way is told."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import InvalidTransition, NotFound, OptionInvalid
from rowlock.job import JobState
from rowlock.store import JobFilter, Store
from rowlock.store.ops.manage import job_filter
from tests.store.jobs import (
    EVERY_JOB,
    UNKNOWN_ID,
    claim,
    claim_one,
    enqueue,
    enqueue_ids,
    kept_for,
    made,
    one_in_each_state,
    put_in_state,
    start,
    state_of,
    stored,
)


@pytest.mark.parametrize("state", ["dead", "cancelled"])
def test_a_retry_starts_anew(store: Store, clock: ManualClock, state: str):
    """The job is ready now, its counts at nothing; its errors, and its token's count, go on."""
    id = put_in_state(store, JobState(state), max_attempts=3, payload='{"a":1}', tags=["t"])
    before = stored(store, id)
    clock.advance(5)
    job = store.retry(id)
    found = stored(store, id)
    lease = claim_one(store)

    assert job == found
    assert (
        job.state,
        job.attempt,
        job.crashes,
        job.cancel_requested,
    ) == (JobState.READY, 0, 0, False)
    assert (job.errors, job.token, job.finished_at) == (before.errors, before.token, None)
    assert (from_us(clock.now_us()), before.created_at) == (job.run_at, job.created_at)
    assert (job.payload, job.tags, job.max_attempts) == ({"a": 1}, ["t"], 3)
    assert (lease.job.attempt, lease.token) == (1, before.token + 1)


def test_a_retry_clears_the_flag(store: Store):
    """A job cancelled while it ran is not cancelled again by its old flag."""
    lease = start(store)
    store.cancel(lease.id)
    store.finish_cancelled(lease)
    store.retry(lease.id)
    again = claim_one(store)
    store.fail(again, "boom", delay=0)

    assert not again.job.cancel_requested
    assert JobState.READY is state_of(store, lease.id)


def test_a_retry_clears_crashes(store: Store):
    """A poisoned job gets all its crashes anew."""
    lease = start(store)
    for _ in range(3):
        store.crash([lease], "signal 11")
        lease = next(iter(claim(store)), lease)
    dead = stored(store, lease.id)
    job = store.retry(lease.id)

    assert (dead.state, dead.crashes) == (JobState.DEAD, 3)
    assert (job.crashes, len(job.errors)) == (0, 3)


def test_a_retry_with_a_new_payload(store: Store):
    """The payload may be mended on the way back."""
    id = put_in_state(store, JobState.DEAD, payload='{"a":1}')
    job = store.retry(id, payload='{"a":2}')

    assert {"a": 2} == job.payload == claim_one(store).job.payload


@pytest.mark.parametrize("state", ["scheduled", "ready", "running", "retrying", "succeeded"])
def test_other_states_can_not_be_retried(store: Store, state: str):
    """A job that is under way or done is left as it is."""
    id = put_in_state(store, JobState(state))
    before = stored(store, id)
    with pytest.raises(InvalidTransition) as caught:
        store.retry(id)

    assert (caught.value.job_id, caught.value.code) == (id, "invalid_transition")
    assert before == stored(store, id)


def test_an_unknown_job_is_not_found(store: Store):
    """A retry of nothing, or of what was removed, says so."""
    gone = start(store, policy=kept_for(0))
    store.succeed([gone])
    for id in (UNKNOWN_ID, gone.id):
        with pytest.raises(NotFound):
            store.retry(id)


def test_an_id_that_is_none_is_refused(store: Store):
    """What is no id is a mistake of the caller, on both stores alike."""
    with pytest.raises(OptionInvalid, match="id"):
        store.retry("garbage")


@pytest.mark.parametrize("state", ["dead", "cancelled"])
def test_a_key_in_flight_again_is_in_the_way(store: Store, state: str):
    """A job whose key another job has meanwhile stays where it is, until that one has ended."""
    id = put_in_state(store, JobState(state), key="k")
    before = stored(store, id)
    enqueue(store, key="k")
    with pytest.raises(InvalidTransition, match="key"):
        store.retry(id)
    unchanged = stored(store, id)
    store.succeed([claim_one(store)])

    assert before == unchanged
    assert JobState.READY is store.retry(id).state


def test_retried_jobs_die_again(store: Store):
    """A job can go back and forth; each failure is added to its errors."""
    id = put_in_state(store, JobState.DEAD)
    store.retry(id)
    store.fail(claim_one(store), "again", permanent=True)

    assert [error.message for error in stored(store, id).errors] == ["boom", "again"]


def test_all_dead_jobs(store: Store):
    """A bulk retry takes every dead job back, and no other."""
    dead = {put_in_state(store, JobState.DEAD) for _ in range(2)}
    ids = one_in_each_state(store)
    answer = store.retry_dead(EVERY_JOB)

    assert (answer.retried, answer.skipped) == (3, [])
    assert {lease.id for lease in claim(store)} == {*dead, ids[JobState.DEAD], ids[JobState.READY]}
    assert JobState.CANCELLED is state_of(store, ids[JobState.CANCELLED])


@pytest.mark.parametrize(
    "options", [{"queue": "q"}, {"kind": "k"}, {"tenant": "t"}, {"key": "y"}, {"tag": "g"}]
)
def test_some_dead_jobs(store: Store, options: dict[str, str]):
    """A filter chooses which of the dead go back."""
    wanted = {"tags": ["g", "h"]} if "tag" in options else options
    chosen = put_in_state(store, JobState.DEAD, **wanted)
    other = put_in_state(store, JobState.DEAD)
    answer = store.retry_dead(job_filter(**options))

    assert answer.retried == 1
    assert (state_of(store, chosen), state_of(store, other)) == (JobState.READY, JobState.DEAD)


def test_dead_jobs_of_a_time(store: Store, clock: ManualClock):
    """Since and until are times of creation, the second excluded."""
    ids = []
    for _ in range(3):
        ids.append(put_in_state(store, JobState.DEAD))
        clock.advance(10)
    start_us = clock.now_us() - 30_000_000
    store.retry_dead(JobFilter(since=start_us + 10_000_000, until=start_us + 20_000_000))

    assert [state_of(store, id) for id in ids] == ["dead", "ready", "dead"]


def test_keys_in_flight_are_skipped_and_reported(store: Store):
    """A job of a bulk retry whose key is taken stays dead; the others go back."""
    blocked = put_in_state(store, JobState.DEAD, key="taken")
    twins = [put_in_state(store, JobState.DEAD, key="twin") for _ in range(2)]
    free = put_in_state(store, JobState.DEAD, key="free")
    enqueue(store, key="taken")
    answer = store.retry_dead(EVERY_JOB)

    assert answer.retried == 2
    assert blocked in answer.skipped
    assert len(set(twins) & set(answer.skipped)) == 1
    assert {state_of(store, id) for id in {free, *twins} - set(answer.skipped)} == {JobState.READY}
    assert {state_of(store, id) for id in answer.skipped} == {JobState.DEAD}


def test_more_dead_jobs_than_a_batch(store: Store, monkeypatch: pytest.MonkeyPatch):
    """A bulk retry goes on until all are back, skipped ones among them."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 3)
    blocked = [put_in_state(store, JobState.DEAD, key=f"k{number}") for number in range(4)]
    enqueue_ids(store, 7, queue="many")
    for lease in claim(store, queues=["many"]):
        store.fail(lease, "boom", permanent=True)
    store.enqueue([made(key=f"k{number}") for number in range(4)])
    answer = store.retry_dead(EVERY_JOB)

    assert answer.retried == 7
    assert sorted(blocked) == sorted(answer.skipped)
