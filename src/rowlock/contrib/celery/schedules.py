"""The times of `beat_schedule`: Celery's `crontab`, and intervals that cron can say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from rowlock.contrib.compat import Unsupported

Field: TypeAlias = int | str | Iterable[int | str]

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True, slots=True)
class crontab:  # noqa: N801  # Celery's name for it
    """As Celery's. Where day of week and day of month are both given, Celery means days that fit
    both, and cron those that fit either: so that is refused."""

    minute: Field = "*"
    hour: Field = "*"
    day_of_week: Field = "*"
    day_of_month: Field = "*"
    month_of_year: Field = "*"

    @property
    def expression(self) -> str:
        """The five fields."""
        week, month = _field(self.day_of_week), _field(self.day_of_month)
        if week != "*" and month != "*":
            raise Unsupported(
                "crontab(day_of_week=..., day_of_month=...)",
                "give one of them, and look at the date in the task",
            )
        return (
            f"{_field(self.minute)} {_field(self.hour)} {month} {_field(self.month_of_year)} {week}"
        )


def expression_of(schedule: object) -> str:
    """The cron expression of an entry's `schedule`: a crontab, seconds or a timedelta."""
    if isinstance(schedule, crontab):
        return schedule.expression
    if isinstance(schedule, timedelta):
        schedule = schedule.total_seconds()
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        return _every(float(schedule))
    raise Unsupported(f"schedule {type(schedule).__name__}", "use crontab(...), or seconds")


def _every(seconds: float) -> str:
    """Of the clock, not since the start: every 15 minutes is at 0, 15, 30 and 45."""
    for unit, units, rest in ((1, 60, "*/{} * * * * *"), (_MINUTE, 60, "*/{} * * * *")):
        count = seconds / unit
        if count.is_integer() and 0 < count < units and units % int(count) == 0:
            return rest.format(int(count))
    hours = seconds / _HOUR
    if hours.is_integer() and 0 < hours < 24 and 24 % int(hours) == 0:
        return f"0 */{int(hours)} * * *"
    if seconds == _DAY:
        return "0 0 * * *"
    raise Unsupported(
        f"a schedule of every {seconds:g} s",
        "take seconds that divide a minute, an hour or a day evenly, or use crontab(...)",
    )


def _field(value: Field) -> str:
    if isinstance(value, int | str):
        return str(value).replace(" ", "")
    return ",".join(str(each) for each in sorted(value, key=str))
