"""Sessions belong to threads: they end with them, and stay whole whatever happens inside."""

from __future__ import annotations

import asyncio
import gc
import resource
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rowlock.errors import StoreUnavailable
from rowlock.store import open_store
from rowlock.store.steps import Commit, Statement, Steps, writing
from tests.store.sqlite_processes import count_jobs, is_sound, job, look, url_of
from tests.support.processes import FRESH


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def count_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def in_thread(target) -> None:
    thread = threading.Thread(target=target)
    thread.start()
    thread.join(60)


def test_threads_that_ended_leave_nothing_open(path):
    """Two hundred short threads leave as many descriptors as there were."""
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        in_thread(lambda: store.enqueue([job()]))
        gc.collect()
        before = count_descriptors()
        for _ in range(200):
            in_thread(lambda: store.enqueue([job()]))
        gc.collect()
        after = count_descriptors()

    assert before == after
    assert count_jobs(path) == 202


def test_closing_leaves_nothing_open(path):
    """After `close` only the lock files of living threads are open, and calls still work."""
    gc.collect()
    before = count_descriptors()
    store = open_store(url_of(path))
    store.enqueue([job()])
    asyncio.run(store.aenqueue([job()]))
    store.close()
    store.close()
    store.enqueue([job()])
    asyncio.run(store.aenqueue([job()]))
    store.close()
    del store
    gc.collect()

    assert before == count_descriptors()
    assert count_jobs(path) == 4


def test_a_commit_halfway_stands(path):
    """What a verb committed stays when it fails later; the rest is undone."""

    def steps() -> Steps[None]:
        yield Statement("set_pause", {"queue": "first", "is_paused": 1})
        yield Commit()
        yield Statement("set_pause", {"queue": "second", "is_paused": 1})
        raise ZeroDivisionError

    with closing(open_store(url_of(path))) as store:
        with pytest.raises(ZeroDivisionError):
            store.run(writing("long", steps))
        store.enqueue([job()])

    assert look(path, "SELECT name FROM rowlock_queue") == ["first"]


def test_a_store_closed_inside_a_transaction(path):
    """Statements never slip out of a transaction whose connection was closed."""

    with closing(open_store(url_of(path))) as store:

        def steps() -> Steps[None]:
            yield Statement("set_pause", {"queue": "first", "is_paused": 1})
            store.close()
            yield Statement("set_pause", {"queue": "second", "is_paused": 1})

        with pytest.raises(StoreUnavailable, match="closed inside a transaction"):
            store.run(writing("closing", steps))
        store.enqueue([job()])

    assert look(path, "SELECT name FROM rowlock_queue") == []


def test_a_file_size_limit_is_a_full_disk(path):
    """Blocking and async callers are told that nothing was written, and go on with more space."""
    process = FRESH.Process(target=fill_up, args=(path,))
    process.start()
    process.join(60)

    assert process.exitcode == 0
    assert count_jobs(path) == 2
    assert is_sound(path)


def fill_up(path: Path) -> None:
    """Runs in a process of its own, for the limit is the process's."""
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        size = Path(f"{path}-wal").stat().st_size
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        with pytest.raises(StoreUnavailable):
            store.enqueue([job() for _ in range(100)])
        answers = asyncio.run(ask_many(store))
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert count_jobs(path) == 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        store.enqueue([job()])


async def ask_many(store):
    asked = [store.aenqueue([job() for _ in range(50)]) for _ in range(5)]
    return await asyncio.gather(*asked, return_exceptions=True)


def test_a_failed_rollback_gives_the_connection_up(path):
    """A connection that can't undo its transaction is replaced, not used again."""
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        session = store.engine._session()
        session._connection = Unable(session._connection)
        with pytest.raises(ZeroDivisionError), session.transaction(writes=True):
            raise ZeroDivisionError
        store.enqueue([job()])

    assert count_jobs(path) == 2


class Unable:
    """A connection that can't roll back."""

    def __init__(self, connection):
        self._connection = connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, sql, *values):
        if sql == "ROLLBACK":
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *values)
