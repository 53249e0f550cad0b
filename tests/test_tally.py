"""Sums of how runs ended: they add up, they are bounded, and percentiles come out of them."""

from __future__ import annotations

import random

import pytest

from rowlock import config
from rowlock.tally import (
    BOUNDS_US,
    OTHER,
    RunEnd,
    Spread,
    Sums,
    Tally,
    bounded,
    bounds_of,
    bucket_of,
    counted,
    merged,
)


def of(number: int) -> Sums:
    sums = Sums()
    sums.add(RunEnd.SUCCEEDED, number)
    sums.run.add(1_000, number)
    return sums


def test_bounds_ascend():
    """From 100 µs to a day and more, six a decade."""
    assert list(BOUNDS_US) == sorted(set(BOUNDS_US))
    assert (BOUNDS_US[0], BOUNDS_US[-1]) == (100, 10**11)


@pytest.mark.parametrize("time", [-5, 0, 1, 100, 101, 1_500, 10**6, 10**11, 10**14])
def test_a_time_lies_within_its_bucket(time: int):
    """Up to the bound and including it; what is too long or before zero has a bucket too."""
    low, high = bounds_of(bucket_of(time))

    assert low < time <= high or time <= 0 == low or time > high == low == BOUNDS_US[-1]


def test_percentiles_are_right_to_a_bucket():
    """Whatever the distribution, within the width of one bucket."""
    chance = random.Random(4)
    times = sorted(round(chance.lognormvariate(10, 2)) for _ in range(5_000))
    spread = Spread()
    for time in times:
        spread.add(time)

    for share in (0.5, 0.95, 0.99):
        real = times[int(share * len(times)) - 1]
        told = spread.quantile(share)
        assert told is not None
        assert real / 1.7 <= told * 10**6 <= real * 1.7
    assert sum(times) / len(times) == pytest.approx((spread.mean_seconds or 0) * 10**6)


def test_nothing_has_no_percentile():
    """Rather than a zero."""
    assert (Spread().quantile(0.5), Spread().mean_seconds) == (None, None)


def test_sums_add_up():
    """Counts, buckets and totals."""
    tally = merged({("a", "b"): of(3)}, {("a", "b"): of(4), ("c", "d"): of(1)})

    assert 7 == tally["a", "b"].of(RunEnd.SUCCEEDED) == tally["a", "b"].run.count
    assert tally["a", "b"].run.total_us == 7_000
    assert tally["c", "d"].total == 1


def test_names_are_bounded():
    """What comes beyond is counted together, and nothing is lost."""
    tally: Tally = {}
    for number in range(config.TALLY_NAMES_MAX + 50):
        counted(tally, ("q", f"k{number}")).add(RunEnd.DEAD)

    assert len(tally) <= config.TALLY_NAMES_MAX + 1
    assert tally[OTHER, OTHER].of(RunEnd.DEAD) == 50


def test_the_largest_names_are_kept():
    """When sums of many processes come together."""
    tally = {("q", f"k{number}"): of(number + 1) for number in range(10)}
    kept = bounded(tally, 4)

    assert kept.keys() == {("q", "k9"), ("q", "k8"), ("q", "k7"), (OTHER, OTHER)}
    assert sum(sums.total for sums in kept.values()) == 55


def test_known_names_always_have_a_place():
    """Anyone who may enqueue invents names, and must not hide those of the app."""
    known = frozenset(("mail", f"task-{number}") for number in range(50))
    tally: Tally = {}
    for number in range(config.TALLY_NAMES_MAX + 50):
        counted(tally, ("q", f"invented-{number}"), known).add(RunEnd.SUCCEEDED, 1_000)
    for name in known:
        counted(tally, name, known).add(RunEnd.DEAD)
    kept = bounded(tally, 60, known=known)

    assert known <= tally.keys()
    assert len(tally) <= config.TALLY_NAMES_MAX + 1
    assert known <= kept.keys()
    assert len(kept) == 60
    assert sum(sums.total for sums in kept.values()) == 1_000 * (config.TALLY_NAMES_MAX + 50) + 50
