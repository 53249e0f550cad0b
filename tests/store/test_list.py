"""Jobs are listed newest first, dead ones newest failure first, in pages that never skip a job."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.errors import OptionInvalid
from rowlock.job import Job, JobState
from rowlock.store import JobFilter, Store
from rowlock.store.ops.bulk import count_jobs
from rowlock.store.ops.look import Cursor, list_jobs
from rowlock.store.ops.manage import job_filter
from tests.store.jobs import (
    EVERY_JOB,
    UNKNOWN_ID,
    claim,
    enqueue,
    enqueue_ids,
    kept_for,
    one_in_each_state,
    put_in_state,
    start,
)


def walk(store: Store, chosen: JobFilter = EVERY_JOB, **options: Any) -> list[str]:
    """The ids of all pages, one after the other."""
    found: list[Job] = []
    cursor = None
    for _ in range(1_000):
        page = store.run(list_jobs(chosen, cursor=cursor, **options))
        found += page
        cursor = page.next
        if cursor is None:
            return [job.id for job in found]
    raise AssertionError("the pages have no end")


def test_newest_first(store: Store):
    """All jobs, live and finished, are listed by id, the newest first."""
    ids = one_in_each_state(store)
    page = store.list(EVERY_JOB)

    assert [job.id for job in page] == sorted(ids.values(), reverse=True)
    assert (page.next, len(page)) == (None, len(JobState))
    assert {job.state for job in page} == set(JobState)


def test_by_state(store: Store):
    """A state lists the jobs that are in it now, by enum or by name."""
    for state, id in one_in_each_state(store).items():
        assert [job.id for job in store.list(EVERY_JOB, state=state)] == [id]
        assert [job.state for job in store.list(EVERY_JOB, state=state.value)] == [state]


def test_states_follow_the_clock(store: Store, clock: ManualClock):
    """Scheduled and retrying jobs whose time has come are listed as ready."""
    ids = {put_in_state(store, JobState.RETRYING), put_in_state(store, JobState.SCHEDULED)}
    before = len(store.list(EVERY_JOB, state="ready"))
    clock.advance(60)

    assert before == 0
    assert ids == {job.id for job in store.list(EVERY_JOB, state="ready")}
    assert store.list(EVERY_JOB, state="scheduled").jobs == []


FILTERS = [
    ({"queue": "q"}, {"queue": "q"}),
    ({"kind": "k"}, {"kind": "k"}),
    ({"tenant": "t"}, {"tenant": "t"}),
    ({"key": "y"}, {"key": "y"}),
    ({"tag": "g"}, {"tags": ["f", "g"]}),
]


@pytest.mark.parametrize(("asked", "options"), FILTERS)
@pytest.mark.parametrize("state", ["ready", "succeeded", "dead"])
def test_by_name(store: Store, asked: dict[str, str], options: dict[str, Any], state: str):
    """A filter lists the jobs that have that very name, in any state."""
    chosen = put_in_state(store, JobState(state), **options)
    put_in_state(store, JobState(state), queue="other", tags=["gg"], key="yy", tenant="tt")

    assert walk(store, job_filter(**asked)) == [chosen]
    assert walk(store, job_filter(**asked), state=state) == [chosen]


@pytest.mark.parametrize(
    "text", ["refused", "REFUSED", 'a "quoted" \\ line', "\n", "ValueE", "é%_"]
)
def test_by_text_in_the_errors(store: Store, text: str):
    """Of any attempt, in live and finished jobs alike, whatever JSON or SQL make of the text."""
    found = [
        put_in_state(store, JobState.RETRYING, queue="a"),
        put_in_state(store, JobState.DEAD, queue="b"),
    ]
    message = 'Refused: a "quoted" \\ line\né%_'
    ids = []
    for permanent in (False, True):
        lease = start(store, queue="c")
        store.fail(lease, ValueError(message), permanent=permanent)
        ids.append(lease.id)

    assert {*walk(store, job_filter(error=text))} == {*ids}
    assert ids[1:] == walk(store, job_filter(error=text), state="dead")
    assert walk(store, job_filter(error=f"{text}?")) == []
    assert not {*found} & {*walk(store, job_filter(error=text))}
    count = store.run(count_jobs(job_filter(error=text)))
    assert (count.value, count.exact) == (2, True)


@pytest.mark.parametrize("length", [201, 10_000_000])
def test_a_search_is_bounded(length: int):
    """A text that is longer than a name is refused before any row is read."""
    with pytest.raises(OptionInvalid, match="1 to 200 characters"):
        job_filter(error="x" * length)


@pytest.mark.parametrize("state", [None, *JobState])
def test_a_count_is_that_of_the_list(store: Store, state: JobState | None):
    """In every state and in all of them, with filters and without."""
    one_in_each_state(store)
    put_in_state(store, JobState.DEAD, queue="q")

    for chosen in (EVERY_JOB, job_filter(queue="q"), job_filter(queue="nowhere")):
        listed = len(walk(store, chosen, **({} if state is None else {"state": state})))
        count = store.run(count_jobs(chosen, state=state))
        assert (count.value, count.exact) == (listed, True)


def test_by_several(store: Store):
    """Filters narrow one another."""
    enqueue(store, queue="q", kind="a")
    enqueue(store, queue="p", kind="b")
    job = enqueue(store, queue="q", kind="b")

    assert walk(store, job_filter(queue="q", kind="b")) == [job.id]
    assert walk(store, job_filter(queue="q", kind="b", tenant="t")) == []


@pytest.mark.parametrize("state", ["ready", "succeeded", "dead"])
def test_by_time(store: Store, clock: ManualClock, state: str):
    """Since and until are times of creation, the first included and the second not."""
    ids, times = [], []
    for _ in range(3):
        ids.append(put_in_state(store, JobState(state), queue=f"q{len(ids)}"))
        times.append(from_us(clock.now_us()))
        clock.advance(10)

    assert ids[1:2] == walk(store, job_filter(since=times[1], until=times[2]), state=state)
    assert ids[:2] == walk(store, job_filter(until=times[2]))[::-1]
    assert walk(store, job_filter(since=from_us(clock.now_us()))) == []


def test_pages_hold_every_job_once(store: Store):
    """Cursors lead through live and finished jobs without a gap or a repeat."""
    ids = sorted(one_in_each_state(store).values(), reverse=True)

    for limit in (1, 2, 3, 7, 8, 100):
        assert ids == walk(store, limit=limit)


@pytest.mark.parametrize("state", [None, "ready"])
def test_pages_are_stable_while_jobs_arrive(store: Store, state: str | None):
    """Jobs that are enqueued between two pages shift nothing."""
    ids = enqueue_ids(store, 5)[::-1]
    first = store.list(EVERY_JOB, limit=2, state=state)
    enqueue_ids(store, 3)
    second = store.list(EVERY_JOB, limit=2, state=state, cursor=first.next)
    third = store.list(EVERY_JOB, limit=2, state=state, cursor=second.next)

    assert ids == [job.id for page in (first, second, third) for job in page]
    assert None is third.next


def test_pages_are_stable_while_jobs_end(store: Store):
    """A job that moves from live to finished between two pages is listed once."""
    ids = enqueue_ids(store, 6)
    first = store.list(EVERY_JOB, limit=3)
    store.succeed(claim(store, limit=6))
    second = store.list(EVERY_JOB, limit=10, cursor=first.next)

    assert ids[::-1] == [job.id for page in (first, second) for job in page]


def test_dead_jobs_by_their_failure(store: Store, clock: ManualClock):
    """Dead jobs come newest failure first, whatever their age, also page by page."""
    leases = [start(store) for _ in range(5)]
    order = [2, 0, 4, 1, 3]
    for place in order:
        store.fail(leases[place], "boom", permanent=True)
        clock.advance(1)

    expected = [leases[place].id for place in reversed(order)]
    assert [job.id for job in store.list(EVERY_JOB, state="dead")] == expected
    assert walk(store, state="dead", limit=2) == expected


def test_dead_jobs_of_one_moment(store: Store):
    """Failures at the same microsecond are told apart by id, and none is skipped."""
    ids = [put_in_state(store, JobState.DEAD) for _ in range(5)]

    assert ids[::-1] == walk(store, state="dead", limit=2)


def test_new_failures_do_not_shift_the_pages_of_the_dead(store: Store, clock: ManualClock):
    """A job that dies between two pages is ahead of them."""
    ids = [put_in_state(store, JobState.DEAD) for _ in range(4)]
    first = store.list(EVERY_JOB, state="dead", limit=2)
    clock.advance(1)
    put_in_state(store, JobState.DEAD)
    second = store.list(EVERY_JOB, state="dead", limit=10, cursor=first.next)

    assert ids[::-1] == [job.id for page in (first, second) for job in page]


def test_a_page_reads_a_bounded_number_of_rows(store: Store):
    """However rare a match is, a page ends after its bound, and the next ones find it."""
    rare = {
        state: put_in_state(store, state, kind="rare") for state in JobState if state != "ready"
    }
    for _ in range(2):
        leases = [start(store) for _ in range(7)]
        store.succeed(leases[:4])
        for lease in leases[4:]:
            store.fail(lease, "boom", permanent=True)
        rare[JobState.READY] = enqueue(store, kind="rare", queue="elsewhere").id
        enqueue_ids(store, 6, queue="elsewhere")
    chosen = job_filter(kind="rare")

    for state in (None, *JobState):
        expected = [job.id for job in store.list(chosen, state=state, limit=1_000)]
        assert rare[state or JobState.READY] in expected
        for limit in (1, 2, 50):
            assert walk(store, chosen, state=state, limit=limit, scan=5) == expected


def test_a_full_page_skips_nothing_that_was_not_read(store: Store):
    """When one table fills a page, the rows of the other below its bound come later."""
    old = enqueue(store, kind="wanted", delay=60).id
    wanted = [put_in_state(store, JobState.SUCCEEDED, kind="wanted") for _ in range(4)]
    enqueue_ids(store, 6, delay=60)

    assert walk(store, job_filter(kind="wanted"), limit=2, scan=5) == [*reversed(wanted), old]
    between = [enqueue(store, kind="wanted", delay=60).id]
    ended = [put_in_state(store, JobState.SUCCEEDED, kind="wanted") for _ in range(3)]
    enqueue_ids(store, 6, delay=60)
    expected = [*reversed(ended), *between, *reversed(wanted), old]
    assert walk(store, job_filter(kind="wanted"), limit=5, scan=5) == expected


def test_a_bad_limit_is_refused(store: Store):
    """A page has between one and a thousand jobs."""
    for limit in (0, -1, 1_001, True, 1.5):
        with pytest.raises(OptionInvalid, match="limit"):
            store.list(EVERY_JOB, limit=limit)  # type: ignore[arg-type]  # what is refused


def test_an_unknown_state_is_refused(store: Store):
    """A state that does not exist is a mistake, not an empty page."""
    for state in ("done", "", "READY"):
        with pytest.raises(OptionInvalid, match="state"):
            store.list(EVERY_JOB, state=state)


BAD_CURSORS = [
    "",
    "garbage",
    "ünïcödé",
    "bnVsbA",
    "W10",
    "WzFd",
    Cursor("no uuid").encoded(),
    Cursor(UNKNOWN_ID, 2**70).encoded(),
    Cursor(UNKNOWN_ID, -1).encoded(),
]


def test_a_cursor_that_no_page_gave_is_refused(store: Store):
    """A cursor is opaque: one that was made up is a mistake."""
    for cursor in BAD_CURSORS:
        for state in (None, "dead"):
            with pytest.raises(OptionInvalid, match="cursor"):
                store.list(EVERY_JOB, cursor=cursor, state=state)


@pytest.mark.parametrize("option", ["kind", "queue", "tenant", "key", "tag", "error"])
@pytest.mark.parametrize("name", ["", "n" * 201, "a\0", "\udcff"])
def test_a_filter_of_no_name_is_refused(option: str, name: str):
    """A filter that can match nothing is a mistake."""
    with pytest.raises(OptionInvalid, match=option):
        job_filter(**{option: name})


def test_get(store: Store):
    """A job is found by its id in any state, in any spelling; None if there is none."""
    gone = start(store, policy=kept_for(0))
    store.succeed([gone])

    for state, id in one_in_each_state(store).items():
        for spelling in (id, id.upper(), id.replace("-", "")):
            job = store.get(spelling)
            assert job is not None
            assert (job.id, job.state) == (id, state)
    assert (store.get(UNKNOWN_ID), store.get(gone.id)) == (None, None)


def test_get_of_no_id_is_refused(store: Store):
    """What is no id is a mistake of the caller, on both stores alike."""
    with pytest.raises(OptionInvalid, match="id"):
        store.get("garbage")


@pytest.mark.parametrize("state", ["ready", "dead"])
def test_a_listed_job_shows_the_beginning_of_its_payload(store: Store, state: str):
    """As it is stored, and no more of it than a line has room for."""
    text = '{"to":"ada@example.com","body":"' + "ü" * 500 + '"}'
    job = enqueue(store, payload=text)
    if state == "dead":
        store.fail(claim(store)[0], "bad", permanent=True)
    (listed,) = store.run(list_jobs(EVERY_JOB, state=state))
    whole = store.get(job.id)

    assert listed.payload_preview == text[:200]
    assert whole is not None and whole.payload_preview == text[:200]
