"""The janitor: lost jobs come back, old ones go, whatever happens to the database meanwhile."""

from __future__ import annotations

import asyncio

import pytest

import rowlock
from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.scheduler import Janitor
from rowlock.store.ops.recover import Seen
from rowlock.store.steps import Op
from tests.scheduler.test_fire import eventually, running


@pytest.mark.asyncio
@pytest.mark.parametrize("has_retention", [True, False])
async def test_it_keeps_house(any_url: str, has_retention: bool):
    """An expired lease is given back; a finished job goes when its time is over, if wanted."""
    clock = rowlock.ManualClock()
    async with rowlock.App(any_url, clock=clock) as app:
        old = await app.aenqueue("old", keep=3600)
        (lease,) = await app.store.aclaim(worker="w", queues=None)
        await app.store.asucceed([lease])
        lost = await app.aenqueue("lost")
        await app.store.aclaim(worker="w", queues=None, lease=30)
        clock.advance(3601)
        janitor = Janitor(app.store, has_retention=has_retention)

        async def is_kept() -> bool:
            is_back = (await app.aget(lost.id)).state is rowlock.JobState.READY
            return is_back and (not has_retention or await app.aget(old.id) is None)

        async with running(janitor.run):
            await eventually(is_kept)

        assert has_retention is (await app.aget(old.id) is None)


class FakeStore:
    """Fails the first calls of each kind."""

    def __init__(self) -> None:
        self.calls = {
            "sweep": 0,
            "prune": 0,
            "sample_depth": 0,
            "fold_history": 0,
            "prune_events": 0,
        }
        self.is_done = asyncio.Event()

    async def arun(self, op: Op[Seen]) -> Seen:
        self._count(op.name)
        return {}

    async def aprune(self) -> int:
        return self._count("prune")

    def _count(self, what: str) -> int:
        self.calls[what] += 1
        if self.calls[what] < 3:
            raise StoreUnavailable("gone")
        if min(self.calls.values()) > 5:
            self.is_done.set()
        return 0


@pytest.mark.asyncio
async def test_it_outlives_the_database(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """All of it goes on after a failure, and each says once that it can't work."""
    for name in (
        "SERVICE_RETRY_SECONDS",
        "SWEEP_SECONDS",
        "PRUNE_SECONDS",
        "HISTORY_FOLD_SECONDS",
    ):
        monkeypatch.setattr(config, name, 0.001)
    store = FakeStore()
    async with running(Janitor(store).run), asyncio.timeout(20):
        await store.is_done.wait()

    assert 3 == sum(record.levelname == "WARNING" for record in caplog.records)
