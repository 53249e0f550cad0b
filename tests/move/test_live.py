"""A queue is moved while it is worked on, by a mover that is killed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.drills.move import move
from benchmarks.drills.scene import Scene


def test_a_live_queue_is_moved_by_a_killed_mover(tmp_path: Path, postgres_url: str):
    """Workers on both sides, a producer, three kills: each job is run, and run once."""
    with (
        Scene(f"sqlite:///{tmp_path / 'old.db'}", tmp_path) as old,
        Scene(postgres_url, tmp_path) as new,
    ):
        found = move(old, new, jobs=3_000, kills=3, pause=2.0)

    assert (found.lost, found.run_twice, found.left) == (0, 0, 0)
    assert found.jobs == found.arrived > 3_000
