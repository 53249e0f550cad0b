"""The examples run as their docstrings say, and show what they claim to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "examples").glob("[a-z]*.py"))


@pytest.fixture
def run(tmp_path, sqlite_url):
    """Run Python with the examples at hand, in a directory and on a database of the test."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={
                **clean,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
                "ROWLOCK_DATABASE_URL": sqlite_url,
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize("name", NAMES)
def test_up_runs_it(run, name):
    """Each is an app that `rowlock up` runs."""
    done = run("-m", "rowlock.cli", "--app", f"examples.{name}:app", "up", "--drain")

    assert done.returncode == 0, done.stderr
    assert "In another terminal" in done.stdout
    # Those of jobs that fail on purpose are indented.
    assert not [line for line in done.stderr.splitlines() if line.startswith("Traceback")]


def test_shop(run):
    """Payments succeed at the second attempt; a bad address is dead, an odd photo cancelled."""
    done = run("-m", "examples.shop")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1 × make_thumbnails: cancelled",
        "4 × make_thumbnails: succeeded",
        "1 × send_email: dead",
        "2 × send_email: succeeded",
        "3 × take_payment: succeeded",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "examples.crawler"),
        ("-m", "rowlock.cli", "--app", "examples.crawler:app", "up", "--drain"),
    ],
    ids=["module", "up"],
)
def test_crawler(run, words):
    """Each page is crawled once, though each links to the first; the missing one is dead."""
    done = run(*words)
    counted = run("-m", "rowlock.cli", "stats", "--json")

    assert done.returncode == 0, done.stderr
    assert '"succeeded": {"value": 25,' in counted.stdout
    assert '"dead": {"value": 1,' in counted.stdout
    if "examples.crawler" in words:
        assert done.stdout.splitlines() == [
            "1 × discover: succeeded",
            "1 × page: dead",
            "12 × page: succeeded",
            "12 × save_image: succeeded",
        ]


def test_nightly_report(run, tmp_path):
    """A report is written now, and the schedules are there."""
    done = run("-m", "examples.nightly_report")
    (report,) = (tmp_path / "reports").iterdir()
    listed = run("-m", "rowlock.cli", "cron", "list")

    assert done.returncode == 0, done.stderr
    assert report.name.startswith("the-day-") and report.read_text().startswith("The day, by job")
    assert "weekly-summary" in done.stdout
    assert "pulse" in listed.stdout


def test_every_example_is_listed():
    """The README names each of them."""
    readme = (ROOT / "README.md").read_text("utf-8")

    assert [name for name in NAMES if f"examples/{name}.py" not in readme] == []
