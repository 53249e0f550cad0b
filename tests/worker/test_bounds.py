"""Time limits, `--max-jobs` and poison, where they meet what takes long."""

from __future__ import annotations

import time

import pytest

from rowlock import JobState
from rowlock.config import TIMEOUT_GRACE_SECONDS
from tests.support.workers import database_held, runners, worker
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.one_store("bounds of the children")


def test_a_run_that_has_ended_is_not_past_its_time_limit(app, tmp_path):
    """However long it takes until its outcome can be written."""
    note, go_on = tmp_path / "note", tmp_path / "go-on"
    payload = {"path": str(go_on), "note": str(note)}
    job = app.enqueue("wait_two_seconds_for_file", payload)
    with worker(app, "-c", "2"):
        wait_until(lambda: runners(note))
        with database_held(app):
            go_on.touch()
            time.sleep(2 + TIMEOUT_GRACE_SECONDS + 1)
        found = app.wait(job.id, timeout=60)

    assert (found.state, found.attempt, found.errors) == (JobState.SUCCEEDED, 1, [])
    assert len(runners(note)) == 1


def test_a_child_that_has_run_enough_waits_for_its_last_jobs(app, tmp_path):
    """Nobody has asked it to stop; but after the grace another one takes its place."""
    first, second = tmp_path / "first", tmp_path / "second"
    payload = {"path": str(tmp_path / "go-on")}
    long = app.enqueue("wait_for_file", {**payload, "note": str(first)})
    with worker(app, "--max-jobs", "1", "-c", "3", "--grace", "0.2"):
        wait_until(lambda: runners(first))
        also_long = app.enqueue("wait_for_file", {**payload, "note": str(second)})
        wait_until(lambda: runners(second))
        short = app.wait(app.enqueue("where").id, timeout=60)
        (tmp_path / "go-on").touch()
        found = [app.wait(job.id, timeout=60) for job in (long, also_long)]

    assert [(job.state, job.attempt) for job in found] == [(JobState.SUCCEEDED, 1)] * 2
    assert len({short.result, *runners(first), *runners(second)}) == 3
    assert (len(runners(first)), len(runners(second))) == (1, 1)


@pytest.mark.long
def test_a_drain_outlives_any_number_of_poison_jobs(app):
    """Each death of a child is one job's fault, and so they come to an end."""
    poison = [app.enqueue("kill_myself") for _ in range(2)]
    healthy = [app.enqueue("noop") for _ in range(3)]
    with worker(app, "--drain") as process:
        code = process.wait(240)

    assert {app.get(job.id).state for job in poison} == {JobState.DEAD}
    assert {app.get(job.id).state for job in healthy} == {JobState.SUCCEEDED}
    assert code == 0


def test_a_run_that_lost_its_lease_still_has_its_time_limit(app, tmp_path):
    """It holds a slot, here the only one, and nobody else would ever end it."""
    note = tmp_path / "note"
    payload = {"path": str(tmp_path / "never"), "note": str(note)}
    # Long enough to lose the lease first: within its limit it would be stopped in its thread.
    job = app.enqueue("wait_six_seconds_for_file", payload, max_attempts=2)
    with worker(app, "-c", "1"):
        wait_until(lambda: runners(note))
        assert app.store.release_worker(app.get(job.id).worker) == 1
        assert app.get(job.id).state == JobState.READY
        app.cancel(job.id)
        found = app.wait(app.enqueue("where").id, timeout=60)

    assert found.state == JobState.SUCCEEDED
    assert runners(note) != [found.result]
