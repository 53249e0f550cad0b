"""A run that does not stop: its neighbours finish, a new child takes over, and it is ended."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import children_of, is_gone, runners, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("how a child that must end is replaced")

PATIENCE_SECONDS = 60
NEIGHBOURS = 3


class Log:
    """What a worker says, line by line."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._lines: list[str] = []
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._lines.append(line.decode())

    def has(self, words: str) -> bool:
        return any(words in line for line in self._lines)


def enqueue_neighbours(app: rowlock.App, path: Path, note: Path) -> list[rowlock.Job]:
    payload = {"path": str(path), "note": str(note)}
    return [app.enqueue("wait_for_file", payload) for _ in range(NEIGHBOURS)]


def test_the_neighbours_finish(app, tmp_path):
    """They run once, though the child of theirs is ended; new jobs don't wait for that."""
    note, stuck_note, go_on = tmp_path / "note", tmp_path / "stuck", tmp_path / "go-on"
    with worker(app) as process:
        jobs = enqueue_neighbours(app, go_on, note)
        wait_until(lambda: len(runners(note)) == NEIGHBOURS, seconds=PATIENCE_SECONDS)
        stuck = app.enqueue("hang", {"note": str(stuck_note)})
        wait_until(lambda: len(children_of(process)) == 2, seconds=PATIENCE_SECONDS)
        (old,) = runners(stuck_note)
        elsewhere = app.wait(app.enqueue("where").id, timeout=PATIENCE_SECONDS)
        before = app.get(stuck.id).state
        go_on.touch()
        ended = app.wait(stuck.id, timeout=PATIENCE_SECONDS)
        found = [app.wait(job.id, timeout=PATIENCE_SECONDS) for job in jobs]
        wait_until(lambda: is_gone(old), seconds=PATIENCE_SECONDS)

    assert elsewhere.result != old
    assert before is JobState.RUNNING
    assert (ended.state, ended.errors[-1].type) == (JobState.DEAD, "TimeoutError")
    assert {(job.state, job.attempt, job.token) for job in found} == {(JobState.SUCCEEDED, 1, 1)}
    assert runners(note) == [old] * NEIGHBOURS


def test_the_neighbours_have_no_more_than_the_grace(app, tmp_path):
    """What outlasts it goes back, and is not counted as an attempt."""
    note, stuck_note, go_on = tmp_path / "note", tmp_path / "stuck", tmp_path / "go-on"
    with worker(app, "--grace", "1"):
        (neighbour, *_) = enqueue_neighbours(app, go_on, note)
        wait_until(lambda: len(runners(note)) == NEIGHBOURS, seconds=PATIENCE_SECONDS)
        stuck = app.enqueue("hang", {"note": str(stuck_note)})
        ended = app.wait(stuck.id, timeout=PATIENCE_SECONDS)
        wait_until(lambda: len(runners(note)) == 2 * NEIGHBOURS, seconds=PATIENCE_SECONDS)
        go_on.touch()
        found = app.wait(neighbour.id, timeout=PATIENCE_SECONDS)

    assert (ended.state, ended.errors[-1].type) == (JobState.DEAD, "TimeoutError")
    assert (found.state, found.attempt, found.crashes) == (JobState.SUCCEEDED, 1, 0)
    # What ran twice says so.
    assert [stuck.id in error.message for error in found.errors] == [True]


def test_one_alone_is_ended_at_once(app, tmp_path):
    """Without neighbours there is nobody to wait for: its outcome does not wait for the grace."""
    note = tmp_path / "note"
    with worker(app, "--grace", "3600"):
        stuck = app.enqueue("hang", {"note": str(note)})
        ended = app.wait(stuck.id, timeout=PATIENCE_SECONDS)

    assert (ended.state, ended.errors[-1].type) == (JobState.DEAD, "TimeoutError")
    assert len(runners(note)) == 1


