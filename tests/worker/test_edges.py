"""`rowlock worker` at its edges: bounds that end children, streams that are closed, no tables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import ROOT, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("the process around the work")


@pytest.mark.parametrize("words", [("--max-jobs", "5"), ("--max-memory", "1")])
def test_a_drain_goes_on_after_a_child_was_replaced(app, words):
    """A child that has run enough, or is too large, is not the end; and each does something."""
    jobs = app.enqueue_many([{"kind": "noop"} for _ in range(30)])
    with worker(app, "--drain", "-c", "2", *words) as process:
        assert process.wait(100) == 0

    assert {app.get(job.id).state for job in jobs} == {JobState.SUCCEEDED}


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=["stdout", "stderr", "all"])
@pytest.mark.parametrize("command", ["worker", "up"])
def test_closed_streams_do_no_harm(sqlite_url, tmp_path, closed, command):
    """Nothing else takes their numbers, in the supervisor and in its children."""
    note = tmp_path / "note"
    with rowlock.App(sqlite_url) as app:
        job = app.enqueue("print_and_look", {"note": str(note)})
        script = "import os, sys\n" + "".join(f"os.close({number})\n" for number in closed)
        script += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
        words = ["-m", "rowlock", "--app", "tests.worker.jobs_app:app", command, "--drain"]
        done = subprocess.run(
            [sys.executable, "-c", script, *words],
            cwd=ROOT,
            env={**os.environ, "ROWLOCK_DATABASE_URL": sqlite_url},
            capture_output=True,
            timeout=60,
            check=False,
        )

        assert (done.returncode, app.get(job.id).state) == (0, JobState.SUCCEEDED)
    opened = dict(line.split(" ", 1) for line in note.read_text().splitlines())
    assert {opened[str(number)] for number in closed} == {"/dev/null"}


def test_a_worker_waits_for_its_tables(empty_postgres_url):
    """It may be started before the database is migrated: it says so, and begins when it is."""
    app = rowlock.App(empty_postgres_url)
    with worker(app, capture=True) as process:
        line = wait_until(lambda: next(filter(is_told, process.stderr), None))
        app.migrate()
        job = app.enqueue("noop")
        found = app.wait(job.id, timeout=60)
    app.close()

    assert found.state == JobState.SUCCEEDED
    assert b"Traceback" not in line


def is_told(line: bytes) -> bool:
    return b"the worker waits to start: the database has no rowlock tables yet" in line
