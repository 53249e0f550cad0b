"""The end of a worker inside the caller's process: cancelled again and again, or outlasted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

import rowlock
from rowlock import JobState
from tests.support.workers import runners
from tests.worker.waiting import wait_until

PATIENCE_SECONDS = 60
LEASE_SECONDS = 1


async def until(condition) -> None:
    await asyncio.to_thread(wait_until, condition, seconds=PATIENCE_SECONDS)


def threads_named(start: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(start)]


def make_pair(app: rowlock.App, begun: list[str], go_on: threading.Event):
    """A coroutine and a plain function that finish when told to."""

    @app.task
    async def soft() -> str:
        begun.append("soft")
        await asyncio.to_thread(go_on.wait, PATIENCE_SECONDS)
        return "done"

    @app.task
    def hard() -> str:
        begun.append("hard")
        go_on.wait(PATIENCE_SECONDS)
        return "done"

    return soft, hard


@pytest.mark.asyncio
async def test_a_scope_that_cancels_again_and_again(app):
    """An anyio scope cancels in every turn of the loop: what runs finishes, and is recorded."""
    begun: list[str] = []
    go_on = threading.Event()
    soft, hard = make_pair(app, begun, go_on)
    jobs = [await soft.aenqueue(), await hard.aenqueue()]
    with anyio.CancelScope() as scope:
        async with app.worker(grace=PATIENCE_SECONDS):
            await until(lambda: len(begun) == 2)
            asyncio.get_running_loop().call_later(0.5, go_on.set)
            scope.cancel()

    found = [await app.aget(job.id) for job in jobs]
    assert [(job.state, job.result, job.attempt) for job in found] == [
        (JobState.SUCCEEDED, "done", 1)
    ] * 2
    await app.aclose()


@pytest.mark.asyncio
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_task_that_is_cancelled_some_times(app, times):
    """The first cancellation stops the worker politely, and others don't end that."""
    begun: list[str] = []
    go_on = threading.Event()
    soft, hard = make_pair(app, begun, go_on)
    jobs = [await soft.aenqueue(), await hard.aenqueue()]

    async def serve() -> None:
        async with app.worker(grace=PATIENCE_SECONDS):
            await asyncio.sleep(3600)

    serving = asyncio.create_task(serve())
    await until(lambda: len(begun) == 2)
    for _ in range(times):
        serving.cancel()
        await asyncio.sleep(0.05)
    before = serving.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await serving

    found = [await app.aget(job.id) for job in jobs]
    assert not before
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}
    await app.aclose()


@pytest.mark.asyncio
async def test_one_that_outlasts_the_grace_is_kept(app):
    """Its lease is held, another worker does not run it beside itself, and its end is recorded."""
    begun: list[str] = []
    go_on = threading.Event()
    _, hard = make_pair(app, begun, go_on)
    job = await hard.aenqueue()
    async with app.worker(grace=0.1, lease=LEASE_SECONDS):
        await until(lambda: begun)
    async with app.worker(lease=LEASE_SECONDS):
        await asyncio.sleep(4 * LEASE_SECONDS)
        between = await app.aget(job.id)
        go_on.set()
        found = await app.await_(job.id, timeout=PATIENCE_SECONDS)

    assert (between.state, begun) == (JobState.RUNNING, ["hard"])
    assert (found.state, found.result, found.token) == (JobState.SUCCEEDED, "done", 1)
    await until(lambda: not threads_named("rowlock-beats"))
    await app.aclose()


@pytest.mark.asyncio
async def test_one_that_is_kept_can_be_cancelled(app):
    """The beats hear of it, and it is interrupted where it is."""
    begun = threading.Event()

    @app.task
    def endless() -> None:
        begun.set()
        while True:
            time.sleep(0.001)

    job = await endless.aenqueue()
    async with app.worker(grace=0.1, lease=LEASE_SECONDS):
        await until(begun.is_set)
    await app.acancel(job.id)
    found = await app.await_(job.id, timeout=PATIENCE_SECONDS)

    assert found.state is JobState.CANCELLED
    await until(lambda: not threads_named("rowlock-beats"))
    await app.aclose()


@pytest.mark.asyncio
async def test_a_coroutine_that_ignores_its_cancellation_is_kept(app):
    """It goes on beside whatever the loop does next, and its end is recorded too."""
    begun, go_on = threading.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> str:
        begun.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    job = await stubborn.aenqueue()
    async with app.worker(grace=0.1, lease=LEASE_SECONDS):
        await until(begun.is_set)
    await asyncio.sleep(3 * LEASE_SECONDS)
    go_on.set()
    found = await app.await_(job.id, timeout=PATIENCE_SECONDS)

    assert (found.state, found.result, found.token) == (JobState.SUCCEEDED, "done", 1)
    await app.aclose()


SCRIPT = """
import asyncio, os, sys, time
from pathlib import Path
import rowlock

app = rowlock.App(sys.argv[1])

def wait(path: str, note: str) -> str:
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()}\\n")
    while not Path(path).exists():
        time.sleep(0.01)
    return "seen"

app.task(wait, timeout=float(sys.argv[3]) if sys.argv[3] else None, max_attempts=1)

async def main() -> None:
    async with app.worker(grace=0.1, lease=1):
        while not Path(sys.argv[2]).exists():
            await asyncio.sleep(0.01)
    await app.aclose()

asyncio.run(main())
Path(sys.argv[2] + "-over").touch()
"""


@pytest.mark.one_store("threads that outlast their loop")
@pytest.mark.parametrize("limit", ["", "4"])
def test_one_that_outlasts_its_loop_is_settled(app, tmp_path, limit):
    """The loop is closed and the program at its end: its thread is beaten for until it ends."""
    note, go_on, stop = tmp_path / "note", tmp_path / "go-on", tmp_path / "stop"
    job = app.enqueue("wait", {"path": str(go_on), "note": str(note)})
    command = [sys.executable, "-c", SCRIPT, app.url, str(stop), limit]
    with subprocess.Popen(command) as first, subprocess.Popen(command) as second:
        try:
            wait_until(lambda: runners(note), seconds=PATIENCE_SECONDS)
            stop.touch()
            over = Path(f"{stop}-over")
            wait_until(over.exists, seconds=PATIENCE_SECONDS)
            time.sleep(4 * LEASE_SECONDS)
            between = app.get(job.id).state
            if not limit:
                go_on.touch()
            found = app.wait(job.id, timeout=PATIENCE_SECONDS)
            codes = [each.wait(PATIENCE_SECONDS) for each in (first, second)]
        finally:
            first.kill()
            second.kill()

    assert (found.token, len(runners(note)), codes) == (1, 1, [0, 0])
    if limit:
        assert (found.state, found.errors[0].type) == (JobState.DEAD, "TimeoutError")
    else:
        assert (between, found.state, found.result) == (
            JobState.RUNNING,
            JobState.SUCCEEDED,
            "seen",
        )