@pytest.mark.long
def test_a_cancelled_one_that_does_not_stop(app, tmp_path):
    """The same for a request to cancel: the neighbours finish, the job ends cancelled."""
    note, stuck_note, go_on = tmp_path / "note", tmp_path / "stuck", tmp_path / "go-on"
    with worker(app) as process:
        jobs = enqueue_neighbours(app, go_on, note)
        stuck = app.enqueue("hang_without_limit", {"note": str(stuck_note)})
        wait_until(lambda: len(runners(note)) == NEIGHBOURS, seconds=PATIENCE_SECONDS)
        wait_until(lambda: runners(stuck_note), seconds=PATIENCE_SECONDS)
        app.cancel(stuck.id)
        wait_until(lambda: len(children_of(process)) == 2, seconds=PATIENCE_SECONDS)
        go_on.touch()
        ended = app.wait(stuck.id, timeout=PATIENCE_SECONDS)
        found = [app.wait(job.id, timeout=PATIENCE_SECONDS) for job in jobs]

    assert ended.state is JobState.CANCELLED
    assert {(job.state, job.token) for job in found} == {(JobState.SUCCEEDED, 1)}
    assert len(runners(note)) == NEIGHBOURS


def test_a_blocked_loop_is_not_waited_for(app, tmp_path):
    """A child that does not hear that it is to leave is ended, however long the grace."""
    note = tmp_path / "note"
    with worker(app, "--grace", "3600"):
        jobs = enqueue_neighbours(app, tmp_path / "never", note)
        wait_until(lambda: len(runners(note)) == NEIGHBOURS, seconds=PATIENCE_SECONDS)
        stuck = app.enqueue("block_the_loop", {"note": str(tmp_path / "stuck")})
        ended = app.wait(stuck.id, timeout=PATIENCE_SECONDS)
        wait_until(lambda: len(runners(note)) == 2 * NEIGHBOURS, seconds=PATIENCE_SECONDS)
        found = [app.get(job.id) for job in jobs]

    assert (ended.state, ended.errors[-1].type) == (JobState.DEAD, "TimeoutError")
    assert {job.attempt for job in found} == {1}


def test_a_worker_that_stops_keeps_its_grace(app, tmp_path):
    """A limit that passes after SIGTERM does not cost the others what is left of their grace."""
    note, stuck_note, go_on = tmp_path / "note", tmp_path / "stuck", tmp_path / "go-on"
    with worker(app, "--grace", "50", capture=True) as process:
        log = Log(process)
        jobs = enqueue_neighbours(app, go_on, note)
        wait_until(lambda: len(runners(note)) == NEIGHBOURS, seconds=PATIENCE_SECONDS)
        stuck = app.enqueue("hang", {"note": str(stuck_note)})
        wait_until(lambda: runners(stuck_note), seconds=PATIENCE_SECONDS)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: log.has(f"job {stuck.id} does not stop"), seconds=PATIENCE_SECONDS)
        go_on.touch()
        found = [app.wait(job.id, timeout=PATIENCE_SECONDS) for job in jobs]
        code = process.wait(PATIENCE_SECONDS)

    assert {(job.state, job.token) for job in found} == {(JobState.SUCCEEDED, 1)}
    assert app.get(stuck.id).state is JobState.DEAD
    assert code == 0


def test_a_child_that_is_too_large_keeps_its_grace(app, tmp_path):
    """Nor does a limit that passes in a child that is being replaced for its memory."""
    note, stuck_note, go_on = tmp_path / "note", tmp_path / "stuck", tmp_path / "go-on"
    with worker(app, "--grace", "50", "--max-memory", "1", capture=True) as process:
        log = Log(process)
        jobs = enqueue_neighbours(app, go_on, note)
        wait_until(lambda: len(runners(note)) == NEIGHBOURS, seconds=PATIENCE_SECONDS)
        stuck = app.enqueue("hang", {"note": str(stuck_note)})
        wait_until(lambda: runners(stuck_note), seconds=PATIENCE_SECONDS)
        app.enqueue("noop")
        wait_until(lambda: log.has("it uses too much memory"), seconds=PATIENCE_SECONDS)
        wait_until(lambda: log.has(f"job {stuck.id} does not stop"), seconds=PATIENCE_SECONDS)
        go_on.touch()
        found = [app.wait(job.id, timeout=PATIENCE_SECONDS) for job in jobs]
        ended = app.wait(stuck.id, timeout=PATIENCE_SECONDS)
        after = app.wait(app.enqueue("where").id, timeout=PATIENCE_SECONDS)

    assert {(job.state, job.token) for job in found} == {(JobState.SUCCEEDED, 1)}
    assert (ended.state, after.state) == (JobState.DEAD, JobState.SUCCEEDED)
