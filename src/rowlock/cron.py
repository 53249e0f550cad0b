"""Cron expressions and intervals, and the instants they name. Pure, `cronsim` reads the fields.

1. An expression whose hour is not `*` follows the wall clock. A time that a clock change skips runs
   at the first instant after the gap. A time that it repeats runs once, at its first pass.
2. An expression whose hour is `*` ("every five minutes", "every hour") runs whenever the wall clock
   shows a matching time. The repeated hour counts like any other, and the skipped one does not
   exist. The same holds for the half hour by which some zones change.
3. A tick is a whole second, and the next tick is always later than the given moment.
4. An interval ("every 7s") has its ticks at the multiples of its length since 1970 in UTC. They
   depend neither on a worker's start nor on the tick before, so restarts don't shift them.

cronsim has a similar rule for expressions without any `*` in minute and hour. But from within a
repeated hour it returns a time of the first pass, which is over. And for expressions with a `*` it
steps by whole hours, even over a change by half an hour. So it gets local times without a zone, and
this module converts them to instants.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rowlock import config
from rowlock.clock import duration_us, from_us, to_us
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
# An interval as it is stored. At most a hundred years, as every duration.
_INTERVAL = re.compile(r"every ([1-9][0-9]{0,9})s", re.ASCII)
_SECOND = timedelta(seconds=1)
# No zone changes its clocks forth and back within a day.
_DAY = timedelta(days=1)
# The search for a first tick starts here when an expression is checked. Any day would do.
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall clock's time has no zone
# The first span of time that is searched for the latest ticks, and the factor by which it grows.
_STRETCH_US = 60 * config.SECOND_US
_STRETCH_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Cron:
    """A checked expression in a time zone. See `parse_cron`.

    `text` is the expression as written, or an interval such as "every 7s".
    """

    text: str
    timezone: str

    def next_after(self, moment: int) -> int:
        """Return the first tick later than `moment`, both in microseconds."""
        if (interval := _interval_us(self.text)) is not None:
            return (moment // interval + 1) * interval
        after = from_us(moment)
        zone = ZoneInfo(self.timezone)
        fields = _fields_of(self.text)
        if fields[-4] in _EVERY_HOUR:
            return to_us(_next_shown(" ".join(fields), after, zone), option="cron")
        # The zone is added afterwards, by our own rule.
        local = after.astimezone(zone).replace(tzinfo=None, fold=0)
        instants = (_first_instant(tick, zone) for tick in CronSim(" ".join(fields), local))
        return to_us(next(instant for instant in instants if instant > after), option="cron")

    def ticks(self, *, since: int, until: int) -> Iterator[int]:
        """Yield every tick from `since` to `until`, both included, in microseconds."""
        tick = self.next_after(since - 1)
        while tick <= until:
            yield tick
            tick = self.next_after(tick)

    def latest(self, *, since: int, until: int, limit: int) -> list[int]:
        """Return the last ticks from `since` to `until`, at most `limit`, oldest first.

        The search starts at the end, so that after a year without a scheduler it does not compute
        all ticks of that year.
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
            or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. Or an interval as
            `interval_text` returns it.
        timezone: An IANA name, such as "Europe/Berlin".

    Raises:
        OptionInvalid: The expression or the time zone is invalid.
    """
    if not isinstance(text, str) or not 0 < len(text) <= config.NAME_CHARACTERS_MAX:
        raise OptionInvalid("cron", f"must be a cron expression such as '0 3 * * *', not {text!r}")
    if _interval_us(text) is not None:
        return Cron(text, _check_timezone(timezone))
    try:
        next(CronSim(" ".join(_fields_of(text)), _SOME_DAY))
    except CronSimError as error:
        problem = str(error).lower()
        hint = "; five fields are needed, or six with seconds" if "number" in problem else ""
        problem = f"{text!r} is not a cron expression: {problem}{hint}"
        raise OptionInvalid("cron", problem) from None
    except StopIteration:
        raise OptionInvalid("cron", f"{text!r} names a day that never comes") from None
    return Cron(text, _check_timezone(timezone))


def parse_times(
    cron: str | None, every: float | timedelta | None, *, timezone: str | None = None
) -> Cron:
    """Check the times of a schedule: an expression in a time zone, or an interval.

    Raises:
        OptionInvalid: One is invalid, both are given or neither, or an interval has a time zone.
    """
    if every is None:
        if cron is None:
            raise OptionInvalid("cron", "give cron='0 3 * * *' or every=timedelta(...)")
        return parse_cron(cron, timezone="UTC" if timezone is None else timezone)
    if cron is not None:
        raise OptionInvalid("every", "can't be combined with cron; give one of them")
    if timezone not in (None, "UTC"):
        raise OptionInvalid("timezone", "is for cron; an interval is the same in every time zone")
    return parse_cron(interval_text(every))


def interval_text(every: float | timedelta) -> str:
    """Return an interval as it is stored: "every 7s"."""
    length = duration_us(every, option="every")
    if length == 0 or length % config.SECOND_US:
        raise OptionInvalid("every", f"must be a whole number of seconds, 1 or more, not {every!r}")
    return f"every {length // config.SECOND_US}s"


def _interval_us(text: str) -> int | None:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return None
    return duration_us(int(found[1]), option="cron")


def _fields_of(text: str) -> list[str]:
    return _ALIASES.get(text.strip().lower(), text).split()


def _check_timezone(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError):
        raise OptionInvalid(
            "timezone", f"{timezone!r} is unknown; give an IANA name such as 'Europe/Berlin'"
        ) from None
    return timezone


def _first_instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return when clocks in this zone first show a time. If they skip it, the end of the gap."""
    instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None, fold=0) == local:
        return instant
    # In a gap, the two folds apply the rules before and after it. The change lies between them.
    return _change_between(local.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def _next_shown(fields: str, after: datetime, zone: ZoneInfo) -> datetime:
    """Return when clocks in this zone next show a matching time, in whichever pass."""
    after = after.replace(microsecond=0)
    local = _shown_at(after, zone)
    while True:
        # Search as if the clocks never changed. If they change earlier, continue from there.
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
    """Return the first instant after `after`, up to `until`, at which this zone's clocks change."""
    offset = after.astimezone(zone).utcoffset()
    while after < until:
        later = min(after + _DAY, until)
        if later.astimezone(zone).utcoffset() != offset:
            return _change_between(after, later, zone)
        after = later
    return None


def _change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of the only change between two instants. It is a whole second."""
    old_offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == old_offset:
            before = middle
        else:
            after = middle
    return after
