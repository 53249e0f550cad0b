"""`rowlock worker` on a database that it can't work on: one clear line, and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import rowlock
from rowlock import JobState
from rowlock.worker.settings import EXIT_UNFIT
from tests.store.upgrades import APART, NEWEST, migrate_by
from tests.support.databases import with_user
from tests.support.statements import execute
from tests.support.workers import begun
from tests.support.workers import logged_worker as worker
from tests.worker.waiting import wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.worker.jobs_app:app"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def run_worker(
    url: str, *words: str, command: str = "rowlock", module: str = "tests.worker.jobs_app"
) -> list[str]:
    """Run a worker of two children that ends by itself, as unfit; what it says of itself."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            command,
            "--app",
            f"{module}:app",
            "worker",
            "-p",
            "2",
            *words,
        ],
        cwd=ROOT,
        env={**os.environ, "ROWLOCK_DATABASE_URL": url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == EXIT_UNFIT, done.stderr
    return [line for line in done.stderr.splitlines() if "rowlock.worker: the worker " in line]


def test_a_database_that_is_never_migrated(empty_postgres_url):
    """It is said once which command to run; after a while the worker gives up."""
    waits, gives_up, ends = run_worker(empty_postgres_url, "--start-timeout", "2")

    needed = f"the database has no rowlock tables yet, but this version needs {NEWEST}"
    assert f"{needed}: run `rowlock migrate` with a role that may create tables" in waits
    assert waits.endswith("waiting for it, up to 2 s")
    assert gives_up.endswith(f"{needed}: run `rowlock migrate` with a role that may create tables")
    assert "the worker ends" in ends


@pytest.mark.owner("changes the schema")
def test_a_schema_that_is_older(postgres_url):
    """As one that has no tables."""
    newer = "tests.worker.next_release"
    waits, *_ = run_worker(postgres_url, "--start-timeout", "0", command=newer, module=newer)

    assert f"is at {NEWEST}, but this version needs {NEWEST + 1}: run `rowlock migrate`" in waits


@pytest.mark.owner("migrates")
def test_a_schema_that_is_newer(any_url):
    """Nothing that is waited for could help: it ends at once."""
    with rowlock.App(any_url) as app:
        app.migrate()
        migrate_by(any_url, APART)
    told, ends = run_worker(any_url, "--start-timeout", "3600")

    assert f"the schema is at {NEWEST + 1}, but this rowlock knows only {NEWEST}" in told
    assert "upgrade rowlock here as well" in told
    assert "the worker ends" in ends


@pytest.mark.direct("a pooler refuses it by itself")
def test_a_role_that_is_refused(postgres_url):
    """It does not exist, or its password is wrong."""
    waits, _, ends = run_worker(with_user(postgres_url, "nobody_here"), "--start-timeout", "1")

    assert "refuses the user or the password" in waits
    assert "nobody_here" in waits
    assert "the worker ends" in ends


@pytest.mark.owner("makes roles")
@pytest.mark.direct("logs in as a role that no pooler knows")
@pytest.mark.parametrize("table", ["migration", "job"])
def test_a_role_without_rights(role_url, table):
    """That may not even read the schema's version, or may not claim."""
    lines = run_worker(role_url, "--start-timeout", "1")
    (told,) = [line for line in lines if "the worker can't work here" in line]

    assert f"permission denied for table {table}" in told
    assert "`rowlock migrate --sql --roles` prints the rights that a worker needs" in told


def test_a_worker_that_waits_can_be_stopped(empty_postgres_url, log):
    """Nothing was begun, so it ends well."""
    with worker(empty_postgres_url, log, "--start-timeout", "3600") as process:
        wait_until(lambda: "run `rowlock migrate`" in log.read_text(), seconds=60)
        process.terminate()

        assert process.wait(60) == 0
    assert log.read_text().count("the worker waits to start") == 1


@pytest.mark.owner("migrates")
def test_running_jobs_may_finish_when_the_schema_becomes_newer(any_url, log, tmp_path):
    """The worker leaves as after a signal, with the exit code that says why."""
    with rowlock.App(any_url) as app:
        app.migrate()
        paths = {"path": str(tmp_path / "go-on"), "note": str(tmp_path / "note")}
        job = app.enqueue("wait_for_file", paths)
        with worker(any_url, log, "-p", "2", "--grace", "60") as process:
            wait_until(lambda: begun(tmp_path) == 1, seconds=60)
            stopping = app.enqueue("wait_for_stop", {"note": str(tmp_path / "stopping")})
            wait_until(lambda: app.get(stopping.id).state is JobState.RUNNING, seconds=60)
            migrate_by(any_url, APART)
            wait_until((tmp_path / "stopping").exists, seconds=60)
            (tmp_path / "go-on").touch()

            assert process.wait(60) == EXIT_UNFIT
        rows = execute(app, "SELECT state, attempt FROM rowlock.finished ORDER BY id")
        assert len(rows) == 2 and {attempt for _, attempt in rows} == {1}
        assert execute(app, "SELECT count(*) FROM rowlock.job") == [(0,)]
    assert job.id
    assert "upgrade rowlock here as well" in log.read_text()
    assert " died" not in log.read_text()


def execute_in(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
