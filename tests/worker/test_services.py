"""What goes on beside the jobs fails, and no job dies, crashes or runs twice because of it."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import rowlock
from rowlock import JobState
from rowlock.ids import new_id
from rowlock.store.statements import Dialect
from tests.support.metrics import Asking
from tests.support.statements import execute, path_of
from tests.support.workers import begun, children_of, reports
from tests.support.workers import logged_worker as worker
from tests.worker.waiting import wait_until

INNOCENT = 10
# Tables that jobs don't need, and the service that does.
SERVICES = {"event": "events", "depth": "depth", "history": "history"}
# Everything that housekeeping and jobs use.
TABLES = ("job", "finished", "worker", "event", "history", "depth", "migration", "schedule")


@pytest.fixture
def app(any_url: str) -> Iterator[rowlock.App]:
    with rowlock.App(any_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def waiting_jobs(app: rowlock.App, place: Path) -> list[rowlock.Job]:
    """Jobs that run until `place / "go-on"` is there."""
    paths = {"path": str(place / "go-on"), "note": str(place / "note")}
    return app.enqueue_many([{"kind": "wait_for_file", "payload": paths} for _ in range(INNOCENT)])


def finish(app: rowlock.App, jobs: list[rowlock.Job], place: Path) -> None:
    """Let them go on, and see that each ran once, to its end, and that nobody was blamed."""
    (place / "go-on").touch()
    found = [app.wait(job.id, timeout=60) for job in jobs]

    assert {(job.state, job.attempt, job.crashes) for job in found} == {(JobState.SUCCEEDED, 1, 0)}
    assert [job.errors for job in found] == [[]] * len(jobs)
    assert begun(place) == len(jobs)


def ended_well(process: subprocess.Popen[bytes], log: Path) -> None:
    """It stops when asked to, and no child has died before that."""
    process.terminate()

    assert process.wait(60) == 0
    assert " died" not in log.read_text()
    assert log.read_text().count(" started: process ") == 1


@pytest.mark.owner("makes roles")
@pytest.mark.direct("logs in as a role that no pooler knows")
@pytest.mark.parametrize("table", SERVICES)
def test_a_table_that_the_role_may_not_use(table, role_url, port, log, tmp_path):
    """An upgrade that adds a table leaves this: the service fails, the jobs don't."""
    asking = Asking(port)

    def errors(service: str) -> float:
        return asking.number("rowlock_service_errors_total", service=service)

    def has_failed_again() -> bool:
        # So that there is something to tell and to write.
        app.enqueue("noop")
        return errors(SERVICES[table]) >= 3

    words = ("--metrics-port", str(port))
    with rowlock.App(role_url) as app, worker(role_url, log, *words) as process:
        wait_until(lambda: asking.status("/readyz") == 200, seconds=60)
        children = children_of(process)
        jobs = waiting_jobs(app, tmp_path)
        wait_until(lambda: begun(tmp_path) == INNOCENT, seconds=60)
        wait_until(has_failed_again, seconds=60)

        assert errors("claim") == errors("settle") == errors("engine") == 0
        assert children_of(process) == children
        finish(app, jobs, tmp_path)
        ended_well(process, log)
    assert f"permission denied for table {table}" in log.read_text()
    assert set(reports(log).values()) == {1}


@pytest.mark.owner("writes to the tables")
def test_one_unreadable_row_of_the_history(app, log, tmp_path):
    """It is dropped when it is folded, and the rest is folded as ever."""
    old = 1_000_000 * (int(time.time()) - 7200)
    unreadable = (new_id(), old, 10, "default", "noop", "{unreadable")
    columns = "(part, at, width, queue, kind, sums)"
    execute(app, f"INSERT INTO rowlock.history {columns} VALUES (?, ?, ?, ?, ?, ?)", unreadable)
    jobs = waiting_jobs(app, tmp_path)
    with worker(app.url, log) as process:
        wait_until(lambda: begun(tmp_path) == INNOCENT, seconds=60)
        wait_until(lambda: "unreadable" in log.read_text(), seconds=60)
        finish(app, jobs, tmp_path)
        ended_well(process, log)

    assert execute(app, "SELECT count(*) FROM rowlock.history WHERE sums = '{unreadable'") == [(0,)]


@pytest.mark.owner("renames tables")
def test_tables_that_are_away_for_a_moment(app, log, tmp_path):
    """Somebody's DDL: jobs run on, and their outcomes are written when the tables are back."""
    jobs = waiting_jobs(app, tmp_path)
    with worker(app.url, log) as process:
        wait_until(lambda: begun(tmp_path) == INNOCENT, seconds=60)
        children = children_of(process)
        rename(app, lambda table: (table, f"{table}_away"))
        (tmp_path / "go-on").touch()
        wait_until(lambda: "outcomes can't be written" in log.read_text(), seconds=60)
        wait_until(lambda: len(reports(log)) >= 3, seconds=60)
        rename(app, lambda table: (f"{table}_away", table))

        finish(app, jobs, tmp_path)
        app.wait(app.enqueue("noop").id, timeout=60)
        assert children_of(process) == children
        ended_well(process, log)


def rename(app: rowlock.App, names: Callable[[str], tuple[str, str]]) -> None:
    """Rename all tables at once."""
    renamed = [names(table) for table in TABLES]
    if app.store.engine.dialect is Dialect.POSTGRES:
        # The worker reads the tables in other orders meanwhile: a deadlock may end our transaction.
        wait_until(lambda: renamed_in_postgres(app.url, renamed), seconds=60)
        return
    with closing(sqlite3.connect(path_of(app), isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for old, new in renamed:
            connection.execute(f"ALTER TABLE rowlock_{old} RENAME TO rowlock_{new}")
        connection.execute("COMMIT")


def renamed_in_postgres(url: str, renamed: list[tuple[str, str]]) -> bool:
    statement = sql.SQL("ALTER TABLE {} RENAME TO {}")
    try:
        with psycopg.connect(url) as connection:
            for old, new in renamed:
                connection.execute(
                    statement.format(sql.Identifier("rowlock", old), sql.Identifier(new))
                )
    except psycopg.errors.DeadlockDetected:
        return False
    return True
