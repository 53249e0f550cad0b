"""The scheduler as a service: it fires, sleeps until the next tick, and outlives the database."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import rowlock
from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.schedule import Fired
from rowlock.scheduler import Scheduler
from rowlock.worker.trouble import ServiceErrors
from tests.support.services import eventually, running

SECOND_TICKS = "* * * * * *"


class FakeStore:
    """Answers `afire_due` from a list; after the last answer it waits forever."""

    def __init__(self, *answers: Fired | Exception) -> None:
        self.answers = list(answers)
        self.is_done = asyncio.Event()
        self.calls = 0

    async def afire_due(self) -> Fired:
        self.calls += 1
        if not self.answers:
            self.is_done.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def has_jobs(app: rowlock.App, count: int) -> bool:
    return len((await app.alist()).jobs) >= count


def nothing(wait: float | None = 0.0, *, unreadable: tuple[str, ...] = ()) -> Fired:
    return Fired([], wait, list(unreadable))


@pytest.mark.asyncio
async def test_schedulers_fire_real_ticks(any_url: str):
    """Three of them on one database, by its own clock: each second once."""
    async with rowlock.App(any_url) as app:
        await app.aschedule("s", "tick", cron=SECOND_TICKS, missed="all")
        others = [rowlock.App(any_url) for _ in range(2)]
        services = [Scheduler(each.store) for each in (app, *others)]
        async with running(services[0].run), running(services[1].run), running(services[2].run):
            await eventually(lambda: has_jobs(app, 3))
        ticks = sorted(job.meta["tick"] for job in (await app.alist(full=True)).jobs)
        for other in others:
            await other.aclose()

    assert len(ticks) == len(set(ticks))


@pytest.mark.asyncio
async def test_it_is_woken(any_url: str):
    """A scheduler that sleeps for half a minute looks at once when it is told to."""
    clock = rowlock.ManualClock()
    async with rowlock.App(any_url, clock=clock) as app:
        scheduler = Scheduler(app.store)
        async with running(scheduler.run), asyncio.timeout(20):
            await app.aschedule("s", "tick", cron="0 * * * *")
            clock.advance(3600)
            while not (await app.alist()).jobs:
                scheduler.wake()
                await asyncio.sleep(0.01)

        assert len((await app.alist()).jobs) == 1


@pytest.mark.asyncio
async def test_it_outlives_the_database(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """While the database is away it tries again and says so once; then that it is back."""
    monkeypatch.setattr(config, "TROUBLE_SECONDS", 0.001)
    away = StoreUnavailable("gone")
    store = FakeStore(nothing(), away, away, away, nothing(), away, nothing())
    async with running(Scheduler(store, chance=Random(1)).run), asyncio.timeout(20):
        await store.is_done.wait()

    told = "schedules are not fired"
    assert [told in message for message in caplog.messages] == [True] * 4
    assert ["over" in message for message in caplog.messages] == [False, True] * 2
    assert "3 errors" in caplog.messages[1]


@pytest.mark.asyncio
async def test_an_unreadable_schedule_is_told_once(caplog: pytest.LogCaptureFixture):
    """Not every half minute; again if it was readable in between."""
    bad = nothing(unreadable=("a",))
    store = FakeStore(bad, bad, nothing(), bad)
    async with running(Scheduler(store).run), asyncio.timeout(20):
        await store.is_done.wait()

    assert sum("'a'" in message for message in caplog.messages) == 2


@pytest.mark.asyncio
async def test_a_mistake_of_ours_is_survived(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Whatever the error is, the service goes on; it is counted, and logged with its traceback."""
    monkeypatch.setattr(config, "TROUBLE_SECONDS", 0.001)
    errors = ServiceErrors()
    store = FakeStore(nothing(), ZeroDivisionError(), KeyError("a"), nothing())
    async with running(Scheduler(store, errors=errors).run), asyncio.timeout(20):
        await store.is_done.wait()

    assert errors.counts == {"schedules": 2}
    assert [record.levelname for record in caplog.records[:2]] == ["ERROR"] * 2
    assert all(record.exc_info for record in caplog.records[:2])


@pytest.mark.asyncio
@pytest.mark.parametrize(("wait", "slept"), [(None, 30.0), (3600.0, 30.0), (0.25, 0.25)])
async def test_how_long_it_sleeps(wait: float | None, slept: float):
    """Until the next tick, and half a minute at most."""
    scheduler = Scheduler(FakeStore(nothing(wait)))

    assert await scheduler._fire() == slept


@pytest.mark.asyncio
async def test_a_schedule_of_another_process_is_noticed(
    any_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A worker that would look again in ten minutes hears of it by the bell."""
    monkeypatch.setattr(config, "SCHEDULER_SLEEP_SECONDS_MAX", 600.0)
    async with rowlock.App(any_url) as app, rowlock.App(any_url) as other:

        @app.task
        async def tick() -> None: ...

        async with app.worker():
            await app.await_((await tick.aenqueue()).id, timeout=30)
            # Once it was there, it may be that only a sleeping scheduler is left.
            await asyncio.sleep(2 * config.SCHEDULER_REST_SECONDS)
            await other.aschedule("s", "tick", cron=SECOND_TICKS)
            await eventually(lambda: has_jobs(app, 2))
            await other.store.apause_schedule("s")
            fired = len((await app.alist()).jobs)
            await other.store.aresume_schedule("s")
            await eventually(lambda: has_jobs(app, fired + 1))


@pytest.mark.asyncio
async def test_it_rests_however_often_it_is_woken(monkeypatch: pytest.MonkeyPatch):
    """Every write to a SQLite file rings: not every one is worth a look. A tick is never late."""
    monkeypatch.setattr(config, "SCHEDULER_REST_SECONDS", 600.0)
    store = FakeStore(nothing(0.01), nothing(0.01), nothing(600.0))
    scheduler = Scheduler(store)
    async with running(scheduler.run), asyncio.timeout(20):
        await eventually(lambda: asyncio.sleep(0, not store.answers))
        scheduler.wake()
        await asyncio.sleep(0.1)

        assert store.calls == 3
