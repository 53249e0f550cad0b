"""Which combinations of a test's parameters are run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

import pytest

# Up to that many combinations, all of them are run.
ALL_MAX = 12
STORES = ("sqlite", "postgres")
# The fixtures that run a test on each.
ON_STORES = ("any_url", "module_store")


class Combination(NamedTuple):
    """The numbers of a store, of a colour, and what orders the test's own values among others."""

    store: int
    colour: int
    value: tuple[int, ...]


def pairs(combinations: Sequence[Combination]) -> Iterable[Combination]:
    """Those of a test's combinations that are run.

    Each value meets each store and each colour, but not each store in each colour: blocking and
    async methods run the same steps, and what differs between them, the drivers, meets half of the
    values each.
    """
    if len(combinations) <= ALL_MAX:
        return combinations
    ranks: dict[tuple[int, int], int] = {}
    chosen: list[Combination] = []
    for each in sorted(combinations):
        rank = ranks[each[:2]] = ranks.get(each[:2], -1) + 1
        if (rank + each.store + each.colour) % 2 == 0:
            chosen.append(each)
    return chosen


class Variant(NamedTuple):
    """A test that need not run on both stores: its name, the number of its value, and a store."""

    test: str
    value: int
    store: str


def by_turns(variants: Collection[Variant]) -> set[Variant]:
    """Those that are left out: each value of a test is run on one store, and the next on the other.

    Which is the first depends on the name, so that tests take the stores by turns, whatever the
    order in which they are run. A variant that was asked for alone is run.
    """
    return {
        each
        for each in variants
        if (crc32(each.test.encode()) + each.value + STORES.index(each.store)) % 2
        and all(each._replace(store=store) in variants for store in STORES)
    }


def variants_on_stores(items: Iterable[pytest.Item]) -> dict[Variant, pytest.Item]:
    """The variants of tests with the marker `one_store`."""
    found: dict[tuple[str, str], dict[tuple[int, ...], pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("one_store") and hasattr(item, "callspec"):
            numbers, values = item.callspec.indices, item.callspec.params
            for fixture in (name for name in ON_STORES if name in numbers):
                # Numbers of values go on from store to store, in the same order.
                others = tuple(number for name, number in numbers.items() if name != fixture)
                place = item.nodeid.partition("[")[0], values[fixture]
                found.setdefault(place, {})[others] = item
    return {
        Variant(test, value, store): item
        for (test, store), by_numbers in found.items()
        for value, (_, item) in enumerate(sorted(by_numbers.items(), key=lambda each: each[0]))
    }
