"""The times of `beat_schedule`: Celery's `crontab`, and intervals of whole seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Never, TypeAlias

from rowlock.contrib.compat import Unsupported
from rowlock.cron import interval_text
from rowlock.errors import OptionInvalid

CronField: TypeAlias = int | str | Iterable[int | str]

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PART = re.compile(r"(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?")


class BaseSchedule:
    """The base of a schedule, for `isinstance`."""


@dataclass(frozen=True, init=False)
class crontab(BaseSchedule):  # noqa: N801  # Celery's name for it
    """Celery's `crontab`. Days and months may be named, and ranges may wrap (`"fri-mon"`).

    With both day of week and day of month, Celery runs on days that match both, and cron on days
    that match either. So that combination is rejected.
    """

    minute: CronField
    hour: CronField
    day_of_week: CronField
    day_of_month: CronField
    month_of_year: CronField

    def __init__(  # as in Celery
        self,
        minute: CronField = "*",
        hour: CronField = "*",
        day_of_week: CronField = "*",
        day_of_month: CronField = "*",
        month_of_year: CronField = "*",
        **other: object,
    ) -> None:
        for option, value in other.items():
            if value is not None and option != "app":
                raise Unsupported(f"crontab({option}=...)", "set app.conf.timezone")
        own = {"minute": minute, "hour": hour, "day_of_week": day_of_week}
        own.update(day_of_month=day_of_month, month_of_year=month_of_year)
        self.__dict__.update(own)

    @property
    def expression(self) -> str:
        """The five fields."""
        week = _field(self.day_of_week, "day_of_week", 0, 6, _DAYS)
        month = _field(self.day_of_month, "day_of_month", 1, 31)
        if week != "*" and month != "*":
            raise Unsupported(
                "crontab(day_of_week=..., day_of_month=...)",
                "give one of them, and check the date in the task",
            )
        minute = _field(self.minute, "minute", 0, 59)
        hour = _field(self.hour, "hour", 0, 23)
        year = _field(self.month_of_year, "month_of_year", 1, 12, _MONTHS)
        return f"{minute} {hour} {month} {year} {week}"


class schedule(BaseSchedule):  # noqa: N801  # Celery's name for it
    """An interval, given in seconds or as a timedelta."""

    def __init__(
        self, run_every: float | timedelta, relative: bool = False, **other: object
    ) -> None:
        for option, value in other.items():
            if value is not None and option != "app":
                raise Unsupported(f"schedule({option}=...)", "set app.conf.timezone")
        self.run_every = run_every
        self.relative = relative


def solar(*_: object, **__: object) -> Never:
    """Raise `Unsupported`."""
    raise Unsupported(
        "solar(...)", "use crontab(...) every few minutes, and let the task look at the sun"
    )


def maybe_schedule(value: object, **_: object) -> BaseSchedule:
    """Return a schedule for seconds or a timedelta, and any other as it is."""
    if isinstance(value, BaseSchedule):
        return value
    if isinstance(value, int | float | timedelta):
        return schedule(value)
    raise Unsupported(f"schedule {type(value).__name__}", "use crontab(...), or seconds")


def expression_of(when: object) -> str:
    """Return the cron expression of a `schedule`: a crontab, seconds or a timedelta."""
    if isinstance(when, crontab):
        return when.expression
    if isinstance(when, schedule):
        when = when.run_every
    if isinstance(when, timedelta):
        when = when.total_seconds()
    if isinstance(when, int | float) and not isinstance(when, bool):
        return _every(float(when))
    raise Unsupported(f"schedule {type(when).__name__}", "use crontab(...), or seconds")


def _every(seconds: float) -> str:
    """Return times by the clock, not from the start: 15 minutes is :00, :15, :30, :45."""
    if seconds == 7 * _DAY:
        return "0 0 * * 0"
    for unit, units, rest in (
        (1, 60, "*/{} * * * * *"),
        (_MINUTE, 60, "*/{} * * * *"),
        (_HOUR, 24, "0 */{} * * *"),
        (_DAY, 2, "0 0 * * *"),
    ):
        count = seconds / unit
        if count.is_integer() and 0 < count < units and units % int(count) == 0:
            return rest.format(int(count))
    try:
        return interval_text(seconds)
    except OptionInvalid:
        raise Unsupported(
            f"a schedule of every {seconds:g} s", "choose a whole number of seconds, 1 or more"
        ) from None


def _field(value: CronField, option: str, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    if not isinstance(value, str):
        numbers = [value] if isinstance(value, int) else value
        value = ",".join(str(each) for each in sorted(numbers, key=str))
    text = re.sub(r"\s", "", value).lower()
    try:
        parts = [_CronPart(part, low, high, names) for part in text.split(",")]
    except ValueError:
        problem = f"{value!r} is not a {option} of a crontab; write numbers from {low} to {high}"
        raise OptionInvalid("schedule", problem) from None
    # Kept as it was written, unless cron would read it differently.
    return ",".join(part.cron for part in parts)


class _CronPart:
    """One part of a field: `*`, a number or a name, a range, each with an optional step."""

    def __init__(self, text: str, low: int, high: int, names: tuple[str, ...]) -> None:
        whole, slash, step = text.partition("/")
        found = _PART.fullmatch(whole)
        has_span = found is not None and (found["star"] or found["last"])
        if found is None or (slash and (not has_span or int(step) < 1)):
            raise ValueError(text)
        self._text = text
        self._step = int(step) if slash else 1
        self._low, self._high = low, high
        self._is_star = found["star"] is not None
        self._first = low if self._is_star else self._number(found["first"], names)
        self._last = high if self._is_star else self._number(found["last"] or found["first"], names)

    def _number(self, text: str, names: tuple[str, ...]) -> int:
        number = int(text) if text.isdecimal() else _index(text, names) + self._low
        if not self._low <= number <= self._high:
            raise ValueError(text)
        return number

    @property
    def cron(self) -> str:
        """The same for cron, which neither wraps ranges nor knows full names of days."""
        if self._is_star:
            return self._text
        if self._first == self._last:
            return str(self._first)
        if self._first < self._last:
            step = f"/{self._step}" if self._step > 1 else ""
            return f"{self._first}-{self._last}{step}"
        return ",".join(map(str, sorted(self._wrapped())))

    def _wrapped(self) -> Iterator[int]:
        numbers = [*range(self._first, self._high + 1), *range(self._low, self._last + 1)]
        yield from numbers[:: self._step]


def _index(text: str, names: tuple[str, ...]) -> int:
    """Return the place of a name. As in Celery, its first three letters count."""
    return names.index(text[:3])
