"""Simulated days of several workers while everything goes wrong: repeatable, and not blind."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.house.source import ROOT
from tests.mutants import SIMULATED
from tests.simulation.plan import THEMES, theme_of
from tests.simulation.run import simulate
from tests.simulation.seeds import FAILED

# In which theme a planted bug is found, by one of its first seeds.
THEME = {
    "settle without token": "zombies",
    "sweep ignores expiry": "zombies",
    "early acknowledgement": "zombies",
    "cursor never looks below": "back in line",
    "claim ignores run_at": "back in line",
    "beat without token": "zombies",
    "token does not grow": "zombies",
    "given ids start afresh": "again",
    "cancel dropped": "zombies",
    "ended ids forgotten": "again",
    "lost is started": "alone",
    "success dropped with last words": "last words",
    "handler before its mark": "zombies",
    "loss without a trace": "zombies",
    "claim is the beginning": "alone",
}
SEEDS_MAX = 20


def run(*words: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


simulated = cache(simulate)


def test_each_theme_has_its_turn():
    """So many seeds in a row are one of each."""
    assert [theme_of(seed) for seed in range(len(THEMES))] == list(THEMES)


@pytest.mark.parametrize("seed", sorted({*FAILED, *range(len(THEMES))}))
def test_a_seed_is_good(seed):
    """No promise is broken while things go wrong, and all is done soon after."""
    assert None is simulated(seed).problem


def test_a_seed_is_exactly_repeatable():
    """In this process and in others, whatever their own seed for texts, line by line."""
    told = [run("--seed", "3", hash_seed=hash_seed).stdout for hash_seed in ("1", "2")]

    assert "good" in told[0]
    assert told[0] == told[1]


def test_other_seeds_do_other_things():
    """The journals of two seeds differ."""
    assert simulated(3).digest != simulated(4).digest


def test_what_is_hard_to_reach_is_reached():
    """A simulation in which nothing was rescued, refused or unknown would show nothing."""
    reports = [simulated(seed) for seed in (3, 10, 38)]
    names = ("rescued", "leases lost", "started stale", "failed")

    assert [name for name in names if not any(each.counts[name] for each in reports)] == []


def test_seeds_are_run_in_several_processes():
    """The sums of all of them are told, also for each hour with work."""
    done = run("--theme", "alone", "--seeds", "2", "--processes", "2")

    assert done.returncode == 0, done.stderr
    assert "2 seeds, 0 bad" in done.stdout


@pytest.mark.parametrize("mutant", SIMULATED)
def test_a_planted_bug_is_found(mutant):
    """Each by the first seeds of its theme; the command that repeats it is told."""
    words = ["--theme", THEME[mutant], "--seeds", str(SEEDS_MAX), "--until-bad"]
    done = run(*words, "--mutant", mutant)

    assert done.returncode == 1, done.stdout
    assert f"--mutant '{mutant}'" in done.stdout
