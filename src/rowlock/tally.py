"""How runs ended, added up: counts by outcome, and how long they waited and took. Pure.

1. Times are counted in fixed buckets, six a decade from 100 µs to a day: sums of any processes and
   any minutes can be added, and a percentile read off them is right to about a quarter.
2. Names are bounded: beyond so many pairs of queue and kind, the rest is added up as `…other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from rowlock import config

Name = tuple[str, str]
"""A queue and a kind."""

OTHER: Final = "…other"


class RunEnd(StrEnum):
    """What became of a run."""

    SUCCEEDED = "succeeded"
    RETRYING = "retrying"
    DEAD = "dead"
    CANCELLED = "cancelled"
    RELEASED = "released"


ENDS: Final = tuple(RunEnd)
_PLACE: Final = {end: place for place, end in enumerate(ENDS)}


class Ended(NamedTuple):
    """One run that is settled. Times are microseconds; `run_us` None: it never started."""

    id: str
    kind: str
    queue: str
    tenant: str | None
    end: RunEnd
    attempt: int
    wait_us: int
    run_us: int | None
    error: str | None


# The upper bounds of the buckets in microseconds; what is longer goes into one more.
BOUNDS_US: Final = (
    *(round(step * 10**decade) for decade in range(2, 11) for step in (1, 1.5, 2, 3, 5, 7)),
    10**11,
)


def bucket_of(microseconds: int) -> int:
    """The place of a time among the buckets."""
    return bisect_left(BOUNDS_US, microseconds)


@dataclass(slots=True)
class Spread:
    """A distribution of times: how many fell into which bucket, and their sum in microseconds."""

    buckets: dict[int, int] = field(default_factory=dict[int, int])
    total_us: int = 0

    def add(self, microseconds: int, times: int = 1) -> None:
        """Count a time, so many times; a clock that went back makes it none."""
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
        """The time in seconds that a share of all did not exceed, as far as the buckets tell."""
        left = share * self.count
        for bucket in sorted(self.buckets):
            number = self.buckets[bucket]
            if left <= number:
                low, high = bounds_of(bucket)
                return (low + (high - low) * left / number) / config.SECOND_US
            left -= number
        return None


def bounds_of(bucket: int) -> tuple[int, int]:
    """Between which microseconds a bucket's times are; the last one has no width."""
    low = BOUNDS_US[bucket - 1] if bucket else 0
    return low, BOUNDS_US[bucket] if bucket < len(BOUNDS_US) else low


@dataclass(slots=True)
class Sums:
    """How the runs of one queue and kind ended."""

    ends: list[int] = field(default_factory=lambda: [0] * len(ENDS))
    run: Spread = field(default_factory=Spread)
    wait: Spread = field(default_factory=Spread)

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
    """The first with the second added to it."""
    for name, sums in other.items():
        tally.setdefault(name, Sums()).merge(sums)
    return tally


def counted(tally: Tally, name: Name) -> Sums:
    """The sums of a name, bounded: those of one too many are counted with the others'."""
    sums = tally.get(name)
    if sums is None:
        known = name if len(tally) < config.TALLY_NAMES_MAX else (OTHER, OTHER)
        sums = tally.setdefault(known, Sums())
    return sums


def bounded(tally: Tally, most: int = config.TALLY_NAMES_MAX) -> Tally:
    """The same sums with at most so many names, the largest ones."""
    if len(tally) <= most:
        return tally
    by_size = sorted(tally, key=lambda name: (name != (OTHER, OTHER), tally[name].total))
    kept = set(by_size[-(most - 1) :])
    return merged_as(tally.items(), lambda name: name if name in kept else (OTHER, OTHER))


def merged_as(items: Iterable[tuple[Name, Sums]], rename: Callable[[Name], Name]) -> Tally:
    """Sums under other names, added up where two become one."""
    renamed: Tally = {}
    for name, sums in items:
        renamed.setdefault(rename(name), Sums()).merge(sums)
    return renamed
