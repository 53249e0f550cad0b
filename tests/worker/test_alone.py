"""Jobs that must run alone: each process takes one at a time, and the next follows at once."""

from __future__ import annotations

import asyncio

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.worker.runner import SuspectLock
from tests.worker.waiting import wait_until

pytestmark = pytest.mark.asyncio


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url)
    yield app
    app.close()


async def crash(app: rowlock.App, count: int) -> None:
    """Have the process die that runs all these jobs."""
    leases = await app.store.aclaim(worker="dead", queues=None, limit=count)
    await app.store.acrash(leases, "killed")


def lose(app: rowlock.App, count: int) -> None:
    """Lose the leases of these jobs, as often as makes them suspects."""
    for _ in range(config.SUSPECT_LOSSES):
        leases = app.store.claim(worker="gone", queues=None, limit=count, lease=0.001, begun=False)
        assert len(leases) == count
        wait_until(lambda: app.store.recover() == 0 and not app.list(state="running").jobs)


async def test_each_process_takes_one(app, monkeypatch):
    """Whoever has claimed all of them gives the others back at once, not when they are stale."""
    monkeypatch.setattr(config, "PREFETCH_STALE_SECONDS", 600)
    together = asyncio.Barrier(3)

    @app.task
    async def alone() -> None:
        await together.wait()

    ids = [(await alone.aenqueue()).id for _ in range(6)]
    await crash(app, 6)
    async with app.worker(), app.worker(), app.worker():
        found = [await app.await_(id, timeout=30) for id in ids]

    assert [job.state for job in found] == [JobState.SUCCEEDED] * 6
    await app.aclose()


async def test_one_after_the_other_costs_few_claims(app):
    """A process that has met one claims the next ones singly: nothing is claimed over and over."""

    @app.task
    async def alone() -> None:
        await asyncio.sleep(0)

    ids = [(await alone.aenqueue()).id for _ in range(20)]
    await crash(app, 20)
    async with app.worker(concurrency=20):
        found = [await app.await_(id, timeout=30) for id in ids]

    # One claim was the dead process's, one was given back at once.
    assert max(job.token for job in found) <= 3
    await app.aclose()


async def test_a_suspect_waits_for_its_turn_elsewhere(app):
    """While another process of the machine runs a suspect, this one gives its own back at once, and
    goes on with other jobs instead of waiting until it has nothing else to do.
    """
    gate = asyncio.Event()

    @app.task
    async def busy() -> None:
        await gate.wait()

    @app.task
    async def suspect() -> None: ...

    lock = SuspectLock(app.store)
    assert lock.take()
    suspects = [(await suspect.aenqueue()).id for _ in range(4)]
    await asyncio.to_thread(lose, app, 4)
    running = await busy.using(priority=1).aenqueue()
    async with app.worker(concurrency=5):
        await asyncio.to_thread(wait_until, lambda: app.get(running.id).state is JobState.RUNNING)
        await asyncio.to_thread(
            wait_until, lambda: all(app.get(id).state is JobState.SCHEDULED for id in suspects)
        )
        waiting = [app.get(id).run_at for id in suspects]
        other = await busy.aenqueue()
        await asyncio.to_thread(wait_until, lambda: app.get(other.id).state is JobState.RUNNING)
        gate.set()
        lock.free()
        found = [await app.await_(id, timeout=30) for id in suspects]

    # Not all at the same time, or only one of them would get its turn each time.
    assert len(set(waiting)) == 4
    assert [(job.state, job.attempt) for job in found] == [(JobState.SUCCEEDED, 1)] * 4
    await app.aclose()
