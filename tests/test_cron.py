"""Cron expressions name the right instants, in every zone and on both days of a clock change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowlock.clock import from_us, to_us
from rowlock.cron import Cron, parse_cron
from rowlock.errors import OptionInvalid

# Changes at night, at midnight, of half an hour, southern, none, and of a whole day (Apia 2011).
ZONES = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
]
YEARS = range(2005, 2035)


def us(text: str) -> int:
    return to_us(datetime.fromisoformat(text), option="text")


def following(cron: Cron, after: str, count: int) -> list[str]:
    """The next ticks, as clocks in that zone show them."""
    zone, moment, shown = ZoneInfo(cron.timezone), us(after), list[str]()
    for _ in range(count):
        moment = cron.next_after(moment)
        shown.append(from_us(moment).astimezone(zone).isoformat(" ", "minutes"))
    return shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2030-01-01T00:01"),
        ("*/15 * * * *", "2030-01-01T00:15"),
        ("0 3 * * *", "2030-01-01T03:00"),
        ("0 0 * * *", "2030-01-02T00:00"),
        ("@daily", "2030-01-02T00:00"),
        (" @Hourly ", "2030-01-01T01:00"),
        ("@weekly", "2030-01-06T00:00"),
        ("@monthly", "2030-02-01T00:00"),
        ("@yearly", "2031-01-01T00:00"),
        ("0 0 * * MON-FRI", "2030-01-02T00:00"),
        ("0 9 1 * *", "2030-01-01T09:00"),
        ("0 9 L * *", "2030-01-31T09:00"),
        ("0 9 29 2 *", "2032-02-29T09:00"),
        ("0 9 * * FRI#2", "2030-01-11T09:00"),
        ("*/10 * * * * *", "2030-01-01T00:00:10"),
    ],
)
def test_the_next_tick(text: str, expected: str):
    """The first time of each expression after the beginning of 2030."""
    tick = parse_cron(text).next_after(us("2030-01-01T00:00+00:00"))

    assert datetime.fromisoformat(f"{expected}+00:00") == from_us(tick)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "such as"),
        (None, "such as"),
        ("x" * 201, "such as"),
        ("* * * *", "number of fields"),
        ("* * * * * * *", "number of fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("@reboot", "number of fields"),
        ("soon", "number of fields"),
    ],
)
def test_a_bad_expression_says_what_is_wrong(text: str, problem: str):
    """The field is named, or how many are needed."""
    with pytest.raises(OptionInvalid, match=problem) as caught:
        parse_cron(text)

    assert caught.value.option == "cron"


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "America", "../UTC", "a\0b", "ü", None, 3])
def test_a_bad_time_zone_is_refused(zone: str):
    """Whatever is not a zone here, paths and the like included."""
    with pytest.raises(OptionInvalid, match="IANA") as caught:
        parse_cron("@daily", timezone=zone)

    assert caught.value.option == "timezone"


@given(st.text("0123456789*/-,#LW@MONJAN x\n", max_size=40) | st.text(max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_text_is_an_expression_or_refused(text: str):
    """No text makes anything else than an `OptionInvalid`."""
    try:
        cron = parse_cron(text)
    except OptionInvalid:
        return

    assert cron.next_after(0) > 0


def test_a_skipped_time_runs_at_the_first_instant_after():
    """In spring, 2:30 does not exist: 3:00 is the first time that does."""
    nightly = parse_cron("30 2 * * *", timezone="Europe/Berlin")

    assert following(nightly, "2030-03-30T00:00+00:00", 3) == [
        "2030-03-30 02:30+01:00",
        "2030-03-31 03:00+02:00",
        "2030-04-01 02:30+02:00",
    ]


def test_a_repeated_time_runs_once():
    """In autumn, 2:30 comes twice: the first one counts, also when asked from between the two."""
    nightly = parse_cron("30 2 * * *", timezone="Europe/Berlin")
    expected = ["2030-10-27 02:30+02:00", "2030-10-28 02:30+01:00"]

    assert following(nightly, "2030-10-26T12:00+00:00", 2) == expected
    assert expected[1:] == following(nightly, "2030-10-27T01:10+00:00", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 * * * *", ["02:00+02:00", "02:00+01:00", "03:00+01:00"]),
        ("*/30 * * * *", ["02:00+02:00", "02:30+02:00", "02:00+01:00", "02:30+01:00"]),
        ("0 */2 * * *", ["02:00+02:00", "04:00+01:00"]),
        ("0,30 2 * * *", ["02:00+02:00", "02:30+02:00"]),
    ],
)
def test_every_hour_means_every_hour(text: str, expected: list[str]):
    """With `*` as its hour an expression goes on through the repeated hour; others do not."""
    cron = parse_cron(text, timezone="Europe/Berlin")

    shown = [f"2030-10-27 {time}" for time in expected]
    assert shown == following(cron, "2030-10-26T23:59+00:00", len(expected))


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"),
    [
        ("Africa/Cairo", "0 0 * * *", "2024-04-25T12:00+00:00", "2024-04-26 01:00+03:00"),
        ("Asia/Beirut", "*/30 0 * * *", "2024-03-30T12:00+00:00", "2024-03-31 01:00+03:00"),
        ("Australia/Lord_Howe", "15 2 * * *", "2024-10-05T12:00+00:00", "2024-10-06 02:30+11:00"),
        ("Pacific/Apia", "0 12 * * *", "2011-12-30T09:00+00:00", "2011-12-31 00:00+14:00"),
    ],
)
def test_odd_changes(zone: str, text: str, after: str, expected: str):
    """Midnight, half an hour, a whole day: the first instant after the gap."""
    assert following(parse_cron(text, timezone=zone), after, 1) == [expected]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-04-04T14:00+00:00", ["01:30+11:00", "01:30+10:30", "02:30+10:30"]),
        ("2026-10-03T14:30+00:00", ["01:30+10:30", "02:30+11:00", "03:30+11:00"]),
    ],
)
def test_every_hour_over_a_change_of_half_an_hour(after: str, expected: list[str]):
    """The first instant after the change is a tick, if clocks show its time."""
    cron = parse_cron("30 * * * *", timezone="Australia/Lord_Howe")

    assert [shown[11:] for shown in following(cron, after, 3)] == expected


@pytest.mark.parametrize("zone", [*ZONES, "Antarctica/Troll"])
def test_every_hour_is_whenever_a_clock_shows_it(zone: str):
    """Around every change of clocks, the ticks are the minutes that fit, looked at one by one."""
    wanted = {"0": {0}, "30": {30}, "15,45": {15, 45}, "*/7": set(range(0, 60, 7))}
    for day in (day for year in (2011, 2019, 2026) for day in changed_days(zone, year)):
        start = at_noon(day - timedelta(days=1), zone).astimezone(UTC)
        minutes = [start + timedelta(minutes=number) for number in range(24 * 60)]
        shown = [(minute, minute.astimezone(ZoneInfo(zone)).minute) for minute in minutes]
        since, until = (to_us(minutes[place], option="x") for place in (0, -1))
        for text, fitting in wanted.items():
            expected = [to_us(minute, option="x") for minute, read in shown if read in fitting]
            cron = parse_cron(f"{text} * * * *", timezone=zone)
            assert list(cron.ticks(since=since, until=until)) == expected, (day, text)


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_time_comes_once_a_day(zone: str):
    """In thirty years, 2:30 and midnight each fall on every date once, in order."""
    for text in ("30 2 * * *", "0 0 * * *"):
        cron = parse_cron(text, timezone=zone)
        for year in YEARS:
            days = changed_days(zone, year)
            for day in days:
                since = to_us(at_noon(day - timedelta(days=2), zone), option="x")
                until = to_us(at_noon(day + timedelta(days=2), zone), option="x")
                ticks = list(cron.ticks(since=since, until=until))
                assert ticks == sorted(set(ticks))
                # A day that is left out altogether has its tick at the start of the next.
                assert len(ticks) == 4 or (zone, year) == ("Pacific/Apia", 2011), (day, text)


def changed_days(zone: str, year: int) -> list[date]:
    """The days of a year on which clocks are changed, found by their offset at noon."""
    days = [date(year, 1, 1) + timedelta(days=number) for number in range(365)]
    offsets = [at_noon(day, zone).utcoffset() for day in days]
    return [
        day
        for day, before, after in zip(days[1:], offsets, offsets[1:], strict=False)
        if before != after
    ]


def at_noon(day: date, zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))


MOMENTS = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1))  # noqa: DTZ001  # made aware below
TEXTS = st.sampled_from(
    [
        "every 7s",
        "every 5400s",
        "* * * * *",
        "*/7 * * * *",
        "0 * * * *",
        "30 1,2,3 * * *",
        "*/20 0-3 * * *",
        "15 */3 * * 0",
    ]
)


@given(MOMENTS, TEXTS, st.sampled_from(ZONES))
@settings(max_examples=300, deadline=None)
def test_ticks_go_forward(moment: datetime, text: str, zone: str):
    """The next tick is later, whole seconds, and the same from any moment before it."""
    cron = parse_cron(text, timezone=zone)
    after = to_us(moment.replace(tzinfo=UTC), option="x")
    tick = cron.next_after(after)

    assert tick > after
    assert tick % 1_000_000 == 0
    assert tick == cron.next_after((after + tick) // 2) == cron.next_after(tick - 1)
    assert tick < cron.next_after(tick)


@given(MOMENTS, TEXTS, st.sampled_from(ZONES), st.integers(0, 10**6), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_the_latest_ticks_are_the_last_of_all(
    moment: datetime, text: str, zone: str, seconds: int, limit: int
):
    """Searched from the end, they are the same as counted from the beginning."""
    cron = parse_cron(text, timezone=zone)
    since = to_us(moment.replace(tzinfo=UTC), option="x")
    until = since + seconds * 100_000
    every = list(islice(cron.ticks(since=since, until=until), 100_000))

    assert every[-limit:] == cron.latest(since=since, until=until, limit=limit)
