"""The fixtures that users of pytest get: an app under test, its clock, and processes that die."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from unittest.mock import ANY

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.testing import (
    AppUnderTest,
    VirtualClock,
    assert_enqueued,
    enqueued,
    refute_enqueued,
    rowlock_crash,
    use_test_database,
)
from rowlock.testing.app import current

pytestmark = pytest.mark.owner("a test empties its database")

seen: list[str] = []
app = rowlock.App("sqlite:///never-opened.db")


@dataclasses.dataclass
class Address:
    street: str
    number: int


@app.task(retry=rowlock.retry.fixed(60), max_attempts=3)
def plain(name: str, count: int = 1) -> None:
    seen.append(name)
    if name == "fails":
        raise ValueError(name)


@app.task(keep=0)
async def brief(ctx: rowlock.Context, name: str) -> None:
    seen.append(name)
    if name == "parent":
        ctx.log("a line")
        await plain.aenqueue(name="child")


@app.task
def deliver(to: Address) -> None: ...


@app.task(cron="0 * * * *")
def hourly() -> None:
    seen.append("hourly")


@pytest.fixture
def rowlock_target() -> rowlock.App:
    seen.clear()
    return app


@pytest.fixture(params=["sqlite", "postgres"])
def rowlock_url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(f"{request.param}_url")


def test_it_is_the_same_app_on_another_database(rowlock_app, rowlock_url):
    """Whoever holds the app or a task of it takes part; and it is the test's app everywhere."""
    job = plain.enqueue(name="a")

    assert (rowlock_app, isinstance(app, AppUnderTest)) == (app, True)
    assert (app.url, current()) == (rowlock_url, app)
    assert rowlock_app.get(job.id).payload["name"] == "a"


def test_an_app_is_what_it_was_afterwards(sqlite_url):
    """Class, database, clock and `state`; a class of the user's own is under test as well."""

    class Own(rowlock.App):
        def greeting(self) -> str:
            return f"of {type(self).__name__}"

    own = Own("sqlite:///never-opened.db", state="its own")
    store = own.store
    with use_test_database(own, sqlite_url, clock=VirtualClock()) as tested:
        tested.state = "the test's"

        assert (tested.greeting(), isinstance(own, AppUnderTest)) == ("of Own", True)

    assert (type(own), own.store, own.url) == (Own, store, "sqlite:///never-opened.db")
    assert own.state == "its own"
    with pytest.raises(RuntimeError, match="rowlock_app"):
        current()


def test_an_app_is_what_it_was_after_a_trial_that_could_not_begin():
    """A test that has no database must not be the end of all others."""
    own = rowlock.App("sqlite:///never-opened.db")
    with (
        pytest.raises(rowlock.StoreUnavailable),
        use_test_database(own, "postgresql://127.0.0.1:1/nobody"),
    ):
        pytest.fail("nobody is there")

    assert (type(own), own.url) == (rowlock.App, "sqlite:///never-opened.db")
    with pytest.raises(RuntimeError, match="rowlock_app"):
        current()


def test_a_test_begins_with_an_empty_database(rowlock_url):
    """Nothing of the test before is there: no job, live or finished, schedule or pause."""
    for _ in range(2):
        with use_test_database(app, rowlock_url) as tested:
            refute_enqueued(plain)
            assert (list(tested.store.list_schedules()), tested.stats()) == ([], [])
            plain.enqueue(name="a")
            tested.drain(limit=1)
            plain.enqueue(name="b")
            tested.schedule("nightly", hourly, cron="@daily")
            tested.pause("mail")
            with use_test_database(rowlock.App("sqlite:///never-opened.db"), rowlock_url):
                assert len(enqueued("plain")) == 2  # Two apps of a test may share a database.


def test_a_database_in_use_is_not_emptied(rowlock_url):
    """Whoever names it by mistake loses nothing, and is told."""
    with rowlock.App(rowlock_url) as used:
        used.migrate()
        job = used.enqueue("important")
        with (
            pytest.raises(ValueError, match=r"job that no test wrote.*that only tests use"),
            use_test_database(app, rowlock_url),
        ):
            pytest.fail("it is in use")

        assert used.get(job.id).state == JobState.READY


