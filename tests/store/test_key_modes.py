"""Keys that are free once their job runs, enqueues that replace a waiting job, and debounces."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.errors import InvalidTransition, OptionInvalid
from rowlock.ids import new_id
from rowlock.job import QUEUED_STATES, TERMINAL_STATES, JobState, Lease, Policy
from rowlock.lifecycle import Interrupted, NotBegun
from rowlock.store import Settlement, Store
from rowlock.store.ops.manage import job_filter
from rowlock.store.ops.schedule import new_schedule
from tests.store.jobs import (
    EVERY_JOB,
    claim,
    claim_one,
    enqueue,
    kept_for,
    made,
    put_in_state,
    start,
    state_of,
    stored,
)

UNTIL_STARTED = "until_started"
CANCELLED, READY, RETRYING, RUNNING = (
    JobState.CANCELLED,
    JobState.READY,
    JobState.RETRYING,
    JobState.RUNNING,
)


def started(store: Store, **options: object) -> Lease:
    """A job that runs, and whose key is free."""
    return start(store, key="k", key_hold=UNTIL_STARTED, **options)


def again(store: Store, **options: object):
    """Enqueue the same key."""
    return enqueue(store, key="k", key_hold=UNTIL_STARTED, **options)


# Every way in which a running job can come back to the queue.
RETURNS: dict[str, Callable[[Store, Lease], object]] = {
    "fail": lambda store, lease: store.fail(lease, "boom", delay=0),
    "release": lambda store, lease: store.release(lease),
    "snooze": lambda store, lease: store.release(lease, 60),
    "not begun": lambda store, lease: store.settle([Settlement(lease, NotBegun())]),
    "interrupt": lambda store, lease: store.settle([Settlement(lease, Interrupted("stop"))]),
    "crash": lambda store, lease: store.crash([lease], "signal 9"),
    "expire": lambda store, lease: store.recover(),
    "claim": lambda store, lease: claim(store, queues=["default", "none"], kinds=["none"]),
    "orphan": lambda store, lease: store.adopt_orphans(["default"], "retry", 0),
    "worker": lambda store, lease: store.release_worker("w1"),
}
every_return = pytest.mark.parametrize("come_back", RETURNS.values(), ids=RETURNS)


def test_a_key_is_free_once_its_job_runs(store: Store):
    """Until then an enqueue is answered by the job that waits."""
    first = again(store)
    waiting = again(store)
    claim_one(store)
    fresh = again(store)

    assert (waiting.id, waiting.created) == (first.id, False)
    assert (fresh.id != first.id, fresh.created) == (True, True)


def test_keys_of_many_jobs_are_free_at_once(store: Store):
    """However many jobs one claim takes."""
    keys = [f"k{number}" for number in range(2 * config.CLAIM_NOTED_MIN)]
    jobs = [made(key=key, key_hold=UNTIL_STARTED) for key in keys]
    store.enqueue([*jobs, made()])
    leases = claim(store)
    fresh = store.enqueue([made(key=key, key_hold=UNTIL_STARTED) for key in keys])

    assert len(leases) == len(keys) + 1
    assert [job.created for job in fresh] == [True] * len(keys)


@pytest.mark.parametrize("is_running", [False, True], ids=["waits", "runs"])
@every_return
def test_a_newer_job_supersedes_one_that_returns(
    store: Store,
    clock: ManualClock,
    come_back: Callable[[Store, Lease], object],
    is_running: bool,
):
    """It ends cancelled, says by which job, and keeps its errors."""
    lease = started(store)
    clock.advance(31)
    newer = again(store, queue="other")
    if is_running:
        claim_one(store, worker="w2", queues=["other"])
    come_back(store, lease)
    job = stored(store, lease.id)

    assert (job.state, job.errors[-1].type) == (CANCELLED, "Superseded")
    assert job.errors[-1].message == f"superseded by {newer.id}"
    assert state_of(store, newer.id) is (RUNNING if is_running else READY)
    assert again(store).created is is_running


@every_return
def test_a_job_that_returns_holds_its_key_again(
    store: Store, clock: ManualClock, come_back: Callable[[Store, Lease], object]
):
    """If there is no newer one."""
    lease = started(store)
    clock.advance(31)
    come_back(store, lease)
    held = again(store)

    assert (held.id, held.created) == (lease.id, False)
    assert held.state in QUEUED_STATES


def test_the_error_of_the_run_is_kept(store: Store):
    """Before the entry that says why the job has ended."""
    lease = started(store)
    again(store)
    store.fail(lease, "boom")
    errors = stored(store, lease.id).errors

    assert [error.type for error in errors] == ["Error", "Superseded"]
    assert [error.attempt for error in errors] == [1, 1]


def test_the_holder_of_a_superseded_job_has_settled_it(store: Store):
    """A second settle under the same token is refused as any other."""
    lease = started(store)
    again(store)
    store.fail(lease, "boom")

    with pytest.raises(InvalidTransition):
        store.fail(lease, "boom")


def test_a_superseded_job_is_kept_as_any_cancelled_one(store: Store):
    """And not at all if its policy says so."""
    lease = started(store, policy=kept_for(0))
    again(store)
    store.fail(lease, "boom")

    assert state_of(store, lease.id) is None


def test_of_two_that_return_together_the_newer_one_waits(store: Store):
    """The other one ends."""
    first = started(store)
    second = started(store)
    for lease in (first, second):
        assert state_of(store, lease.id) is RUNNING
    store.crash([first, second], "signal 9")

    assert [state_of(store, lease.id) for lease in (first, second)] == [CANCELLED, READY]
    assert stored(store, first.id).errors[-1].message == f"superseded by {second.id}"


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_that_return_in_turn_the_newer_one_waits(store: Store, order: int):
    """Whichever comes first."""
    leases = [started(store), started(store)]
    for lease in leases[::order]:
        store.release(lease)

    assert [state_of(store, lease.id) for lease in leases] == [CANCELLED, READY]


@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_a_newer_job_that_has_ended_supersedes_nothing(store: Store, state: JobState):
    """The key is free again."""
    lease = started(store)
    put_in_state(store, state, key="k", key_hold=UNTIL_STARTED)
    store.fail(lease, "boom", delay=60)

    assert state_of(store, lease.id) is RETRYING


def test_a_newer_job_that_ends_in_the_same_call_supersedes_nothing(store: Store):
    """In whatever way it ends."""
    first = started(store)
    second = started(store, max_attempts=1)
    store.crash([first, second], "signal 9")

    assert [state_of(store, lease.id) for lease in (first, second)] == [READY, JobState.DEAD]


def test_many_return_at_once(store: Store):
    """Some of them superseded, some not, and some without a key."""
    keys = ["a", "b", "c", None, None]
    jobs = [made(key=key, key_hold=UNTIL_STARTED) for key in keys]
    ids = [job.id for job in store.enqueue(jobs)]
    leases = claim(store)
    newer = enqueue(store, key="b", key_hold=UNTIL_STARTED)
    store.crash(leases, "signal 9")

    assert [state_of(store, id) for id in ids] == [READY, CANCELLED, READY, READY, READY]
    assert state_of(store, newer.id) is READY


def test_a_key_held_in_flight_supersedes_one_that_returns(store: Store):
    """Whichever hold the other job has."""
    lease = started(store)
    other = start(store, key="k")
    store.fail(lease, "boom")

    assert state_of(store, lease.id) is CANCELLED
    assert state_of(store, other.id) is RUNNING


def test_a_cancelled_job_that_returns_is_not_superseded(store: Store):
    """It ends by the request."""
    lease = started(store)
    again(store)
    store.cancel(lease.id)
    store.release(lease)
    job = stored(store, lease.id)

    assert (job.state, job.errors) == (CANCELLED, [])


def test_a_key_belongs_to_its_tenant_and_kind(store: Store):
    """A newer job of another tenant or kind supersedes nothing."""
    lease = started(store)
    enqueue(store, key="k", key_hold=UNTIL_STARTED, tenant="a")
    enqueue(store, key="k", key_hold=UNTIL_STARTED, kind="other")
    store.release(lease)

    assert state_of(store, lease.id) is READY


def test_a_retry_of_a_key_that_is_held_is_refused(store: Store):
    """As with every other hold; in bulk the job is skipped."""
    lease = started(store)
    store.fail(lease, "boom", permanent=True)
    again(store)
    bulk = store.retry_dead(job_filter())

    assert (bulk.retried, bulk.skipped) == (0, [lease.id])
    with pytest.raises(InvalidTransition, match="key"):
        store.retry(lease.id)
    with pytest.raises(InvalidTransition, match="key"):
        store.run_again(lease.id)


def test_a_retry_of_a_key_that_is_free_waits(store: Store):
    """Its newer job runs."""
    lease = started(store)
    store.fail(lease, "boom", permanent=True)
    started(store)
    back = store.retry(lease.id)

    assert back.state is READY
    assert not again(store).created


# Replace


@pytest.mark.parametrize("state", sorted(QUEUED_STATES))
def test_a_waiting_job_is_replaced(store: Store, clock: ManualClock, state: JobState):
    """By the payload and options of the enqueue. It stays the same job."""
    id = put_in_state(store, state, key="k", payload='{"a":1}', tags=["old"])
    before = stored(store, id)
    clock.advance(1)
    answer = enqueue(
        store,
        key="k",
        if_held="replace",
        payload='{"b":2}',
        queue="other",
        priority=7,
        delay=30,
        max_attempts=3,
        tags=["new"],
        meta={"trace": "t"},
        policy=Policy(keep=None, max_crashes=1),
    )
    job = stored(store, id)

    assert (answer.id, answer.created) == (id, False)
    assert (job.payload, job.queue, job.priority, job.tags) == ({"b": 2}, "other", 7, ["new"])
    assert (job.max_attempts, job.keep, job.max_crashes) == (3, None, 1)
    assert job.meta == {"trace": "t"}
    assert job.run_at - before.created_at == timedelta(seconds=31)
    assert (job.created_at, job.attempt, job.errors) == (
        *(before.created_at, before.attempt),
        before.errors,
    )
    assert answer == job
    assert len(store.list(EVERY_JOB)) == 1


def test_without_a_time_a_replaced_job_is_due_now(store: Store, clock: ManualClock):
    """Its old delay is an option as any other."""
    enqueue(store, key="k", delay=60)
    clock.advance(1)
    enqueue(store, key="k", if_held="replace", queue="other")

    assert [lease.job.queue for lease in claim(store, queues=["other"])] == ["other"]


def test_a_running_job_is_not_replaced(store: Store):
    """If its key is held in flight, it is the answer."""
    lease = start(store, key="k", payload='{"a":1}')
    answer = enqueue(store, key="k", if_held="replace", payload='{"b":2}')

    assert (answer.id, answer.created, answer.state) == (lease.id, False, RUNNING)
    assert (answer.payload, stored(store, lease.id).payload) == ({"a": 1}, {"a": 1})


def test_a_running_job_whose_key_is_free_has_a_successor(store: Store):
    """It has the new payload, and is replaced in its turn."""
    started(store, payload='{"a":1}')
    fresh = again(store, if_held="replace", payload='{"a":2}')
    last = again(store, if_held="replace", payload='{"a":3}')

    assert (fresh.created, last.created, last.id) == (True, False, fresh.id)
    assert stored(store, fresh.id).payload == {"a": 3}


def test_an_ended_job_that_holds_its_key_is_not_replaced(store: Store):
    """It is the answer."""
    id = put_in_state(store, JobState.SUCCEEDED, key="k", key_hold="kept", payload='{"a":1}')
    answer = enqueue(store, key="k", if_held="replace", payload='{"b":2}')

    assert (answer.id, answer.created, answer.payload) == (id, False, {"a": 1})


def test_the_hold_is_replaced_too(store: Store):
    """So the key is free once the job runs."""
    enqueue(store, key="k")
    again(store, if_held="replace")
    claim_one(store)

    assert again(store).created


def test_a_resend_replaces_nothing(store: Store):
    """The same id is the same job, as it is now."""
    id = new_id()
    first = enqueue(store, id=id, key="k", if_held="replace", payload='{"a":1}')
    enqueue(store, key="k", if_held="replace", payload='{"a":2}')
    resent = enqueue(store, id=id, key="k", if_held="replace", payload='{"a":1}')

    assert (first.created, resent.created, resent.id) == (True, False, id)
    assert (resent.payload, stored(store, id).payload) == ({"a": 2}, {"a": 2})


def test_a_resend_of_a_job_that_has_ended_replaces_nothing(store: Store):
    """Not even the job that has its key by now."""
    lease = start(store, id=new_id(), key="k")
    store.succeed([lease])
    other = enqueue(store, key="k", payload='{"a":2}')
    resent = enqueue(store, id=lease.id, key="k", if_held="replace", payload='{"a":1}')

    assert (resent.id, resent.state) == (lease.id, JobState.SUCCEEDED)
    assert stored(store, other.id).payload == {"a": 2}


def test_of_many_enqueues_of_one_key_the_last_one_counts(store: Store):
    """In one call, in its order, whatever their ids."""
    ids = sorted((new_id() for _ in range(3)), reverse=True)
    jobs = store.enqueue(
        [
            made(key="k", payload='{"n":0}', id=ids[0]),
            made(key="k", payload='{"n":1}', id=ids[1], if_held="replace"),
            made(key="other", if_held="replace"),
            made(key="k", payload='{"n":2}', id=ids[2], if_held="replace", queue="q"),
            made(key="k", payload='{"n":3}'),
        ]
    )

    assert [job.created for job in jobs] == [True, False, True, False, False]
    assert [job.id == ids[0] for job in jobs] == [True, True, False, True, True]
    assert [job.payload for job in jobs if job.id == ids[0]] == [{"n": 2}] * 4
    assert stored(store, ids[0]).queue == "q"


def test_many_are_replaced_at_once(store: Store):
    """Each by its own enqueue, also beyond one statement's rows."""
    count = config.BATCH_ROWS + 10
    keys = [f"k{number}" for number in range(count)]
    first = store.enqueue([made(key=key) for key in keys[::2]])
    jobs = store.enqueue(
        [
            made(key=key, if_held="replace", payload=f'{{"n":{number}}}')
            for number, key in enumerate(keys)
        ]
    )

    assert [job.created for job in jobs] == [False, True] * (count // 2)
    assert [job.id for job in jobs[::2]] == [job.id for job in first]
    assert [job.payload["n"] for job in jobs] == list(range(count))


# Debounce


def test_a_debounced_job_waits_until_it_is_quiet(store: Store, clock: ManualClock):
    """Each enqueue begins the time anew, and the last payload counts."""
    first = enqueue(store, key="k", quiet=5, payload='{"n":1}')
    clock.advance(4)
    enqueue(store, key="k", quiet=5, payload='{"n":2}')
    clock.advance(4)
    early = claim(store)
    clock.advance(1)
    lease = claim_one(store)

    assert (early, lease.id, lease.job.payload) == ([], first.id, {"n": 2})


def test_a_debounced_job_waits_no_longer_than_it_may(store: Store, clock: ManualClock):
    """Counted from the first enqueue."""
    first = enqueue(store, key="k", quiet=5, max_wait=8)
    clock.advance(4)
    second = enqueue(store, key="k", quiet=5, max_wait=8)
    clock.advance(3)
    third = enqueue(store, key="k", quiet=5, max_wait=8)
    clock.advance(10)
    late = enqueue(store, key="k", quiet=5, max_wait=timedelta(seconds=8))
    waits = [job.run_at - first.created_at for job in (first, second, third, late)]

    assert [wait.total_seconds() for wait in waits] == [5, 8, 8, 17]
    assert late.state is READY


def test_a_change_during_the_run_is_not_missed(store: Store, clock: ManualClock):
    """By default, the key of a debounced job is free once it runs."""
    first = enqueue(store, key="k", quiet=5)
    clock.advance(5)
    claim_one(store)
    fresh = enqueue(store, key="k", quiet=5)

    assert (fresh.created, fresh.id != first.id) == (True, True)


def test_a_debounce_can_hold_its_key_in_flight(store: Store, clock: ManualClock):
    """Then an enqueue during the run is answered by the running job."""
    first = enqueue(store, key="k", quiet=5, key_hold="in_flight")
    clock.advance(5)
    claim_one(store)
    answer = enqueue(store, key="k", quiet=5, key_hold="in_flight")

    assert (answer.id, answer.created, answer.state) == (first.id, False, RUNNING)


def test_no_quiet_at_all_replaces(store: Store):
    """It is due now, each time."""
    enqueue(store, key="k", quiet=0, max_wait=0, payload='{"n":1}')
    enqueue(store, key="k", quiet=0, max_wait=0, payload='{"n":2}')

    assert [lease.job.payload for lease in claim(store)] == [{"n": 2}]


@pytest.mark.parametrize("options", [{"if_held": "replace"}, {"quiet": 5}])
def test_a_schedule_replaces_nothing(options: dict[str, object]):
    """Its row has no place for these options."""
    with pytest.raises(OptionInvalid, match="not for a schedule"):
        new_schedule("s", made(key="k", **options), cron="@daily")
