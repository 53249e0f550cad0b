"""Time in whole microseconds since 1970, UTC.

On PostgreSQL the server's clock decides, and only tests pass a `Clock`. On SQLite it is this
machine's clock. Only this module converts durations and datetimes of users to microseconds.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

from rowlock.config import (
    DURATION_SECONDS_MAX,
    SECOND_US,
    WAIT_SECONDS,
    WAIT_SECONDS_MAX,
)
from rowlock.errors import OptionInvalid, shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND


class Clock(Protocol):
    """Returns the time."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment. Nobody can set this clock."""
        ...


class SystemClock:
    """This machine's wall clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        # It continues while the process is stopped, and stops while the machine is suspended.
        return time.monotonic()


class ManualClock:
    """A clock for tests that stands still until you move it."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now_us = to_us(start, option="start")
        self._passed_us = 0

    def now_us(self) -> int:
        return self._now_us

    def advance(self, duration: float | timedelta) -> None:
        """Move it forward by seconds or a timedelta."""
        passed_us = duration_us(duration, option="duration")
        self._now_us += passed_us
        self._passed_us += passed_us

    def monotonic(self) -> float:
        return self._passed_us / SECOND_US

    def step(self, duration: float | timedelta) -> None:
        """Set it forward without any time passing, as when a suspended laptop wakes up."""
        self._now_us += duration_us(duration, option="duration")


# Jobs of a batch share their times.
@functools.lru_cache(maxsize=256)
def from_us(microseconds: int) -> datetime:
    """Convert a stored time to an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=microseconds)


def maybe_from_us(microseconds: int | None) -> datetime | None:
    """Convert like `from_us`. None stays None."""
    return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)


def to_us(moment: datetime, *, option: str) -> int:
    """Convert an aware datetime to a stored time. A naive one is rejected."""
    if not isinstance(moment, datetime):
        raise OptionInvalid(option, f"must be an aware datetime, not {type(moment).__name__}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise OptionInvalid(option, "must be an aware datetime; give it a time zone, such as UTC")
    microseconds = (moment - EPOCH) // _MICROSECOND
    # With its offset, a datetime in the last hours of 9999 may fall into the year 10000.
    if not _FIRST_US <= microseconds <= _LAST_US:
        raise OptionInvalid(option, f"must be in the years 1 to 9999 of UTC, not {moment}")
    return microseconds


def duration_us(duration: float | timedelta, *, option: str) -> int:
    """Convert seconds or a timedelta to microseconds. Negative durations are rejected."""
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise OptionInvalid(option, f"must be seconds or a timedelta, not {shown(duration)}")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds < math.inf:
        problem = f"must be a finite number of seconds, 0 or more, not {shown(seconds)}"
        raise OptionInvalid(option, problem)
    if seconds > DURATION_SECONDS_MAX:
        raise OptionInvalid(option, "must be a hundred years or less; the unit is seconds")
    if isinstance(duration, timedelta):
        return duration // _MICROSECOND
    return round(duration * SECOND_US)


def pauses(timeout: float | timedelta | None) -> Iterator[float]:
    """Yield how long to wait after each look. The last look comes when the time is over."""
    end = math.inf
    if timeout is not None:
        end = time.monotonic() + duration_us(timeout, option="timeout") / SECOND_US
    pause = WAIT_SECONDS
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, WAIT_SECONDS_MAX)
    yield 0.0
