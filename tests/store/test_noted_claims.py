"""Claims of many jobs on PostgreSQL: one note instead of an index entry per lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.errors import LeaseLost
from rowlock.job import JobState
from rowlock.store import Store, open_store
from rowlock.store.local_state import LocalState
from rowlock.store.ops.claim import ClaimRequest, claim_seen, look
from rowlock.store.ops.recover import release_unknown, sweep
from rowlock.store.ops.stats import count_live, tenant_stats
from rowlock.store.steps import reading
from tests.store.jobs import claim, enqueue, enqueue_ids, state_of

MANY = config.CLAIM_NOTED_MIN
FEW = MANY - 1
READY, RETRYING, RUNNING = JobState.READY, JobState.RETRYING, JobState.RUNNING


@pytest.fixture
def noting(emptied_postgres_url: str, clock: ManualClock) -> Iterator[Store]:
    """A store that notes its claims."""
    opened = open_store(emptied_postgres_url, clock=clock)
    yield opened
    opened.close()


def notes(connection: psycopg.Connection[Any]) -> int:
    """How many claims are noted."""
    row = connection.execute("SELECT count(*) FROM rowlock.claim").fetchone()
    assert row is not None
    return int(row[0])


def indexed(connection: psycopg.Connection[Any]) -> int:
    """How many leases are in job_lease."""
    row = connection.execute("SELECT count(indexed_lease) FROM rowlock.job").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(("jobs", "found"), [(FEW, (0, FEW)), (MANY, (1, 0))])
def test_a_claim_of_many_is_one_note(
    noting: Store, module_connection: psycopg.Connection[Any], jobs: int, found: tuple[int, int]
):
    """And the leases of few are indexed at once."""
    enqueue_ids(noting, jobs)
    leases = claim(noting)

    assert len(leases) == jobs
    assert (notes(module_connection), indexed(module_connection)) == found


def test_a_noted_claim_touches_no_index(noting: Store):
    """All its updates are heap-only: that is why it is noted."""
    enqueue_ids(noting, 100)
    before = updates(noting)
    claim(noting)
    after = updates(noting)

    assert (after[0] - before[0], after[1] - before[1]) == (100, 100)


def test_a_job_that_gives_up_its_key_is_indexed_at_once(
    noting: Store, module_connection: psycopg.Connection[Any]
):
    """Beside plain jobs, whose updates still touch no index. All are found when they expire."""
    enqueue_ids(noting, 100)
    enqueue(noting, key="k", key_hold="until_started")
    before = updates(noting)
    leases = claim(noting, limit=101)
    after = updates(noting)
    found = (notes(module_connection), indexed(module_connection))

    assert (len(leases), found) == (101, (1, 1))
    assert (after[0] - before[0], after[1] - before[1]) == (101, 100)
    assert noting.release_worker("w1") == 101


def updates(store: Store) -> tuple[int, int]:
    """How many rows of jobs were updated, and how many of these updates touched no index."""
    connection = store.engine._pool.take()
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables "
        "WHERE relid = 'rowlock.job'::regclass"
    ).fetchone()
    store.engine._pool.give(connection, is_sound=True)
    assert row is not None
    return row


def test_expired_leases_are_found_by_their_note(
    noting: Store, clock: ManualClock, module_connection: psycopg.Connection[Any]
):
    """The worker is gone right after its claim. The note goes with the last of its leases."""
    enqueue_ids(noting, MANY)
    claim(noting)
    clock.advance(30)
    count = noting.recover()
    again = noting.recover()

    assert (count, again, notes(module_connection)) == (MANY, 0, 0)


def test_a_sweep_takes_what_the_last_one_saw(noting: Store, clock: ManualClock):
    """As with leases that are indexed."""
    ids = enqueue_ids(noting, MANY)
    claim(noting)
    clock.advance(30)
    local = LocalState()
    seen = noting.run(sweep(local, {}))
    before = {state_of(noting, id) for id in ids}
    noting.run(sweep(local, seen))

    assert ({id for id, _ in seen}, before) == (set(ids), {RUNNING})
    assert {state_of(noting, id) for id in ids} == {READY}


def test_a_claim_finds_expired_leases_first(noting: Store, clock: ManualClock):
    """They compete at their old place."""
    ids = enqueue_ids(noting, MANY)
    claim(noting, worker="gone")
    clock.advance(30)
    enqueue_ids(noting, 1)

    assert [lease.id for lease in claim(noting, limit=MANY)] == ids


def test_a_heartbeat_moves_a_lease_to_the_index(
    noting: Store, clock: ManualClock, module_connection: psycopg.Connection[Any]
):
    """Then its note no longer matters, whoever removes it."""
    enqueue_ids(noting, MANY)
    kept, *lost = claim(noting)
    clock.advance(20)
    noting.heartbeat([kept])
    clock.advance(10)
    first = noting.recover()
    # Nothing is noted any more: this removes the note.
    noting.recover()
    gone = notes(module_connection)
    clock.advance(20)

    assert (first, gone, noting.recover()) == (len(lost), 0, 1)


def test_a_worker_gives_back_both_kinds(noting: Store):
    """What it has extended, and what it has only claimed."""
    enqueue_ids(noting, MANY + FEW)
    first = claim(noting, limit=MANY)
    claim(noting)
    noting.heartbeat(first[:2])

    assert (noting.release_worker("other"), noting.release_worker("w1")) == (0, MANY + FEW)


def test_a_worker_gives_back_what_it_does_not_know(noting: Store):
    """A claim whose answer was lost is noted like any other."""
    enqueue_ids(noting, MANY)
    leases = claim(noting)
    known = [(lease.id, lease.token) for lease in leases[:3]]

    assert noting.run(release_unknown("w1", known=known)) == MANY - 3


def test_orphans_are_adopted_of_both_kinds(noting: Store, clock: ManualClock):
    """By their last heartbeat, which may be the claim."""
    enqueue_ids(noting, MANY + 1)
    first = claim(noting, limit=MANY, lease=3600)
    claim(noting, lease=3600)
    clock.advance(200)
    noting.heartbeat(first[:1], lease=3600)
    clock.advance(100)

    assert noting.adopt_orphans(["other"]) == 0
    assert noting.adopt_orphans(["default"]) == MANY


def test_the_last_success_removes_the_note(
    noting: Store, module_connection: psycopg.Connection[Any]
):
    """In its own statement."""
    enqueue_ids(noting, MANY)
    noting.succeed(claim(noting))

    assert notes(module_connection) == 0


def test_a_part_of_a_claim_leaves_the_note(
    noting: Store, clock: ManualClock, module_connection: psycopg.Connection[Any]
):
    """The others are still found by it, even if the caller never names the first ones again."""
    enqueue_ids(noting, MANY)
    leases = claim(noting)
    noting.succeed(leases[:-1])
    left = notes(module_connection)
    clock.advance(30)

    assert (left, noting.recover()) == (1, 1)
    with pytest.raises(LeaseLost):
        noting.succeed(leases[-1:])


def test_what_comes_back_and_is_claimed_again_is_lost_once(noting: Store, clock: ManualClock):
    """Two notes of one worker with the same end have it, while the clock stands still."""
    enqueue_ids(noting, MANY)
    for lease in claim(noting):
        noting.release(lease)
    claim(noting)
    running = noting.stats()[0].counts[RUNNING].value
    clock.advance(30)

    assert (running, noting.recover()) == (MANY, MANY)


def test_recovery_passes_over_a_row_that_is_locked(
    noting: Store, clock: ManualClock, emptied_postgres_url: str
):
    """Somebody else deals with it, and all others are given back."""
    ids = enqueue_ids(noting, MANY)
    claim(noting)
    clock.advance(30)
    with psycopg.connect(emptied_postgres_url) as connection:
        connection.execute("SELECT FROM rowlock.job WHERE id = %s FOR UPDATE", [ids[0]])
        count = noting.recover()

    assert (count, noting.recover()) == (MANY - 1, 1)


def test_counts_see_both_kinds(noting: Store):
    """A job counts as running wherever its lease is found, and never as ready."""
    enqueue_ids(noting, MANY + 3, tenant="t")
    first = claim(noting, limit=MANY, begun=False)
    noting.heartbeat(first[:2])
    stats = noting.stats()[0]
    of_tenant = noting.run(tenant_stats("t"))[0]
    live = noting.run(reading("count", count_live))

    assert [stats.counts[state].value for state in (RUNNING, READY)] == [MANY, 3]
    assert [of_tenant.counts[state].value for state in (RUNNING, READY)] == [MANY, 3]
    assert [live["default", state] for state in (RUNNING, READY)] == [MANY, 3]


def test_a_retry_that_runs_is_not_retrying(noting: Store, clock: ManualClock):
    """It stays in the index of retries while its lease is noted."""
    enqueue_ids(noting, MANY)
    for lease in claim(noting):
        noting.fail(lease, "no", delay=1)
    waiting = noting.stats()[0].counts[RETRYING].value
    clock.advance(1)
    claim(noting)
    stats = noting.stats()[0]

    assert waiting == MANY
    assert [stats.counts[state].value for state in (RETRYING, RUNNING)] == [0, MANY]


def test_a_look_steps_over_noted_leases(noting: Store):
    """The head of a lane is the first job that nobody runs."""
    ids = enqueue_ids(noting, MANY + 1)
    claim(noting, limit=MANY)
    (lane,) = noting.run(look(queues=["default"], kinds=None)).lanes

    assert lane.floor[1] == ids[-1]


def test_nothing_is_claimed_twice_from_one_view(noting: Store):
    """A claim below which noted leases lie takes those that nobody runs."""
    ids = enqueue_ids(noting, 3 * MANY)
    view = noting.run(look(queues=["default"], kinds=None))
    request = ClaimRequest("w1", {"default": MANY}, None, None, MANY, 30_000_000)
    other = claim(noting, worker="w2", limit=MANY)
    first = noting.run(claim_seen(request, view))
    second = noting.run(claim_seen(request, first.view))

    taken = [lease.id for lease in [*other, *first.leases, *second.leases]]
    assert taken == ids


def test_a_sweep_removes_notes_without_leases(
    noting: Store, module_connection: psycopg.Connection[Any]
):
    """Long before they are over: a settle by id and token alone does not name its claim."""
    enqueue_ids(noting, 3 * MANY)
    failed, extended, _ = (claim(noting, limit=MANY, lease=3600) for _ in range(3))
    for lease in failed:
        noting.fail(lease, "no", delay=60)
    noting.heartbeat(extended, lease=3600)
    before = notes(module_connection)
    noting.run(sweep(LocalState(), {}))

    assert (before, notes(module_connection)) == (3, 1)
