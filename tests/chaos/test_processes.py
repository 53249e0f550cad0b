"""The processes of a run: one that does not end well is no part of a good run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rowlock.app import App
from rowlock.chaos.jobs import JOURNALS
from rowlock.chaos.plan import ChaosPlan
from rowlock.chaos.processes import LOGS, Processes, ProcessFailed
from rowlock.testing.processes import kill
from tests.worker.waiting import wait_until

PLAN = ChaosPlan(seed=1, jobs=100, kills=0, pauses=0, workers=2, processes=1, producers=0)


@pytest.fixture
def processes(tmp_path: Path, sqlite_url: str) -> Iterator[Processes]:
    """Two workers, with nothing to do."""
    for name in (JOURNALS, LOGS):
        (tmp_path / name).mkdir()
    processes = Processes(
        PLAN,
        tmp_path,
        schema="rowlock",
        address=lambda *_: sqlite_url,
        environment_of=lambda *_: {},
    )
    with App(sqlite_url) as app:
        app.migrate()
        with processes:
            wait_until(lambda: len(app.workers()) == PLAN.workers, seconds=60)
            yield processes


def test_workers_end_when_they_are_asked(processes: Processes):
    """Nothing is raised: each of them has ended well."""
    processes.end()

    assert [worker.returncode for worker in processes.workers] == [0, 0]


def test_a_worker_that_ends_otherwise(processes: Processes):
    """It is named, with how it ended."""
    kill(processes.workers[1].pid)

    with pytest.raises(ProcessFailed, match="worker-1 ended with -9"):
        processes.end()
