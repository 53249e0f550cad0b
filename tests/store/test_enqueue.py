"""A job exists once per id, all of a batch or none, and never before its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import msgspec
import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import OptionInvalid, RowlockError
from rowlock.ids import new_id
from rowlock.job import JobState, Policy
from rowlock.store import Store, options
from rowlock.store.ops.enqueue import _batches
from rowlock.store.ops.enqueue import enqueue as enqueue_op
from rowlock.store.steps import Batch, Op, Steps
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


def test_a_new_job_is_ready(store: Store, clock: ManualClock):
    """An enqueue returns the job as new, with its defaults, and get finds the same."""
    job = enqueue(store)

    now = from_us(clock.now_us())
    assert (job.created, job.state, job.queue, job.priority) == (True, JobState.READY, "default", 0)
    assert (
        job.run_at,
        job.created_at,
        job.attempt,
        job.token,
        job.max_attempts,
    ) == (now, now, 0, 0, 20)
    found = stored(store, job.id)
    assert not found.created
    assert (job.id, job.state, job.run_at) == (found.id, found.state, found.run_at)


def test_every_option_is_stored(store: Store, clock: ManualClock):
    """What a job is enqueued with is what comes back, from enqueue, get and claim alike."""
    policy = Policy(timeout=5_000_000, retry=["fixed", 7.0], keep=9_000_000, max_crashes=2)
    job = enqueue(
        store,
        payload='{"a":[1,"ü"]}',
        priority=-7,
        tenant="acme",
        key="k",
        max_attempts=4,
        tags=["red", "blue"],
        meta={"trace": "00-1"},
        policy=policy,
    )

    for seen in (job, stored(store, job.id), claim_one(store).job):
        assert seen.payload == {"a": [1, "ü"]}
        assert (seen.priority, seen.tenant, seen.key, seen.max_attempts) == (-7, "acme", "k", 4)
        assert (seen.tags, seen.meta) == (["red", "blue"], {"trace": "00-1"})
        assert (
            seen.timeout,
            seen.retry,
            seen.keep,
            seen.max_crashes,
        ) == (5.0, ["fixed", 7.0], 9.0, 2)


def test_integers_come_back_exactly(store: Store):
    """An integer of 4,000 digits in a payload is the same integer when it is read."""
    number = 10**4000 + 7
    job = enqueue(store, payload=f'{{"n":{number}}}')

    assert stored(store, job.id).payload == {"n": number}
    assert claim_one(store).job.payload == {"n": number}


def test_without_a_key_every_job_is_new(store: Store):
    """Two enqueues alike are two jobs."""
    jobs = [enqueue(store), enqueue(store)]

    assert [job.created for job in jobs] == [True, True]
    assert len({job.id for job in jobs}) == 2


def test_ids_may_be_given_as_uuid(store: Store):
    """A client-made id is taken as text in any case or as a UUID."""
    id = UUID(new_id())
    first = enqueue(store, id=id)
    again = enqueue(store, id=str(id).upper())

    assert (first.id, first.created) == (str(id), True)
    assert (again.id, again.created) == (str(id), False)


@pytest.mark.parametrize("state", list(JobState))
def test_a_resend_is_answered_by_the_first(store: Store, state: JobState):
    """The same id again gives the same job in whatever state it is, and changes nothing."""
    id = put_in_state(store, state, id=new_id())
    before = stored(store, id)
    again = enqueue(store, id=id, payload='{"other":1}', queue="elsewhere")

    assert (again.id, again.state, again.created) == (id, state, False)
    assert before == again == stored(store, id)


@pytest.mark.parametrize("keep", [0, 60])
def test_a_removed_job_answers_resends_for_15_minutes(
    store: Store, clock: ManualClock, keep: float
):
    """An id whose row is gone since its success is no second run for 15 minutes, then it is."""
    lease = start(store, id=new_id(), policy=kept_for(keep))
    store.succeed([lease])
    clock.advance(15 * 60 - 1)
    store.prune()
    early = enqueue(store, id=lease.id)
    before = state_of(store, lease.id)
    clock.advance(1)
    late = enqueue(store, id=lease.id)

    assert (
        before,
        early.id,
        early.state,
        early.created,
    ) == (None, lease.id, JobState.SUCCEEDED, False)
    assert (late.id, late.state, late.created) == (lease.id, JobState.READY, True)


def test_the_removed_are_remembered_through_prunes(store: Store, clock: ManualClock):
    """A prune forgets ids only when their 15 minutes are over."""
    lease = start(store, id=new_id(), policy=kept_for(0))
    store.succeed([lease])
    store.prune()

    assert not enqueue(store, id=lease.id).created
    clock.advance(config.ID_REMEMBERED_SECONDS)
    store.prune()
    assert enqueue(store, id=lease.id).created


def test_one_id_twice_in_a_call_is_one_job(store: Store):
    """Of two jobs with one id in a batch, the first is new and the second a duplicate."""
    id = new_id()
    first, second = store.enqueue([made(id=id), made(id=id)])

    assert [(job.id, job.created) for job in (first, second)] == [(id, True), (id, False)]
    assert len(store.list(EVERY_JOB)) == 1


def test_a_resend_of_the_op_is_content(store: Store):
    """A repeat after an unknown COMMIT finds the jobs of the first try: they are new."""
    op = enqueue_op([made(), made()])
    assert op.repeat is not None
    first = store.run(op)
    again = store.run(Op(op.name, op.writes, op.repeat))

    assert [job.created for job in first] == [True, True]
    assert [(job.id, True) for job in first] == [(job.id, job.created) for job in again]
    assert len(store.list(EVERY_JOB)) == 2


def test_a_resend_after_the_end_is_no_second_run(store: Store):
    """A repeat of an enqueue whose job has run and is removed meanwhile inserts nothing."""
    op = enqueue_op([made(policy=kept_for(0))])
    store.run(op)
    store.succeed([claim_one(store)])
    assert op.repeat is not None
    (again,) = store.run(Op(op.name, op.writes, op.repeat))

    assert (again.state, again.created) == (JobState.SUCCEEDED, True)
    assert claim(store) == []


def test_the_future_is_not_claimable(store: Store, clock: ManualClock):
    """A delayed job is scheduled, not claimed a microsecond early, and ready on time."""
    job = enqueue(store, delay=timedelta(seconds=10))
    clock.advance(timedelta(seconds=10, microseconds=-1))
    early = (state_of(store, job.id), claim(store))
    clock.advance(timedelta(microseconds=1))

    assert JobState.SCHEDULED is job.state
    assert early == (JobState.SCHEDULED, [])
    assert JobState.READY is state_of(store, job.id)
    assert [lease.id for lease in claim(store)] == [job.id]


def test_a_run_at_in_another_zone_is_the_same_moment(store: Store, clock: ManualClock):
    """Times are stored as UTC, to the microsecond."""
    moment = from_us(clock.now_us() + 3_600_000_001)
    offset = timedelta(hours=5, minutes=30)
    local = moment.astimezone(datetime.now(UTC).astimezone().tzinfo) + offset - offset
    job = enqueue(store, run_at=local)

    assert moment == stored(store, job.id).run_at
    assert JobState.SCHEDULED is job.state


def test_a_run_at_in_the_past_means_now(store: Store, clock: ManualClock):
    """A time that has passed does not let a job overtake others."""
    now = from_us(clock.now_us())
    job = enqueue(store, run_at=datetime(1960, 1, 1, tzinfo=UTC))

    assert (job.state, job.run_at) == (JobState.READY, now)


def test_answers_come_in_the_order_asked(store: Store):
    """A batch of new jobs, resends and duplicates by key is answered one by one, in order."""
    old = enqueue(store, key="taken")
    resent = enqueue(store, id=new_id())
    fresh = made(key="a")
    jobs = store.enqueue(
        [made(key="taken"), fresh, made(id=resent.id), made(key="a"), made(kind="other", key="a")]
    )

    assert [job.id for job in jobs[:4]] == [old.id, fresh.id, resent.id, fresh.id]
    assert [job.created for job in jobs] == [False, True, False, False, True]


def test_more_jobs_than_a_statement_takes(store: Store):
    """Several batches of rows are one call, each answered in order."""
    jobs = [made(key=f"k{number}" if number % 3 else None) for number in range(2_050)]
    assert len(jobs) > 2 * config.BATCH_ROWS
    answers = store.enqueue(jobs)

    assert [job.id for job in jobs] == [answer.id for answer in answers]
    assert all(answer.created for answer in answers)
    assert store.stats(["default"])[0].counts[JobState.READY].value == 2_050


def test_a_batch_that_fails_midway_leaves_nothing(store: Store):
    """An enqueue of many that breaks after its first rows were written is undone as a whole."""
    jobs = [made(key=f"k{number}") for number in range(config.BATCH_ROWS + 10)]

    def broken() -> Steps[None]:
        steps = enqueue_op(jobs).start()
        rows, batches = None, 0
        while batches < 2:
            step = steps.send(rows)  # type: ignore[arg-type]  # None starts a generator
            batches += isinstance(step, Batch) and step.name == "enqueue"
            rows = yield step
        raise RuntimeError("the process had enough")

    with pytest.raises(RuntimeError):
        store.run(Op("enqueue", True, broken))

    assert store.list(EVERY_JOB).jobs == []


def test_a_bad_job_in_the_middle_stops_the_batch(store: Store):
    """An option that is refused is refused before anything is written."""
    with pytest.raises(OptionInvalid):
        store.enqueue([made(), made(priority=101), made()])

    assert store.list(EVERY_JOB).jobs == []


def test_no_jobs_is_no_work(store: Store):
    """An empty batch has no answers."""
    assert store.enqueue([]) == []


BAD_OPTIONS = [
    ("kind", {"kind": ""}),
    ("kind", {"kind": "k" * 201}),
    ("kind", {"kind": "a\0b"}),
    ("kind", {"kind": 7}),
    ("queue", {"queue": ""}),
    ("queue", {"queue": "q" * 201}),
    ("queue", {"queue": "\ud800"}),
    ("tenant", {"tenant": ""}),
    ("tenant", {"tenant": "t" * 201}),
    ("key", {"key": ""}),
    ("key", {"key": "k" * 201}),
    ("key", {"key": "nul\0"}),
    ("key_hold", {"key": "k", "key_hold": "for_ever"}),
    ("key_hold", {"key": "k", "key_hold": -1}),
    ("key_hold", {"key": "k", "key_hold": float("nan")}),
    ("if_held", {"key": "k", "if_held": "drop"}),
    ("if_held", {"key": "k", "if_held": ["replace"]}),
    ("if_held", {"key": "k", "if_held": True}),
    ("if_held", {"if_held": "replace"}),
    ("if_held", {"key": "k", "if_held": "keep", "quiet": 5}),
    ("quiet", {"quiet": 5}),
    ("quiet", {"key": "k", "quiet": -1}),
    ("quiet", {"key": "k", "quiet": "5"}),
    ("quiet", {"key": "k", "quiet": 5, "delay": 1}),
    ("quiet", {"key": "k", "quiet": 5, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("max_wait", {"key": "k", "max_wait": 5}),
    ("max_wait", {"key": "k", "quiet": 5, "max_wait": 4}),
    ("max_wait", {"key": "k", "quiet": 5, "max_wait": -1}),
    ("priority", {"priority": 101}),
    ("priority", {"priority": -101}),
    ("priority", {"priority": 1.5}),
    ("priority", {"priority": True}),
    ("max_attempts", {"max_attempts": 0}),
    ("max_attempts", {"max_attempts": -1}),
    ("max_attempts", {"max_attempts": 1_000_001}),
    ("delay", {"delay": -1}),
    ("delay", {"delay": timedelta(seconds=-1)}),
    ("delay", {"delay": float("nan")}),
    ("delay", {"delay": float("inf")}),
    ("delay", {"delay": 4e9}),
    ("delay", {"delay": "10"}),
    ("delay", {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("run_at", {"run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001  # what is refused
    ("run_at", {"run_at": 1_900_000_000}),
    ("run_at", {"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))}),
    ("run_at", {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}),
    ("tags", {"tags": "red"}),
    ("tags", {"tags": [""]}),
    ("tags", {"tags": ["t" * 201]}),
    ("tags", {"tags": [f"t{number}" for number in range(21)]}),
    ("id", {"id": "not-a-uuid"}),
    ("id", {"id": 5}),
    ("meta", {"meta": ["no", "mapping"]}),
    ("meta", {"meta": []}),
    ("tags", {"tags": ""}),
    ("key_hold", {"key_hold": "for ever"}),
    ("key_hold", {"key_hold": -1}),
]


@pytest.mark.parametrize(("option", "options"), BAD_OPTIONS)
def test_a_bad_option_is_named(option, options):
    """A value out of range or of the wrong kind is refused by the name of its option."""
    with pytest.raises(OptionInvalid) as caught:
        made(**options)

    assert (caught.value.option, caught.value.code) == (option, "option_invalid")


def test_the_widest_options_are_taken(store: Store):
    """The ends of every range are inside it."""
    name = "n" * 200
    low = enqueue(store, kind=name, queue=name, tenant=name, key=name, priority=-100, delay=0)
    high = enqueue(store, priority=100, max_attempts=1_000_000, delay=3_000_000_000)
    last = enqueue(store, run_at=datetime.max.replace(tzinfo=UTC))

    assert datetime.max.replace(tzinfo=UTC) == stored(store, last.id).run_at
    assert (stored(store, low.id).priority, stored(store, low.id).key) == (-100, name)
    assert (stored(store, high.id).priority, high.max_attempts) == (100, 1_000_000)


def test_many_are_copied(store: Store, clock: ManualClock):
    """Each has what it was given, in order, and is answered for as any other."""
    now = clock.now_us()
    jobs = [
        made(
            kind=f"kind-{number % 3}",
            payload=f'{{"n":{number},"text":"a\\tb\\\\n\\\\\\\\N ü"}}',
            queue=f"q{number % 2}",
            priority=number % 5,
            delay=number % 7,
            tags=["odd"] if number % 2 else None,
            meta={"n": number},
        )
        for number in range(config.COPY_ROWS_MIN + 5)
    ]
    answers = store.enqueue(jobs)

    assert [job.id for job in jobs] == [answer.id for answer in answers]
    assert {answer.created for answer in answers} == {True}
    found = [stored(store, answer.id) for answer in answers]
    assert [msgspec.structs.replace(job, created=True) for job in found] == list(answers)
    assert [from_us(now + number % 7 * 1_000_000) for number in range(len(jobs))] == [
        job.run_at for job in found
    ]
    assert (list(answers)[-1], list(answers[5:9])) == (answers[-1], list(answers)[5:9])


def test_many_with_one_of_them_twice(store: Store):
    """The second is its resend, in the same call and in a later one."""
    jobs = [made() for _ in range(config.COPY_ROWS_MIN)]
    together = store.enqueue([*jobs, jobs[0]])
    again = store.enqueue([jobs[0], *(made() for _ in range(config.COPY_ROWS_MIN))])

    assert (together[0].created, together[-1].created) == (True, False)
    assert (again[0].id, again[0].created) == (together[0].id, False)
    assert {job.created for job in again[1:]} == {True}
    assert len(claim(store, limit=1_000)) == 2 * config.COPY_ROWS_MIN


def test_a_delay_of_many_leases(store: Store, clock: ManualClock):
    """What waits for its time is leased by nobody, so no lease of it can expire: it runs once."""
    job = enqueue(store, delay=300)
    for _ in range(10):
        assert claim(store, lease=30) == []
        assert store.recover() == 0
        clock.advance(30)
    lease = claim_one(store, lease=30)

    assert (lease.id, lease.job.attempt, lease.token) == (job.id, 1, 1)
    assert claim(store) == []


def test_batches_are_bounded_by_bytes():
    """What one statement inserts is encoded and decoded without a pause."""
    half = '{"a": "' + "x" * (config.BATCH_BYTES // 2) + '"}'
    large = [options.new_job(kind="k", payload=half) for _ in range(3)]
    small = [options.new_job(kind="k", payload="{}") for _ in range(config.BATCH_ROWS + 1)]
    found = {
        "large": [len(batch) for batch in _batches(large)],
        "small": [len(batch) for batch in _batches(small)],
        "mixed": [len(batch) for batch in _batches([*small[:5], large[0], *small[5:10]])],
        "none": list(_batches([])),
    }

    assert found == {"large": [1, 1, 1], "small": [config.BATCH_ROWS, 1], "mixed": [11], "none": []}
    assert next(_batches(small[:3])) == small[:3]


def test_large_jobs_are_all_or_none(store):
    """Several statements insert them, in one transaction."""
    half = '{"a": "' + "x" * (config.BATCH_BYTES // 2) + '"}'
    first, second = (options.new_job(kind="k", payload=half) for _ in range(2))
    bad = options.new_job(kind="k", payload=half)._replace(queue=None)  # type: ignore[arg-type]  # refused by the table
    with pytest.raises(RowlockError):
        store.enqueue([first, second, bad])

    assert list(store.list(EVERY_JOB)) == []
