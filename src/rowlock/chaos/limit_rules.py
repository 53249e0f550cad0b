"""Whether limits were kept: how many jobs ran at once, when they started, and in which order. Pure.

1. A slot is a lease. A lease begins with a claim and ends when its job is given back or deleted.
   The witness numbers changes before they are committed. That does not matter here: a claimer
   holds the lock of its key until its commit, so its claims have later numbers than those of the
   holders before it, and it counts a lease whose end it can't see.
2. A start is too early if GCRA, fed with the times that the claims themselves have written, does
   not allow it.
3. In an order, a job that was acknowledged before the claim of another one of its key starts first
   if its place is lower. What nobody has acknowledged may have been committed later.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rowlock.chaos.witness import CommittedChange, What
from rowlock.store.ops.limits import LimitNumbers

# The numbers of the invariants: see `judge`.
AT_ONCE: Final = 9
IN_ORDER: Final = 10

Finding = tuple[int, str]
# Whether a job was acknowledged before a time of the database.
WasKnown = Callable[[str, int], bool]


@dataclass(slots=True)
class LimitFigures:
    """What was seen of one limit. Times are microseconds of the database."""

    starts: int = 0
    most: int = 0
    most_of_a_key: int = 0
    # Claims after which no further job could start, in total or of the key.
    full: int = 0
    early: int = 0
    out_of_order: int = 0
    first_at: int | None = None
    last_at: int = 0


@dataclass(slots=True)
class _Rate:
    """GCRA: `tat` is when the next start would be due at exactly this rate."""

    interval_us: int
    burst: int
    tat: int = 0

    def early_us(self, at: int) -> int:
        """Count a start. Return by how many microseconds it was too early."""
        if self.tat > at + self.burst * self.interval_us:
            # The clock went back, or this is not the first start that was too early.
            self.tat = at + (self.burst - 1) * self.interval_us
        allowed_at = self.tat - (self.burst - 1) * self.interval_us
        self.tat = max(self.tat, at) + self.interval_us
        return max(0, allowed_at - at)


@dataclass(slots=True)
class _Key:
    running: int = 0
    rate: _Rate | None = None
    # Of jobs in an order that have not ended: their places, and the lowest on top of the heap.
    places: dict[str, int] = field(default_factory=dict[str, int])
    heap: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


@dataclass(slots=True)
class _Watched:
    """One limit."""

    name: str
    numbers: LimitNumbers
    running: int = 0
    rate: _Rate | None = None
    keys: dict[str, _Key] = field(default_factory=dict[str, _Key])
    figures: LimitFigures = field(default_factory=LimitFigures)

    def __post_init__(self) -> None:
        self.rate = _rate(self.numbers.interval_us, self.numbers.burst)

    def key(self, name: str) -> _Key:
        """Return the key of that name."""
        if name not in self.keys:
            rate = _rate(self.numbers.key_interval_us, self.numbers.key_burst)
            self.keys[name] = _Key(rate=rate)
        return self.keys[name]


def _rate(interval_us: int | None, burst: int | None) -> _Rate | None:
    return None if interval_us is None else _Rate(interval_us, burst or 1)


class LimitJudge:
    """Takes the changes of all jobs, in the order of the witness, and returns what is wrong."""

    def __init__(self, limits: Mapping[str, LimitNumbers], was_known: WasKnown) -> None:
        self._limits = {name: _Watched(name, numbers) for name, numbers in limits.items()}
        self._was_known = was_known
        # The limit and key of each lease.
        self._held: dict[str, tuple[_Watched, _Key]] = {}

    @property
    def figures(self) -> dict[str, LimitFigures]:
        """Return the figures of each limit."""
        return {name: limit.figures for name, limit in self._limits.items()}

    def see(self, event: CommittedChange) -> Iterator[Finding]:
        """Take a change. Yield the broken invariants."""
        if event.limit_name not in self._limits:
            return
        limit = self._limits[event.limit_name]
        key = limit.key(event.limit_key or "")
        match event.what:
            case What.INSERTED:
                _line_up(key, event)
            case What.CLAIMED:
                yield from self._claimed(limit, key, event)
            case What.RETURNED:
                self._let_go(event.job)
                _line_up(key, event)
            case What.DELETED:
                self._let_go(event.job)
                key.places.pop(event.job, None)
            case _:
                pass

    def _let_go(self, job: str) -> None:
        if job in self._held:
            limit, key = self._held.pop(job)
            limit.running -= 1
            key.running -= 1

    def _claimed(self, limit: _Watched, key: _Key, event: CommittedChange) -> Iterator[Finding]:
        # A claim over a lease that has not ended is another finding.
        self._let_go(event.job)
        self._held[event.job] = (limit, key)
        limit.running += 1
        key.running += 1
        figures, numbers = limit.figures, limit.numbers
        figures.starts += 1
        figures.most = max(figures.most, limit.running)
        figures.most_of_a_key = max(figures.most_of_a_key, key.running)
        most, key_most = numbers.concurrency, numbers.key_concurrency
        figures.full += limit.running == most or key.running == key_most
        where = f"{limit.name}/{event.limit_key}"
        if most is not None and limit.running > most:
            yield AT_ONCE, f"{limit.running} ran at once under {limit.name}, which allows {most}"
        if key_most is not None and key.running > key_most:
            yield AT_ONCE, f"{key.running} ran at once under {where}, which allows {key_most}"
        yield from self._check_rates(limit, key, event, where)
        yield from self._check_order(limit, key, event, where)

    @staticmethod
    def _check_rates(
        limit: _Watched, key: _Key, event: CommittedChange, where: str
    ) -> Iterator[Finding]:
        at = event.at if event.started_at is None else event.started_at
        figures = limit.figures
        figures.first_at = at if figures.first_at is None else figures.first_at
        figures.last_at = at
        for rate, name in ((limit.rate, limit.name), (key.rate, where)):
            early = 0 if rate is None else rate.early_us(at)
            if early:
                figures.early += 1
                yield AT_ONCE, f"{event.job} started {early} µs too early under {name}"

    def _check_order(
        self, limit: _Watched, key: _Key, event: CommittedChange, where: str
    ) -> Iterator[Finding]:
        if not limit.numbers.is_ordered or event.place is None:
            return
        own = (event.place, event.job)
        while key.heap and key.places.get(key.heap[0][1]) != key.heap[0][0]:
            heapq.heappop(key.heap)
        if not key.heap or key.heap[0] >= own:
            return
        before = [(place, job) for job, place in key.places.items() if (place, job) < own]
        known = sorted(job for _, job in before if self._was_known(job, event.at))
        if known:
            limit.figures.out_of_order += 1
            yield IN_ORDER, f"{event.job} started under {where} before {known[0]}"


def _line_up(key: _Key, event: CommittedChange) -> None:
    if event.place is not None and key.places.get(event.job) != event.place:
        key.places[event.job] = event.place
        heapq.heappush(key.heap, (event.place, event.job))


def counts_of(figures: Mapping[str, LimitFigures]) -> Counter[str]:
    """Return the figures as counts of a report."""
    counts: Counter[str] = Counter()
    for name, each in sorted(figures.items()):
        counts[f"{name}: starts"] = each.starts
        counts[f"{name}: most at once"] = each.most
        counts[f"{name}: most of a key at once"] = each.most_of_a_key
        counts["limit starts"] += each.starts
        counts["limits full"] += each.full
        counts["starts too early"] += each.early
        counts["starts out of order"] += each.out_of_order
    return counts
