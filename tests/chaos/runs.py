"""Runs of chaos for tests, with planted bugs or without."""

from __future__ import annotations

import os
from pathlib import Path

from rowlock.chaos.database import open_database
from rowlock.chaos.plan import ChaosPlan, possible
from rowlock.chaos.report import ChaosReport
from rowlock.chaos.run import Chaos
from tests.house.source import ROOT

PLANTED = Path(__file__).parent / "planted"


def environment(mutant: str | None) -> dict[str, str]:
    """By which every process of a run gets a bug."""
    if mutant is None:
        return {}
    given = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join([str(PLANTED), *given, str(ROOT)])
    return {"PYTHONPATH": path, "ROWLOCK_PLANTED": mutant}


def run(
    store: str,
    directory: Path,
    *,
    seed: int = 1,
    jobs: int = 1_500,
    kills: int = 6,
    pauses: int = 3,
    workers: int = 3,
    mutant: str | None = None,
    drain_seconds: float = 180.0,
) -> ChaosReport:
    """A short run on a throw-away database."""
    is_postgres = store == "postgres"
    others = possible(
        crashes=1, swallows=20, troubles=1, clock_steps=3, is_postgres=is_postgres, is_own=True
    )
    plan = ChaosPlan(
        seed=seed,
        jobs=jobs,
        kills=kills,
        pauses=pauses,
        others=others,
        workers=workers,
        drain_seconds=drain_seconds,
    )
    with open_database(plan, store, directory) as database:
        chaos = Chaos(
            plan, database, directory, on_progress=lambda _: None, environment=environment(mutant)
        )
        return chaos.run()
