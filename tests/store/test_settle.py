"""A run is ended once, by the lease that holds it; each of a batch is judged alone."""

from __future__ import annotations

import random

import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import InvalidTransition, LeaseLost, OptionInvalid
from rowlock.ids import new_id
from rowlock.job import JobState, Lease
from rowlock.lifecycle import CancelSeen, Failed, Outcome, Released, Succeeded
from rowlock.store import Settlement, Store, open_store
from rowlock.store.ops.settle import settle
from rowlock.store.steps import Op
from tests.store.fencing import ENDINGS, lose
from tests.store.jobs import (
    EVERY_JOB,
    UNKNOWN_ID,
    claim,
    claim_one,
    enqueue,
    enqueue_ids,
    kept_for,
    made,
    start,
    state_of,
    stored,
)

OUTCOMES: list[Outcome] = [
    Succeeded('"done"'),
    Succeeded(None, "it was too large"),
    Failed("ValueError", "boom"),
    Failed("ValueError", "boom", permanent=True),
    Released(),
    CancelSeen(),
]


def test_a_success(store: Store, clock: ManualClock):
    """A job that is done is succeeded, with its result and the time of its end."""
    lease = start(store)
    clock.advance(3)
    store.succeed([lease], [{"sum": [1, 2.5, None]}])

    job = stored(store, lease.id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, {"sum": [1, 2.5, None]})
    assert (job.finished_at, job.lease_expires_at) == (from_us(clock.now_us()), None)
    assert (job.attempt, job.token, job.worker) == (1, 1, "w1")


def test_a_success_without_a_result(store: Store):
    """Nothing returned is a null result, and no error."""
    lease = start(store)
    store.succeed([lease])

    job = stored(store, lease.id)
    assert (job.state, job.result, job.errors) == (JobState.SUCCEEDED, None, [])


def test_a_result_that_can_not_be_stored(store: Store):
    """The job has succeeded all the same; its result is null, and the reason is noted."""
    lease = start(store)
    store.succeed([lease], [float("nan")])

    job = stored(store, lease.id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, None)
    assert job.errors[-1].type == "ResultNotStored"


def test_a_failure_with_attempts_left(store: Store, clock: ManualClock):
    """The job waits for its next attempt, with the error recorded."""
    lease = start(store)
    clock.advance(1)
    store.fail(lease, ValueError("no such host"), delay=60)

    job = stored(store, lease.id)
    now = clock.now_us()
    assert (job.state, job.attempt, job.run_at) == (JobState.RETRYING, 1, from_us(now + 60_000_000))
    (error,) = job.errors
    assert (
        error.attempt,
        error.time,
        error.type,
        error.message,
    ) == (1, from_us(now), "ValueError", "no such host")
    assert (job.worker, job.lease_expires_at, job.finished_at) == (None, None, None)
    assert claim(store) == []
    clock.advance(60)
    assert (claim_one(store).job.attempt, stored(store, lease.id).token) == (2, 2)


def test_a_failure_with_none_left(store: Store, clock: ManualClock):
    """A job whose attempts are used up is dead, and nothing of it is lost."""
    lease = start(store, max_attempts=1, payload='{"a":1}', tags=["t"], key="k", tenant="acme")
    store.progress(lease, fraction=0.5, text="half")
    store.fail(lease, "boom")

    job = stored(store, lease.id)
    assert (job.state, job.finished_at) == (JobState.DEAD, from_us(clock.now_us()))
    assert (job.payload, job.tags, job.key, job.tenant) == ({"a": 1}, ["t"], "k", "acme")
    assert (job.last_error, job.progress and job.progress.fraction) == ("Error: boom", 0.5)


def test_a_permanent_failure(store: Store):
    """A failure for good is dead at once, whatever attempts are left."""
    lease = start(store, max_attempts=20)
    store.fail(lease, "no use", permanent=True)

    assert (
        state_of(store, lease.id),
        stored(store, lease.id).last_error,
    ) == (JobState.DEAD, "Error: no use")


def test_the_last_twenty_errors_are_kept(store: Store):
    """Of more errors than that, the oldest go."""
    enqueue(store, max_attempts=100)
    for number in range(25):
        lease = claim_one(store)
        store.fail(lease, f"boom {number}", delay=0)

    errors = stored(store, lease.id).errors
    assert [f"boom {number}" for number in range(5, 25)] == [error.message for error in errors]
    assert [error.attempt for error in errors] == list(range(6, 26))


