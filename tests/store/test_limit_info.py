"""Limits as they are now: their numbers, what runs and waits, key by key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from rowlock import config
from rowlock.clock import ManualClock, from_us
from rowlock.errors import NotFound, OptionInvalid
from rowlock.job import Count
from rowlock.lifecycle import Throttle
from rowlock.limit_info import LimitInfo, LimitKeyInfo, LimitKeys, LimitRules
from rowlock.limits import TENANT, Rate, chosen_numbers
from rowlock.store import Settlement, Store
from tests.store.jobs import claim, claim_one
from tests.support.limits import declare, put


def one(store: Store, name: str, **options: Any) -> LimitInfo:
    """The limit of this name."""
    (found,) = store.limits([name], **options)
    return found


def counts(keys: LimitKeys | Sequence[LimitKeyInfo]) -> list[tuple[str, int, int]]:
    """What runs and waits of each key."""
    return [(each.key, each.running.value, each.waiting.value) for each in keys]


def test_a_limit_shows_its_numbers_and_jobs(store: Store, clock: ManualClock):
    """What was declared, what runs and what waits, and since when."""
    declare(store, "stripe", concurrency=3, rate="100/s", per="customer", weights={"acme": 3})
    put(store, "stripe", "acme", jobs=3)
    put(store, "stripe", "bolt", jobs=2, kind="refund")
    claim(store, limit=2)
    clock.advance(90)

    numbers = LimitRules(concurrency=3, rate="100/s", burst=5)
    assert one(store, "stripe") == LimitInfo(
        name="stripe",
        rules=numbers,
        declared=numbers,
        per="customer",
        weights={"acme": 3},
        declared_at=from_us(clock.now_us()) - timedelta(seconds=90),
        running=Count(2),
        waiting=Count(3),
        paused_keys=Count(0),
        oldest_waiting_seconds=90,
    )


def test_limits_come_by_name_and_in_pages(store: Store):
    """Also those that jobs name and that no worker has declared."""
    for name in ("c", "a"):
        declare(store, name, concurrency=1)
    put(store, "b", jobs=2)

    found = store.limits()

    assert [each.name for each in found] == ["a", "b", "c"]
    assert [each.declared is None for each in found] == [False, True, False]
    assert found[1].waiting == Count(2)
    assert [each.name for each in store.limits(limit=1)] == ["a"]
    assert [each.name for each in store.limits(after="a", limit=2)] == ["b", "c"]
    assert [each.name for each in store.limits(["c", "nope"])] == ["c"]


def test_what_was_set_stands_beside_what_was_declared(store: Store):
    """And what counts is both together."""
    declare(store, "pool", concurrency=1, per="table", rate_per_key="10/m")
    store.set_limit("pool", None, chosen_numbers(concurrency=4))

    found = one(store, "pool")

    assert found.chosen == LimitRules(concurrency=4)
    assert found.declared == LimitRules(concurrency=1, rate_per_key="10/m", burst_per_key=1)
    assert found.rules == LimitRules(concurrency=4, rate_per_key="10/m", burst_per_key=1)


def test_a_pause_is_shown_with_its_end_and_reason(store: Store, clock: ManualClock):
    """Of the limit and of its keys, as long as it lasts."""
    declare(store, "stripe", per="customer")
    store.pause_limit("stripe", None, 60, reason="they asked for it")
    store.pause_limit("stripe", "acme", reason="unpaid")
    store.pause_limit("stripe", "bolt", 30)

    found, keys = one(store, "stripe"), store.limit_keys("stripe").keys

    until = from_us(clock.now_us()) + timedelta(seconds=60)
    assert (found.is_paused, found.paused_until) == (True, until)
    assert (found.paused_reason, found.paused_keys) == ("they asked for it", Count(2))
    assert [(key.key, key.is_paused, key.paused_reason) for key in keys] == [
        ("acme", True, "unpaid"),
        ("bolt", True, None),
    ]
    assert [key.paused_until for key in keys] == [None, until - timedelta(seconds=30)]
    clock.advance(60)
    later = one(store, "stripe")
    assert (later.is_paused, later.paused_until, later.paused_reason) == (False, None, None)
    assert later.paused_keys == Count(1)


def test_a_throttled_limit_without_keys_is_paused(store: Store, clock: ManualClock):
    """A resume of the limit ends that, too."""
    declare(store, "api", concurrency=2)
    put(store, "api", jobs=2)
    store.settle([Settlement(claim_one(store), Throttle(30_000_000, "429"))])

    found = one(store, "api")

    assert (found.is_paused, found.paused_reason) == (True, "429")
    assert found.paused_until == from_us(clock.now_us()) + timedelta(seconds=30)
    assert claim(store) == []
    store.resume_limit("api")
    assert not one(store, "api").is_paused
    assert len(claim(store)) == 2


def test_an_order_without_keys_goes_on_when_it_is_resumed(store: Store):
    """A dead job has paused it."""
    declare(store, "hooks", ordered=True, on_dead="pause")
    put(store, "hooks", jobs=2, is_ordered=True)
    store.fail(claim_one(store), "no", permanent=True)

    found = one(store, "hooks")

    assert (found.is_ordered, found.on_dead, found.is_paused) == (True, "pause", True)
    store.resume_limit("hooks")
    assert len(claim(store)) == 1


def test_a_rate_shows_when_the_next_job_may_start(store: Store, clock: ManualClock):
    """In total and for each key."""
    declare(store, "api", rate=Rate(1, period=10), per="customer", rate_per_key=Rate(1, period=60))
    put(store, "api", "acme", jobs=2)
    claim_one(store)

    found, (key,) = one(store, "api"), store.limit_keys("api")

    now = from_us(clock.now_us())
    assert found.opens_at == now + timedelta(seconds=10)
    assert (key.rate, key.opens_at) == ("1/m", now + timedelta(seconds=60))
    clock.advance(60)
    assert one(store, "api").opens_at is None
    assert store.limit_keys("api").keys[0].opens_at is None


def test_the_busiest_keys_come_first(store: Store):
    """By what runs, then by what waits, over all queues and kinds."""
    declare(store, "stripe", per="customer", concurrency_per_key=2)
    put(store, "stripe", "a", jobs=1)
    put(store, "stripe", "b", jobs=9)
    put(store, "stripe", "c", jobs=2)
    put(store, "stripe", "c", jobs=3, kind="refund", queue="other")
    claim(store, limit=100, kinds=["task"])
    put(store, "stripe", "d", jobs=4)

    found = store.limit_keys("stripe")

    assert counts(found) == [("b", 2, 7), ("c", 2, 3), ("a", 1, 0), ("d", 0, 4)]
    assert {key.concurrency for key in found} == {2}
    assert (found.is_cut, found.next) == (False, None)
    cut = store.limit_keys("stripe", limit=2)
    assert (counts(cut), cut.is_cut) == ([("b", 2, 7), ("c", 2, 3)], True)


def test_keys_come_by_name_in_pages(store: Store):
    """Whatever is remembered about them: jobs, a pause, numbers of their own."""
    declare(store, "stripe", per="customer")
    for key in ("d", "b", "e"):
        put(store, "stripe", key)
    store.pause_limit("stripe", "a")
    store.set_limit("stripe", "c", chosen_numbers(key="c", weight=3))

    pages, after = [], ""
    while True:
        page = store.limit_keys("stripe", limit=2, after=after)
        pages.append([key.key for key in page])
        if page.next is None:
            break
        after = page.next

    assert pages == [["a", "b"], ["c", "d"], ["e"]]


def test_a_key_shows_its_own_numbers(store: Store):
    """And those of its limit where it has none."""
    declare(store, "stripe", per="customer", concurrency_per_key=1, weights={"bolt": 2})
    store.set_limit("stripe", "acme", chosen_numbers(key="acme", concurrency=3, rate="5/s"))
    store.set_limit("stripe", "bolt", chosen_numbers(key="bolt", concurrency=4))
    put(store, "stripe", "cato")

    found = {key.key: key for key in store.limit_keys("stripe")}

    shown = [(key.concurrency, key.rate, key.weight, key.is_own) for key in found.values()]
    assert sorted(found) == ["acme", "bolt", "cato"]
    assert sorted(shown, key=str) == [
        (1, None, 1, False),
        (3, "5/s", 1, True),
        (4, None, 2, True),
    ]


def test_a_limit_without_keys_has_none(store: Store):
    """Its jobs are counted as a whole, and no key of it can be paused or set."""
    declare(store, "pool", concurrency=1)
    put(store, "pool", jobs=2)

    assert store.limit_keys("pool").keys == []
    for change in (
        lambda: store.pause_limit("pool", "acme"),
        lambda: store.set_limit("pool", "acme", chosen_numbers(key="acme", concurrency=2)),
        lambda: store.unset_limit("pool", "acme"),
        lambda: store.resume_limit("pool", "acme"),
    ):
        with pytest.raises(OptionInvalid, match="limit 'pool' has no keys"):
            change()


def test_the_keys_of_an_unknown_limit_are_not_found(store: Store):
    """Nobody has declared it."""
    put(store, "nope", "acme")

    with pytest.raises(NotFound, match="there is no limit 'nope'"):
        store.limit_keys("nope")


def test_a_look_at_keys_is_bounded_and_says_so(store: Store, monkeypatch: pytest.MonkeyPatch):
    """It visits so many keys, and counts so many jobs of each."""
    monkeypatch.setattr(config, "KEYS_LISTED_MAX", 3)
    monkeypatch.setattr(config, "KEY_COUNT_EXACT_MAX", 4)
    declare(store, "stripe", per="customer")
    for key in ("a", "b", "c", "d"):
        put(store, "stripe", key, jobs=5)

    found = store.limit_keys("stripe", limit=3)

    assert ([key.key for key in found], found.is_cut) == (["a", "b", "c"], True)
    assert {key.waiting for key in found} == {Count(4, exact=False)}


def test_a_running_key_is_found_behind_many_that_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """The busiest are not cut off because their names come late."""
    monkeypatch.setattr(config, "KEYS_LISTED_MAX", 3)
    declare(store, "stripe", per="customer")
    put(store, "stripe", "z")
    claim_one(store)
    for key in ("a", "b", "c", "d"):
        put(store, "stripe", key)

    found = store.limit_keys("stripe", limit=1)

    assert (counts(found), found.is_cut) == ([("z", 1, 0)], True)
    assert found.keys[0].waiting == Count(0, exact=False)


def test_counts_of_a_limit_are_bounded_and_say_so(store: Store, monkeypatch: pytest.MonkeyPatch):
    """A number beyond the bound is marked."""
    monkeypatch.setattr(config, "COUNT_EXACT_MAX", 3)
    declare(store, "pool", concurrency=100)
    put(store, "pool", jobs=10)
    claim(store, limit=5)

    found = one(store, "pool")

    assert (found.running, found.waiting) == (Count(3, exact=False), Count(3, exact=False))


def test_a_tenant_sees_its_own_key_alone(store: Store):
    """Of limits whose keys are tenants; nothing of other limits, tenants or their jobs."""
    declare(store, "exports", per=TENANT, weights={"acme": 3, "bolt": 2}, concurrency_per_key=2)
    declare(store, "stripe", per="customer", concurrency=5)
    for tenant in ("acme", "bolt"):
        put(store, "exports", tenant, jobs=3, tenant=tenant)
    put(store, "exports", "acme", jobs=2, tenant="bolt")
    claim(store, limit=100)
    store.pause_limit("exports", "bolt")

    (found,) = store.limits(tenant="acme")
    keys = store.limit_keys("exports", tenant="acme")

    assert (found.name, found.weights, found.paused_keys) == ("exports", {"acme": 3}, Count(0))
    assert (found.running, found.waiting) == (Count(2), Count(1))
    assert counts(keys) == [("acme", 2, 1)]
    with pytest.raises(NotFound):
        store.limit_keys("stripe", tenant="acme")
