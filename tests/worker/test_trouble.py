"""Waiting and trying again: pauses, log lines and counts of a service that fails."""

from __future__ import annotations

import logging
import random

import pytest

from rowlock.errors import StoreUnavailable
from rowlock.worker.trouble import (
    ServiceErrors,
    ServiceName,
    Trouble,
    insist,
    pause_after,
    persist,
)

AWAY = StoreUnavailable("it is away")


def failing(times: int) -> list[StoreUnavailable]:
    return [AWAY] * times


def act_on(errors: list[StoreUnavailable]) -> str:
    if errors:
        raise errors.pop()
    return "done"


def test_pauses_grow_to_a_bound():
    """Each is between half of the longest and the longest, which doubles up to ten seconds."""
    for tries, longest in [(1, 0.2), (2, 0.4), (6, 6.4), (7, 10.0), (1_000, 10.0)]:
        assert longest / 2 <= pause_after(tries) <= longest


def test_the_users_chance_is_left_alone():
    """A pause neither follows a seed of the user's nor changes what they draw."""
    random.seed(1)
    expected = random.random()
    random.seed(1)
    pauses = {Trouble("it fails").pause(AWAY) for _ in range(5)}

    assert random.random() == expected
    assert len(pauses) == 5


def test_insist_waits_for_the_database(caplog: pytest.LogCaptureFixture):
    """It tries until it succeeds, and logs once that it began and once that it is over."""
    pauses: list[float] = []
    log = logging.getLogger("rowlock.move")
    trouble = Trouble("jobs can't be moved", log=log)
    errors = failing(3)
    with caplog.at_level(logging.WARNING):
        done = insist(lambda: act_on(errors), trouble, patience_seconds=60.0, rest=pauses.append)

    assert done == "done"
    assert len(pauses) == 3
    assert [record.name for record in caplog.records] == ["rowlock.move"] * 2
    begun, over = caplog.messages
    assert begun.startswith("jobs can't be moved, trying again until it works:")
    assert over.startswith("jobs can't be moved: over after") and over.endswith("and 3 errors")


def test_insist_gives_up():
    """After its patience it raises what the database said."""
    errors = failing(2)
    with pytest.raises(StoreUnavailable) as caught:
        insist(lambda: act_on(errors), Trouble("it fails"), patience_seconds=-1.0, rest=print)

    assert caught.value is AWAY
    assert errors == [AWAY]


def test_what_is_no_trouble_of_the_database_is_raised():
    """A caller that gives up in the end does not wait for its own mistakes to pass."""
    with pytest.raises(ZeroDivisionError):
        insist(lambda: 1 / 0, Trouble("it fails"), patience_seconds=60.0, rest=print)


@pytest.mark.asyncio
async def test_a_service_survives_any_error(monkeypatch: pytest.MonkeyPatch):
    """It is counted under the service's name, and tried again."""
    monkeypatch.setattr("rowlock.config.TROUBLE_SECONDS", 0.001)
    counted = ServiceErrors()
    errors = iter([ValueError("odd"), AWAY])

    async def act() -> str:
        for error in errors:
            raise error
        return "done"

    done = await persist(act, Trouble("it fails", ServiceName.CLAIM, counted))

    assert done == "done"
    assert counted.counts == {"claim": 2}
