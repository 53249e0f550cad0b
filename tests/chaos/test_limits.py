"""Real processes claim under limits, settle and die: a limit is never exceeded."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.limits_exact import Outcome, Size, run
from tests.chaos.runs import environment
from tests.conftest import FreshDatabase

# A run may miss a planted bug that needs two claimers at one moment. Then the next is tried.
RUNS = 4

patient = pytest.mark.timeout(400)


def only(name: str, jobs: int) -> Size:
    """Jobs under one limit, and claimers that are not killed."""
    return Size(jobs=jobs, processes=4, kills=0, shares={name: 1.0})


@pytest.mark.long
@patient
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_limits_are_exact(store: str, tmp_path: Path, fresh_database: FreshDatabase):
    """While processes are killed: never more at once, none too early, none out of order."""
    url = f"sqlite:///{tmp_path / 'limits.db'}" if store == "sqlite" else fresh_database(None)
    outcome = run(url, Size(jobs=600, processes=4, kills=6))

    assert (outcome.findings, outcome.left) == ([], 0)
    assert (outcome.figures["pool"].most, outcome.figures["pool"].most_of_a_key) == (10, 3)
    assert outcome.figures["line"].most_of_a_key == 1


@pytest.mark.long
@patient
@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("limit locked and counted at once", "keys"),
        ("limit counted without a lock", "pool"),
        ("floor above a living turn", "keys"),
        ("retry outside its room", "pool"),
        ("rate moved later", "meter"),
    ],
)
def test_a_planted_bug_in_limits_is_found(mutant: str, name: str, fresh_database: FreshDatabase):
    """Claimers that race for few keys exceed the limit, and the witness has it."""
    found: list[str] = []
    for seed in range(RUNS):
        outcome: Outcome = run(
            fresh_database(None), only(name, 1_000), seed=seed, environment=environment(mutant)
        )
        found += outcome.findings
        if found:
            break

    assert found
