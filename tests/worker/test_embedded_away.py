"""A worker inside the caller's process that ends while its database is away."""

from __future__ import annotations

import asyncio

import rowlock
from rowlock import JobState
from rowlock.chaos.proxy import FaultyProxy, Mode


def test_it_ends_though_its_last_outcomes_cannot_be_written(postgres_url, caplog):
    """By then their leases are lost; a program that ends must not wait for a database for ever."""

    async def serve(url: str) -> rowlock.Job:
        app = rowlock.App(f"{url}?call_timeout=1")
        gate, started = asyncio.Event(), asyncio.Event()

        @app.task
        async def wait() -> None:
            started.set()
            await gate.wait()

        job = await wait.aenqueue()
        async with app.worker(lease=1, grace=1):
            await asyncio.wait_for(started.wait(), 30)
            while "leases can't be extended" not in caplog.text:
                # Some may just be on their way.
                proxy.refuse()
                await asyncio.sleep(0.05)
            gate.set()
        await app.aclose()
        return job

    with FaultyProxy(postgres_url) as proxy:
        job = asyncio.run(asyncio.wait_for(serve(proxy.url), 90))
        proxy.mode = Mode.PASS
    with rowlock.App(postgres_url) as app:
        assert app.get(job.id).state == JobState.RUNNING
    assert "the outcomes of 1 jobs are not written" in caplog.text
