"""A claim leases due jobs, each to one worker, and only those that were asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import OptionInvalid
from rowlock.job import JobState, Policy
from rowlock.lifecycle import Return
from rowlock.store import KnownPolicy, Store
from rowlock.store.ops.settle import apply
from rowlock.store.steps import Op, Steps
from tests.store.jobs import claim, claim_one, enqueue, enqueue_ids, made, start, state_of, stored


def test_a_claim_sets_what_a_run_needs(store: Store, clock: ManualClock):
    """The job is running, its attempt and token counted, under a lease of the given length."""
    job = enqueue(store)
    clock.advance(5)
    lease = claim_one(store, worker="w7", lease=40)

    now = from_us(clock.now_us())
    for seen in (lease.job, stored(store, job.id)):
        assert (seen.state, seen.attempt, seen.token, seen.worker) == (JobState.RUNNING, 1, 1, "w7")
        assert (now, now + timedelta(seconds=40)) == (seen.started_at, seen.lease_expires_at)
    assert (lease.id, lease.token, lease.worker) == (job.id, 1, "w7")
    assert now + timedelta(seconds=40) == lease.expires_at


def test_a_claimed_job_is_nobody_elses(store: Store):
    """While a lease lives, no claim finds the job again."""
    start(store)

    assert claim(store, worker="w2") == []


def test_an_empty_queue_gives_nothing(store: Store):
    """No job, no queue, no names: nothing, at once."""
    assert claim(store) == []
    assert claim(store, queues=[]) == []
    assert claim(store, queues={}) == []
    assert claim(store, queues=None) == []


def test_the_limit_bounds_a_claim(store: Store):
    """No more than `limit` jobs are leased, the oldest first."""
    ids = enqueue_ids(store, 5)
    first = [lease.id for lease in claim(store, limit=3)]
    rest = [lease.id for lease in claim(store, limit=3)]

    assert (ids[:3], ids[3:]) == (first, rest)


def test_only_the_queues_asked_for(store: Store):
    """A claim takes from the queues that it names, in their order, and from no other."""
    ids = {queue: enqueue(store, queue=queue).id for queue in ("a", "b", "c")}
    leases = claim(store, queues=["c", "a"])

    assert [lease.id for lease in leases] == [ids["c"], ids["a"]]


def test_a_queue_named_twice_is_one_queue(store: Store):
    """Names are a set: the same one again changes nothing."""
    ids = enqueue_ids(store, 3, tenant="t")

    assert ids[:1] == [lease.id for lease in claim(store, queues=["default"] * 3, limit=1)]
    assert ids[1:] == [lease.id for lease in claim(store, limit=2, tenants=["t", "t"])]


def test_every_queue(store: Store):
    """`queues=None` is every queue, by name."""
    ids = {queue: enqueue(store, queue=queue).id for queue in ("b", "a", "c")}
    store.pause("c")

    assert [lease.id for lease in claim(store, queues=None)] == [ids["a"], ids["b"]]


def test_every_queue_includes_expired_leases(store: Store, clock: ManualClock):
    """A queue whose only job is an expired lease is found as well."""
    lease = start(store, queue="lonely")
    clock.advance(31)

    assert [again.id for again in claim(store, queues=None)] == [lease.id]


def test_limits_by_queue(store: Store):
    """A mapping gives each queue a limit of its own, within the limit of the claim."""
    for queue in ("a", "b", "c"):
        enqueue_ids(store, 4, queue=queue)
    leases = claim(store, queues={"a": 2, "b": 0, "c": 3}, limit=4)

    assert [lease.job.queue for lease in leases] == ["a", "a", "c", "c"]


def test_only_the_kinds_asked_for(store: Store):
    """A kind that the worker does not know stays where it is, and blocks nothing."""
    strange = enqueue_ids(store, 3, kind="strange", priority=100)
    known = [enqueue(store, kind=kind).id for kind in ("one", "two", "one")]

    assert known == [lease.id for lease in claim(store, kinds=["two", "one", "never"])]
    assert claim(store, kinds=["never"]) == []
    assert claim(store, kinds=[]) == []
    assert {state_of(store, id) for id in strange} == {JobState.READY}


def test_an_expired_lease_of_another_kind_is_not_claimed(store: Store, clock: ManualClock):
    """What a worker does not know it does not run, also when another worker vanished with it."""
    lease = start(store, kind="strange")
    clock.advance(31)

    assert claim(store, kinds=["known"]) == []
    assert [again.id for again in claim(store, kinds=["strange"])] == [lease.id]


def test_a_paused_queue_gives_nothing(store: Store):
    """Nothing is claimed of a paused queue, alone or among others."""
    enqueue(store)
    other = enqueue(store, queue="other")
    store.pause("default")

    assert claim(store) == []
    assert [lease.id for lease in claim(store, queues=["default", "other"])] == [other.id]


def test_a_job_asked_to_cancel_is_never_claimed(store: Store, clock: ManualClock):
    """A running job with the flag is ended as cancelled when its lease expires, not run again."""
    lease = start(store)
    store.cancel(lease.id)
    clock.advance(31)

    assert claim(store, worker="w2") == []
    assert JobState.CANCELLED is state_of(store, lease.id)


def test_an_expired_lease_is_the_next_attempt(store: Store, clock: ManualClock):
    """Anyone may claim a job whose lease expired, at once; the loss is noted in its errors."""
    lease = start(store)
    clock.advance(timedelta(seconds=30, microseconds=-1))
    early = claim(store, worker="w2")
    clock.advance(timedelta(microseconds=1))
    again = claim_one(store, worker="w2")

    job = again.job
    assert early == []
    assert (job.id, job.attempt, job.token, job.worker) == (lease.id, 2, 2, "w2")
    (error,) = job.errors
    assert (
        error.attempt,
        str(error),
        error.time,
    ) == (1, "LeaseLost: lease expired", from_us(clock.now_us()))


def test_expired_leases_can_be_left_alone(store: Store, clock: ManualClock):
    """A claim that is told so leaves the leases of others to the sweeper."""
    lease = start(store)
    clock.advance(31)

    assert claim(store, include_expired=False) == []
    assert JobState.RUNNING is state_of(store, lease.id)


def test_a_claim_leaves_expired_leases_of_other_queues(store: Store, clock: ManualClock):
    """Only the queues that are asked for are touched."""
    lease = start(store, queue="other")
    clock.advance(31)

    assert claim(store) == []
    assert JobState.RUNNING is state_of(store, lease.id)


def test_a_lost_last_attempt_is_dead(store: Store, clock: ManualClock):
    """A job whose attempts are used up is not claimed when its lease expires: it is dead."""
    lease = start(store, max_attempts=1)
    clock.advance(31)

    assert claim(store) == []
    job = stored(store, lease.id)
    assert (
        job.state,
        job.attempt,
        job.last_error,
    ) == (JobState.DEAD, 1, "Interrupted: lease expired")


@pytest.mark.parametrize("endings", ["fff", "lll", "flf", "lfl"])
def test_failures_and_losses_count_alike(store: Store, clock: ManualClock, endings: str):
    """A job gets the same number of attempts whether it fails or its worker vanishes."""
    id = enqueue(store, max_attempts=3).id
    attempts = []
    for ending in endings:
        lease = claim_one(store)
        attempts.append(lease.job.attempt)
        if ending == "f":
            store.fail(lease, "boom", delay=0)
        else:
            clock.advance(31)
            store.recover()

    assert attempts == [1, 2, 3]
    assert (
        state_of(store, id),
        stored(store, id).attempt,
        len(stored(store, id).errors),
    ) == (JobState.DEAD, 3, 3)


def test_the_policy_of_an_unknown_kind_is_resolved(store: Store):
    """A job enqueued by name gets the policy of the first worker that knows its kind."""
    known = KnownPolicy(Policy(keep=0, retry=["fixed", 9.0]).encoded(), 2)
    ids = enqueue_ids(store, 2)
    own = enqueue(store, max_attempts=7)
    leases = claim(store, policies={"task": known})

    assert [lease.job.max_attempts for lease in leases] == [2, 2, 7]
    assert (
        stored(store, ids[0]).retry,
        stored(store, ids[0]).keep,
        stored(store, ids[0]).max_attempts,
    ) == (["fixed", 9.0], 0.0, 2)
    assert stored(store, own.id).max_attempts == 7
    store.succeed(leases)
    assert [state_of(store, id) for id in (*ids, own.id)] == [None, None, None]


def test_a_partial_policy_is_completed(store: Store):
    """A `keep` chosen where the kind was unknown stays; all else is as its worker says."""
    job = enqueue(store, policy=Policy(keep=0, is_partial=True))
    rules = Policy(timeout=5_000_000, retry=["fixed", 9.0], keep=1, keep_dead=2, max_crashes=7)
    known = {"task": KnownPolicy(rules.encoded(), 2)}
    first = claim_one(store, policies=known)
    store.release(first)
    again = claim_one(store, policies={"task": KnownPolicy(Policy(timeout=1).encoded(), 9)})

    expected = (5.0, ["fixed", 9.0], 0.0, 7, 2)
    for seen in (first.job, again.job, stored(store, job.id)):
        policy = (seen.timeout, seen.retry, seen.keep, seen.max_crashes, seen.max_attempts)
        assert policy == expected


def test_a_policy_that_is_there_is_not_resolved(store: Store):
    """A job that came with its policy keeps it, whatever the worker knows."""
    job = enqueue(store, policy=Policy(retry=["fixed", 1.0]), max_attempts=5)
    known = KnownPolicy(Policy(retry=["fixed", 9.0]).encoded(), 2)
    lease = claim_one(store, policies={"task": known, "other": known})

    assert (lease.job.retry, lease.job.max_attempts) == (["fixed", 1.0], 5)
    assert (stored(store, job.id).retry, stored(store, job.id).max_attempts) == (["fixed", 1.0], 5)


def test_many_strange_kinds_block_nobody(store: Store):
    """A job behind a thousand of kinds that nobody here knows is claimed all the same."""
    store.enqueue([made(kind=f"strange{number % 50}", priority=9) for number in range(1_000)])
    job = enqueue(store, kind="known")

    assert [lease.id for lease in claim(store, kinds=["known"])] == [job.id]


def test_a_damaged_payload_is_shown(store: Store):
    """A payload that is no JSON any more is claimed and shown as what it is, not raised."""
    job = enqueue(store, payload="{not json")
    lease = claim_one(store)

    assert {"(unreadable payload)": "{not json"} == lease.job.payload == job.payload


def test_attempts_beyond_the_maximum_are_data(store: Store):
    """A job that has more attempts than it may have is dead at its next failure, not an error."""
    lease = start(store, max_attempts=1)
    job = lease.row
    assert job is not None

    def overcount() -> Steps[None]:
        yield from apply([(job, Return(job.run_at, 5, 0))], taken=False)

    store.run(Op("overcount", True, overcount))
    again = claim_one(store)
    store.fail(again, "boom")

    assert again.job.attempt == 6
    assert JobState.DEAD is state_of(store, lease.id)


BAD_CLAIMS: list[tuple[str, dict[str, Any]]] = [
    ("limit", {"limit": 0}),
    ("limit", {"limit": -1}),
    ("limit", {"limit": 10_001}),
    ("limit", {"limit": True}),
    ("lease", {"lease": 0}),
    ("lease", {"lease": -1}),
    ("lease", {"lease": float("nan")}),
    ("lease", {"lease": timedelta(0)}),
    ("worker", {"worker": ""}),
    ("worker", {"worker": "w" * 201}),
    ("queues", {"queues": "default"}),
    ("queues", {"queues": [""]}),
    ("queues", {"queues": {"a": -1}}),
    ("queues", {"queues": {"a\0": 1}}),
    ("kinds", {"kinds": "task"}),
    ("kinds", {"kinds": ["k" * 201]}),
    ("tenants", {"tenants": "acme"}),
    ("tenants", {"tenants": [""]}),
]


def test_a_bad_claim_is_refused(store: Store):
    """An option that makes no sense is named, and nothing is claimed."""
    job = enqueue(store)
    for option, options in BAD_CLAIMS:
        with pytest.raises(OptionInvalid) as caught:
            store.claim(**{"worker": "w1", "queues": ["default"], **options})

        assert option == caught.value.option
    assert JobState.READY is state_of(store, job.id)


def test_the_largest_claim_is_taken(store: Store):
    """The bound of a claim is inside its range."""
    job = enqueue(store)

    assert [lease.id for lease in claim(store, limit=config.CLAIM_LIMIT_MAX)] == [job.id]
