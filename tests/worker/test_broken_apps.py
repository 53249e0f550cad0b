"""`rowlock worker` with an app that can't be loaded, or is loaded in an odd way."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import rowlock
from rowlock import JobState


@pytest.fixture
def run_worker(tmp_path):
    """Run `rowlock worker` on a module of that text, in a directory of its own."""

    def run(text: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "odd_app.py").write_text(text, "utf-8")
        clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
        return subprocess.run(
            [sys.executable, "-m", "rowlock", "--app", "odd_app:app", "worker", *words],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


_SCHEDULED = """
import rowlock
app = rowlock.App("sqlite:///jobs.db")
@app.task(cron="{cron}", timezone="{zone}")
def report(): ...
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("def broken(:", "SyntaxError"),
        ("other = 1", "module 'odd_app' has no 'app'"),
        ("app = 1", "odd_app:app is not a rowlock.App"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("import rowlock; app = rowlock.App('sqlite:////not/there.db')", "create it first"),
        (_SCHEDULED.format(cron="61 * * * *", zone="UTC"), "'61 * * * *' is not a cron expression"),
        (_SCHEDULED.format(cron="@daily", zone="Nowhere/City"), "Nowhere/City"),
    ],
    ids=["import", "syntax", "no-app", "no-rowlock-app", "exit", "no-store", "cron", "zone"],
)
def test_an_app_that_can_not_be_loaded_ends_the_worker(run_worker, text, told):
    """It would never do better: the reason is told, and the exit code says that it failed."""
    done = run_worker(text, "-p", "2", "--log-format", "json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]

    assert done.returncode == 1
    assert any(told in line["message"] for line in lines if line["level"] == "error")
    assert "odd_app:app can't be loaded: nothing was started" in [line["message"] for line in lines]


def test_a_name_that_is_none_is_a_usage_error(tmp_path):
    """Nothing is started for it."""
    done = subprocess.run(
        [sys.executable, "-m", "rowlock", "--app", "odd_app", "worker"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 2


def test_an_app_may_have_a_loop_of_its_own_while_it_is_loaded(run_worker, tmp_path):
    """Its module is imported outside of the worker's loop, as everywhere else."""
    text = (
        "import asyncio\n"
        "import rowlock\n"
        "app = rowlock.App('sqlite:///jobs.db', state=asyncio.run(asyncio.sleep(0, 'ready')))\n"
        "@app.task\n"
        "def work(ctx: rowlock.Context) -> str:\n"
        "    return ctx.state\n"
    )
    with rowlock.App(f"sqlite:///{tmp_path}/jobs.db") as app:
        job = app.enqueue("work")
        done = run_worker(text, "--drain")
        found = app.get(job.id)

    assert (done.returncode, found.state, found.result) == (0, JobState.SUCCEEDED, "ready")


def test_an_app_without_tasks_is_told(run_worker, tmp_path):
    """It runs nothing, and nobody is to count on it."""
    text = "import rowlock\napp = rowlock.App('sqlite:///jobs.db')\n"
    done = run_worker(text, "--drain")

    assert done.returncode == 0
    assert "the app has no tasks to run" in done.stderr
