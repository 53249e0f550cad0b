"""The drills of `benchmarks.kills`, short: what befalls workers, and that nothing comes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.drills.failover import failover
from benchmarks.drills.pause import FATES, WAYS, pause
from benchmarks.drills.scene import Scene
from benchmarks.drills.stop import GRACE_SECONDS, stop
from benchmarks.drills.storm import storm


@pytest.fixture
def scene(any_url, tmp_path) -> Iterator[Scene]:
    with Scene(any_url, tmp_path) as scene:
        yield scene


ENDS = {
    "running": ("succeeded", 1, "second", ["lease expired"]),
    "succeeded": ("succeeded", 1, "second", ["lease expired"]),
    "retrying": ("retrying", 1, None, ["lease expired", "second"]),
    "dead": ("dead", 1, None, ["lease expired", "second"]),
    "cancelled": ("cancelled", 1, None, ["lease expired", "second"]),
    "forgotten": None,
    "pruned": None,
}


@pytest.mark.long
def test_a_worker_that_stood_still_can_change_nothing(scene):
    """SIGSTOP of a whole worker for three leases: what it then tries is refused, whatever its jobs
    have come to elsewhere, and however its runs end.
    """
    found = pause(scene)

    assert {(fate, way): ENDS[fate] for fate in FATES for way in WAYS} == found.ends
    assert (found.refused, found.changed, found.effects) == (len(found.ends), [], 0)
    assert found.is_working
    account = found.account
    assert (account.settled_twice, account.stale, account.overlapping) == (0, 0, 0)


@pytest.mark.long
def test_a_storm_of_kills_loses_nothing(scene):
    """Children and supervisors are killed all the time: every job is settled, and settled once."""
    few = {"workers": 1, "job_seconds": 0.02, "strikes_max": 4}
    found = storm(scene, jobs=250, every_seconds=0.3, crashes=0, **few)
    account = found.account

    assert "children" in found.struck, "nothing was put to the test"
    assert (found.lost, found.never_ended) == (0, 0)
    assert (
        account.settled,
        account.settled_twice,
        account.stale,
        account.overlapping,
    ) == (250, 0, 0, 0)


def test_stops_at_any_moment_leave_nothing_behind(scene):
    """SIGTERM while it starts or works: it ends within its grace, no lease is left, no job lost."""
    found = stop(scene, stops=3, within_seconds=1.5, backlog=200)

    assert (found.lost, found.leases_left, found.begun_again) == (0, 0, 0)
    assert (found.account.settled_twice, found.account.stale) == (0, 0)
    # Before it has set its handlers, a signal ends it at once.
    assert set(found.codes) <= {0, -15}
    assert max(found.seconds) < GRACE_SECONDS + 4


@pytest.mark.long
def test_a_failover_loses_nothing(tmp_path):
    """A standby takes over: what was acknowledged is run, and each service tells of it once."""
    found = failover(
        tmp_path, before_seconds=0.5, away_seconds=0.5, after_seconds=0.5, workers=1, producers=4
    )
    account = found.account

    assert (found.lost, found.stuck) == (0, 0)
    assert (account.settled, account.settled_twice, account.stale) == (found.acknowledged, 0, 0)
    assert set(found.told.values()) == {1}
