"""Plain functions that are told to stop: by an exception in their thread, and only there."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest

import rowlock
from rowlock import JobState, config
from tests.support.bank import TABLES, execute

PATIENCE_SECONDS = 60

# Python swallows an exception that arrives inside a weak reference's callback, and prints it.
pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def ended(app: rowlock.App, job: rowlock.Job) -> rowlock.Job:
    return await app.await_(job.id, timeout=PATIENCE_SECONDS)


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_SECONDS)


def spin_for_ever() -> None:
    for _ in itertools.count():
        time.sleep(0.001)


async def test_past_its_limit_it_is_stopped(app):
    """It hears of it where it is, cleans up, and has failed; the next attempt has the thread."""
    cleaned: list[int] = []

    @app.task(timeout=0.3, max_attempts=2, retry=rowlock.retry.fixed(0))
    def endless(ctx: rowlock.Context) -> None:
        try:
            spin_for_ever()
        finally:
            cleaned.append(ctx.attempt)

    job = await endless.aenqueue()
    async with app.worker(concurrency=1):
        found = await ended(app, job)

    assert (found.state, cleaned) == (JobState.DEAD, [1, 2])
    assert [each.type for each in found.errors] == ["TimeoutError"] * 2
    assert found.errors[0].message == "took longer than its limit of 0.3 s"
    assert "spin_for_ever" in found.errors[0].traceback
    await app.aclose()


async def test_code_that_goes_on_after_errors_does_not_catch_it(app):
    """A time limit is no `Exception`: what is wrapped in one more try is stopped all the same."""

    @app.task(timeout=0.3, max_attempts=1)
    def stubborn() -> None:
        while True:
            try:
                spin_for_ever()
            except Exception:  # noqa: BLE001  # as many loops do
                continue

    job = await stubborn.aenqueue()
    async with app.worker():
        found = await ended(app, job)

    assert (found.state, found.errors[0].type) == (JobState.DEAD, "TimeoutError")
    await app.aclose()


async def test_an_error_of_its_own_after_the_limit_is_kept(app):
    """What it raises instead says more than that it was late."""

    @app.task(timeout=0.3, max_attempts=1)
    def translate() -> None:
        try:
            spin_for_ever()
        except rowlock.TimedOut:
            raise ValueError("half of it was there") from None

    job = await translate.aenqueue()
    async with app.worker():
        found = await ended(app, job)

    assert (found.state, found.errors[0].type) == (JobState.DEAD, "ValueError")
    await app.aclose()


@pytest.mark.parametrize("how", ["worker", "drain"])
async def test_one_that_returns_after_its_limit_has_failed(app, how):
    """It sat in a call that nobody could interrupt, and came back too late."""

    @app.task(timeout=0.2, max_attempts=1)
    def late() -> str:
        try:
            time.sleep(0.5)
        except rowlock.TimedOut:
            return "swallowed"
        return "late"

    job = await late.aenqueue()
    if how == "drain":
        await app.adrain()
    async with app.worker():
        found = await ended(app, job)

    assert (found.state, found.result) == (JobState.DEAD, None)
    assert (found.errors[0].type, "limit of 0.2 s" in found.errors[0].message) == (
        "TimeoutError",
        True,
    )
    await app.aclose()


async def test_cancelled_it_is_stopped(app):
    """`Cancel` is raised in it: its job is cancelled, though it never looks at its context."""
    begun, cleaned = threading.Event(), threading.Event()

    @app.task
    def endless() -> None:
        begun.set()
        try:
            spin_for_ever()
        except rowlock.Cancel:
            cleaned.set()
            raise

    job = await endless.aenqueue()
    async with app.worker():
        await until(begun)
        await app.acancel(job.id)
        found = await ended(app, job)

    assert (found.state, cleaned.is_set()) == (JobState.CANCELLED, True)
    await app.aclose()


async def test_one_that_looks_out_for_it_has_a_while_to_stop(app, monkeypatch):
    """It ends where it likes; if it looks away after that, the exception comes all the same."""
    monkeypatch.setattr(config, "CANCEL_SEEN_SECONDS", 0.5)
    begun, seen = threading.Event(), []

    @app.task
    def look(ctx: rowlock.Context) -> None:
        while not ctx.cancel_requested:
            begun.set()
            time.sleep(0.001)
        seen.append("flag")
        try:
            spin_for_ever()
        except rowlock.Cancel:
            seen.append("exception")
            raise

    job = await look.aenqueue()
    async with app.worker():
        await until(begun)
        await app.acancel(job.id)
        found = await ended(app, job)

    assert (found.state, seen) == (JobState.CANCELLED, ["flag", "exception"])
    await app.aclose()


async def test_one_that_succeeds_in_spite_of_a_cancel(app):
    """It may finish what it is at: then it has succeeded."""
    begun = threading.Event()

    @app.task
    def finish() -> str:
        begun.set()
        try:
            spin_for_ever()
        except rowlock.Cancel:
            return "finished"
        return "never"

    job = await finish.aenqueue()
    async with app.worker():
        await until(begun)
        await app.acancel(job.id)
        found = await ended(app, job)

    assert (found.state, found.result) == (JobState.SUCCEEDED, "finished")
    await app.aclose()


@pytest.mark.parametrize("told", ["limit", "cancel"])
async def test_an_open_block_is_undone(app, told):
    """Inside `ctx.transaction()` the exception rolls it back, and others can write again."""
    execute(app, *TABLES)
    begun = threading.Event()

    @app.task(timeout=0.5 if told == "limit" else None, max_attempts=1)
    def pay(ctx: rowlock.Context) -> None:
        with ctx.transaction() as tx:
            tx.connection.execute("UPDATE account SET balance = 0 WHERE id = 1")
            begun.set()
            spin_for_ever()

    job = await pay.aenqueue()
    async with app.worker():
        await until(begun)
        if told == "cancel":
            await app.acancel(job.id)
        found = await ended(app, job)
        balances = await asyncio.to_thread(
            execute,
            app,
            "UPDATE account SET balance = balance + 1",
            "SELECT balance FROM account WHERE id = 1",
        )

    assert found.state is (JobState.DEAD if told == "limit" else JobState.CANCELLED)
    assert balances == [(1001,)]
    await app.aclose()


async def test_after_its_block_it_is_left_alone(app):
    """Its success is committed: neither its limit nor a cancel disturbs what it still does."""
    execute(app, *TABLES)
    settled, go_on, told = threading.Event(), threading.Event(), []

    @app.task(timeout=0.5, max_attempts=1)
    def pay(ctx: rowlock.Context) -> None:
        with ctx.transaction() as tx:
            tx.connection.execute("UPDATE account SET balance = 0 WHERE id = 1")
        settled.set()
        try:
            end = time.monotonic() + 1.0
            while not go_on.is_set() or time.monotonic() < end:
                time.sleep(0.001)
        except BaseException as error:
            told.append(error)
            raise

    job = await pay.aenqueue()
    async with app.worker():
        await until(settled)
        await app.acancel(job.id)
        go_on.set()
        found = await ended(app, job)

    assert (found.state, told) == (JobState.SUCCEEDED, [])
    await app.aclose()


async def test_transfers_that_race_with_their_limit(app):
    """However the limit meets a block, the money and the job's state agree."""
    execute(app, *TABLES)

    @app.task(timeout=0.05, max_attempts=1)
    def pay(ctx: rowlock.Context, number: int) -> None:
        time.sleep(0.02 + 0.0005 * number)
        with ctx.transaction() as tx:
            tx.connection.execute(f"INSERT INTO transfer VALUES ({number})")
            tx.result = number

    jobs = await app.aenqueue_many([pay.job(number=number) for number in range(60)])
    async with app.worker(concurrency=2):
        found = [await ended(app, job) for job in jobs]
        rows = await asyncio.to_thread(execute, app, "SELECT number FROM transfer ORDER BY number")

    paid = [job.result for job in found if job.state is JobState.SUCCEEDED]
    assert [number for (number,) in rows] == sorted(paid)
    assert {job.state for job in found} <= {JobState.SUCCEEDED, JobState.DEAD}
    await app.aclose()


async def test_calls_of_ours_are_finished_first(app):
    """What it enqueues or says of itself is written whole; the exception comes after it."""

    @app.task
    def noop() -> None: ...

    @app.task(timeout=0.5, max_attempts=1)
    def busy(ctx: rowlock.Context) -> None:
        for number in itertools.count():
            noop.using(delay=3600).enqueue()
            ctx.log(f"line {number}")
            ctx.progress(0.5, f"at {number}")

    job = await busy.aenqueue()
    async with app.worker():
        found = await ended(app, job)
        again = await ended(app, await noop.aenqueue())

    assert (found.state, found.errors[0].type) == (JobState.DEAD, "TimeoutError")
    assert again.state is JobState.SUCCEEDED
    await app.aclose()
