"""Notices when the database's clock was set forward, so that no healthy worker loses its jobs.

A lease expires by the database's clock. When that clock steps forward (a laptop or a virtual
machine resumes, NTP corrects it, a standby with another time takes over), every lease looks
expired at once, though its worker is about to extend it as ever. So whatever takes expired leases
compares the database's clock with the monotonic clock of its own process:

1. A step is seen when the database's clock has gone ahead by more than `CLOCK_STEP_SECONDS` between
   two readings. Both readings are bounded by the moments before and after them, so that a slow
   answer is never taken for a step.
2. After a step, a lease that was last extended before it is not taken until a third of its length
   has passed, and a moment more: a worker that is alive has extended it by then.
3. A lease that was extended after the step, and every lease while there was none, expires as ever.
4. A process that was only stopped sees no step: the monotonic clock runs on. While a machine is
   suspended it stands still, as do the workers on that machine.

The first reading of a process has nothing to compare with: a process that starts right after a step
does not see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rowlock import config
from rowlock.clock import Clock, SystemClock

# Before every time that is stored.
_NEVER_US = -(2**63)


class _Reading(NamedTuple):
    """The database's time less the monotonic one, which lies between these two."""

    low_us: int
    high_us: int


class _Step(NamedTuple):
    """The last time by the old setting of the clock, and the monotonic second when it was seen."""

    last_us: int
    seen_at: float


class ClockWatch:
    """Compares the database's clock with this process's own; for any number of threads.

    Without a lock, which a fork could leave taken: a reading that is overwritten by an older one
    means, at worst, that the same step is seen twice.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last: _Reading | None = None
        self._step: _Step | None = None

    def monotonic(self) -> float:
        """To be read before the database is asked for its time."""
        return self._clock.monotonic()

    def note(self, now_us: int, *, since: float) -> None:
        """The database answered that it is `now_us`; it was asked at `since`, or later."""
        answered = self.monotonic()
        reading = _Reading(now_us - _us(answered), now_us - _us(since))
        last, self._last = self._last, reading
        if last is not None and reading.low_us - last.high_us > _us(config.CLOCK_STEP_SECONDS):
            self._step = _Step(last.high_us + _us(answered), answered)

    def doubt(self) -> Mapping[str, int]:
        """Which leases to leave alone, as the parameters of `look_expired` and `lock_expired`."""
        step = self._step
        if step is None:
            return undoubted()
        waited = self.monotonic() - step.seen_at - config.CLOCK_STEP_SLACK_SECONDS
        return {"stepped_at": step.last_us, "waited": max(0, _us(waited))}


def undoubted() -> Mapping[str, int]:
    """As `ClockWatch.doubt`, without a step: every lease that has expired may be taken."""
    return {"stepped_at": _NEVER_US, "waited": 0}


def _us(seconds: float) -> int:
    return round(seconds * config.SECOND_US)
