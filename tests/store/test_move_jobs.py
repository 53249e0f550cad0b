"""Jobs that wait are made due, put off or moved to another queue; ended ones are run again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.errors import InvalidTransition, NotFound, OptionInvalid
from rowlock.job import Job, JobState
from rowlock.store import Store
from rowlock.store.ops.manage import reroute, reschedule, run_again, run_now
from tests.store.jobs import (
    EVERY_JOB,
    UNKNOWN_ID,
    claim_one,
    enqueue,
    one_in_each_state,
    put_in_state,
    start,
    stored,
)

VERBS = {
    "run now": run_now,
    "reschedule": lambda job, **named: reschedule(job, delay=60, **named),
    "reroute": lambda job, **named: reroute(job, "other", **named),
}
WAITING = ("scheduled", "ready", "retrying")


def now(clock: ManualClock) -> datetime:
    return from_us(clock.now_us())


@pytest.mark.parametrize("state", ["scheduled", "retrying"])
def test_a_job_is_made_due(store: Store, clock: ManualClock, state: str):
    """It is ready now, with its attempts and errors as they were, and is claimed next."""
    id = put_in_state(store, JobState(state))
    before = stored(store, id)
    clock.advance(1)
    job = store.run_now(id)

    assert job == stored(store, id)
    assert (job.state, job.run_at) == (JobState.READY, now(clock))
    assert (job.attempt, job.errors, job.token) == (before.attempt, before.errors, before.token)
    assert claim_one(store).id == id


def test_a_ready_job_keeps_its_place(store: Store, clock: ManualClock):
    """It is due already; to set its time anew would put it behind the others."""
    first = enqueue(store)
    clock.advance(1)
    enqueue(store)
    store.run_now(first.id)

    assert stored(store, first.id).run_at == first.run_at
    assert claim_one(store).id == first.id


@pytest.mark.parametrize("state", WAITING)
def test_a_job_is_put_off(store: Store, clock: ManualClock, state: str):
    """To a time or by a delay; a job that has failed is still one that is retried."""
    id = put_in_state(store, JobState(state))
    due = now(clock) + timedelta(hours=2)
    expected = JobState.RETRYING if state == "retrying" else JobState.SCHEDULED
    at = store.reschedule(id, due)
    later = store.reschedule(id, delay=60)

    assert (at.state, at.run_at) == (expected, due)
    assert (later.state, later.run_at) == (expected, now(clock) + timedelta(seconds=60))
    assert store.claim(worker="w", queues=None) == []


def test_a_time_in_the_past_means_now(store: Store, clock: ManualClock):
    """As for an enqueue."""
    id = put_in_state(store, JobState.SCHEDULED)
    job = store.reschedule(id, datetime(2000, 1, 1, tzinfo=UTC))

    assert (job.state, job.run_at) == (JobState.READY, now(clock))


@pytest.mark.parametrize("state", WAITING)
def test_a_job_goes_to_another_queue(store: Store, state: str):
    """Nothing else of it changes, and workers of that queue claim it when it is due."""
    id = put_in_state(store, JobState(state), priority=3)
    before = stored(store, id)
    job = store.reroute(id, "other")
    store.run_now(id)

    assert (job.queue, job.state, job.run_at, job.priority, job.errors) == (
        "other",
        before.state,
        before.run_at,
        3,
        before.errors,
    )
    assert claim_one(store, queues=["other"]).id == id


@pytest.mark.parametrize("name", VERBS)
def test_only_a_job_that_waits_can_be_moved(store: Store, name: str):
    """One that runs or has ended stays as it is, and the error says what can be done."""
    jobs = one_in_each_state(store)
    # One that waits for other jobs has no time to set, but it has a queue.
    movable = {*WAITING, JobState.WAITING} if name == "reroute" else WAITING
    refused = {state: id for state, id in jobs.items() if state not in movable}
    before = {id: stored(store, id) for id in refused.values()}
    for state, id in refused.items():
        problem = {JobState.RUNNING: "is running", JobState.WAITING: "waits for other jobs"}.get(
            state, f"is {state}.*run_again"
        )
        with pytest.raises(InvalidTransition, match=problem):
            store.run(VERBS[name](id))

    assert {id: stored(store, id) for id in refused.values()} == before


@pytest.mark.parametrize("name", [*VERBS, "run again"])
def test_a_job_that_is_not_there(store: Store, name: str):
    """Nor is one of another tenant."""
    theirs = put_in_state(store, JobState.SUCCEEDED, tenant="a")
    waiting = put_in_state(store, JobState.SCHEDULED, tenant="a")
    make = {**VERBS, "run again": run_again}[name]
    for id in (UNKNOWN_ID, theirs, waiting):
        with pytest.raises(NotFound):
            store.run(make(id, tenant="b"))


@pytest.mark.parametrize(
    ("problem", "call"),
    [
        ("run_at", lambda store, job: store.reschedule(job)),
        ("run_at", lambda store, job: store.reschedule(job, datetime.now(UTC), delay=1)),
        ("run_at", lambda store, job: store.reschedule(job, datetime(2030, 1, 1))),  # noqa: DTZ001
        ("delay", lambda store, job: store.reschedule(job, delay=-1)),
        ("queue", lambda store, job: store.reroute(job, "")),
        ("queue", lambda store, job: store.reroute(job, "a\0")),
    ],
)
def test_bad_input_changes_nothing(store: Store, problem: str, call):
    """Each is refused by the name of its option."""
    id = put_in_state(store, JobState.SCHEDULED)
    before = stored(store, id)
    with pytest.raises(OptionInvalid, match=problem):
        call(store, id)

    assert stored(store, id) == before


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled"])
def test_an_ended_job_is_run_again(store: Store, clock: ManualClock, state: str):
    """As a new job with its payload and options; the old one stays, and is named in the meta."""
    options = {"payload": '{"a":1}', "tags": ["t"], "priority": 2, "max_attempts": 4}
    id = put_in_state(store, JobState(state), meta={"x": 1}, **options)
    before = stored(store, id)
    clock.advance(5)
    job = store.run_again(id)

    assert stored(store, id) == before
    assert job.id != id
    assert (job.created, job.state, job.attempt, job.errors) == (True, JobState.READY, 0, [])
    assert (job.created_at, job.run_at) == (now(clock), now(clock))
    assert (job.kind, job.payload, job.tags, job.priority, job.max_attempts) == (
        before.kind,
        {"a": 1},
        ["t"],
        2,
        4,
    )
    assert job.meta == {"run_again_of": id, "x": 1}
    assert claim_one(store).id == job.id


def test_again_and_again(store: Store):
    """The meta names the first job of all, and another payload may be given."""
    id = put_in_state(store, JobState.SUCCEEDED, payload='{"a":1}')
    second = store.run_again(id, '{"a":2}')
    store.succeed([claim_one(store)])
    third = store.run_again(second.id)

    assert [second.payload, third.payload] == [{"a": 2}, {"a": 2}]
    assert [second.meta, third.meta] == [{"run_again_of": id}] * 2


def test_one_that_has_not_ended_is_not_run_again(store: Store):
    """There would be two of it."""
    jobs = one_in_each_state(store)
    for state in (*WAITING, "running"):
        with pytest.raises(InvalidTransition, match="has not ended"):
            store.run_again(jobs[JobState(state)])


def test_a_key_is_free_to_be_run_again(store: Store):
    """Even while the ended job holds it, since somebody asks for just that; a live one is not."""
    lease = start(store, key="k", key_hold="kept")
    store.succeed([lease])
    again = store.run_again(lease.id)
    with pytest.raises(InvalidTransition, match="held by another job"):
        store.run_again(lease.id)

    assert again.key == "k"


def test_a_lost_answer_makes_no_second_job(store: Store):
    """A repeat after an unknown COMMIT finds the job that it made."""
    id = put_in_state(store, JobState.SUCCEEDED)
    op = run_again(id)
    first: Job = store.run(op)
    assert op.repeat is not None
    repeated = store.run(msgspec.structs.replace(op, start=op.repeat))

    assert repeated.id == first.id
    assert len(store.list(EVERY_JOB, state="ready").jobs) == 1
