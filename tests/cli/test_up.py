"""`rowlock up` and `rowlock worker`: what they print and log, and what they never do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

import rowlock
from rowlock.cli import main
from rowlock.cli import up as up_command
from rowlock.job import Count, JobState
from tests.cli.conftest import HOSTILE

CANARY = "canary-s3cret"

APP = """
import logging, os, sys, time
from pathlib import Path
import rowlock

class State:
    def on_up(self):
        fine.using(queue="q\\x1b[2J").enqueue(secret="canary-s3cret")
        broken.enqueue(secret="canary-s3cret")

app = rowlock.App(state=State())

@app.task
def fine(secret: str) -> str:
    logging.getLogger("mine").info("inside")
    return secret

@app.task(max_attempts=1)
async def broken(secret: str) -> None:
    local = secret
    raise ValueError("bad\\nINFO fake: line")

@app.task
def show_command(note: str) -> None:
    Path(note).write_bytes(Path("/proc/self/cmdline").read_bytes())
"""


@pytest.fixture
def rowlock_command(tmp_path):
    """Run `rowlock` with an app of its own in a directory of its own."""
    (tmp_path / "logged_app.py").write_text(APP, "utf-8")

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
        return subprocess.run(
            [sys.executable, "-m", "rowlock.cli", "--app", "logged_app:app", *words],
            cwd=tmp_path, env={**clean, **environment}, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("command", "executor", "any_url"),
    [
        ("up", "thread", "sqlite"),
        ("up", "process", "postgres"),
        ("worker", "thread", "postgres"),
        ("worker", "process", "sqlite"),
    ],
    indirect=["any_url"],
)
def test_the_database_of_the_command_replaces_the_apps(tmp_path, any_url, command, executor):
    """Also where the code names one: what works, enqueues and is looked at is one database.

    Each command with each executor, each of them on each store.
    """
    (tmp_path / "named_app.py").write_text(
        "import rowlock\n"
        "app = rowlock.App('sqlite:///named.db', state='mine')\n"
        f"@app.task(executor='{executor}')\n"
        "def first(ctx: rowlock.Context) -> str:\n"
        "    app.enqueue('second')\n"
        "    return ctx.state\n"
        "@app.task\n"
        "def second() -> None: ...\n",
        "utf-8",
    )
    with rowlock.App(any_url) as app:
        job = app.enqueue("first")
        words = ["--app", "named_app:app", "--database-url", any_url, command, "--drain"]
        done = subprocess.run(
            [sys.executable, "-m", "rowlock", *words], cwd=tmp_path, timeout=60, check=False
        )

        assert (done.returncode, app.get(job.id).result) == (0, "mine")
        assert [each.kind for each in app.list(state="succeeded")] == ["second", "first"]
    assert not (tmp_path / "named.db").exists()


@pytest.mark.one_store("what is written to the log")
def test_json_lines_of_parent_and_child(rowlock_command, any_url):
    """Every line of every process is an object; a handler's own line carries its job's fields."""
    done = rowlock_command(
        "--database-url", any_url, "up", "--drain", "--log-format", "json", "--log-level", "debug"
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    inside = next(line for line in lines if line["logger"] == "mine")
    dead = next(line for line in lines if line.get("kind") == "broken")
    fine = next(line for line in lines if line.get("kind") == "fine" and "duration_seconds" in line)

    assert (done.returncode, done.stdout) == (0, "")
    assert (inside["message"], inside["kind"], inside["attempt"]) == ("inside", "fine", 1)
    assert (dead["level"], dead["error"], dead["attempt"]) == ("error", "ValueError", 1)
    assert (fine["level"], "in broken\n" in dead["traceback"]) == ("info", True)
    assert dead["message"].endswith("attempt 1 of 1: ValueError: bad")
    assert (inside["job_id"], fine["queue"]) == (fine["job_id"], "q\x1b[2J")
    assert {"worker", "duration_seconds"} <= fine.keys()
    assert "rowlock.up" in {line["logger"] for line in lines}


@pytest.mark.one_store("what is written to the log")
@pytest.mark.parametrize("words", [("up", "--drain"), ("worker", "--drain")])
def test_no_payload_and_no_control_character(rowlock_command, sqlite_url, words):
    """Neither payloads nor what is hostile in names and errors reaches a terminal."""
    with rowlock.App(sqlite_url) as app:
        app.enqueue("fine", {"secret": CANARY}, queue=HOSTILE)
        app.enqueue("broken", {"secret": CANARY})
    done = rowlock_command(*words, ROWLOCK_DATABASE_URL=sqlite_url, ROWLOCK_LOG_LEVEL="DEBUG")
    written = done.stdout + done.stderr

    assert done.returncode == 0, written
    assert "succeeded" in done.stderr and "is dead" in done.stderr
    assert CANARY not in written
    assert written.replace("\n", "").isprintable()
    assert not [line for line in done.stderr.splitlines() if line.startswith("INFO fake")]


def test_the_environment_is_read_and_overruled(rowlock_command, sqlite_url):
    """ROWLOCK_LOG_LEVEL and ROWLOCK_LOG_FORMAT stand in for the options, which come first."""
    environment = {"ROWLOCK_LOG_LEVEL": "error", "ROWLOCK_LOG_FORMAT": "json"}
    url = ("--database-url", sqlite_url)
    quiet = rowlock_command(*url, "up", "--drain", **environment)
    plain = rowlock_command(*url, "up", "--drain", "--log-format", "console", **environment)
    wrong = rowlock_command(*url, "worker", "--drain", ROWLOCK_LOG_LEVEL="loud")

    assert [json.loads(line)["level"] for line in quiet.stderr.splitlines()] == ["error"]
    line, *traceback = plain.stderr.splitlines()
    assert "ERROR   rowlock.worker.jobs: job " in line
    assert all(each.startswith("    ") for each in traceback)
    assert wrong.returncode == 2


def test_a_password_is_never_shown(rowlock_command, tmp_path, postgres_url):
    """Not by a greeting, an error or a log, and not to those who list our processes."""
    parts = urlsplit(postgres_url)
    user, _, host = parts.netloc.rpartition("@")
    # A server of yours may trust everyone. Then any password will do.
    named = user if ":" in user else f"{user}:{CANARY}"
    url = parts._replace(netloc=f"{named}@{host}").geturl()
    password = named.partition(":")[2]
    note = tmp_path / "command"
    with rowlock.App(url) as app:
        app.enqueue("show_command", {"note": str(note)})
    done = rowlock_command("up", "--drain", ROWLOCK_DATABASE_URL=url, ROWLOCK_LOG_LEVEL="debug")
    away = rowlock_command(
        "--database-url", f"postgresql://me:{CANARY}@127.0.0.1:9/none", "up", "--drain"
    )

    assert done.returncode == 0, done.stderr
    assert ":***@" in done.stdout
    assert password not in done.stdout + done.stderr
    assert b"rowlock.cli.processes" in note.read_bytes()
    assert password.encode() not in note.read_bytes()
    assert away.returncode == 1
    assert CANARY not in away.stdout + away.stderr


def test_up_greets_and_counts_until_interrupted(tmp_path, sqlite_url):
    """It says what to type next, what has ended while it runs, and the same at its end."""
    (tmp_path / "logged_app.py").write_text(APP, "utf-8")
    command = [sys.executable, "-m", "rowlock.cli", "--database-url", sqlite_url]
    with subprocess.Popen(
        [*command, "--app", "logged_app:app", "up", "--port", "0"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None and process.stdout is not None
        # A busy machine may count before both jobs have ended.
        counted = next(
            line
            for line in process.stderr
            if "rowlock.up: " in line and "none are waiting" in line and "succeeded" in line
        )
        told = next(line for line in process.stdout if line.startswith("dashboard: "))
        address = re.search(r"http://[^/]+/", told)[0]
        code = re.search(r"/#login=(\S+)", process.stdout.readline())[1]
        with httpx.Client(base_url=address, trust_env=False) as browser:
            browser.post("v1/session", json={"token": code}).raise_for_status()
            jobs = browser.get("v1/jobs").json()["jobs"]
        home = httpx.get(address, trust_env=False)
        process.send_signal(signal.SIGINT)
        *_, last = process.stderr.read().splitlines()
        greeting = process.stdout.read()

    assert process.returncode == 0
    assert {job["state"] for job in jobs} == {"succeeded", "dead"}
    assert (home.status_code, "dashboard" in home.text) == (200, True)
    assert "1 succeeded, 1 dead (`rowlock dead list` says why); none are waiting" in counted
    assert last.endswith(counted.strip().partition("rowlock.up: ")[2])
    assert "at the end: " in last
    assert "export ROWLOCK_APP=logged_app:app" in greeting
    assert "top " in greeting and "jobs list" in greeting and "Ctrl-C" in greeting


def test_up_makes_a_database_if_nothing_names_one(rowlock_command, tmp_path):
    """For a first look. It says how the other commands find the file."""
    done = rowlock_command("up", "--drain")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rowlock.db").exists()
    assert "  export ROWLOCK_DATABASE_URL=sqlite:///rowlock.db\n" in done.stdout


def test_counts_are_told_as_a_line():
    """What ended since the start, and what waits; lower bounds are marked."""
    before = up_command.summed([{JobState.SUCCEEDED: Count(5), JobState.DEAD: Count(2)}])
    now = up_command.summed(
        [
            {JobState.SUCCEEDED: Count(8), JobState.READY: Count(20_000, exact=False)},
            {JobState.SUCCEEDED: Count(1), JobState.RUNNING: Count(1)},
        ]
    )

    assert (
        up_command.status_line(up_command.summed([]), up_command.summed([]))
        == "no job has ended yet; none are waiting"
    )
    assert up_command.status_line(before, now) == "4 succeeded; waiting: 1 running, 20,000+ ready"

    many = up_command.summed([{JobState.SUCCEEDED: Count(10_000, exact=False)}])
    assert up_command.status_line(many, many) == "10,000+ succeeded in all; none are waiting"
    assert (
        up_command.status_line(up_command.summed([{JobState.SUCCEEDED: Count(5)}]), many)
        == "9,995+ succeeded; none are waiting"
    )


def test_help_names_the_variables():
    """Both commands tell where else the options come from."""
    for command in ("up", "worker"):
        text = CliRunner().invoke(main, [command, "--help"]).output

        assert "ROWLOCK_LOG_LEVEL" in text and "ROWLOCK_LOG_FORMAT" in text
