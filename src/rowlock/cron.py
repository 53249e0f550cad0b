"""Cron expressions: which instants they name, in a time zone. Pure; `cronsim` reads the fields.

1. An expression whose hour is not `*` follows the wall clock. A time that a clock change skips runs
   at the first instant after the gap; one that it repeats runs at its first pass, once.
2. An expression whose hour is `*` ("every five minutes", "every hour") runs whenever a clock shows
   a time that fits: the repeated hour is an hour like any other, and the skipped one was none. So
   is the half hour by which some zones change.
3. A tick is a whole second, and the next one is always later than the moment asked from.

cronsim has a rule like this for expressions without any `*` in minute and hour, but from within a
repeated hour it answers with a time of its first pass, which is over; and for those with a `*` it
goes by whole hours, over a change of half of one. So it is given local times without a zone, and
the way from them to instants is made here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rowlock import config
from rowlock.clock import from_us, to_us
from rowlock.errors import OptionInvalid

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY_HOUR = ("*", "*/1")
_SECOND = timedelta(seconds=1)
# No zone changes its clocks there and back within a day.
_DAY = timedelta(days=1)
# Where the search for a first tick starts when an expression is checked: any day would do.
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall clock's time has no zone
# The first stretch of time that is searched for the latest ticks, and how it grows.
_STRETCH_US = 60 * config.SECOND_US
_STRETCH_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Cron:
    """A checked expression (`fields`, as `text` spells it) in a time zone. See `parse_cron`."""

    text: str
    timezone: str

    def next_after(self, moment: int) -> int:
        """The first tick later than a time in microseconds, in microseconds."""
        after = from_us(moment)
        zone = ZoneInfo(self.timezone)
        fields = _fields_of(self.text)
        if fields[-4] in _EVERY_HOUR:
            return to_us(_next_shown(" ".join(fields), after, zone), option="cron")
        # The zone is put back afterwards, by our own rule.
        local = after.astimezone(zone).replace(tzinfo=None, fold=0)
        instants = (_first_instant(tick, zone) for tick in CronSim(" ".join(fields), local))
        return to_us(next(instant for instant in instants if instant > after), option="cron")

    def ticks(self, *, since: int, until: int) -> Iterator[int]:
        """Every tick from `since` to `until`, both included, in microseconds."""
        tick = self.next_after(since - 1)
        while tick <= until:
            yield tick
            tick = self.next_after(tick)

    def latest(self, *, since: int, until: int, limit: int) -> list[int]:
        """The last ticks from `since` to `until`, `limit` at most, oldest first.

        Looks at the end first, so that a year without a scheduler costs no year of ticks.
        """
        stretch = _STRETCH_US
        while True:
            start = max(since, until - stretch)
            found = deque(self.ticks(since=start, until=until), maxlen=limit)
            if len(found) == limit or start == since:
                return list(found)
            stretch *= _STRETCH_GROWTH


def parse_cron(text: str, *, timezone: str = "UTC") -> Cron:
    """Check an expression and a time zone.

    Args:
        text: Five fields (minute, hour, day of month, month, day of week), six with seconds first,
            or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
        timezone: An IANA name, such as "Europe/Berlin".

    Raises:
        OptionInvalid: It names what is wrong.
    """
    if not isinstance(text, str) or not 0 < len(text) <= config.NAME_CHARACTERS_MAX:
        raise OptionInvalid("cron", f"must be a cron expression such as '0 3 * * *', not {text!r}")
    try:
        next(CronSim(" ".join(_fields_of(text)), _SOME_DAY))
    except CronSimError as error:
        problem = str(error).lower()
        hint = "; five fields are needed, or six with seconds" if "number" in problem else ""
        raise OptionInvalid("cron", f"{text!r} is no cron expression: {problem}{hint}") from None
    except StopIteration:
        raise OptionInvalid("cron", f"{text!r} names a day that never comes") from None
    return Cron(text, _check_timezone(timezone))


def _fields_of(text: str) -> list[str]:
    return _ALIASES.get(text.strip().lower(), text).split()


def _check_timezone(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError):
        raise OptionInvalid(
            "timezone", f"{timezone!r} is not known; give an IANA name such as 'Europe/Berlin'"
        ) from None
    return timezone


def _first_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """When clocks in this zone show a time first; if they skip it, the first instant after."""
    instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == local:
        return instant
    # In a gap the two folds read it by the rules before and after: the change lies between.
    return _change_between(local.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _next_shown(fields: str, after: datetime, zone: ZoneInfo) -> datetime:
    """When clocks in this zone next show a time that fits, whatever pass of it that is."""
    after = after.replace(microsecond=0)
    local = _shown_at(after, zone)
    while True:
        # As if the clocks were never changed; if they are before, their new time is gone on from.
        offset = _shown_at(after, zone) - after.replace(tzinfo=None)
        tick = (next(CronSim(fields, local)) - offset).replace(tzinfo=UTC)
        change = _next_change(after, tick, zone)
        if change is None:
            return tick
        after = change
        local = _shown_at(change, zone) - _SECOND


def _shown_at(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _next_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """The first instant behind `after`, up to `until`, at which this zone's clocks are changed."""
    offset = after.astimezone(zone).utcoffset()
    while after < until:
        later = min(after + _DAY, until)
        if later.astimezone(zone).utcoffset() != offset:
            return _change_between(after, later, zone)
        after = later
    return None


def _change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The instant of the one change between two; it is a whole second."""
    old_offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == old_offset:
            before = middle
        else:
            after = middle
    return after
