"""An attempt is a run that began: whole workers killed, neighbours that crash, shutdowns."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import rowlock
from rowlock import JobState, config
from tests.support.workers import runners, worker
from tests.worker.waiting import wait_until


def kill_group(process: subprocess.Popen) -> None:
    """End a worker and all its children at once, as the loss of a container does."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def running(app: rowlock.App) -> int:
    return len(app.list(state="running").jobs)


def recover(app: rowlock.App) -> None:
    """Wait until all leases have expired, and give the jobs back."""

    def is_over() -> bool:
        app.store.recover()
        return running(app) == 0

    wait_until(is_over, seconds=60)


def is_dead(app: rowlock.App, job: rowlock.Job) -> bool:
    return app.get(job.id).state is JobState.DEAD


def started(note: Path) -> int:
    return len(runners(note))


def test_a_lost_machine_counts_no_attempt_that_did_not_begin(app, tmp_path):
    """At most once: of all that a killed worker held, only what had begun is dead."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    values = {"path": str(go_on), "note": str(note)}
    jobs = app.enqueue_many(
        [{"kind": "noop", "payload": {"number": n}, "max_attempts": 1} for n in range(200)]
        + [{"kind": "wait_for_file", "payload": values, "max_attempts": 1}] * 3
        + [{"kind": "noop", "payload": {"number": n}, "max_attempts": 1} for n in range(200)]
    )
    with worker(app, "-c", "3", start_new_session=True) as process:
        wait_until(lambda: started(note) == 3, seconds=60)
        kill_group(process)
    recover(app)
    dead = [job for job in map(app.get, [job.id for job in jobs]) if job.state is JobState.DEAD]

    assert {(job.kind, job.errors[-1].type) for job in dead} == {("wait_for_file", "Interrupted")}
    assert len(dead) == 3
    go_on.touch()
    with worker(app, "--drain") as process:
        assert process.wait(60) == 0
    states = [app.get(job.id).state for job in jobs if job.kind == "noop"]
    assert set(states) == {JobState.SUCCEEDED}
    assert started(note) == 3


def test_a_neighbours_crash_is_not_counted(app, tmp_path):
    """With attempts left a bystander runs again, uncounted and with a trace; at most once, it ends
    dead as interrupted, and its handler was called once.
    """
    again, once, go_on = tmp_path / "again", tmp_path / "once", tmp_path / "go-on"
    kind = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(again)}, max_attempts=2)
    strict = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(once)}, max_attempts=1)
    with worker(app):
        wait_until(lambda: started(again) and started(once), seconds=60)
        app.enqueue("kill_myself")
        wait_until(lambda: started(again) == 2, seconds=60)
        go_on.touch()
        done = app.wait(kind.id, timeout=60)
        dead = app.wait(strict.id, timeout=60)

    assert (done.state, done.attempt) == (JobState.SUCCEEDED, 1)
    assert [error.type for error in done.errors] == ["Crashed"]
    assert (dead.state, [error.type for error in dead.errors]) == (
        JobState.DEAD,
        ["Interrupted"],
    )
    assert started(once) == 1


def test_a_shutdown_leaves_a_trace(app, tmp_path):
    """What does not end within the grace goes back with a line in its errors, not counted."""
    note, once, go_on = tmp_path / "note", tmp_path / "once", tmp_path / "go-on"
    job = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(note)})
    strict = app.enqueue("wait_for_file", {"path": str(go_on), "note": str(once)}, max_attempts=1)
    with worker(app, "--grace", "0.2") as process:
        wait_until(lambda: started(note) and started(once), seconds=60)
        process.terminate()
        process.wait(60)
    back, dead = app.get(job.id), app.get(strict.id)

    assert (back.state, back.attempt) == (JobState.READY, 0)
    assert [error.type for error in back.errors] == ["Interrupted"]
    assert "stopped" in back.errors[0].message
    assert (dead.state, dead.errors[-1].type) == (JobState.DEAD, "Interrupted")


@pytest.mark.long
def test_poison_that_takes_the_whole_container_down(app, tmp_path):
    """Whole workers die again and again of one job: it is found, dead as poison, and nobody else.

    No supervisor lives long enough to see it: the row alone tells.
    """
    poison = app.enqueue("kill_group", max_attempts=20)
    values = {"path": str(tmp_path), "note": str(tmp_path / "note")}
    others = app.enqueue_many([{"kind": "wait_for_file", "payload": values, "max_attempts": 2}] * 5)
    for _ in range(12):
        with worker(app, "-p", "2", "-c", "4", start_new_session=True) as process:
            wait_until(
                lambda process=process: process.poll() is not None or is_dead(app, poison),
                seconds=60,
            )
            if process.returncode is None:
                # Nothing left that could kill it.
                kill_group(process)
        recover(app)
        if is_dead(app, poison):
            break
    # Its own session, always: the job would otherwise kill the tests.
    with worker(app, "--drain", start_new_session=True) as process:
        assert process.wait(60) == 0
    found = app.get(poison.id)

    assert (found.state, found.errors[-1].type) == (JobState.DEAD, "Poison")
    assert found.crashes == found.max_crashes
    assert {app.get(job.id).state for job in others} == {JobState.SUCCEEDED}


def test_at_most_once_jobs_are_held_for_a_free_slot_only(app, tmp_path):
    """Quick jobs are leased ahead; those that run at most once wait in the queue, untouched."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    with worker(app, "-c", "2"):
        app.enqueue_many([{"kind": "noop", "payload": {"number": n}} for n in range(300)])
        values = {"path": str(go_on), "note": str(note)}
        jobs = app.enqueue_many(
            [{"kind": "wait_for_file", "payload": values, "max_attempts": 1}] * 20
        )
        wait_until(lambda: started(note) == 2 and running(app) == 2, seconds=60)
        before = [app.get(job.id).token for job in jobs]
        # As long as it takes to give back what waits too long for a slot, and to claim again.
        threading.Event().wait(3 * config.PREFETCH_STALE_SECONDS)
        after = [app.get(job.id).token for job in jobs]
        go_on.touch()
        states = {app.wait(job.id, timeout=60).state for job in jobs}

    assert after == before
    assert states == {JobState.SUCCEEDED}
    assert started(note) == 20
