"""Limits and their keys as they are now, as users get them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from rowlock import config
from rowlock.job import Count

PER_TENANT: Final = "(tenant)"
"""What is stored about a limit whose keys are tenants."""
PER_FUNCTION: Final = "(function)"
"""What is stored about a limit whose keys are found by a function."""

_UNITS: Final = (("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400))


class LimitRules(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a limit, in total and per key. None: not limited, or not set."""

    concurrency: int | None = None
    rate: str | None = None
    """How many jobs may start in a time, such as "100/s"."""
    burst: int | None = None
    """How many of them may start at once after a pause."""
    concurrency_per_key: int | None = None
    rate_per_key: str | None = None
    burst_per_key: int | None = None


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it is now: its numbers, and how many jobs run and wait under it."""

    name: str
    rules: LimitRules
    """The numbers that count: what was set, and what was declared for the rest."""
    declared: LimitRules | None = None
    """What the code of the last worker to start says. None: no worker has declared it, so none of
    its jobs can start."""
    chosen: LimitRules | None = None
    """What was set at run time. None: nothing."""
    per: str | None = None
    """What the keys are: a parameter, "(tenant)" or "(function)". None: it has no keys."""
    is_ordered: bool = False
    on_dead: str = "continue"
    """What happens in an ordered limit when a job is dead: "continue" or "pause"."""
    weights: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many jobs of a key may start in one turn, where that was declared."""
    declared_at: datetime | None = None
    """When its declared numbers last changed."""
    running: Count
    waiting: Count
    """Number of jobs that are due and wait for it."""
    paused_keys: Count
    oldest_waiting_seconds: float | None = None
    """How long the oldest of the counted jobs has waited. None if none waits."""
    is_paused: bool = False
    paused_until: datetime | None = None
    """None if it is not paused, or paused until somebody resumes it."""
    paused_reason: str | None = None
    opens_at: datetime | None = None
    """When its rate allows the next start. None: now."""


class LimitKeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a limit as it is now."""

    key: str
    running: Count
    waiting: Count
    """Number of its jobs that are due and wait for it. Counting stops at 1,000."""
    concurrency: int | None = None
    """How many of its jobs may run at once."""
    rate: str | None = None
    burst: int | None = None
    weight: int = 1
    """How many of its jobs may start in one turn."""
    is_own: bool = False
    """Whether one of these numbers was set for this key alone."""
    is_paused: bool = False
    paused_until: datetime | None = None
    """None if it is not paused, or paused until somebody resumes it."""
    paused_reason: str | None = None
    opens_at: datetime | None = None
    """When its rate allows the next start. None: now."""


class LimitKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of a limit. You can iterate over them."""

    keys: list[LimitKeyInfo]
    is_cut: bool = False
    """Whether there are more keys than these."""
    next: str | None = None
    """In the order of names: pass it as `after` to get the keys that follow. None at the end."""

    def __iter__(self) -> Iterator[LimitKeyInfo]:
        return iter(self.keys)


def declaration(
    rules: LimitRules,
    *,
    per: str | None,
    is_ordered: bool,
    on_dead: str,
    weights: Mapping[str, int],
) -> str:
    """Return what code declares in a few words. Two that are the same declare the same."""
    parts = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in msgspec.structs.asdict(rules).items()
        if value is not None
    ]
    parts += [f"per {per}"] if per is not None else []
    parts += [f"in order, a dead job: {on_dead}"] if is_ordered else []
    if weights:
        listed = " ".join(f"{key}={weight}" for key, weight in sorted(weights.items()))
        digest = hashlib.sha256(listed.encode()).hexdigest()[:6]
        parts.append(f"{len(weights)} weights ({digest})")
    return ", ".join(parts)


def rate_text(interval_us: int | None) -> str | None:
    """Return a rate as people write it, in the shortest unit in which it is a whole number."""
    if not interval_us:
        return None
    rates = [(seconds * config.SECOND_US / interval_us, unit) for unit, seconds in _UNITS]
    for starts, unit in rates:
        near = round(starts)
        # An interval is rounded up to whole microseconds: 7/s is stored as 6.99997/s.
        if near and abs(starts - near) < 0.001 * near:
            return f"{near}/{unit}"
    starts, unit = next((rate for rate in rates if rate[0] >= 1), rates[-1])
    return f"{starts:.4g}/{unit}"
