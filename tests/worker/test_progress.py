"""Progress and log lines never fail a job: they are kept, and written when the database is back."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import rowlock
from rowlock import JobState, config
from rowlock.job import Progress
from rowlock.testing import ThrowAwayPostgres
from rowlock.worker.progress import BlockingProgressWriter
from tests.cell import CELL
from tests.worker.waiting import wait_until

LOST = "its last progress and log lines are lost"


class Tables:
    """The table of log lines, which somebody's DDL takes away for a while."""

    def __init__(self, url: str) -> None:
        self._url = url

    def take_away(self) -> None:
        self._rename("log", "log_away")

    def bring_back(self) -> None:
        self._rename("log_away", "log")

    def _rename(self, old: str, new: str) -> None:
        if self._url.startswith("sqlite"):
            connection = sqlite3.connect(Path(urlsplit(self._url).path), timeout=30)
            connection.execute(f"ALTER TABLE rowlock_{old} RENAME TO rowlock_{new}")
            connection.close()
            return
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE rowlock.{old} RENAME TO {new}".encode())


@pytest.fixture
def app(any_url: str) -> Iterator[rowlock.App]:
    with rowlock.App(any_url) as app:
        yield app


@pytest.fixture
def tables(any_url: str) -> Tables:
    return Tables(any_url)


def lines_of(app: rowlock.App, job: rowlock.Job) -> list[str]:
    return [line.text for line in app.store.read_log(job.id)]


def drain(app: rowlock.App) -> None:
    assert app.drain() == 1


def run_embedded(app: rowlock.App) -> None:
    async def work() -> None:
        job = (await app.alist()).jobs[0]
        async with app.worker(), asyncio.timeout(60):
            while True:
                if await has_ended(job):
                    break
                await asyncio.sleep(0.05)
        await app.aclose()

    async def has_ended(job: rowlock.Job) -> bool:
        try:
            return (await app.aget(job.id)).state.is_terminal
        except rowlock.StoreUnavailable:
            return False

    asyncio.run(work())


RUNNERS = {"drain": drain, "worker": run_embedded}


def as_task(app: rowlock.App, say: Callable[[rowlock.Context], None], *, is_async: bool) -> Any:
    async def asay(ctx: rowlock.Context) -> None:
        await asyncio.to_thread(say, ctx)
        # Until what was said was tried to be written.
        await asyncio.sleep(2 * config.PROGRESS_SECONDS)
        ctx.log("after")

    def plain(ctx: rowlock.Context) -> None:
        say(ctx)
        ctx.log("after")

    return app.task(asay if is_async else plain, name="say", max_attempts=2)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("runner", RUNNERS)
def test_lines_are_kept_while_the_database_refuses_them(
    app: rowlock.App, tables: Tables, runner: str, is_async: bool
):
    """In their order, with those that came later; the job succeeds in its first attempt."""

    def say(ctx: rowlock.Context) -> None:
        ctx.log("before")
        tables.take_away()
        ctx.log("meanwhile")
        ctx.progress(0.5, "half")
        ctx.log("still")
        tables.bring_back()

    job = as_task(app, say, is_async=is_async).enqueue()
    RUNNERS[runner](app)

    found = app.get(job.id)
    assert (found.state, found.attempt, found.errors) == (JobState.SUCCEEDED, 1, [])
    assert lines_of(app, job) == ["before", "meanwhile", "still", "after"]
    assert found.progress == Progress(0.5, "half")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("runner", RUNNERS)
def test_lines_that_can_never_be_written_fail_no_job(
    app: rowlock.App,
    tables: Tables,
    caplog: pytest.LogCaptureFixture,
    runner: str,
    is_async: bool,
):
    """They are given up after the run's end, with a line in the worker's log."""

    def say(ctx: rowlock.Context) -> None:
        tables.take_away()
        ctx.log("never seen")
        ctx.progress(1.0)

    job = as_task(app, say, is_async=is_async).enqueue()
    RUNNERS[runner](app)
    tables.bring_back()

    found = app.get(job.id)
    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 1)
    assert lines_of(app, job) == []
    assert "progress and log lines are not stored" in caplog.text
    assert (LOST in caplog.text) is (runner == "worker")