def test_a_release_is_not_counted(store: Store, clock: ManualClock):
    """A job given back stands where it stood, its attempt uncounted, its token spent."""
    lease = start(store, max_attempts=1)
    clock.advance(5)
    store.release(lease)
    job = stored(store, lease.id)
    again = claim_one(store)

    assert (job.state, job.attempt, job.errors) == (JobState.READY, 0, [])
    assert lease.job.run_at == job.run_at
    assert (again.job.attempt, again.token) == (1, 2)


def test_a_release_after_a_failure_leaves_the_count(store: Store):
    """Only the released run is uncounted."""
    lease = start(store)
    store.fail(lease, "boom", delay=0)
    store.release(claim_one(store))

    assert (stored(store, lease.id).attempt, len(stored(store, lease.id).errors)) == (1, 1)


def test_a_release_to_a_later_time(store: Store, clock: ManualClock):
    """A job may be given back for later."""
    lease = start(store)
    store.release(lease, delay=10)
    early = claim(store)
    clock.advance(10)

    assert early == []
    assert claim_one(store).job.attempt == 1


def test_a_cancel_seen(store: Store, clock: ManualClock):
    """A run that ended because of a cancel is cancelled, with its reason if it gave one."""
    plain, told = start(store), start(store)
    store.finish_cancelled(plain)
    store.finish_cancelled(told, "not needed any more")

    job = stored(store, told.id)
    assert (state_of(store, plain.id), stored(store, plain.id).errors) == (JobState.CANCELLED, [])
    assert (job.state, job.finished_at) == (JobState.CANCELLED, from_us(clock.now_us()))
    assert job.last_error == "Cancelled: not needed any more"


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lost_lease_settles_nothing(store: Store, clock: ManualClock, ending: str):
    """A worker that lost its lease gets LeaseLost and changes nothing, whatever became of it."""
    lease = lose(store, clock, ending, max_attempts=5)
    before = store.get(lease.id)
    for outcome in OUTCOMES:
        with pytest.raises(LeaseLost) as caught:
            store.settle([Settlement(lease, outcome, [made(queue="follow")])])

        assert caught.value.leases == [lease]
    assert before == store.get(lease.id)
    assert claim(store, queues=["follow"]) == []


@pytest.mark.parametrize("first", OUTCOMES, ids=repr)
def test_settling_twice_is_no_transition(store: Store, first: Outcome):
    """What this run has settled already it can't settle again, in no way."""
    lease = start(store)
    store.settle([Settlement(lease, first)])
    before = stored(store, lease.id)
    for second in OUTCOMES:
        with pytest.raises(InvalidTransition) as caught:
            store.settle([Settlement(lease, second)])

        assert lease.id == caught.value.job_id
    assert before == stored(store, lease.id)


def test_settling_twice_what_was_removed(store: Store):
    """A job deleted on success is known to be settled."""
    lease = start(store, policy=kept_for(0))
    store.succeed([lease])
    with pytest.raises(InvalidTransition):
        store.succeed([lease])


@pytest.mark.parametrize("keep", [0, 60])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_a_resend_is_content(store: Store, outcome: Outcome, keep: float):
    """A repeat after an unknown COMMIT recognises its own token; follow-ups are not doubled."""
    lease = start(store, policy=kept_for(keep))
    op = settle([Settlement(lease, outcome, [made(queue="next")])], chance=random.Random(1))
    store.run(op).raise_if_missed()
    before = store.get(lease.id)
    assert op.repeat is not None
    store.run(Op(op.name, op.writes, op.repeat)).raise_if_missed()

    assert before == store.get(lease.id)
    assert isinstance(outcome, Succeeded) == len(claim(store, queues=["next"]))


def test_a_resend_of_what_was_not_committed_settles(store: Store):
    """If the first try did not reach the database, its repeat does the work."""
    lease = start(store)
    op = settle([Settlement(lease, Succeeded())], chance=random.Random(1))
    assert op.repeat is not None
    store.run(Op(op.name, op.writes, op.repeat)).raise_if_missed()

    assert JobState.SUCCEEDED is state_of(store, lease.id)


