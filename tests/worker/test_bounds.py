"""Time limits, `--max-jobs` and poison, where they meet what takes long."""

from __future__ import annotations

import time

from rowlock import JobState
from rowlock.config import TIMEOUT_GRACE_SECONDS
from tests.worker.test_supervisor import app, database_held, runners, worker
from tests.worker.waiting import wait_until

__all__ = ["app"]


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

    assert (JobState.SUCCEEDED, 1, []) == (found.state, found.attempt, found.errors)
    assert 1 == len(runners(note))
