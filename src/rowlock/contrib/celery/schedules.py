"""The times of `beat_schedule`: Celery's `crontab`, and intervals that cron can express."""

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
    """Celery's `crontab`.

    With both day of week and day of month, Celery runs on days that match both, and cron on days
    that match either. So that combination is rejected.
    """

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
                "give one of them, and check the date in the task",
            )
        return (
            f"{_field(self.minute)} {_field(self.hour)} {month} {_field(self.month_of_year)} {week}"
        )


def expression_of(schedule: object) -> str:
    """Return the cron expression of a `schedule`: a crontab, seconds or a timedelta."""
    if isinstance(schedule, crontab):
        return schedule.expression
    if isinstance(schedule, timedelta):
        schedule = schedule.total_seconds()
    if isinstance(schedule, int | float) and not isinstance(schedule, bool):
        return _every(float(schedule))
    raise Unsupported(f"schedule {type(schedule).__name__}", "use crontab(...), or seconds")


def _every(seconds: float) -> str:
    """Return an expression by the clock, not from the start: 15 minutes is :00, :15, :30, :45."""
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
        "use seconds that divide a minute, an hour or a day evenly, or crontab(...)",
    )


def _field(value: Field) -> str:
    if isinstance(value, int | str):
        return str(value).replace(" ", "")
    return ",".join(str(each) for each in sorted(value, key=str))
