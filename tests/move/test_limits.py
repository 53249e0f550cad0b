"""Limits move with their jobs: their numbers, what was set and paused, and the order of jobs."""

from __future__ import annotations

import pytest

import rowlock
from rowlock.limits import Limit, chosen_numbers
from rowlock.move import Mover
from rowlock.store.options import LimitPlace, new_job

Apps = tuple[rowlock.App, rowlock.App]


def put(app: rowlock.App, name: str, key: str, *, jobs: int, is_ordered: bool = False) -> list[str]:
    """Enqueue jobs under a limit, one by one. Return their ids."""
    place = LimitPlace(name, key, is_ordered)
    made = [new_job(kind="logging", payload="{}", limit=place) for _ in range(jobs)]
    # In an order that is not that of their ids.
    return [app.store.enqueue([job])[0].id for job in reversed(made)]


def run_one(app: rowlock.App) -> str:
    """Claim and settle the only job that may start. Return its id."""
    (lease,) = app.store.claim(worker="w", queues=None, limit=10)
    app.store.succeed([lease])
    return lease.id


@pytest.fixture(autouse=True)
def migrated(apps: Apps) -> None:
    """Both databases are ready."""
    for app in apps:
        app.migrate()


def test_an_order_goes_on_in_the_target(apps: Apps):
    """What is enqueued there later comes behind what has moved, also in the middle of it."""
    old, new = apps
    limit = Limit("hooks", per="n", ordered=True)
    old.store.declare_limits([limit.declared])
    put(new, "hooks", "7", jobs=3, is_ordered=True)
    Mover(new.store, old.store).run()
    first = put(old, "hooks", "7", jobs=3, is_ordered=True)
    for _ in range(3):
        run_one(old)

    moved = Mover(old.store, new.store).run()
    later = put(new, "hooks", "7", jobs=2, is_ordered=True)

    assert moved.jobs == 3
    assert [run_one(new) for _ in range(5)] == [*first, *later]


def test_nothing_moves_past_a_job_that_runs(apps: Apps):
    """Jobs behind it wait in the source until it has ended; those of other keys move."""
    old, new = apps
    old.store.declare_limits([Limit("hooks", per="n", ordered=True).declared])
    first, *rest = put(old, "hooks", "7", jobs=3, is_ordered=True)
    (lease,) = old.store.claim(worker="w", queues=None, limit=10)
    others = put(old, "hooks", "8", jobs=2, is_ordered=True)
    mover = Mover(old.store, new.store)
    mover._name_both()

    is_done = mover._round()

    assert (lease.id, is_done) == (first, False)
    assert {job.id for job in new.list()} == set(others)
    old.store.succeed([lease])
    assert mover._round()
    assert {job.id for job in new.list(state="ready")} == {*rest, *others}


def test_a_retried_dead_job_keeps_its_place_in_the_target(apps: Apps):
    """It died in the source, moved, and is retried: it is still before what came later."""
    old, new = apps
    old.store.declare_limits([Limit("hooks", per="n", ordered=True).declared])
    (dead,) = put(old, "hooks", "7", jobs=1, is_ordered=True)
    (lease,) = old.store.claim(worker="w", queues=None)
    old.store.fail(lease, "no", permanent=True)
    Mover(old.store, new.store).run()
    later = put(new, "hooks", "7", jobs=1, is_ordered=True)

    new.retry(dead)

    assert [run_one(new), run_one(new)] == [dead, *later]


@pytest.mark.parametrize("is_declared", [False, True])
def test_what_was_set_and_paused_moves(apps: Apps, is_declared: bool):
    """Also if a worker of the target has declared the limit earlier."""
    old, new = apps
    limit = Limit("stripe", per="n", concurrency_per_key=1)
    old.store.declare_limits([limit.declared])
    if is_declared:
        new.store.declare_limits([limit.declared])
    old.store.set_limit("stripe", None, chosen_numbers(concurrency_per_key=2))
    old.store.set_limit("stripe", "b/c", chosen_numbers(key="b/c", concurrency=3))
    old.store.pause_limit("stripe", "zeta")
    for key in ("a", "b/c", "zeta"):
        put(old, "stripe", key, jobs=5)

    Mover(old.store, new.store).run()

    keys = [lease.job.limit_key for lease in new.store.claim(worker="w", queues=None, limit=50)]
    assert sorted(filter(None, keys)) == ["a", "a", "b/c", "b/c", "b/c"]


def test_a_paused_limit_is_paused_in_the_target(apps: Apps):
    """Until somebody resumes it there."""
    old, new = apps
    limit = Limit("stripe", concurrency=1)
    for app in apps:
        app.store.declare_limits([limit.declared])
    old.store.pause_limit("stripe", reason="maintenance")
    put(old, "stripe", "", jobs=1)

    Mover(old.store, new.store).run()

    assert new.store.claim(worker="w", queues=None) == []
    new.store.resume_limit("stripe")
    assert run_one(new)