def test_a_resend_of_a_lost_lease_is_lost(store: Store, clock: ManualClock):
    """A repeat is content with its own work only, not with that of others."""
    lease = lose(store, clock, "cancelled_by_recovery_and_gone")
    op = settle([Settlement(lease, Succeeded())], chance=random.Random(1))
    assert op.repeat is not None
    with pytest.raises(LeaseLost):
        store.run(Op(op.name, op.writes, op.repeat)).raise_if_missed()


def test_a_batch_is_judged_one_by_one(store: Store, clock: ManualClock):
    """All leases that still hold are settled, then LeaseLost names exactly the others."""
    lost = [lose(store, clock, ending) for ending in ("succeeded", "recovered")]
    leases = [start(store, queue="held") for _ in range(5)]
    unknown = Lease(id=UNKNOWN_ID, token=1)
    with pytest.raises(LeaseLost) as caught:
        store.settle(
            [
                Settlement(leases[0], Succeeded()),
                Settlement(lost[0], Succeeded()),
                Settlement(leases[1], Failed("E", "boom")),
                Settlement(unknown, Released()),
                Settlement(leases[2], Released()),
                Settlement(leases[3], CancelSeen()),
                Settlement(lost[1], Failed("E", "boom")),
                Settlement(leases[4], Failed("E", "boom", permanent=True)),
            ]
        )

    assert {lease.id for lease in caught.value.leases} == {lost[0].id, lost[1].id, UNKNOWN_ID}
    assert caught.value.code == "lease_lost"
    assert [state_of(store, lease.id) for lease in leases] == [
        "succeeded",
        "retrying",
        "ready",
        "cancelled",
        "dead",
    ]


def test_a_batch_with_one_settled_before(store: Store):
    """The rest is settled, then InvalidTransition names the one that was."""
    done, fresh = start(store), start(store)
    store.succeed([done])
    with pytest.raises(InvalidTransition) as caught:
        store.succeed([done, fresh])

    assert done.id == caught.value.job_id
    assert JobState.SUCCEEDED is state_of(store, fresh.id)


def test_many_successes_at_once(store: Store):
    """A batch larger than a statement's rows is settled with its results in place."""
    ids = enqueue_ids(store, 1_200)
    leases = claim(store, limit=1_200)
    store.succeed(leases, list(range(1_200)))

    assert ids == [lease.id for lease in leases]
    assert [stored(store, ids[place]).result for place in (0, 700, 1_199)] == [0, 700, 1_199]
    assert store.stats(["default"])[0].counts[JobState.SUCCEEDED].value == 1_200


def test_alike_successes_among_others(store: Store, clock: ManualClock):
    """Each of a batch is ended as it must be: with a result, not kept, under a later token."""
    lost = lose(store, clock, "recovered", queue="elsewhere")
    plain = [start(store) for _ in range(4)]
    again = start(store)
    store.release(again)
    others = [claim_one(store), start(store, policy=kept_for(0)), start(store, policy=kept_for(60))]
    batch = [*plain, *others, lost]
    with pytest.raises(LeaseLost) as caught:
        store.succeed(batch, [None, None, None, None, "late", None, None, None])

    found = [store.get(lease.id) for lease in [*plain, *others]]
    ended = [None if job is None else (job.state, job.token, job.result) for job in found]
    plainly = (JobState.SUCCEEDED, 1, None)
    assert [lease.id for lease in caught.value.leases] == [lost.id]
    assert ended == [plainly] * 4 + [(JobState.SUCCEEDED, 2, "late"), None, plainly]


def test_a_row_that_exists_already_holds_up_no_other(postgres_url: str):
    """A batch that meets one is settled by statements that nothing can conflict with."""
    store = open_store(postgres_url)
    leases = [start(store) for _ in range(3)]
    store.succeed(leases[:2])
    connection = store.engine._pool.take()
    ids = [lease.id for lease in leases]
    connection.execute(
        "INSERT INTO rowlock.job (id, run_at, created_at, token, rank, kind, queue, payload, "
        "lease_expires_at) SELECT id, run_at, created_at, token, rank, kind, queue, payload, 1 "
        "FROM rowlock.finished WHERE id = %s",
        [ids[0]],
    )
    store.engine._pool.give(connection, is_sound=True)
    store.succeed([leases[0], leases[2]])
    states = [state_of(store, id) for id in ids]
    store.close()

    assert states == [JobState.SUCCEEDED] * 3


