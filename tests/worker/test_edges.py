"""`rowlock worker` at its edges: bounds that end children."""

from __future__ import annotations

import pytest

from rowlock import JobState
from tests.worker.test_supervisor import app, worker

__all__ = ["app"]


@pytest.mark.parametrize("words", [("--max-jobs", "5"), ("--max-memory", "1")])
def test_a_drain_goes_on_after_a_child_was_replaced(app, words):
    """A child that has run enough, or is too large, is not the end; and each does something."""
    jobs = app.enqueue_many([{"kind": "noop"} for _ in range(30)])
    with worker(app, "--drain", "-c", "2", *words) as process:
        assert 0 == process.wait(100)

    assert {JobState.SUCCEEDED} == {app.get(job.id).state for job in jobs}
