"""What a process remembers about a database from one call to the next."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.clock import Clock, SystemClock
from rowlock.store.rotation import Rotation

# By id and token.
_Lease = tuple[str, int]
# Earlier than any stored time.
_NEVER_US = -(2**63)


class _Reading(NamedTuple):
    """Bounds of the database's time minus the monotonic time."""

    low_us: int
    high_us: int


class _Step(NamedTuple):
    """The last time before the clock was set, and the monotonic second when that was noticed."""

    last_us: int
    seen_at: float


class ClockWatch:
    """Notices when the database's clock was set forward, so that healthy workers keep their jobs.

    A lease expires by the database's clock. When that clock steps forward (a laptop or a virtual
    machine resumes, NTP corrects it, a standby with another time takes over), every lease looks
    expired at once, although its worker is about to extend it. So every verb that takes expired
    leases compares the database's clock with the monotonic clock of its own process:

    1. A step is seen when the database's clock has gone ahead by more than `CLOCK_STEP_SECONDS`
       between two readings. Both readings are bounded by the moments before and after them, so
       a slow answer is never mistaken for a step.
    2. After a step, a lease that was last extended before it is not taken until a third of its
       length has passed, and a moment more. A worker that is alive has extended it by then.
    3. A lease that was extended after the step expires normally. So does every lease while there
       was no step.
    4. A process that was only stopped sees no step, because the monotonic clock runs on. While a
       machine is suspended that clock stands still, as do the workers on the machine.

    The first reading of a process has nothing to compare with: a process that starts right after a
    step does not see it.

    Any number of threads can use it. It has no lock, which a fork could leave taken: a reading that
    is overwritten by an older one means, at worst, that the same step is seen twice.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last: _Reading | None = None
        self._step: _Step | None = None

    def monotonic(self) -> float:
        """Read this before asking the database for its time."""
        return self._clock.monotonic()

    def note(self, now_us: int, *, since: float) -> None:
        """Note that the database answered `now_us`. It was asked at `since`, or later."""
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
    """As `ClockWatch.doubt` without a step: every expired lease may be taken."""
    return {"stepped_at": _NEVER_US, "waited": 0}


class SetAside:
    """Leases whose end the database refuses. They are left out for a while. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._until: dict[_Lease, float] = {}

    @property
    def leases(self) -> Collection[_Lease]:
        """The leases to leave out now."""
        now = self._monotonic()
        with self._guard:
            return {lease for lease, until in self._until.items() if until > now}

    def add(self, lease: _Lease) -> bool:
        """Leave a lease out from now on. Return whether it is refused for the first time."""
        now = self._monotonic()
        with self._guard:
            is_new = self._until.pop(lease, None) is None
            # Expired entries are kept a little longer, so that a repeated refusal is recognised.
            oldest = now - config.SWEEP_REFUSED_SECONDS
            kept = [each for each in self._until.items() if each[1] > oldest]
            self._until = dict(kept[-config.SET_ASIDE_MAX + 1 :])
            self._until[lease] = now + config.SWEEP_REFUSED_SECONDS
        return is_new


class LocalState(msgspec.Struct, frozen=True):
    """What one store of a process remembers. Verbs that need it take it as first argument."""

    clock_watch: ClockWatch = msgspec.field(default_factory=ClockWatch)
    set_aside: SetAside = msgspec.field(default_factory=SetAside)
    # For the jitter of backoffs.
    chance: random.Random = CHANCE
    rotation: Rotation = msgspec.field(default_factory=Rotation)


def _us(seconds: float) -> int:
    return round(seconds * config.SECOND_US)
