"""An app that nobody has any more, though nobody has closed it: its threads and connections end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from pathlib import Path

import psycopg
import pytest

import rowlock
from tests.worker.waiting import wait_until

PATIENCE_SECONDS = 60
NAME = "rowlock-dropped"


@pytest.fixture
def url(any_url):
    """A database whose connections can be told from those of other tests."""
    with rowlock.App(any_url) as app:
        app.migrate()
    if any_url.startswith("sqlite"):
        return any_url
    return f"{any_url}{'&' if '?' in any_url else '?'}application_name={NAME}"


def threads() -> set[threading.Thread]:
    # What somebody else held for a moment longer is collected by a later look.
    gc.collect()
    return {each for each in threading.enumerate() if each.name.startswith("rowlock-")}


def connections(url: str) -> int:
    """How many are open, of this process or at the server."""
    gc.collect()
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        links = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return sum(path in _target(link) for link in links)
    with psycopg.connect(url.replace(NAME, "other")) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [NAME]
        ).fetchone()
    assert found is not None
    return found[0]


def _target(link: Path) -> str:
    # It may be closed between a look and the next.
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def use(url: str) -> weakref.ref[rowlock.App]:
    """Work with an app in both colours, and drop it."""
    app = rowlock.App(url)

    @app.task
    def greet(name: str) -> None: ...

    async def enqueue() -> None:
        for number in range(3):
            await greet.aenqueue(name=f"a{number}")

    greet.enqueue(name="Ada")
    asyncio.run(enqueue())
    assert len(app.list().jobs) >= 4
    assert connections(url) > 0
    return weakref.ref(app)


def test_a_dropped_app_leaves_nothing(url):
    """Neither a thread nor a connection, and no warning of one."""
    before = threads()
    kept = use(url)
    gc.collect()

    wait_until(lambda: not threads() - before, seconds=PATIENCE_SECONDS)
    wait_until(lambda: not connections(url), seconds=PATIENCE_SECONDS)
    assert kept() is None


def test_many_dropped_apps_leave_nothing(url):
    """As a program that makes one for every call."""
    before = threads()
    for _ in range(5):
        use(url)
        gc.collect()

    wait_until(lambda: not threads() - before, seconds=PATIENCE_SECONDS)
    wait_until(lambda: not connections(url), seconds=PATIENCE_SECONDS)


@pytest.mark.asyncio
async def test_one_that_is_dropped_while_its_loop_goes_on(url):
    """Its connections belong to the loop, which does not end with it."""
    before = threads()

    async def work() -> None:
        app = rowlock.App(url)
        await app.aenqueue("greet", {"name": "Ada"})
        assert await asyncio.to_thread(connections, url) > 0

    await work()
    gc.collect()

    await asyncio.to_thread(wait_until, lambda: not threads() - before, seconds=PATIENCE_SECONDS)
    await asyncio.to_thread(wait_until, lambda: not connections(url), seconds=PATIENCE_SECONDS)


def test_what_was_enqueued_is_rung_for(url):
    """Dropped at once, it has still told the workers: what is pending is rung first."""
    heard: list[str | None] = []

    async def listen() -> None:
        with_bell = rowlock.App(url)
        notes = with_bell.store.engine.notifications()
        async for note in notes:
            heard.append(note)
            if note is None:
                await asyncio.to_thread(drop_after_enqueue)
            else:
                break
        await notes.aclose()
        await with_bell.aclose()

    def drop_after_enqueue() -> None:
        rowlock.App(url).enqueue("greet", {"name": "Ada"}, queue="bells")
        gc.collect()

    asyncio.run(asyncio.wait_for(listen(), PATIENCE_SECONDS))

    assert heard[0] is None
    assert len(heard) == 2
