"""Blocks under `rowlock worker`: children that die, are blocked, or end in the middle of one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import worker
from tests.worker.waiting import wait_until


@pytest.fixture
def noted(app: rowlock.App) -> rowlock.Task:
    """The task of the worker's app, so that its jobs have its policy from the start."""

    @app.task(name="noted")
    async def noted(number: int, note: str, deadly: int = -1, stuck: int = -1) -> None: ...

    return noted


def runs(note: Path) -> Counter[int]:
    """How often each job was begun."""
    lines = note.read_text().splitlines() if note.exists() else []
    return Counter(int(line.split()[0].strip("()")) for line in lines)


def test_a_child_that_dies_in_a_block_is_judged_by_its_slots(app, noted, tmp_path):
    """Only the job that ran has crashed. What had not begun shows no trace, and what runs twice
    shows one.
    """
    note = tmp_path / "note"
    jobs = app.enqueue_many([noted.job(number=n, note=str(note), deadly=50) for n in range(100)])
    with worker(app, "--drain", "-c", "100") as process:
        assert process.wait(60) == 0
    found = [app.get(job.id) for job in jobs]

    assert {job.state for job in found} == {JobState.SUCCEEDED}
    assert [job.crashes for job in found] == [int(n == 50) for n in range(100)]
    assert {
        (job.attempt, runs(note)[n], len(job.errors)) for n, job in enumerate(found[51:], 51)
    } == {(1, 1, 0)}
    assert {runs(note)[n] - len(job.errors) for n, job in enumerate(found)} == {1}


def test_a_block_behind_a_stuck_handler_is_run_by_others(app, noted, tmp_path):
    """Its supervisor gives back what has not begun; the child does not begin it when it goes on."""
    note = tmp_path / "note"
    jobs = app.enqueue_many([noted.job(number=n, note=str(note), stuck=0) for n in range(40)])
    with worker(app, "-c", "100", "-p", "2"):
        wait_until(lambda: len(runs(note)) == 40, seconds=60)
        note.with_suffix(".go").touch()
        found = [app.wait(job.id, timeout=30) for job in jobs]

    assert {job.state for job in found} == {JobState.SUCCEEDED}
    assert set(runs(note).values()) == {1}
    assert {(job.attempt, len(job.errors)) for job in found} == {(1, 0)}


def test_a_drain_runs_blocks_to_their_end(app, noted, tmp_path):
    """By several children, each job once."""
    note = tmp_path / "note"
    jobs = app.enqueue_many([noted.job(number=n, note=str(note)) for n in range(1000)])
    with worker(app, "--drain", "-p", "2") as process:
        assert process.wait(60) == 0

    assert {app.get(job.id).state for job in jobs} == {JobState.SUCCEEDED}
    assert runs(note) == dict.fromkeys(range(1000), 1)


def test_a_child_that_has_run_its_maximum_ends(app, noted, tmp_path):
    """No job of a block is begun beyond it, and others run the rest."""
    note = tmp_path / "note"
    jobs = app.enqueue_many([noted.job(number=n, note=str(note)) for n in range(100)])
    with worker(app, "--drain", "--max-jobs", "30", "-c", "100") as process:
        assert process.wait(60) == 0
    pids = Counter(line.split()[1] for line in note.read_text().splitlines())

    assert {app.get(job.id).state for job in jobs} == {JobState.SUCCEEDED}
    assert sorted(pids.values()) == [10, 30, 30, 30]


def test_a_worker_that_is_told_to_stop_gives_the_rest_of_a_block_back(app, noted, tmp_path):
    """Once it is past the handler that held it up, nothing else is begun."""
    note = tmp_path / "note"
    jobs = app.enqueue_many([noted.job(number=n, note=str(note), stuck=3) for n in range(20)])
    with worker(app, "-c", "100", "--lease", "60") as process:
        wait_until(lambda: runs(note)[3])
        process.terminate()
        note.with_suffix(".go").touch()
        process.wait(30)
    found = [app.get(job.id) for job in jobs]

    ended = [job for job in found if job.state == JobState.SUCCEEDED]
    rest = [job for job in found if job.state == JobState.READY]
    assert len(ended) + len(rest) == 20
    assert len(ended) >= 4
    assert {(job.attempt, len(job.errors)) for job in rest} <= {(0, 0)}
    assert set(runs(note).values()) == {1}
