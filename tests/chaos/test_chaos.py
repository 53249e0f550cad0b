"""Real processes while everything goes wrong, for half a minute; and bugs that must be found."""

from __future__ import annotations

import pytest

from rowlock.chaos.report import Verdict
from tests.chaos.matrix import WHERE
from tests.chaos.runs import run
from tests.mutants import MUTANTS

# On a slow machine a run may be void: then the next seed is tried.
SEEDS = 3

# A planted bug breaks dozens of promises in a run of this size.
SHORT = {"jobs": 250, "kills": 2, "pauses": 1, "workers": 2}

patient = pytest.mark.timeout(400)


@pytest.mark.long
@patient
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_nothing_is_lost(store, tmp_path):
    """A thousand jobs, and all that may befall them: every promise is kept."""
    for seed in range(1, SEEDS + 1):
        report = run(store, tmp_path / str(seed), seed=seed, jobs=1_000, kills=6, workers=2)
        if report.verdict is not Verdict.VOID:
            break

    assert report.texts == []
    assert Verdict.GOOD is report.verdict


@pytest.mark.long
@patient
@pytest.mark.parametrize(
    ("mutant", "store"),
    [
        ("early acknowledgement", "sqlite"),
        ("growth forgets children", "sqlite"),
        ("claim without lock", "postgres"),
    ],
)
def test_a_planted_bug_is_found(mutant, store, tmp_path):
    """Whoever breaks a promise is told, whatever else goes wrong; `make mutants` tries all."""
    found: dict[int, int] = {}
    for seed in range(1, SEEDS + 1):
        report = run(store, tmp_path / str(seed), seed=seed, mutant=mutant, **SHORT)
        found.update(report.violations)
        if found:
            break

    assert found


def test_every_planted_bug_has_its_place():
    """Those that a run must find are there, ten at least on each store."""
    assert set(WHERE) <= set(MUTANTS)
    assert all(
        sum(store in stores for stores in WHERE.values()) >= 10 for store in ("sqlite", "postgres")
    )
