"""A heartbeat extends the leases that still hold, and says which do not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rowlock.clock import ManualClock, from_us
from rowlock.errors import OptionInvalid
from rowlock.job import Beat, JobState, Lease
from rowlock.store import Store
from tests.store.fencing import ENDINGS, lose
from tests.store.jobs import UNKNOWN_ID, claim, claim_one, start, state_of, stored


def test_a_beat_extends_the_lease(store: Store, clock: ManualClock):
    """From a beat on, the lease lasts the given time anew."""
    lease = start(store)
    clock.advance(20)
    beats = store.heartbeat([lease], lease=15)
    clock.advance(14)

    assert beats == [Beat.KEPT]
    assert (
        from_us(clock.now_us()) + timedelta(seconds=1) == stored(store, lease.id).lease_expires_at
    )
    assert claim(store, worker="w2") == []
    clock.advance(1)
    assert [again.id for again in claim(store, worker="w2")] == [lease.id]


def test_a_beat_changes_nothing_else(store: Store, clock: ManualClock):
    """Attempt, token, worker and start stay as they were claimed."""
    lease = start(store)
    before = stored(store, lease.id)
    clock.advance(1)
    store.heartbeat([lease])

    after = stored(store, lease.id)
    assert (before.attempt, before.token, before.worker, before.started_at) == (
        after.attempt,
        after.token,
        after.worker,
        after.started_at,
    )


def test_beats_are_answered_one_by_one(store: Store):
    """Kept, lost and asked to cancel are told in the order of the leases, repeats included."""
    kept, flagged, released = start(store), start(store), start(store)
    store.cancel(flagged.id)
    store.release(released)
    stale = Lease(id=kept.id, token=kept.token + 1)
    unknown = Lease(id=UNKNOWN_ID, token=1)

    assert store.heartbeat([released, kept, flagged, stale, unknown, kept]) == [
        "lost",
        "kept",
        "cancel_requested",
        "lost",
        "lost",
        "kept",
    ]


def test_a_flagged_job_is_kept(store: Store, clock: ManualClock):
    """A worker that cleans up after a cancel keeps its lease meanwhile."""
    lease = start(store)
    store.cancel(lease.id)
    clock.advance(20)
    store.heartbeat([lease], lease=30)
    clock.advance(20)

    assert claim(store, worker="w2") == []
    assert JobState.RUNNING is state_of(store, lease.id)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lost_lease_beats_no_more(store: Store, clock: ManualClock, ending: str):
    """A beat with a stale token is told so, and does not touch the job."""
    lease = lose(store, clock, ending)
    before = store.get(lease.id)

    assert store.heartbeat([lease], lease=1_000) == [Beat.LOST]
    assert before == store.get(lease.id)


def test_a_lease_made_by_hand_beats(store: Store):
    """An id and a token are enough."""
    lease = start(store)

    assert store.heartbeat([Lease(id=lease.id.upper(), token=lease.token)]) == [Beat.KEPT]


def test_no_leases_need_no_beat(store: Store):
    """An empty list is answered by one."""
    assert store.heartbeat([]) == []


def test_a_bad_duration_is_refused(store: Store):
    """A lease must last for some time."""
    lease = start(store)
    before = stored(store, lease.id)
    for duration in (0, -1, float("nan"), float("inf"), timedelta(0), "30"):
        with pytest.raises(OptionInvalid, match="lease"):
            store.heartbeat([lease], lease=duration)  # type: ignore[arg-type]  # what is refused

    assert before == stored(store, lease.id)


def test_an_id_that_is_none_is_refused():
    """A lease of something that is no job id can't be made."""
    with pytest.raises(OptionInvalid, match="id"):
        Lease(id="garbage", token=1)


def test_only_the_claimed_are_extended(store: Store, clock: ManualClock):
    """The beat of one lease leaves the others of the same worker to expire."""
    first, second = start(store), start(store)
    clock.advance(20)
    store.heartbeat([first])
    clock.advance(11)

    assert second.id == claim_one(store, worker="w2").id
