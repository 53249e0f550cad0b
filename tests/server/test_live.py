"""Calls that wait for jobs: who polls, and who is woken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowlock import config
from rowlock.server.background import Background
from rowlock.server.live import Doorbell, Interest
from rowlock.store import open_store
from rowlock.worker.trouble import ServiceErrors

MAIL = Interest(("mail",), ("send",), None)
SHOP = Interest(("shop", "mail"), ("order",), None)
ALL = Interest(None, ("any",), None)


class NoBackground(Background):
    """Nothing rings by itself."""

    def ensure(self, name: str, work: Any) -> None: ...


@pytest.fixture
def doorbell(sqlite_url: str) -> Doorbell:
    """A doorbell that only the test rings."""
    return Doorbell(open_store(sqlite_url), NoBackground(ServiceErrors()))


def test_one_polls_for_all(doorbell, monkeypatch):
    """Of those who wait for the same jobs, one at a time, in the order of arrival."""
    monkeypatch.setattr(config, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(config, "POLL_SECONDS_WITH_BELL", 300)
    polled: list[int] = []

    async def wait(number: int) -> None:
        assert await doorbell.wait(MAIL, 300)
        polled.append(number)
        assert doorbell.waiting == 9 - number

    async def wait_all() -> None:
        await asyncio.gather(*map(wait, range(10)))

    asyncio.run(wait_all())

    assert polled == list(range(10))
    assert (doorbell.waiting, doorbell._scouts) == (0, {})


def test_others_only_look_whether_their_clients_are_there(doorbell, monkeypatch):
    """They return now and then, without a poll."""
    monkeypatch.setattr(config, "POLL_SECONDS", 300)
    monkeypatch.setattr(config, "POLL_SECONDS_WITH_BELL", 0.01)

    async def wait_all() -> list[bool]:
        return await asyncio.gather(*(doorbell.wait(MAIL, 300) for _ in range(3)))

    assert asyncio.run(wait_all()) == [False] * 3


def woken(doorbell: Doorbell, waiting: list[Interest], act: Any) -> list[int]:
    """Which of these calls an act wakes."""

    async def wait_all() -> list[int]:
        calls = [asyncio.ensure_future(doorbell.wait(each, 300)) for each in waiting]
        await asyncio.sleep(0)
        act()
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        found = [number for number, call in enumerate(calls) if call.done() and call.result()]
        doorbell.wake_all()
        await asyncio.gather(*calls)
        return found

    return asyncio.run(wait_all())


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "POLL_SECONDS", 300)
    monkeypatch.setattr(config, "POLL_SECONDS_WITH_BELL", 300)


def test_a_ring_wakes_different_interests(doorbell):
    """Many calls of one don't keep the only call of another from its job."""
    waiting = [MAIL] * 10 + [SHOP, ALL]

    assert woken(doorbell, waiting, lambda: doorbell._wake("mail", most=4)) == [0, 1, 10, 11]
    assert woken(doorbell, waiting, lambda: doorbell._wake("shop", most=4)) == [10, 11]


def test_a_find_wakes_one_of_the_same_interest(doorbell):
    """There may be more of these jobs."""
    waiting = [MAIL, SHOP, SHOP]

    assert woken(doorbell, waiting, lambda: doorbell.pass_on(SHOP)) == [1]
