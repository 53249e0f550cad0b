"""What `pause` promises while a worker is busy: what was claimed before runs, and then nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import rowlock
from rowlock import JobState


async def until(is_so: Callable[[], bool]) -> None:
    """Look again and again; the caller has a bound."""
    while True:
        if is_so():
            return
        await asyncio.sleep(0.01)


def running_of(app: rowlock.App) -> int:
    (queue,) = app.stats(["default"])
    return queue.counts[JobState.RUNNING].value


@pytest.mark.asyncio
async def test_a_busy_worker_begins_what_it_has_claimed_and_nothing_more(any_url: str):
    """All that begins after the pause was leased; the rest waits, while other queues go on."""
    begun = 0
    async with rowlock.App(any_url) as app:

        @app.task
        async def quick() -> None:
            nonlocal begun
            begun += 1

        @app.task(queue="other")
        async def other() -> None: ...

        await app.aenqueue_many([quick.job() for _ in range(20_000)])
        async with app.worker(), asyncio.timeout(120):
            await until(lambda: begun >= 500)
            await app.apause("default")
            await until(lambda: running_of(app) == 0)
            # Looks that began before the pause are over when a later job has run.
            for _ in range(3):
                await app.await_((await other.aenqueue()).id)
            settled = begun
            late = await quick.aenqueue()
            for _ in range(3):
                await app.await_((await other.aenqueue()).id)

            assert begun == settled < 20_000
            assert (await app.aget(late.id)).state is JobState.READY
            await app.aresume("default")
            await until(lambda: begun > settled)
