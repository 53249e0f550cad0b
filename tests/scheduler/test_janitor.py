"""The janitor: lost jobs come back, old ones go, whatever happens to the database meanwhile."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import rowlock
from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.scheduler import Janitor
from rowlock.store.ops.manage import prune
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


@pytest.mark.owner("changes the database")
@pytest.mark.asyncio
async def test_batches_shrink_until_the_server_bears_them(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A server that ends every statement after half a second, of which a row takes 5 ms."""
    monkeypatch.setattr(config, "SERVICE_RETRY_SECONDS", 0.001)
    clock = rowlock.ManualClock()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SLOW)
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET statement_timeout = '500ms'")
    async with rowlock.App(postgres_url, clock=clock) as app:
        await app.aenqueue_many([{"kind": "old"} for _ in range(300)])
        await app.store.asucceed(await app.store.aclaim(worker="w", queues=None, limit=300))
        clock.advance(2 * 86_400)
        with pytest.raises(StoreUnavailable, match="statement timeout"):
            await app.store.arun(prune())

        async def is_pruned() -> bool:
            return not (await app.alist()).jobs

        async with running(Janitor(app.store).run):
            await eventually(is_pruned)


SLOW = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN old; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON rowlock.finished FOR EACH ROW EXECUTE FUNCTION slow()
"""
