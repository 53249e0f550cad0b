"""The janitor: lost jobs come back, old ones go, whatever happens to the database meanwhile."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import rowlock
from rowlock import config
from rowlock.clock import SystemClock
from rowlock.errors import StoreUnavailable
from rowlock.job import Beat, Lease
from rowlock.scheduler import Janitor
from rowlock.store.local_state import LocalState
from rowlock.store.ops.manage import prune
from rowlock.store.ops.recover import Seen
from rowlock.store.steps import Op
from rowlock.worker.beats import Beats
from tests.store.triggers import refuse
from tests.support.services import eventually, running


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
        self.local = LocalState()
        self.calls = {
            "sweep": 0,
            "prune": 0,
            "sample_depth": 0,
            "fold_history": 0,
            "prune_events": 0,
            "needs_tending": 0,
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
        "TROUBLE_SECONDS",
        "SWEEP_SECONDS",
        "PRUNE_SECONDS",
        "HISTORY_FOLD_SECONDS",
        "WORKFLOW_SWEEP_SECONDS",
    ):
        monkeypatch.setattr(config, name, 0.001)
    store = FakeStore()
    async with running(Janitor(store).run), asyncio.timeout(20):
        await store.is_done.wait()

    begun = sum("trying again" in message for message in caplog.messages)
    assert begun == sum("over after" in message for message in caplog.messages) == 6


@pytest.mark.owner("changes the database")
@pytest.mark.asyncio
async def test_batches_shrink_until_the_server_bears_them(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A server that ends every statement after half a second, of which a row takes 5 ms."""
    monkeypatch.setattr(config, "TROUBLE_SECONDS", 0.001)
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


class SettableClock(SystemClock):
    """This machine's clock, which a test may set forward; the monotonic one is as it is."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


@pytest.mark.asyncio
async def test_a_clock_that_is_set_forward_takes_no_job_from_its_worker(
    any_url: str, monkeypatch: pytest.MonkeyPatch
):
    """In real time: a janitor, a worker that beats for twenty jobs, and one that has vanished.

    The janitor looks ten times between two beats. A busy machine may hold up a beat for longer
    than a worker's usually is.
    """
    monkeypatch.setattr(config, "SWEEP_SECONDS", 0.2)
    monkeypatch.setattr(config, "CLOCK_STEP_SLACK_SECONDS", 6.0)
    clock = SettableClock()
    async with rowlock.App(any_url, clock=clock) as app:
        await app.aenqueue_many([{"kind": "kept"} for _ in range(20)])
        kept = await app.store.aclaim(worker="alive", queues=None, lease=6, limit=20)
        lost = await app.aenqueue("lost")
        await app.store.aclaim(worker="gone", queues=None, lease=6)
        missed: list[tuple[Lease, Beat]] = []
        janitor = Janitor(app.store)

        async def has_looked() -> bool:
            return app.store.local.clock_watch._last is not None

        async def is_lost() -> bool:
            return (await app.aget(lost.id)).state is rowlock.JobState.READY

        with Beats(app.store, lease_seconds=6, on_beat=lambda *beat: missed.append(beat)) as beats:
            for lease in kept:
                beats.hold(lease)
            async with running(janitor.run):
                # The first look is what the next ones are compared with.
                await eventually(has_looked)
                clock.ahead_us = 3_600_000_000
                await eventually(is_lost)
            found = [await app.aget(lease.id) for lease in kept]

        assert [(job.state, job.token) for job in found] == [
            (rowlock.JobState.RUNNING, lease.token) for lease in kept
        ]
        assert missed == []


SLOW = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN old; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON rowlock.finished FOR EACH ROW EXECUTE FUNCTION slow()
"""


@pytest.mark.owner("puts a trigger on our table")
@pytest.mark.asyncio
async def test_a_lease_that_cannot_be_ended_holds_up_no_other(
    any_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The database refuses to bury one of many jobs: the others are buried all the same."""
    for name in ("TROUBLE_SECONDS", "SWEEP_SECONDS"):
        monkeypatch.setattr(config, name, 0.001)
    clock = rowlock.ManualClock()
    async with rowlock.App(any_url, clock=clock) as app:
        jobs = await app.aenqueue_many([{"kind": "lost", "max_attempts": 1} for _ in range(20)])
        await app.store.aclaim(worker="w", queues=None, limit=20)
        refuse(any_url, table="finished", when=f"NEW.id = '{jobs[3].id}'")
        clock.advance(60)
        refused: list[None] = []
        janitor = Janitor(app.store, on_refused=lambda: refused.append(None))
        async with running(janitor.run), asyncio.timeout(60):
            others = [job.id for job in jobs if job is not jobs[3]]
            for id in others:
                await app.await_(id, timeout=60)
        left = await app.aget(jobs[3].id)

    assert left is not None and left.state is rowlock.JobState.RUNNING
    assert refused == [None]
    assert f"job {jobs[3].id} can't be given back" in caplog.text
