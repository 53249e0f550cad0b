"""Which combinations of a test's parameters are run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Up to that many combinations, all of them are run.
ALL_MAX = 12


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
