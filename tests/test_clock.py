"""Times are whole microseconds, UTC; what has no zone, no end or no sense is refused."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.clock import (
    ManualClock,
    SystemClock,
    duration_us,
    from_us,
    maybe_from_us,
    pauses,
    to_us,
)
from rowlock.config import DURATION_SECONDS_MAX, WAIT_SECONDS, WAIT_SECONDS_MAX
from rowlock.errors import OptionInvalid

AWARE = st.datetimes(timezones=st.just(UTC))


def test_a_manual_clock_stands_still():
    """It moves when it is moved, by seconds or a timedelta, and never back."""
    clock = ManualClock(datetime(2031, 1, 1, tzinfo=UTC))
    start = clock.now_us()
    clock.advance(1.5)
    clock.advance(timedelta(microseconds=1))

    assert (clock.now_us() - start, to_us(from_us(start), option="x")) == (1_500_001, start)
    with pytest.raises(OptionInvalid):
        clock.advance(-1)


def test_the_system_clock_is_the_machines():
    """It tells microseconds since 1970."""
    before = time.time_ns() // 1000

    assert before <= SystemClock().now_us() <= time.time_ns() // 1000


@given(AWARE)
def test_times_survive_the_way_there_and_back(moment):
    """Any aware datetime comes back to the microsecond."""
    assert from_us(to_us(moment, option="run_at")) == moment


@pytest.mark.parametrize(
    "zone",
    [ZoneInfo("Asia/Kathmandu"), ZoneInfo("America/New_York"), timezone(timedelta(hours=-5))],
)
def test_zones_are_turned_into_utc(zone):
    """The same moment in another zone is the same stored time."""
    moment = datetime(2030, 7, 1, 12, tzinfo=UTC)

    assert to_us(moment, option="x") == to_us(moment.astimezone(zone), option="x")
    assert UTC is from_us(to_us(moment.astimezone(zone), option="x")).tzinfo


def test_a_repeated_hour_is_two_moments():
    """The hour that a zone has twice is told apart by its fold."""
    zone = ZoneInfo("Europe/Berlin")
    first = datetime(2030, 10, 27, 2, 30, tzinfo=zone, fold=0)

    assert to_us(first.replace(fold=1), option="x") - to_us(first, option="x") == 3_600_000_000


@pytest.mark.parametrize("value", [datetime(2030, 1, 1), date(2030, 1, 1), 0, "2030-01-01", None])  # noqa: DTZ001
def test_what_is_no_aware_datetime_is_refused(value):
    """A naive datetime could mean any zone; the error names the option."""
    with pytest.raises(OptionInvalid) as caught:
        to_us(value, option="run_at")

    assert caught.value.option == "run_at"


def test_no_time_is_no_time():
    """None stays None."""
    assert (maybe_from_us(None), maybe_from_us(5)) == (None, from_us(5))


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, 0),
        (1, 1_000_000),
        (0.5, 500_000),
        (1e-6, 1),
        (timedelta(days=1, microseconds=3), 86_400_000_003),
        (DURATION_SECONDS_MAX, round(DURATION_SECONDS_MAX * 1_000_000)),
    ],
)
def test_durations(duration, expected):
    """Seconds and timedeltas are whole microseconds."""
    assert duration_us(duration, option="delay") == expected


@pytest.mark.parametrize(
    "duration",
    [
        -1,
        -1e-9,
        timedelta(microseconds=-1),
        float("nan"),
        float("inf"),
        float("-inf"),
        DURATION_SECONDS_MAX + 1,
        timedelta.max,
        pytest.param(10**400, id="huge"),
        True,
        "5",
        None,
    ],
)
def test_bad_durations_are_refused(duration):
    """What is negative, endless, over a hundred years or no number names its option."""
    with pytest.raises(OptionInvalid) as caught:
        duration_us(duration, option="delay")

    assert caught.value.option == "delay"


def test_no_time_is_time_for_one_look():
    """A timeout of nothing looks once, and does not wait."""
    assert list(pauses(0)) == [0.0]


def test_pauses_grow_to_a_bound():
    """Whoever waits without an end looks ever less often, but often enough."""
    found = list(islice(pauses(None), 20))

    assert sorted(found) == found
    assert (found[0], found[-1]) == (WAIT_SECONDS, WAIT_SECONDS_MAX)
