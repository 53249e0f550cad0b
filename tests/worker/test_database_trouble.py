"""`rowlock worker` while its database is away, silent, full or locked: it stays, and loses nothing.

Every job here is settled in its first attempt: none is lost, and none is run twice.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

import rowlock
from rowlock import JobState
from rowlock.chaos.proxy import FaultyProxy, Mode
from rowlock.testing import ThrowAwayPostgres
from rowlock.worker.settings import worker_settings
from rowlock.worker.supervisor import Supervisor
from tests.cell import CELL
from tests.support.workers import children_of, crash, is_gone, is_reported, reports
from tests.support.workers import logged_worker as worker
from tests.worker.waiting import wait_until

# More than a log of ours takes, less than what a file of 300 jobs does.
FULL_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[ThrowAwayPostgres]:
    """A server of these tests' own: they crash it, so what it has acknowledged must be on disk."""
    with CELL.server(durable=True, settings={"max_connections": "20"}) as server:
        yield server


@pytest.fixture
def app(server) -> Iterator[rowlock.App]:
    """Looks at the database on the straight way, whatever becomes of the worker's."""
    app = rowlock.App(server.url)
    app.migrate()
    yield app
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA rowlock CASCADE")
    app.close()


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "worker.log"


def cut_all(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'rowlock' AND pid <> pg_backend_pid()"
        ).fetchone()
    return row[0]


def take_all_connections(url: str, others: ExitStack) -> None:
    try:
        for _ in range(30):
            others.enter_context(psycopg.connect(url, autocommit=True))
    except psycopg.OperationalError:
        return
    pytest.fail("there were more connections than the server was to have")


def waiting_job(app: rowlock.App, place: Path) -> rowlock.Job:
    return app.enqueue("wait_for_file", {"path": str(place / "go-on"), "note": str(place / "note")})


def runs(place: Path) -> int:
    note = place / "note"
    return len(note.read_text().split()) if note.exists() else 0


def test_a_crash_of_the_server_loses_nothing(server, app, log, tmp_path):
    """A job ends while the server is away: its outcome is written when that is back."""
    job = waiting_job(app, tmp_path)
    with worker(server.url, log, "-p", "2") as process:
        wait_until(lambda: runs(tmp_path))
        crash(server)
        (tmp_path / "go-on").touch()
        wait_until(lambda: is_reported(log))
        server.restart()
        found = app.wait(job.id, timeout=30)
        after = app.wait(app.enqueue("noop").id, timeout=30)
        process.terminate()

        assert process.wait(30) == 0
    assert (found.state, found.attempt, runs(tmp_path)) == (JobState.SUCCEEDED, 1, 1)
    assert after.state == JobState.SUCCEEDED
    assert app.list(state="running").jobs == []


def test_backends_that_are_ended_again_and_again(server, app, log):
    """Claims, settles and beats lose their connections all the time; every job runs once."""
    jobs = app.enqueue_many([{"kind": "plain", "payload": {"number": n}} for n in range(1_500)])
    pause = threading.Event()
    with worker(server.url, log, "-p", "2"):
        wait_until(lambda: app.list(state="succeeded").jobs)
        ended = 0
        while ended < 25:
            ended += cut_all(server.url)
            app.enqueue("noop")
            pause.wait(0.05)
        wait_until(lambda: not app.list(state="ready").jobs and not app.list(state="running").jobs)
        found = [app.get(job.id) for job in jobs]

    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}


def test_a_network_that_falls_silent(server, app, log, tmp_path):
    """Half-open connections: every call ends, trouble is said once by each service."""
    job = waiting_job(app, tmp_path)
    with FaultyProxy(server.url) as proxy:
        url = f"{proxy.url}?call_timeout=0.5&connect_timeout=2"
        with worker(url, log) as process:
            wait_until(lambda: runs(tmp_path))
            proxy.mode = Mode.BLACKHOLE
            (tmp_path / "go-on").touch()
            wait_until(lambda: "outcomes can't be written" in log.read_text())
            proxy.mode = Mode.PASS
            found = app.wait(job.id, timeout=30)
            process.terminate()

            assert process.wait(30) == 0
    assert (found.state, found.attempt, runs(tmp_path)) == (JobState.SUCCEEDED, 1, 1)
    assert set(reports(log).values()) == {1}


def test_a_worker_may_be_started_before_its_database(server, app, log):
    """Refused at first: it says so, and begins when the server is there."""
    job = app.enqueue("noop")
    with FaultyProxy(server.url) as proxy:
        proxy.refuse()
        with worker(proxy.url, log):
            wait_until(lambda: is_reported(log))
            proxy.mode = Mode.PASS

            assert app.wait(job.id, timeout=30).state == JobState.SUCCEEDED


def test_a_server_without_a_free_connection(server, app, log):
    """Others hold all connections: the worker waits until some are given back."""
    job = app.enqueue("noop")
    with ExitStack() as others:
        take_all_connections(server.url, others)
        with worker(server.url, log):
            wait_until(lambda: is_reported(log))
            others.close()

            assert app.wait(job.id, timeout=30).state == JobState.SUCCEEDED


