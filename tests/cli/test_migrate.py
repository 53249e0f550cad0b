"""`rowlock migrate` and `rowlock up`, run as a person would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from rowlock.cli import main
from rowlock.store import Store
from rowlock.store import open_store as make_store
from tests.support.databases import drop_database, with_database
from tests.worker.waiting import wait_until

ROOT = Path(__file__).parents[2]


def rowlock(*words: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROWLOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "rowlock.cli", *words],
        cwd=cwd,
        env={**clean, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def migrate(url: str, *words: str) -> Result:
    """`rowlock migrate` in this process."""
    return CliRunner().invoke(main, ["--database-url", url, "migrate", *words])


def test_migrate_makes_the_tables(empty_postgres_url):
    """An empty database is told of, migrated once, and then up to date."""
    before = migrate(empty_postgres_url, "--check")
    sql = migrate(empty_postgres_url, "--sql")
    done = migrate(empty_postgres_url)
    again = rowlock("migrate", ROWLOCK_DATABASE_URL=empty_postgres_url)
    after = migrate(empty_postgres_url, "--check")

    assert (before.exit_code, before.stdout.strip().split(",")[0]) == (1, "missing: 0001")
    assert "CREATE TABLE rowlock.job" in sql.stdout
    assert (done.exit_code, "applied 0001" in done.stdout) == (0, True)
    assert (again.returncode, again.stdout.strip()) == (0, "up to date")
    assert after.exit_code == 0


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def badly_encoded_url(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[str]:
    """A database that can't hold every text."""
    name = f"rowlock_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        make = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LOCALE 'C'"
        connection.execute(make.encode())
    yield with_database(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.mark.owner("makes a database")
@pytest.mark.parametrize("words", [["migrate"], ["migrate", "--check"], ["doctor"]], ids=" ".join)
def test_a_database_of_another_encoding_is_refused(badly_encoded_url, words):
    """With one line, which says what to do; nothing is made there."""
    done = CliRunner().invoke(main, ["--database-url", badly_encoded_url, *words])
    with psycopg.connect(badly_encoded_url) as connection:
        made = connection.execute("SELECT to_regnamespace('rowlock') IS NULL").fetchone()

    told = [line for line in done.output.splitlines() if "encoded in" in line]
    assert done.exit_code == 1
    assert len(told) == 1
    assert "CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8'" in told[0]
    assert isinstance(done.exception, SystemExit)
    assert made == (True,)


def test_roles_are_printed(empty_postgres_url, tmp_path):
    """What is missing, then the roles, then the policies, each by its own option."""
    sql = migrate(empty_postgres_url, "--sql", "--roles").stdout
    words = ("--schema", "jobs", "--sql", "--roles", "--row-security")
    guarded = migrate(empty_postgres_url, *words).stdout
    alone = migrate(empty_postgres_url, "--roles")
    file = migrate(f"sqlite:///{tmp_path / 'jobs.db'}", *words)

    assert sql.index("CREATE TABLE rowlock.job") < sql.index("TO rowlock_producer")
    assert "ROW LEVEL SECURITY" not in sql
    assert "'jobs_producer'" in guarded and "ALTER TABLE jobs.%I ENABLE ROW LEVEL" in guarded
    assert "rowlock_" not in guarded
    assert [alone.exit_code, file.exit_code] == [2, 2]
    assert "SQLite has no roles" in file.stderr


def test_migrate_a_file(tmp_path):
    """A SQLite file can be migrated ahead of its first use, under any schema name."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    done = migrate(url, "--schema", "tasks")

    assert (done.exit_code, "up to date" in done.stdout) == (0, True)


def test_bad_url_says_what_to_do():
    """An unknown scheme is an error with the two that there are, not a traceback."""
    done = rowlock("--database-url", "mysql://x", "migrate")

    assert done.returncode == 1
    assert "sqlite" in done.stderr
    assert "Traceback" not in done.stderr


def test_up_runs_the_example(tmp_path):
    """The example's jobs are enqueued and run by a worker; then a drain ends."""
    url = f"sqlite:///{tmp_path / 'up.db'}"
    words = ("--app", "examples.quickstart:app", "up", "--drain")
    done = rowlock(*words, ROWLOCK_DATABASE_URL=url)
    with open_store(url) as store:
        counts = {queue.queue: queue.counts for queue in store.stats()}

    assert done.returncode == 0, done.stderr
    assert "rowlock up on" in done.stdout
    assert counts["mail"]["succeeded"].value == 30
    assert counts["images"]["succeeded"].value == 10


def test_up_ends_when_it_is_told(tmp_path):
    """SIGTERM ends it well."""
    url = f"sqlite:///{tmp_path / 'up.db'}"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rowlock.cli",
            "--app",
            "examples.quickstart:app",
            "up",
            "--port",
            "0",
        ],
        cwd=ROOT,
        env={**os.environ, "ROWLOCK_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, open_store(url) as store:
        assert process.stdout is not None
        line = process.stdout.readline()
        wait_until(lambda: any(q.counts["succeeded"].value for q in store.stats()))
        process.send_signal(signal.SIGTERM)
        process.stdout.read()

    assert "rowlock up on" in line
    assert process.returncode == 0


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    store = make_store(url)
    yield store
    store.close()
