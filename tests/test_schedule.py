"""Which missed ticks are fired, by each policy."""

from __future__ import annotations

import pytest

from rowlock.cron import parse_cron
from rowlock.errors import OptionInvalid
from rowlock.schedule import MissedTicks, due_ticks, missed_ticks

MINUTE = 60_000_000
EVERY_MINUTE = parse_cron("* * * * *")
DAILY = parse_cron("0 0 * * *")


@pytest.mark.parametrize(
    ("missed", "now", "expected"),
    [
        ("skip", 1, [1]),
        ("skip", 3.5, [3]),
        ("skip", 1000, [1000]),
        ("once", 1000.9, [1000]),
        ("all", 3.5, [1, 2, 3]),
        ("all", 1000, list(range(901, 1001))),
    ],
)
def test_ticks_to_fire(missed: str, now: float, expected: list[int]):
    """An expression of every minute, due since minute 1."""
    ticks = due_ticks(EVERY_MINUTE, MissedTicks(missed), next_at=MINUTE, now=round(now * MINUTE))

    assert [tick // MINUTE for tick in ticks] == expected


def test_a_skipped_day():
    """A daily tick found six minutes late is skipped, and kept by the others."""
    day = 24 * 60 * MINUTE
    now = day + 6 * MINUTE

    fired = {missed: due_ticks(DAILY, missed, next_at=day, now=now) for missed in MissedTicks}

    assert fired == {"skip": [], "once": [day], "all": [day]}


def test_rules_that_have_changed():
    """A stored time that is no tick any more (a zone's rules were changed) fires nothing."""
    assert due_ticks(DAILY, MissedTicks.ALL, next_at=MINUTE, now=2 * MINUTE) == []


def test_an_unknown_policy_is_refused():
    """The three are named."""
    with pytest.raises(OptionInvalid, match="'skip', 'once' or 'all'"):
        missed_ticks("none")