def test_a_crash_counts_though_the_server_was_away(server, app, log, tmp_path):
    """A child that dies while the server is away: its crash is counted when that is back."""
    job = waiting_job(app, tmp_path)
    with worker(server.url, log, "--lease", "60") as process:
        wait_until(lambda: runs(tmp_path), seconds=60)
        (child,) = children_of(process)
        crash(server)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: is_gone(child) and "can't be given back" in log.read_text(), seconds=60)
        server.restart()
        wait_until(lambda: runs(tmp_path) == 2, seconds=60)
        (tmp_path / "go-on").touch()
        found = app.wait(job.id, timeout=60)

    assert (found.state, found.crashes) == (JobState.SUCCEEDED, 1)
    assert [error.type for error in found.errors] == ["Crashed"]


def test_a_stop_while_the_database_is_away(server, app, log, tmp_path):
    """SIGTERM ends the worker within its grace; the job is left to its lease."""
    job = waiting_job(app, tmp_path)
    words = ("--grace", "0.2", "--lease", "5")
    with FaultyProxy(server.url) as proxy, worker(proxy.url, log, *words) as process:
        wait_until(lambda: runs(tmp_path))
        proxy.refuse()
        process.terminate()
        process.wait(15)
    found = app.get(job.id)

    assert (found.state, found.attempt) == (JobState.RUNNING, 1)


def test_children_without_a_supervisor_and_a_database_end(server, app, log, tmp_path):
    """Both are gone: nobody would end a child that waits for the database to settle."""
    waiting_job(app, tmp_path)
    with FaultyProxy(server.url) as proxy, worker(proxy.url, log, "--lease", "1") as process:
        wait_until(lambda: runs(tmp_path))
        children = children_of(process)
        proxy.refuse()
        process.kill()
        process.wait()
        (tmp_path / "go-on").touch()

        wait_until(lambda: all(map(is_gone, children)))


def test_a_claim_whose_answer_is_lost(server, app):
    """What nobody knows of goes back uncounted, and is run once."""
    ran: list[int] = []
    with FaultyProxy(server.url) as proxy:
        other = rowlock.App(proxy.url)

        @other.task
        async def work(number: int) -> None:
            ran.append(number)

        async def scenario() -> list[rowlock.Job]:
            jobs = await other.aenqueue_many(
                [{"kind": "work", "payload": {"number": number}} for number in range(5)]
            )
            proxy.swallow_answer(b"UPDATE rowlock.job")
            async with other.worker():
                found = [await other.await_(job.id, timeout=20) for job in jobs]
            await other.aclose()
            return found

        found = asyncio.run(scenario())

    assert proxy.swallowed == 1
    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}


def test_a_sqlite_file_that_somebody_has_locked(sqlite_url, log, tmp_path):
    """A foreign transaction holds the only write lock for a while: the outcome waits for it."""
    app = rowlock.App(sqlite_url)
    job = waiting_job(app, tmp_path)
    with worker(sqlite_url, log) as process:
        wait_until(lambda: runs(tmp_path))
        foreign = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        foreign.execute("PRAGMA busy_timeout = 10000")
        foreign.execute("BEGIN IMMEDIATE")
        (tmp_path / "go-on").touch()
        threading.Event().wait(1.5)
        held = app.get(job.id).state
        foreign.execute("COMMIT")
        foreign.close()
        found = app.wait(job.id, timeout=30)
        process.terminate()

        assert process.wait(30) == 0
    app.close()
    assert held == JobState.RUNNING
    assert (found.state, found.attempt, runs(tmp_path)) == (JobState.SUCCEEDED, 1, 1)


def test_a_disk_that_is_full(sqlite_url, log, tmp_path):
    """Nobody can claim, beat or settle; the outcome waits, and new jobs run once there is space."""
    app = rowlock.App(sqlite_url)
    job = waiting_job(app, tmp_path)
    # So that whatever is written next lies behind the limit.
    app.enqueue_many([{"kind": "noop", "queue": "other"} for _ in range(300)])
    with worker(sqlite_url, log, "-q", "default") as process:
        wait_until(lambda: runs(tmp_path), seconds=60)
        pids = [process.pid, *children_of(process)]
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, most))
        (tmp_path / "go-on").touch()
        another = app.enqueue("noop")
        wait_until(lambda: is_reported(log), seconds=60)
        held = [app.get(each.id).state for each in (job, another)]
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        found = [app.wait(each.id, timeout=60) for each in (job, another)]
        process.terminate()

        assert process.wait(30) == 0
    app.close()
    assert held == [JobState.RUNNING, JobState.READY]
    assert [(each.state, each.attempt) for each in found] == [(JobState.SUCCEEDED, 1)] * 2
    assert runs(tmp_path) == 1


def test_a_stop_that_comes_while_a_child_is_started(monkeypatch):
    """A signal between the start of a process and its being known: it is told to stop all the same.

    Otherwise nobody would tell it, and it would work until the grace was over.
    """
    supervisor = Supervisor(app="none:app", processes=1, settings=worker_settings())
    heard: list[int] = []

    class Interrupted:
        pid = -1

        def __init__(self, *_: object, pass_fds: tuple[int, ...], **__: object) -> None:
            heard.extend(os.dup(descriptor) for descriptor in pass_fds[1:2])
            supervisor._on_signal(signal.SIGTERM, None)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    supervisor._start(0)

    try:
        assert os.read(heard[0], 100) == b'{"stop": true}\n'
    finally:
        os.close(heard[0])
        supervisor._children[-1].close()
        supervisor._wake.close()
        supervisor._waker.close()
        supervisor._selector.close()
