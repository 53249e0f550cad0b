"""Limits in the model: whether a job may start now, and what is remembered of those that did.

Which of several keys has its turn is left open. The model is told what a store has claimed, and
says whether that was allowed, and whether anything was left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

SECOND = 1_000_000
FOR_EVER = 2**62
# Any number.
MANY = 10**9


@dataclass(frozen=True, slots=True)
class RateSpec:
    """So many starts in so many seconds, and so many at once after a pause."""

    starts: int
    seconds: int
    burst: int = 1

    @property
    def interval(self) -> int:
        return -(-self.seconds * SECOND // self.starts)


@dataclass(frozen=True, slots=True)
class LimitSpec:
    """What is declared, or set since; of a key, if it is set for one."""

    concurrency: int | None = None
    rate: RateSpec | None = None
    key_concurrency: int | None = None
    key_rate: RateSpec | None = None
    weights: tuple[tuple[str, int], ...] = ()
    is_ordered: bool = False
    pauses_when_dead: bool = False

    def over(self, other: LimitSpec) -> LimitSpec:
        """These numbers, and those of the other where there are none."""
        return replace(
            other,
            concurrency=self.concurrency or other.concurrency,
            rate=self.rate or other.rate,
            key_concurrency=self.key_concurrency or other.key_concurrency,
            key_rate=self.key_rate or other.key_rate,
        )


@dataclass(slots=True)
class Gate:
    """The bounds of a limit or of one of its keys, and what has passed it.

    `next_at` is when a start is due if starts come at exactly the rate.
    """

    concurrency: int | None = None
    rate: RateSpec | None = None
    weight: int | None = None
    closed_until: int = 0
    next_at: int = 0

    def starts_left(self, now: int, rate: RateSpec | None) -> int:
        """How many jobs may start at once by a rate."""
        if rate is None:
            return MANY
        ahead = (rate.burst - 1) * rate.interval
        at = self._next_at(now, rate)
        return 0 if at - ahead > now else (now + ahead - max(now, at)) // rate.interval + 1

    def start(self, now: int, rate: RateSpec | None) -> None:
        if rate is not None:
            self.next_at = max(now, self._next_at(now, rate)) + rate.interval

    def _next_at(self, now: int, rate: RateSpec) -> int:
        """What a slower rate has left behind does not hold up a faster one."""
        if self.next_at > now + rate.burst * rate.interval:
            return now + (rate.burst - 1) * rate.interval
        return self.next_at


@dataclass(slots=True)
class Limits:
    """All limits."""

    declared: dict[str, LimitSpec] = field(default_factory=dict)
    chosen: dict[str, LimitSpec] = field(default_factory=dict)
    totals: dict[str, Gate] = field(default_factory=dict)
    keys: dict[tuple[str, str], Gate] = field(default_factory=dict)

    def spec(self, name: str) -> LimitSpec | None:
        """What counts. None: nobody has declared it."""
        declared = self.declared.get(name)
        return None if declared is None else self.chosen.get(name, LimitSpec()).over(declared)

    def total(self, name: str) -> Gate:
        return self.totals.setdefault(name, Gate())

    def key(self, name: str, key: str) -> Gate:
        return self.keys.setdefault((name, key), Gate())

    def close(self, name: str, key: str, until: int) -> None:
        gate = self.key(name, key)
        gate.closed_until = max(gate.closed_until, until)

    def is_open(self, name: str, key: str, now: int, running: int, running_of_key: int) -> bool:
        """Whether one more job may start now, but for its order."""
        spec = self.spec(name)
        if spec is None:
            return False
        total, own = self.total(name), self.key(name, key)
        bound = own.concurrency or spec.key_concurrency
        return (
            max(total.closed_until, own.closed_until) <= now
            and (spec.concurrency is None or running < spec.concurrency)
            and (bound is None or running_of_key < bound)
            and total.starts_left(now, spec.rate) > 0
            and own.starts_left(now, own.rate or spec.key_rate) > 0
        )

    def start(self, name: str, key: str, now: int) -> None:
        spec = self.spec(name)
        assert spec is not None
        own = self.key(name, key)
        self.total(name).start(now, spec.rate)
        own.start(now, own.rate or spec.key_rate)

    def weight(self, name: str, key: str) -> int:
        spec = self.spec(name)
        declared = dict(spec.weights) if spec is not None else {}
        return self.key(name, key).weight or declared.get(key, 1)
