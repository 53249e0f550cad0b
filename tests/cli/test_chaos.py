"""`rowlock chaos`: in a user's own database it leaves nothing behind, and says what it has seen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rowlock.app import App
from rowlock.chaos.database import PREFIX
from rowlock.cli import main
from rowlock.store.scratch import left_behind
from tests.worker.waiting import wait_until

CALM = (
    *("--jobs", "100", "--kills", "0", "--pauses", "0", "--swallows", "2", "--troubles", "0"),
    *("--workers", "1"),
)


@pytest.mark.timeout(300)
def test_in_a_database_of_ones_own(any_url, tmp_path):
    """The user's jobs are as they were, and what the run made is gone; the picture is there."""
    with App(any_url) as app:
        app.migrate()
        mine = app.get(app.enqueue("mine").id)
        assert mine is not None
        words = ["chaos", "--database", any_url, *CALM, "--plot", str(tmp_path / "run.svg")]
        result = CliRunner().invoke(main, [*words, "--seed", "5", "--json"])
        said = json.loads(result.stdout)

        assert mine == app.get(mine.id)
        assert [queue.queue for queue in app.stats()] == ["default"]
    assert said["texts"] == []
    assert said["seed"] == 5
    assert said["counts"]["succeeded"] > 80
    assert left_behind(any_url, prefix=PREFIX) == []
    assert "<svg" in (tmp_path / "run.svg").read_text()


@pytest.mark.timeout(300)
def test_an_interrupt_leaves_nothing(sqlite_url, tmp_path):
    """SIGTERM ends it and all its processes, and removes what it made."""
    words = [sys.executable, "-m", "rowlock.cli", "chaos", "--database", sqlite_url, *CALM]
    with subprocess.Popen(
        [*words, "--keep", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        started = wait_until(lambda: list(tmp_path.glob("*/journals/worker-*")), seconds=120)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    pids = [int(path.name.split("-")[1]) for path in started]

    assert code == 1
    assert left_behind(sqlite_url, prefix=PREFIX) == []
    wait_until(lambda: not any(is_there(pid) for pid in pids), seconds=60)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["--keep", "kept"], "kept/seed-7 exists"),
        (["--plot", "nowhere/run.svg"], "nowhere is not a directory"),
    ],
)
def test_places_are_looked_at_before_it_runs(tmp_path, monkeypatch, words, because):
    """Also those of the legs to come; nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept" / "seed-7").mkdir(parents=True)
    result = CliRunner().invoke(main, ["chaos", "--seed", "6", "--legs", "2", *words])

    assert result.exit_code == 2
    assert because in result.stderr
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "kept",
        "kept/seed-7",
    ]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
