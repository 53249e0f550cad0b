"""A claim of a block has what `claim` has of its jobs; its successes are settled by their ids."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.clock import ManualClock
from rowlock.columns import JobRow
from rowlock.job import JobState, Lease, Policy
from rowlock.store import KnownPolicy, Store
from rowlock.store.ops.claim import ID, Claimed, ClaimRequest, claim_seen, look
from rowlock.store.ops.settle import Bare, settle_bare
from tests.store.fencing import ENDINGS, lose
from tests.store.jobs import claim, enqueue_ids, kept_for, stored

LEASE_US = 30_000_000
DAY = kept_for(24 * 3600)


def claim_block(store: Store, limit: int = 100, **known: KnownPolicy) -> Claimed:
    """Claim all that is there, of the kind `task` as a block."""
    view = store.run(look(queues=["default"], kinds=None))
    request = ClaimRequest(
        worker="w1",
        queues={"default": limit},
        kinds=None,
        tenants=None,
        limit=limit,
        lease=LEASE_US,
        policies=known,
        block_kinds={"task"},
    )
    return store.run(claim_seen(request, view))


def enqueued(store: Store, count: int = 8, **options: Any) -> list[str]:
    return enqueue_ids(store, count, **{"policy": DAY, "max_attempts": 20, **options})


def rows_of(claimed: Claimed) -> list[JobRow | None]:
    """Whole rows of what was claimed, as leases or as blocks, by their ids."""
    of_blocks = [block.lease_of(row) for block in claimed.blocks for row in block.rows]
    leases: list[Lease] = [*claimed.leases, *of_blocks]
    return [lease.row for lease in sorted(leases, key=lambda lease: lease.id)]


ODD: list[dict[str, Any]] = [
    {"tenant": "acme"},
    {"key": "k"},
    {"key": "k", "key_hold": 20.0},
    {"tags": ["a", '"']},
    {"meta": {"trace": 'a "b" \\ c'}},
    {"max_attempts": 1},
    {"policy": kept_for(0)},
    {"policy": Policy(timeout=5_000_000)},
]


@pytest.mark.parametrize("options", ODD)
def test_a_job_with_more_than_others_comes_whole(store: Store, options: dict[str, Any]):
    """As a lease beside the block, with every column that `claim` would have returned."""
    plain, (odd,) = enqueued(store), enqueued(store, 1, **options)
    claimed = claim_block(store)
    found = rows_of(claimed)
    store.release_worker("w1")
    expected = [lease.row for lease in sorted(claim(store), key=lambda lease: lease.id)]

    assert [lease.id for lease in claimed.leases] == [odd]
    assert [row[ID] for block in claimed.blocks for row in block.rows] == plain
    # The second claim has another token, and is a beginning.
    assert [row and row._replace(token=2, begun=True) for row in found] == expected


def test_what_happened_to_a_job_comes_with_it(store: Store, clock: ManualClock):
    """A retry is no plain job: its run has to know its errors, crashes and losses."""
    enqueued(store, 4)
    failed, crashed, lost, released = claim(store, lease=60)
    store.fail(failed, "ValueError: no")
    store.crash([crashed], "killed")
    store.release(released)
    clock.advance(3600)
    store.recover()
    claimed = claim_block(store)
    rows = {row.id: row for row in rows_of(claimed) if row is not None}

    assert {lease.id for lease in claimed.leases} == {failed.id, crashed.id, lost.id}
    assert "ValueError" in (rows[failed.id].errors or "")
    assert (rows[crashed.id].crashes, bool(rows[crashed.id].quarantined)) == (1, True)
    assert "lease" in (rows[lost.id].errors or "").lower()


def test_a_policy_is_resolved_for_jobs_beside_a_block(store: Store):
    """Those that were enqueued by name get that of their worker's task."""
    enqueued(store, 4)
    (odd,) = enqueue_ids(store, 1)
    known = KnownPolicy(Policy(timeout=7).encoded(), 3)
    claimed = claim_block(store, task=known)

    (lease,) = claimed.leases
    assert lease.row is not None
    assert (lease.id, lease.row.policy, lease.row.max_attempts) == (odd, '{"timeout":7}', 3)


def test_a_block_has_one_token(store: Store):
    """That of most of its jobs; the others come one by one."""
    again = enqueued(store, 3)
    claim(store)
    store.release_worker("w1")
    first = enqueued(store, 5)
    claimed = claim_block(store)
    (block,) = claimed.blocks

    assert (block.token, [row[ID] for row in block.rows]) == (1, first)
    assert {(lease.id, lease.token) for lease in claimed.leases} == {(id, 2) for id in again}


def test_a_block_is_claimed_in_order_and_goes_on_behind_it(store: Store):
    """The view starts behind what was taken."""
    ids = enqueued(store, 12)
    first = claim_block(store, limit=8)
    rest = claim_block(store)

    assert [row[ID] for block in first.blocks for row in block.rows] == ids[:8]
    assert [lane.floor[1] for lane in first.view.lanes] == [ids[7]]
    assert [row[ID] for block in rest.blocks for row in block.rows] == ids[8:]
    assert rest.view.lanes == []


def test_bare_successes_are_settled_by_their_ids(store: Store, clock: ManualClock):
    """As any success: kept for their time, and nothing is left in the queue."""
    ids = enqueued(store)
    (block,) = claim_block(store).blocks
    settled = store.run(settle_bare(Bare(block.token, block.keep, ids)))
    found = [stored(store, id) for id in ids]

    assert (settled.ended, settled.lost, settled.repeated) == ((), (), ())
    assert {(job.state, job.attempt, job.worker, job.result) for job in found} == {
        (JobState.SUCCEEDED, 1, "w1", None)
    }
    clock.advance(25 * 3600)
    assert claim(store) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_lost_lease_is_not_settled_with_its_block(store: Store, clock: ManualClock, ending: str):
    """The others are; it is named."""
    lost = lose(store, clock, ending, queue="lost")
    before = store.get(lost.id)
    ids = enqueued(store)
    (block,) = claim_block(store).blocks
    settled = store.run(settle_bare(Bare(block.token, block.keep, [*ids, lost.id])))

    assert lost.token == block.token
    assert [lease.id for lease in settled.lost] == [lost.id]
    assert store.get(lost.id) == before
    assert {stored(store, id).state for id in ids} == {JobState.SUCCEEDED}


def test_a_block_that_is_settled_again_is_repeated(store: Store):
    """Nothing changes, and it is said."""
    ids = enqueued(store)
    (block,) = claim_block(store).blocks
    store.run(settle_bare(Bare(block.token, block.keep, ids)))
    again = store.run(settle_bare(Bare(block.token, block.keep, ids)))

    assert sorted(lease.id for lease in again.repeated) == sorted(ids)
    assert again.lost == []
