"""The bell of a SQLite file: rung when what others wrote can be read, and not before."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from rowlock.store import open_store
from rowlock.store.sqlite.watch import watch
from rowlock.store.steps import News
from tests.store.jobs import made
from tests.store.sqlite_processes import url_of

ROUNDS = 30
BOUND_SECONDS = 20


@pytest.mark.asyncio
async def test_it_rings_when_the_version_has_changed(tmp_path: Path):
    """The log grows a moment before a commit can be seen, and nothing tells of the latter."""
    log, version = tmp_path / "jobs.db-wal", 0
    async with (
        asyncio.timeout(BOUND_SECONDS),
        aclosing(watch(tmp_path / "jobs.db", lambda: version)) as rings,
    ):
        assert None is await anext(rings)
        for number in range(1, 4):
            ring = asyncio.ensure_future(anext(rings))
            with log.open("ab") as file:
                file.write(b"frame")
            await asyncio.sleep(0.01)
            assert not ring.done()
            version = number

            assert await ring == News("")


@pytest.mark.asyncio
async def test_what_was_rung_for_can_be_read(tmp_path: Path):
    """Whoever looks when the bell rings finds the job, however soon that is."""
    url = url_of(tmp_path / "jobs.db")
    with closing(open_store(url)) as worker, closing(open_store(url)) as producer:
        async with (
            asyncio.timeout(BOUND_SECONDS),
            aclosing(worker.engine.notifications()) as rings,
        ):
            assert None is await anext(rings)
            for _ in range(ROUNDS):
                job = made()
                sending = asyncio.create_task(asyncio.to_thread(producer.enqueue, [job]))
                assert await anext(rings) == News("")
                assert worker.get(job.id) is not None
                await sending


@pytest.mark.asyncio
async def test_a_commit_of_ours_is_noticed_without_its_log(tmp_path: Path):
    """The lock file is closed after the commit; the log's own events come too early."""
    lock, version = tmp_path / "jobs.db-rowlock", 0
    lock.write_bytes(b"")
    async with (
        asyncio.timeout(BOUND_SECONDS),
        aclosing(watch(tmp_path / "jobs.db", lambda: version)) as rings,
    ):
        assert None is await anext(rings)
        version = 1
        os.close(os.open(lock, os.O_RDONLY))

        assert await anext(rings) == News("")
