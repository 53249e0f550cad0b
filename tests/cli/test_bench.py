"""`rowlock bench`: it measures, explains, leaves nothing behind, and touches nobody's jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from rowlock.bench.explain import explain
from rowlock.bench.measure import BenchReport
from rowlock.cli import main
from rowlock.cli.bench import report_table
from rowlock.cli.show import plain_table
from rowlock.store.scratch import left_behind, scratch
from tests.cli.conftest import on_terminal
from tests.support.databases import create_login, with_user
from tests.worker.waiting import wait_until

# Starts a worker on a scratch, says its process id, and waits to be killed.
HOLD_A_WORKER = """
import sys
from rowlock.bench.worker import BenchWorker
from rowlock.store.scratch import scratch
with scratch(sys.argv[1]) as place, BenchWorker(place, processes=1) as worker:
    print(worker._process.pid, flush=True)
    sys.stdin.read()
"""
POSTGRES = BenchReport(
    version="16.1",
    is_postgres=True,
    processes=1,
    round_trip_ms=0.1,
    sync_ms=0.2,
    enqueue_per_s=1_000.0,
    enqueue_many_per_s=40_000.0,
    run_per_s=30_000.0,
    run_jobs=90_000,
    busy=0.95,
    latency_p50_ms=1.5,
    latency_p99_ms=3.0,
    wal_bytes_per_job=1_300.0,
    wal_background_bytes_per_s=0.0,
    held_per_s=[30_000.0, 30_000.0, 29_000.0, 29_500.0, 29_900.0],
)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_it_measures_and_leaves_nothing(app, run, any_url):
    """Every figure is there; the user's job is as it was, and so is the database."""
    mine = app.get(app.enqueue("mine", {"to": "me"}).id)
    result = run("bench", "--jobs", "40", "--json")
    said = json.loads(result.stdout)
    is_postgres = "sqlite" not in any_url
    figures = ("enqueue_per_s", "enqueue_many_per_s", "run_per_s", "latency_p50_ms")

    assert result.exit_code == 0
    assert is_postgres == said["is_postgres"]
    assert all(said[figure] > 0 for figure in (*figures, "latency_p99_ms", "round_trip_ms"))
    assert is_postgres == (said["wal_bytes_per_job"] is not None)
    assert len(said["held_per_s"]) == 5
    assert said["words"]
    assert mine == app.get(mine.id)
    assert [queue.queue for queue in app.stats()] == ["default"]
    assert left_behind(any_url) == []
    assert "run 3 of 3: " in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(number, any_url):
    """Ctrl-C, also twice, and SIGTERM end it, its worker, and remove what it made."""
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", any_url, "bench"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: left_behind(any_url), seconds=60)
        process.send_signal(number)
        process.send_signal(number)
        code = process.wait(60)

    assert code == 1
    assert left_behind(any_url) == []


def test_its_worker_ends_with_it(sqlite_url):
    """A bench that is killed leaves no worker running."""
    command = [sys.executable, "-c", HOLD_A_WORKER, sqlite_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)

    wait_until(lambda: not is_running(pid), seconds=60)


def test_what_a_killed_run_left_is_told(any_url, run):
    """The place of another run is named, and not touched."""
    with scratch(any_url) as other:
        if other.directory is None:
            with psycopg.connect(any_url, autocommit=True) as connection:
                connection.execute(f"CREATE SCHEMA {other.schema}".encode())
        (name,) = left_behind(any_url)
        result = run("bench", "--jobs", "1", "--no-held")

        assert f"note: {name} belongs to another run" in result.stderr
        assert left_behind(any_url) == [name]


@pytest.mark.direct("logs in as another role")
def test_without_the_right_to_create_a_schema(postgres_url):
    """It says what is missing and what to do, and has changed nothing."""
    role = f"poor_{uuid.uuid4().hex[:8]}"
    poor = with_user(postgres_url, role)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        create_login(connection, role)
        try:
            result = CliRunner().invoke(main, ["--database-url", poor, "bench"])
        finally:
            connection.execute(f"DROP ROLE {role}".encode())

    assert result.exit_code == 1
    assert f"the role {role} may not create a schema" in result.stderr
    assert "GRANT CREATE ON DATABASE" in result.stderr
    assert left_behind(postgres_url) == []


def test_where_nothing_can_be_written():
    """A directory that takes no files is named."""
    result = CliRunner().invoke(main, ["--database-url", "sqlite:////proc/x.db", "bench"])

    assert result.exit_code == 1
    assert "can't write beside /proc/x.db" in result.stderr


def test_on_a_terminal(sqlite_url):
    """Bars while it runs, a table at the end."""
    code, text = on_terminal("bench", "--jobs", "5", "--no-held", url=sqlite_url)

    assert code == 0
    assert "━" in text
    assert "enqueue, one by one" in text
    assert "An enqueue took" in text


def test_the_table():
    """Every figure has a line with its unit; what was not measured has none."""
    text = plain_table(report_table(POSTGRES, "postgresql://u@h/d"))
    without = replace(POSTGRES, held_per_s=[], wal_bytes_per_job=None, processes=2)

    assert text.startswith("PostgreSQL 16.1, postgresql://u@h/d\n")
    assert "run, 1 process" in text
    assert "1,300 bytes" in text
    assert "29,900/s (99 %)" in text
    assert "held" not in plain_table(report_table(without, ""))
    assert "run, 2 processes" in plain_table(report_table(without, ""))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "it is the limit. More processes (-p)"),
        ({}, "does not slow jobs down"),
        ({"busy": 0.4}, "waited for the database's cores"),
        ({"busy": 0.4, "round_trip_ms": 20.0}, "20.0 ms away"),
        ({"busy": 0.4, "is_postgres": False}, "waited for the disk"),
        ({"busy": None}, "does not report"),
        ({"sync_ms": 0.8}, "The disk is the limit"),
        ({"sync_ms": 0.8, "is_postgres": False}, "0.80 ms of it for the disk. The disk"),
        (
            {"round_trip_ms": 20.0, "enqueue_per_s": 40.0},
            "The round trip to the database is the limit",
        ),
        ({}, "The rest is the work itself"),
        ({"is_durable": False}, "the last jobs are lost"),
        ({"wal_background_bytes_per_s": 2e6}, "Others wrote 1,953 KiB"),
        ({"held_per_s": [100.0, 100.0, 50.0, 50.0]}, "fell to 50 %"),
    ],
)
def test_what_limits_it_is_said(changed, words):
    """Each figure's reason is told in plain words."""
    assert any(words in sentence for sentence in explain(replace(POSTGRES, **changed)))


def test_few_jobs_prove_nothing():
    """A share of some jobs is not made a finding."""
    few = replace(POSTGRES, run_jobs=60, held_per_s=[100.0, 100.0, 50.0, 50.0])

    assert not any("fell to" in sentence for sentence in explain(few))
