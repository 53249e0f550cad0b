"""The order in which a claim looks at queues."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rowlock.errors import OptionInvalid
from rowlock.worker.claims import shares, weighted
from rowlock.worker.settings import worker_settings

QUEUES = {"mail": 20, "default": 5, "rare": 0}


def test_each_queue_comes_first_as_often_as_its_weight_says():
    """20 : 5 : 1, as an unnumbered queue weighs one."""
    chance = random.Random(1)
    firsts = Counter(weighted(QUEUES, chance=chance)[0] for _ in range(26_000))

    assert {queue: round(count / 1000) for queue, count in firsts.items()} == {
        "mail": 20,
        "default": 5,
        "rare": 1,
    }


def test_every_queue_is_in_every_order_once():
    """Nothing is left out, and nothing asked twice."""
    chance = random.Random(2)

    assert all(sorted(QUEUES) == sorted(weighted(QUEUES, chance=chance)) for _ in range(100))


def test_equal_weights_give_every_order():
    """None has a place of its own."""
    chance = random.Random(3)
    orders = Counter(tuple(weighted(dict.fromkeys("abc", 2), chance=chance)) for _ in range(6_000))

    assert len(orders) == 6
    assert all(800 < count < 1200 for count in orders.values())


def test_shares_leave_something_for_each():
    """The first takes most; together they ask for no less than there is room."""
    taken = shares(["a", "b", "c"], {"a": 0, "b": 2, "c": 1}, 100)

    assert taken == {"a": 82, "b": 94, "c": 100}
    assert {key: min(1, most) for key, most in shares("ab", {}, 1).items()} == {"a": 1, "b": 1}


def test_a_strict_order_needs_names():
    """Without queues there is no order to keep, and a misspelt one is refused."""
    with pytest.raises(OptionInvalid, match="named"):
        worker_settings(order="strict")
    with pytest.raises(OptionInvalid, match="strict or weighted"):
        worker_settings(queues=["a"], order="random")
    assert worker_settings(queues=["a"]).order == "weighted"