def test_fields_and_options_are_compared(rowlock_app):
    """Those that are named; in the words of the enqueue, as the payload holds them."""
    plain.using(
        queue="mail", delay=60, key="k", tags=["x", "y"], meta={"a": 1, "b": 2}, priority=5
    ).enqueue(name="a", count=2)
    deliver.enqueue(to=Address("Main", 1))

    job = assert_enqueued(plain.using(queue="mail", delay=timedelta(minutes=1)), name="a")
    assert [job] == enqueued("plain", count=2) == enqueued(plain, name=ANY)
    assert_enqueued(plain.using(key="k", tags=["y"], meta={"b": 2}, priority=5))
    assert_enqueued(deliver, to=Address("Main", 1))
    refute_enqueued(plain, name="b")
    refute_enqueued(plain.using(delay=61))
    refute_enqueued(plain.using(tags=["z"]))
    refute_enqueued(deliver, to=Address("Main", 2))


def test_options_are_those_of_the_enqueue(rowlock_app, rowlock_clock):
    """Whatever became of the job: its next attempt is due at another time."""
    plain.using(delay=30, keep=None).enqueue(name="fails")
    rowlock_clock.run_for(45)

    assert seen == ["fails"]
    assert_enqueued(plain.using(delay=30, keep=None))
    refute_enqueued(plain.using(keep=60))
    plain.enqueue(name="b")
    refute_enqueued(plain.using(keep=None), name="b")


def test_what_is_not_kept_was_enqueued_all_the_same(rowlock_app):
    """A job whose row is gone with its success is still found, and so is what it enqueued."""
    brief.enqueue(name="parent")
    rowlock_app.drain()

    assert_enqueued(brief, name="parent")
    assert assert_enqueued(plain, name="child").state == JobState.SUCCEEDED


@pytest.mark.parametrize("check", [assert_enqueued, refute_enqueued, enqueued])
def test_a_misspelt_name_is_a_mistake(rowlock_app, check):
    """Else it would fit no job, and nothing would tell."""
    with pytest.raises(TypeError, match="plain has no parameter 'nmae'; it takes name, count"):
        check(plain, nmae="a")


def test_the_text_tells_what_was_enqueued_instead(rowlock_app):
    """The most alike first, with each field that differs."""
    plain.enqueue(name="a", count=2)
    plain.using(queue="mail").enqueue(name="b")
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(plain.using(queue="mail"), name="c", count=2)

    assert str(caught.value) == (
        "no job like this was enqueued: plain.using(queue='mail')(name='c', count=2)\n\n"
        "2 jobs were enqueued of this kind, the most similar first:\n"
        "  plain(name='a', count=2): ready in 'default'\n"
        "    name: expected 'c', but found 'a'\n"
        "    option queue: expected 'mail', but found 'default'\n"
        "  plain(name='b'): ready in 'mail'\n"
        "    name: expected 'c', but found 'b'\n"
        "    count: expected 2, but it is missing"
    )


def test_the_text_tells_of_other_kinds(rowlock_app):
    """Where there is none of the kind at all, and where the name may be wrong."""
    plain.enqueue(name="a")
    with pytest.raises(AssertionError) as none:
        assert_enqueued(deliver)
    with pytest.raises(AssertionError) as unknown:
        assert_enqueued("plane")

    assert "no job of this kind was enqueued, but: 1 of 'plain'" in str(none.value)
    assert "the app has no task 'plane'; did you mean 'plain'?" in str(unknown.value)


def test_what_should_not_be_there_is_shown(rowlock_app):
    """Some of it, and how many there are."""
    rowlock_app.enqueue_many([plain.job(name=f"n{number}") for number in range(7)])
    with pytest.raises(AssertionError) as caught:
        refute_enqueued(plain)

    lines = str(caught.value).splitlines()
    assert lines[0] == "7 jobs were enqueued like plain(), but none should be:"
    assert (lines[1], lines[-1]) == ("  plain(name='n0'): ready in 'default'", "  and 2 more")


@pytest.mark.rowlock(mode="inline")
def test_inline_jobs_are_run_at_once(rowlock_app):
    """And what they enqueue, after them; in a coroutine too, by either call."""

    async def enqueue() -> None:
        await brief.aenqueue(name="awaited")
        plain.enqueue(name="blocking")
        await rowlock_app.aclose()

    brief.enqueue(name="parent")
    asyncio.run(enqueue())

    assert seen == ["parent", "child", "awaited", "blocking"]


