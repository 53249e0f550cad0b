"""Start and stop hooks, and the lifespan whose value is `ctx.state`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import rowlock
from rowlock.worker.hooks import HookFailed


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url, state="the app's")
    yield app
    app.close()


@pytest.mark.asyncio
async def test_hooks_of_an_embedded_worker(app):
    """In their order, on the worker's loop, with the lifespan's value as the state."""
    heard: list[str] = []
    loops: list[Any] = []

    @app.on_worker_start
    async def start() -> None:
        heard.append("start")

    @app.on_worker_start
    def plain_start() -> None:
        heard.append("plain start")

    @app.on_worker_stop
    async def stop() -> None:
        heard.append("stop")

    @app.on_worker_stop
    def broken_stop() -> None:
        raise RuntimeError("logged, and no more")

    @app.on_worker_stop
    def plain_stop() -> None:
        heard.append("plain stop")

    @app.lifespan
    async def lifespan() -> AsyncIterator[str]:
        async with asyncio.timeout(600):
            loops.append(asyncio.get_running_loop())
            heard.append("enter")
            yield "the lifespan's"
            heard.append("leave")

    @app.task
    async def work(ctx: rowlock.Context) -> str:
        loops.append(asyncio.get_running_loop())
        return str(ctx.state)

    job = await work.aenqueue()
    async with app.worker():
        done = await app.await_(job.id, timeout=60)
    await app.aclose()

    assert done.result == "the lifespan's"
    assert heard == ["plain start", "enter", "start", "stop", "leave", "plain stop"]
    assert loops[0] is loops[1]


@pytest.mark.asyncio
async def test_a_start_hook_that_fails(app):
    """No job runs, the error says which hook it was, and the lifespan is left."""
    heard: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        heard.append("leave")

    @app.on_worker_start
    async def connect() -> None:
        raise OSError("no route")

    with pytest.raises(HookFailed, match=r"hook '.*connect' has failed: OSError: no route"):
        async with app.worker():
            heard.append("served")
    await app.aclose()

    assert heard == ["leave"]


def test_what_is_no_hook(app):
    """Parameters, a second lifespan, and a yield in the wrong place are refused."""

    def needy(pool: object) -> None: ...

    def generator() -> Iterator[None]:
        yield

    app.lifespan(generator)
    for add, hook, problem in [
        (app.on_worker_start, needy, "without arguments"),
        (app.on_worker_stop, generator, "use @app.lifespan"),
        (app.on_worker_start, "connect", "must be a function"),
        (app.lifespan, generator, "already"),
        (rowlock.App(app.url).lifespan, lambda: None, "no yield"),
    ]:
        with pytest.raises(rowlock.OptionInvalid, match=problem):
            add(hook)


_APP = """
import asyncio, os, sys
import rowlock
app = rowlock.App("sqlite:///jobs.db")

def note(text):
    with open("heard", "a") as file:
        file.write(f"{os.getpid()} {text}\\n")

@app.on_worker_start
def start():
    if "fail" in os.environ:
        raise OSError("no route")
    note("start")

@app.on_worker_stop
async def stop():
    note("stop")

@app.lifespan
async def lifespan():
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup():
        yield {"loop": loop, "pid": os.getpid()}
    note("leave")

async def own(ctx):
    return [ctx.state["loop"] is asyncio.get_running_loop(), ctx.state["pid"] == os.getpid()]

@app.task
async def here(ctx: rowlock.Context) -> list[bool]:
    return await own(ctx)

@app.task(executor="process")
async def apart(ctx: rowlock.Context) -> list[bool]:
    return await own(ctx)

@app.task(executor="process")
def plain(ctx: rowlock.Context) -> list[bool]:
    return [True, ctx.state["pid"] == os.getpid()]
"""


def run_worker(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "hooked.py").write_text(_APP, "utf-8")
    clean = {name: each for name, each in os.environ.items() if not name.startswith("ROWLOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "rowlock", "--app", "hooked:app", "worker", "--drain"],
        cwd=folder,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_hooks_of_a_workers_processes(tmp_path):
    """Each child and each slot has its own, on the loop that runs its jobs."""
    with rowlock.App(f"sqlite:///{tmp_path}/jobs.db") as app:
        jobs = [app.enqueue(kind) for kind in ("here", "apart", "plain", "apart")]
        done = run_worker(tmp_path)
        results = [app.get(job.id).result for job in jobs]
    heard: dict[str, list[str]] = {}
    for line in (tmp_path / "heard").read_text().splitlines():
        pid, _, text = line.partition(" ")
        heard.setdefault(pid, []).append(text)

    assert (done.returncode, results) == (0, [[True, True]] * 4), done.stderr
    assert len(heard) >= 2
    assert all(texts == ["start", "stop", "leave"] for texts in heard.values())


def test_a_worker_whose_hook_fails_ends(tmp_path):
    """The message names the hook and its error, and no job has run."""
    with rowlock.App(f"sqlite:///{tmp_path}/jobs.db") as app:
        job = app.enqueue("here")
        done = run_worker(tmp_path, fail="1")
        found = app.get(job.id)

    assert (done.returncode, found.state, found.attempt) == (1, "ready", 0)
    assert "its hook 'start' has failed: OSError: no route" in done.stderr
    assert "a start hook of hooked:app has failed: nothing was started" in done.stderr
