"""Bulk work: what fits is cancelled, retried or deleted step by step, and its progress is kept."""

from __future__ import annotations

import pytest

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.ids import new_id
from rowlock.job import Count, JobState
from rowlock.store.ops.audit import Actor
from rowlock.store.ops.bulk import (
    Bulk,
    BulkAction,
    TooMany,
    advance_bulk,
    count_bulk,
    fail_bulk,
    get_bulk,
    running_bulks,
    selection,
    start_bulk,
)
from rowlock.store.ops.manage import job_filter
from tests.store.jobs import (
    claim_one,
    enqueue,
    enqueue_ids,
    one_in_each_state,
    put_in_state,
    state_of,
)

ADA = Actor("ada")


def wanted(action: str, state: str | None = None, **chosen: object):
    return selection(
        BulkAction(action), None if state is None else JobState(state), job_filter(**chosen)
    )


def begin(asked, **options):
    return start_bulk(asked, id=new_id(), **options)


def finish(store, bulk: Bulk) -> Bulk:
    """Take all steps that there are."""
    while store.run(advance_bulk(bulk.id)).is_more:
        pass
    ended = store.run(get_bulk(bulk.id))
    assert ended is not None and ended.finished_at is not None
    return ended


def do(store, asked, expected: int = 1_000, actor: Actor = ADA) -> Bulk:
    bulk = store.run(begin(asked, expected=expected, actor=actor))
    assert isinstance(bulk, Bulk)
    return finish(store, bulk)


@pytest.mark.parametrize("state", [None, "scheduled", "ready", "running", "retrying"])
def test_cancel(store, state):
    """Those that wait end at once, the workers of the running are asked; ended ones stay."""
    ids = one_in_each_state(store)
    bulk = do(store, wanted("cancel", state))
    live = [state for state in JobState if not state.is_terminal]
    meant = live if state is None else [JobState(state)]

    assert (bulk.total.value, bulk.done, bulk.skipped) == (len(meant), len(meant), 0)
    for each, id in ids.items():
        job = store.get(id)
        if each not in meant:
            assert each is job.state
        elif each is JobState.RUNNING:
            assert (job.state, job.cancel_requested) == (each, True)
        else:
            assert JobState.CANCELLED is job.state


@pytest.mark.parametrize("state", ["dead", "cancelled", None])
def test_retry(store, state):
    """Dead ones unless told otherwise; one whose key is in flight again is skipped and named."""
    ids = one_in_each_state(store)
    meant = JobState(state or "dead")
    held = put_in_state(store, meant, key="k", queue="held")
    enqueue(store, key="k", queue="held")
    bulk = do(store, wanted("retry", state))

    assert (bulk.total.value, bulk.done, bulk.skipped, bulk.skipped_ids) == (2, 1, 1, [held])
    assert JobState.READY is state_of(store, ids[meant])
    assert meant is state_of(store, held)
    assert JobState.SUCCEEDED is state_of(store, ids[JobState.SUCCEEDED])


@pytest.mark.parametrize("state", [each for each in JobState if each is not JobState.RUNNING])
def test_delete(store, state):
    """Just those in the state that was named, with their logs."""
    ids = one_in_each_state(store)
    bulk = do(store, wanted("delete", state))

    assert (bulk.total.value, bulk.done) == (1, 1)
    assert [each for each, id in ids.items() if store.get(id) is None] == [state]


@pytest.mark.parametrize(
    ("action", "state"),
    [
        ("cancel", "dead"),
        ("cancel", "succeeded"),
        ("retry", "succeeded"),
        ("retry", "ready"),
        ("delete", "running"),
        ("delete", None),
    ],
)
def test_what_can_not_be_done(action, state):
    """A running job is not deleted, an ended one not cancelled, a succeeded one not retried."""
    with pytest.raises(OptionInvalid, match="state"):
        wanted(action, state)


def test_only_what_fits(store):
    """By kind, queue, tenant, key, tag and time of creation."""
    fitting = enqueue(
        store, kind="k", queue="q", tenant="t", key="x", tags=["a"], payload='{"n": 1}'
    )
    others = [
        enqueue(store, kind="other", queue="q", tenant="t", tags=["a"]),
        enqueue(store, kind="k", queue="other", tenant="t", tags=["a"]),
        enqueue(store, kind="k", queue="q", tenant="other", key="x", tags=["a"]),
        enqueue(store, kind="k", queue="q", tenant="t", key="other", tags=["a"]),
        enqueue(store, kind="k", queue="q", tenant="t", tags=["other"]),
    ]
    do(store, wanted("cancel", kind="k", queue="q", tenant="t", key="x", tag="a"))

    assert JobState.CANCELLED is state_of(store, fitting.id)
    assert {state_of(store, other.id) for other in others} == {JobState.READY}