def test_retries_delays_and_schedules_run_at_their_time(rowlock_app, rowlock_clock):
    """Each when it is due, and afterwards so much time has passed."""
    start = rowlock_clock.now
    plain.enqueue(name="fails")
    plain.using(delay=5400).enqueue(name="late")
    runs = rowlock_clock.run_for(timedelta(hours=2))

    assert seen == ["fails"] * 3 + ["hourly", "late", "hourly"]
    assert (runs, rowlock_clock.now) == (6, start + timedelta(hours=2))
    assert enqueued(plain, name="fails")[0].state == JobState.DEAD


def test_all_that_waits_is_run(rowlock_app, rowlock_clock):
    """However far away; but no schedule is fired, for that would never end."""
    plain.using(delay=timedelta(days=365)).enqueue(name="late")

    async def run() -> int:
        runs = await rowlock_clock.arun_all()
        await rowlock_app.aclose()
        return runs

    assert (asyncio.run(run()), seen) == (1, ["late"])
    assert rowlock_clock.run_all() == 0


def test_limits_hold_and_open_at_their_time(rowlock_app, rowlock_clock):
    """A drain runs what they allow; the clock goes on to the next start, or a throttle's end."""
    at: list[float] = []
    begun = rowlock_clock.now

    @rowlock_app.task(limit=rowlock.Limit(rate=rowlock.Rate(1, period=10, burst=2)))
    def call(number: int) -> None:
        at.append((rowlock_clock.now - begun).total_seconds())
        if number == 3 and len(at) < 5:
            raise rowlock.Throttled(60)

    rowlock_app.enqueue_many([call.job(number) for number in range(4)])

    assert (rowlock_app.drain(), at) == (2, [0, 0])
    assert (rowlock_clock.run_for(15), at) == (1, [0, 0, 10])
    assert rowlock_clock.now == begun + timedelta(seconds=15)

    async def run_for() -> int:
        try:
            return await rowlock_clock.arun_for(70)
        finally:
            await rowlock_app.aclose()

    assert (asyncio.run(run_for()), at) == (2, [0, 0, 10, 20, 80])


def test_the_clock_finds_the_first_of_many_keys(rowlock_app, rowlock_clock, monkeypatch):
    """More than one look at keys shows."""
    monkeypatch.setattr(config, "KEYS_VISITED_MAX", 3)
    at: list[float] = []
    begun = rowlock_clock.now
    limit = rowlock_app.limit("stripe", per="customer")

    @rowlock_app.task(limit=limit)
    def charge(customer: int) -> None:
        at.append((rowlock_clock.now - begun).total_seconds())

    for customer in range(8):
        charge.enqueue(customer)
        limit.pause(key=customer, seconds=60 - customer)

    assert (rowlock_clock.run_all(), at) == (8, [53, 54, 55, 56, 57, 58, 59, 60])


def test_a_pause_without_an_end_does_not_move_the_clock(rowlock_app, rowlock_clock):
    """It is not waited for, whatever else there is."""
    limit = rowlock_app.limit("stripe", per="customer", rate_per_key="1/m")

    @rowlock_app.task(limit=limit)
    def charge(customer: str) -> None:
        seen.append(customer)

    limit.pause(key="acme")
    rowlock_app.enqueue_many([charge.job(customer) for customer in ("acme", "bolt", "bolt")])

    assert (rowlock_clock.run_all(), seen) == (2, ["bolt", "bolt"])
    limit.resume(key="acme")
    assert (rowlock_app.drain(), seen) == (1, ["bolt", "bolt", "acme"])


def test_keys_of_limits_are_compared_as_they_are_stored(rowlock_app):
    """7 and "7" are one key."""

    @rowlock_app.task(limit=rowlock_app.limit("stripe", per="customer"))
    def charge(customer: int) -> None: ...

    charge.enqueue(customer=7)
    charge.using(limit_key="other").enqueue(customer=8)

    assert assert_enqueued(charge.using(limit_key=7)).payload == {"customer": 7}
    assert assert_enqueued(charge.using(limit_key="other")).payload == {"customer": 8}
    refute_enqueued(charge.using(limit_key=8))


