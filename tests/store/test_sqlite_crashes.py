"""A SQLite queue at single calls of the kernel: killed, refused, without power; and hammered.

`make crashes` does the same at every write and sync of thirty-four verbs; here a few are chosen, by
a seed that is printed. The drills fork, so they have a process of their own.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.drills.hammer import hammer

ROOT = Path(__file__).parents[2]
POINTS = 6


def drill(name: str, *more: str) -> dict:
    words = ["--points", str(POINTS), "--seed", str(random.randrange(2**32)), "--json"]
    command = [sys.executable, "-m", "benchmarks.crashes", name, *words, *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    sys.stderr.write(done.stderr)
    found: dict = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("fault", ["kill", "ENOSPC", "EIO"])
def test_a_fault_at_any_call(fault):
    """Every verb is done or undone, what was acknowledged is there, and all goes on by itself."""
    found = drill(fault)

    assert found["wrong"] == []
    assert POINTS == found["points"] == sum(found["ends"].values())


def test_a_power_cut_at_any_call():
    """What was not synced is gone, or half of it: no acknowledged verb is."""
    found = drill("power")

    assert found["wrong"] == []
    assert 2 * POINTS <= found["points"] == sum(found["ends"].values())


@pytest.mark.parametrize(("fault", "bug"), [("power", "unsynced"), ("kill", "halves")])
def test_a_planted_bug_is_found(fault, bug):
    """Commits that are not synced, and transactions in pieces: the drills would tell."""
    found = drill(fault, "--plant", bug, "--deed", "claim_some")

    assert found["wrong"] != []


def test_every_commit_is_synced_and_nobody_else_opens_the_file():
    """One sync of the log or more for each acknowledged change; one open a connection, and one to
    create the file.
    """
    found = drill("story")

    assert min(found["syncs"]) >= 1
    assert len(found["syncs"]) > 25
    assert found["connected"] + 1 == found["opened"]


def test_a_log_that_is_started_anew_all_the_time(tmp_path):
    """Processes fold and write at once: the file is sound, and every job is there."""
    found = hammer(tmp_path / "jobs.db", jobs=240, processes=4, check_seconds=0.5)

    assert found.codes == [0] * 4
    assert (found.damage, found.missing) == ([], 0)
    assert found.restarts > 10, "nothing was put to the test"