def test_what_is_kept_is_bounded(sqlite_url: str):
    """A job's bound of lines, each as long as a stored one."""
    with rowlock.App(sqlite_url) as app:
        app.enqueue("x")
        (lease,) = app.store.claim(worker="w", queues=None)
        notes = BlockingProgressWriter(app.store, lease)
        Tables(sqlite_url).take_away()
        for _ in range(config.LOG_LINES_MAX + 5):
            notes.log("x" * 100_000)
        held = notes.gather()

    assert len(held.lines) == config.LOG_LINES_MAX
    assert max(len(line) for line in held.lines) <= config.LOG_LINE_BYTES_MAX


def test_a_lost_lease_is_still_told(app: rowlock.App):
    """A plain function hears of it from its next line."""
    heard: list[type[BaseException]] = []

    @app.task
    def say(ctx: rowlock.Context) -> None:
        app.store.release_worker(ctx.job.worker)
        try:
            ctx.log("not mine")
        except rowlock.LeaseLost as error:
            heard.append(type(error))
            raise

    job = say.enqueue()
    app.drain(limit=1)

    assert heard == [rowlock.LeaseLost]
    assert lines_of(app, job) == []


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        (1.0000000001, 1.0),
        (sum([0.1] * 10) + 1e-9, 1.0),
        (-0.25, 0.0),
        (float("nan"), 0.0),
        (float("inf"), 1.0),
        (10**400, 1.0),
        (-(10**400), 0.0),
        (Decimal("0.5"), 0.5),
        (Decimal("sNaN"), 0.0),
        (Fraction(1, 4), 0.25),
        (True, 1.0),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_any_number_is_a_fraction(sqlite_url: str, said: Any, stored: float, is_async: bool):
    """The nearest one from 0 to 1 is stored, and the job succeeds."""
    with rowlock.App(sqlite_url) as app:
        task = as_task(app, lambda ctx: ctx.progress(said), is_async=is_async)
        job = task.enqueue()
        app.drain()
        found = app.get(job.id)

    assert (found.state, found.progress) == (JobState.SUCCEEDED, Progress(stored))


@pytest.mark.parametrize("said", ["0.5", None, b"1", [1], 1j])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_number_is_refused_where_it_is_said(sqlite_url: str, said: Any, is_async: bool):
    """That is a mistake of the handler's, and fails as any other: at its line, at once."""
    with rowlock.App(sqlite_url) as app:
        job = as_task(app, lambda ctx: ctx.progress(said), is_async=is_async).enqueue()
        app.drain(limit=1)
        found = app.get(job.id)

    assert "OptionInvalid: fraction: must be a number" in found.last_error


def test_anything_is_a_line(sqlite_url: str):
    """As `print` would show it; so is the text of a progress."""

    def say(ctx: rowlock.Context) -> None:
        ctx.log(ValueError("what"))
        ctx.log(5)
        ctx.progress(0.5, Path("a/b"))

    with rowlock.App(sqlite_url) as app:
        job = app.task(say).enqueue()
        app.drain()

        assert lines_of(app, job) == ["what", "5"]
        assert app.get(job.id).progress == Progress(0.5, "a/b")


@pytest.fixture(scope="module")
def server() -> Iterator[ThrowAwayPostgres]:
    with CELL.server(durable=True) as server:
        yield server


def crash(server: ThrowAwayPostgres) -> None:
    """End the server as a crash would, and leave it so until `restart()`."""
    pid = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    wait_until(lambda: not server.is_running, seconds=60)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_restart_of_the_server_fails_no_job(server: ThrowAwayPostgres, is_async: bool):
    """Lines said before, during and after it are all there."""

    def say(ctx: rowlock.Context) -> None:
        ctx.log("before")
        ctx.progress(0.1)
        crash(server)
        ctx.log("meanwhile")
        ctx.progress(0.9, "most")
        server.restart()

    with rowlock.App(server.url) as app:
        app.migrate()
        job = as_task(app, say, is_async=is_async).enqueue()
        run_embedded(app)
        found = wait_until(lambda: app.get(job.id), seconds=60)
        lines = lines_of(app, job)
        app.delete(job.id)

    assert (found.state, found.attempt) == (JobState.SUCCEEDED, 1)
    assert lines == ["before", "meanwhile", "after"]
    assert found.progress == Progress(0.9, "most")
