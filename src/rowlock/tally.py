"""Sums of ended runs: counts by outcome, and distributions of waiting and running times. Pure.

1. Times are counted in fixed buckets, six per decade from 100 µs to a day. So the sums of any
   processes and minutes can be added, and a percentile is right to about a quarter.
2. Names are bounded: beyond TALLY_NAMES_MAX pairs of queue and kind, the rest is summed as
   `…other`. Those of declared tasks always have a place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Set
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from rowlock import config

Name = tuple[str, str]
"""A queue and a kind."""

OTHER: Final = "…other"


class RunEnd(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    RETRYING = "retrying"
    DEAD = "dead"
    CANCELLED = "cancelled"
    RELEASED = "released"


ENDS: Final = tuple(RunEnd)
_PLACE: Final = {end: place for place, end in enumerate(ENDS)}


class Ended(NamedTuple):
    """One settled run. Times are in microseconds. `run_us` is None if it never started."""

    id: str
    kind: str
    queue: str
    tenant: str | None
    end: RunEnd
    attempt: int
    wait_us: int
    run_us: int | None
    error: str | None


# The upper bounds of the buckets in microseconds. Longer times go into one more bucket.
BOUNDS_US: Final = (
    *(round(step * 10**decade) for decade in range(2, 11) for step in (1, 1.5, 2, 3, 5, 7)),
    10**11,
)


def bucket_of(microseconds: int) -> int:
    """Return the index of the bucket for a time."""
    return bisect_left(BOUNDS_US, microseconds)


class Spread(msgspec.Struct):
    """A distribution of times: the count per bucket, and the sum in microseconds."""

    buckets: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    total_us: int = 0

    def add(self, microseconds: int, times: int = 1) -> None:
        """Count a time, `times` times. A negative one, from a clock that went back, counts as 0."""
        bucket = bisect_left(BOUNDS_US, microseconds)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times
        self.total_us += max(0, microseconds) * times

    def merge(self, other: Spread) -> None:
        for bucket, number in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + number
        self.total_us += other.total_us

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    @property
    def mean_seconds(self) -> float | None:
        return self.total_us / self.count / config.SECOND_US if self.buckets else None

    def quantile(self, share: float) -> float | None:
        """Return the time in seconds that a share of all did not exceed, within the buckets."""
        left = share * self.count
        for bucket in sorted(self.buckets):
            number = self.buckets[bucket]
            if left <= number:
                low, high = bounds_of(bucket)
                return (low + (high - low) * left / number) / config.SECOND_US
            left -= number
        return None


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the bounds of a bucket in microseconds. The last one has no width."""
    low = BOUNDS_US[bucket - 1] if bucket else 0
    return low, BOUNDS_US[bucket] if bucket < len(BOUNDS_US) else low


class Sums(msgspec.Struct):
    """The sums of the runs of one queue and kind."""

    ends: list[int] = msgspec.field(default_factory=lambda: [0] * len(ENDS))
    run: Spread = msgspec.field(default_factory=Spread)
    wait: Spread = msgspec.field(default_factory=Spread)

    def of(self, end: RunEnd) -> int:
        return self.ends[_PLACE[end]]

    def add(self, end: RunEnd, times: int = 1) -> None:
        self.ends[_PLACE[end]] += times

    def merge(self, other: Sums) -> None:
        self.ends = [mine + theirs for mine, theirs in zip(self.ends, other.ends, strict=True)]
        self.run.merge(other.run)
        self.wait.merge(other.wait)

    @property
    def total(self) -> int:
        return sum(self.ends)


Tally = dict[Name, Sums]


def merged(tally: Tally, other: Mapping[Name, Sums]) -> Tally:
    """Add the second to the first, and return the first."""
    for name, sums in other.items():
        tally.setdefault(name, Sums()).merge(sums)
    return tally


def counted(tally: Tally, name: Name, known: Set[Name] = frozenset()) -> Sums:
    """Return the sums to count a name in. Names beyond the bound share those of the others.

    Known names always have a place: anyone may invent a name, and must not hide them.
    """
    sums = tally.get(name)
    if sums is None:
        is_free = name in known or len(tally.keys() | known) < config.TALLY_NAMES_MAX
        sums = tally.setdefault(name if is_free else (OTHER, OTHER), Sums())
    return sums


def bounded(
    tally: Tally, most: int = config.TALLY_NAMES_MAX, *, known: Set[Name] = frozenset()
) -> Tally:
    """Return the sums with at most `most` names: known ones first, then the largest."""
    if len(tally) <= most:
        return tally
    others = (OTHER, OTHER)
    by_size = sorted(tally, key=lambda name: (name in known, name != others, tally[name].total))
    kept = set(by_size[-(most - 1) :])
    return merged_as(tally.items(), lambda name: name if name in kept else (OTHER, OTHER))


def merged_as(items: Iterable[tuple[Name, Sums]], rename: Callable[[Name], Name]) -> Tally:
    """Return the sums under new names, added up where two names become one."""
    renamed: Tally = {}
    for name, sums in items:
        renamed.setdefault(rename(name), Sums()).merge(sums)
    return renamed