def test_one_job_twice_in_a_batch_is_refused(store: Store):
    """A batch that settles a job twice contradicts itself, and nothing of it is applied."""
    lease = start(store)
    with pytest.raises(OptionInvalid):
        store.settle([Settlement(lease, Succeeded()), Settlement(lease, Released())])

    assert JobState.RUNNING is state_of(store, lease.id)


def test_results_must_be_as_many_as_leases(store: Store):
    """Parallel lists of different lengths are refused before anything is written."""
    lease = start(store)
    with pytest.raises(OptionInvalid, match="results"):
        store.succeed([lease], [1, 2])

    assert JobState.RUNNING is state_of(store, lease.id)


def test_nothing_to_settle(store: Store):
    """An empty batch is settled at once."""
    store.settle([])
    store.succeed([])
    store.crash([], "nobody was there")


def test_a_lease_made_by_hand_settles(store: Store):
    """An id and a token are enough, for a success with the job's stored retention too."""
    lease = start(store, policy=kept_for(0))
    store.succeed([Lease(id=lease.id, token=lease.token)])

    assert None is state_of(store, lease.id)


def test_an_expired_lease_that_nobody_took_still_settles(store: Store, clock: ManualClock):
    """Work that is done is recorded as long as nobody else has the job."""
    lease = start(store)
    clock.advance(1_000)
    store.succeed([lease])

    assert JobState.SUCCEEDED is state_of(store, lease.id)


@pytest.mark.parametrize(
    "text", ["nul \0", "lone \ud800 surrogate", "x" * 300_000, "ü" * 100_000, "'; DROP TABLE job"]
)
def test_a_failure_can_always_be_recorded(store: Store, text: str):
    """Error text that a database refuses is cleaned or cut, and no other job suffers from it."""
    failed, raised, cancelled, crashed, other = [start(store) for _ in range(5)]
    store.fail(failed, text)
    store.fail(raised, ValueError(text))
    store.finish_cancelled(cancelled, text)
    store.settle(
        [
            Settlement(crashed, Failed(text, text, text)),
            Settlement(other, Succeeded()),
        ]
    )

    for lease in (failed, raised, cancelled, crashed):
        (error,) = stored(store, lease.id).errors
        assert error.message
        assert "\0" not in error.message
        assert len(error.message.encode()) <= config.ERROR_BYTES_MAX
    assert JobState.SUCCEEDED is state_of(store, other.id)


def test_follow_ups_appear_with_the_success(store: Store):
    """Jobs enqueued on success are there once the job has succeeded."""
    lease = start(store)
    follow_ups = [made(queue="next", key="k"), made(queue="next")]
    store.settle([Settlement(lease, Succeeded(), follow_ups)])

    assert [job.id for job in follow_ups] == [each.id for each in claim(store, queues=["next"])]


@pytest.mark.parametrize("outcome", OUTCOMES[2:], ids=repr)
def test_follow_ups_appear_only_with_a_success(store: Store, outcome: Outcome):
    """A run that ended in any other way enqueues nothing."""
    lease = start(store)
    store.settle([Settlement(lease, outcome, [made(queue="next")])])

    assert claim(store, queues=["next"]) == []


def test_a_follow_up_whose_key_is_taken_is_left_out(store: Store):
    """A duplicate among the follow-ups hinders neither the others nor the success."""
    enqueue(store, queue="next", key="k")
    lease = start(store)
    store.settle(
        [Settlement(lease, Succeeded(), [made(queue="next", key="k"), made(queue="next")])]
    )

    assert JobState.SUCCEEDED is state_of(store, lease.id)
    assert len(claim(store, queues=["next"])) == 2


def test_a_job_may_follow_itself(store: Store):
    """A follow-up may take the key of the job that has just succeeded."""
    lease = start(store, key="k")
    follow_up = made(key="k", id=new_id())
    store.settle([Settlement(lease, Succeeded(), [follow_up])])

    assert follow_up.id == claim_one(store).id
    assert len(store.list(EVERY_JOB)) == 2


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
def test_a_bad_delay_is_refused(store: Store, delay: float):
    """A delay is a time from now on; with any other the job goes on running."""
    lease = start(store)
    with pytest.raises(OptionInvalid, match="delay"):
        store.release(lease, delay)
    with pytest.raises(OptionInvalid, match="delay"):
        store.fail(lease, "boom", delay=delay)

    assert JobState.RUNNING is state_of(store, lease.id)