def test_steps_are_bounded_and_gone_on_with(store, monkeypatch):
    """Each step is its own transaction; whoever comes next goes on where the last one ended."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)
    monkeypatch.setattr(config, "BULK_SCAN_ROWS", 3)
    enqueue_ids(store, 5, queue="other")
    ids = enqueue_ids(store, 5)
    bulk = store.run(begin(wanted("cancel", queue="default"), expected=5, actor=ADA))
    done, pending = [], []
    while True:
        more = store.run(advance_bulk(bulk.id)).is_more
        done.append(store.run(get_bulk(bulk.id)).done)
        pending.append(store.run(running_bulks()))
        if not more:
            break

    assert sorted(done) == done and done[-1] == 5 and len(done) >= 4
    assert [[bulk.id]] * (len(done) - 1) + [[]] == pending
    assert {state_of(store, id) for id in ids} == {JobState.CANCELLED}
    assert store.run(advance_bulk(bulk.id)).is_more is False


def test_what_came_later_is_not_of_it(store, clock):
    """Neither jobs enqueued after the start, nor those that died after it."""
    enqueue(store)
    bulk = store.run(begin(wanted("cancel"), expected=1, actor=ADA))
    old_dead = put_in_state(store, JobState.DEAD, queue="q")
    dead = store.run(begin(wanted("delete", "dead"), expected=1, actor=ADA))
    clock.advance(1)
    late = enqueue(store, queue="late")
    new_dead = put_in_state(store, JobState.DEAD, queue="q")

    assert (finish(store, bulk).done, finish(store, dead).done) == (1, 1)
    assert JobState.READY is state_of(store, late.id)
    assert (state_of(store, old_dead), state_of(store, new_dead)) == (None, JobState.DEAD)


def test_a_job_that_changes_meanwhile_is_left(store):
    """Judged on what is stored when its turn comes: one that was claimed is not `ready` now."""
    enqueue(store)
    bulk = store.run(begin(wanted("cancel", "ready"), expected=1, actor=ADA))
    lease = claim_one(store)

    assert finish(store, bulk).done == 0
    assert not store.get(lease.id).cancel_requested


def test_more_than_expected_is_refused(store):
    """Nothing is begun; fewer are no surprise to anybody."""
    enqueue_ids(store, 3)
    refused = store.run(begin(wanted("cancel"), expected=2, actor=ADA))
    begun = store.run(begin(wanted("cancel"), expected=9, actor=ADA))

    assert refused == TooMany(Count(3))
    assert store.run(running_bulks()) == [begun.id]


def test_counts_are_exact_to_a_bound(store, monkeypatch):
    """Beyond it they say so, whether too many fit or too many were read."""
    enqueue_ids(store, 7)
    enqueue_ids(store, 7, queue="other")
    whole = store.run(count_bulk(wanted("cancel", queue="other")))
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 2)
    monkeypatch.setattr(config, "BULK_SCAN_ROWS", 4)
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    many = store.run(count_bulk(wanted("cancel")))
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 100)
    monkeypatch.setattr(config, "LIST_SCAN_ROWS_MAX", 4)
    long = store.run(count_bulk(wanted("cancel", queue="other")))

    assert whole == Count(7)
    assert many == Count(4, exact=False)
    assert long == Count(0, exact=False)


def test_tenants_see_their_own(store):
    """Another's work is not there."""
    bulk = store.run(begin(wanted("cancel"), expected=0, actor=Actor("bea", tenant="acme")))

    assert store.run(get_bulk(bulk.id, tenant="acme")) is not None
    assert store.run(get_bulk(bulk.id, tenant="zoo")) is None
    assert store.run(get_bulk(bulk.id)) is not None


def test_work_can_be_given_up(store):
    """With the reason, and nothing more is done."""
    job = enqueue(store)
    bulk = store.run(begin(wanted("cancel"), expected=1, actor=ADA))
    store.run(fail_bulk(bulk.id, "a mistake"))
    ended = finish(store, bulk)

    assert (ended.problem, ended.done) == ("a mistake", 0)
    assert JobState.READY is state_of(store, job.id)


def test_old_records_are_removed(store, clock):
    """Those that ended long ago; running ones stay."""
    ended = do(store, wanted("cancel"))
    running = store.run(begin(wanted("cancel"), expected=0, actor=ADA))
    clock.advance(31 * 86_400)
    store.prune()

    assert store.run(get_bulk(ended.id)) is None
    assert store.run(get_bulk(running.id)) is not None
