"""Workflows on both stores, compared with a model of them, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rowlock
from tests.model.workflows import DifferenceFound, Program, Subject
from tests.mutants import MUTANTS, WORKFLOW_MUTANTS

STEPS = 40
PROGRAMS = 5
# A planted bug must be found by one of so many programs.
SEEDS_MAX = 40


@pytest.fixture
def clock() -> rowlock.ManualClock:
    """One clock for all."""
    return rowlock.ManualClock()


@pytest.fixture
def on_sqlite(tmp_path: Path, clock: rowlock.ManualClock) -> Iterator[Subject]:
    """SQLite alone."""
    with rowlock.App(f"sqlite:///{tmp_path / 'model.db'}", clock=clock) as app:
        app.migrate()
        yield Subject(app, clock)


@pytest.fixture
def on_postgres(postgres_url: str, clock: rowlock.ManualClock) -> Iterator[Subject]:
    """PostgreSQL alone."""
    with rowlock.App(postgres_url, clock=clock) as app:
        app.migrate()
        yield Subject(app, clock)


@pytest.mark.parametrize("seed", range(3))
def test_workflows_are_as_the_model_says(seed: int, on_sqlite: Subject, on_postgres: Subject):
    """Every way to end a job, and to take its end back."""
    run_all(range(PROGRAMS * seed, PROGRAMS * (seed + 1)), on_sqlite, on_postgres)


@pytest.mark.parametrize("mutant", WORKFLOW_MUTANTS)
def test_a_planted_bug_in_workflows_is_found(mutant: str, on_sqlite: Subject):
    """By one of the first programs."""
    with MUTANTS[mutant](), pytest.raises(DifferenceFound):
        run_all(range(SEEDS_MAX), on_sqlite)


def run_all(seeds: range, *subjects: Subject) -> None:
    """Run the programs of seeds, one after the other."""
    for seed in seeds:
        for subject in subjects:
            subject.forget()
        Program(seed, subjects).run(STEPS)
