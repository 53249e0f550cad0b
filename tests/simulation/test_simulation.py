"""Simulated days of several workers while everything goes wrong: repeatable, and not blind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.house.source import ROOT
from tests.mutants import SIMULATED
from tests.simulation.plan import THEMES, theme_of
from tests.simulation.run import simulate

# Run together, and then asked what they have reached.
REACHING = (3, 12, 23)
# Processes that look for planted bugs, each for its share.
SHARES = 4
# All planted bugs take three minutes of CPU, so every third one is looked for, and all of them with
# --every-combination.
EVERY = 3


def run(
    *words: str, module: str = "tests.simulation", hash_seed: str = "0"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_each_theme_has_its_turn():
    """So many seeds in a row are one of each."""
    assert [theme_of(seed) for seed in range(len(THEMES))] == list(THEMES)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*range(len(THEMES))} - {*REACHING}))
def test_a_seed_is_good(seed):
    """No promise is broken while things go wrong, and all is done soon after.

    One of each theme. `make simulate` begins with the seeds that ever failed.
    """
    assert simulate(seed).problem is None


@pytest.mark.long
def test_what_is_hard_to_reach_is_reached():
    """These seeds are good, too, and differ.

    A simulation in which nothing was rescued, refused or unknown would show nothing.
    """
    reports = [simulate(seed) for seed in REACHING]
    names = ("rescued", "leases lost", "started stale", "failed")

    assert [each.problem for each in reports] == [None] * len(REACHING)
    assert [name for name in names if not any(each.counts[name] for each in reports)] == []
    assert len({each.digest for each in reports}) == len(REACHING)


def test_a_seed_is_exactly_repeatable():
    """In this process and in others, whatever their own seed for texts, line by line."""
    told = [run("--seed", "0", hash_seed=hash_seed).stdout for hash_seed in ("1", "2")]

    assert "good" in told[0]
    assert told[0] == told[1]


def test_seeds_are_run_in_several_processes():
    """The sums of all of them are told, also for each hour with work."""
    done = run("--theme", "back in line", "--seeds", "2", "--processes", "2")

    assert done.returncode == 0, done.stderr
    assert "2 seeds, 0 bad" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("share", range(SHARES))
def test_planted_bugs_are_found(request, share):
    """Each by the first seeds of its theme."""
    every = 1 if request.config.getoption("--every-combination") else EVERY
    names = [*SIMULATED][::every]
    done = run(*names[share::SHARES], module="tests.simulation.planted")

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_command_that_repeats_a_find_is_told():
    """With the seed and the planted bug."""
    words = ["--theme", "zombies", "--seeds", "20", "--until-bad"]
    done = run(*words, "--mutant", "settle without token")

    assert done.returncode == 1, done.stdout
    assert "--mutant 'settle without token'" in done.stdout