def test_limits_of_a_test_go_with_it(sqlite_url):
    """The next one may define others of the same name."""
    with use_test_database(app, sqlite_url) as tested:
        tested.limit("stripe", concurrency=1)
    with use_test_database(app, sqlite_url) as tested:
        tested.limit("stripe", concurrency=2)

    assert [limit.name for limit in app.declared_limits] == []


def test_a_lease_that_nobody_here_takes_over_does_not_stop_the_time(rowlock_url):
    """An app without tasks recovers nothing; time passes all the same."""
    clock = VirtualClock()
    with use_test_database(
        rowlock.App("sqlite:///never-opened.db"), rowlock_url, clock=clock
    ) as sender:
        clock.rule(sender)
        job = sender.enqueue("elsewhere")
        sender.store.claim(worker="elsewhere", queues=None, lease=30)

        assert clock.run_for(60) == 0
        assert sender.get(job.id).state == JobState.RUNNING


def test_a_loop_of_jobs_is_noticed(rowlock_app, rowlock_clock, monkeypatch):
    """A job that always enqueues another would run for ever."""
    monkeypatch.setattr("rowlock.testing.clock.RUNS_MAX", 20)

    @rowlock_app.task
    def forever() -> None:
        forever.enqueue()

    forever.enqueue()
    with pytest.raises(AssertionError, match="do jobs enqueue each other"):
        rowlock_clock.run_all()


@pytest.fixture(params=["blocking", "async"])
def drain(request, rowlock_app):
    """Drains the app."""

    async def adrain() -> int:
        try:
            return await rowlock_app.adrain()
        finally:
            await rowlock_app.aclose()

    return rowlock_app.drain if request.param == "blocking" else lambda: asyncio.run(adrain())


@pytest.mark.parametrize("task", [plain, brief])
@pytest.mark.parametrize("point", ["after-claim", "after-handler", "before-settle"])
def test_a_run_that_dies_is_run_again(rowlock_app, rowlock_clock, drain, task, point):
    """Its job is leased until the lease is over, then its next attempt begins."""
    task.enqueue(name="a")
    job = task.using(keep=None).enqueue(name="b")
    rowlock_app.drain(limit=1)
    with rowlock_crash(point, task):
        drain()

    assert rowlock_app.get(job.id).state == JobState.RUNNING
    assert drain() == 0
    rowlock_clock.advance(31)
    assert drain() == 1
    found = rowlock_app.get(job.id)
    assert list(dict.fromkeys(seen)) == ["a", "b"]
    assert seen.count("b") == (1 if point == "after-claim" else 2)
    assert (found.state, found.attempt, len(found.errors)) == (JobState.SUCCEEDED, 1, 1)


def test_what_is_settled_is_not_run_again(rowlock_app, rowlock_clock):
    """A process that dies after that has done its job; what waited behind it is run later."""
    jobs = [plain.enqueue(name="a"), plain.enqueue(name="b")]
    with rowlock_crash("after-settle"):
        rowlock_app.drain()

    assert [rowlock_app.get(job.id).state for job in jobs] == [JobState.SUCCEEDED, JobState.RUNNING]
    assert rowlock_clock.run_for(60) == 1
    assert seen == ["a", "b"]


def test_a_crash_that_does_not_come_is_a_failure(rowlock_app):
    """A test that shows nothing must not pass; nor must a point that there is not."""
    brief.enqueue(name="a")
    missed = pytest.raises(AssertionError, match="no job of 'plain' reached 'after-handler'")
    with missed, rowlock_crash("after-handler", plain):
        rowlock_app.drain()
    with pytest.raises(ValueError, match="point must be one of after-claim"):
        rowlock_crash("nowhere").__enter__()


def test_a_debounced_job_is_run_once_after_the_last_change(rowlock_app, rowlock_clock):
    """A drain runs it when its time has come, and the last payload is what was enqueued."""
    for name in ("first", "last"):
        plain.using(key="k", quiet=5, max_wait=60).enqueue(name=name)
        rowlock_clock.advance(4)
    early = rowlock_app.drain()
    assert_enqueued(plain.using(key="k", quiet=5), name="last")
    refute_enqueued(plain, name="first")
    rowlock_clock.advance(1)

    assert (early, rowlock_app.drain(), seen) == (0, 1, ["last"])
