"""A fork after the store was used: both sides go on, no lock and no connection is shared."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.store import Store, open_store
from rowlock.store.sqlite.file import SqliteFile, WriteLock
from tests.store.sqlite_processes import count_jobs, impatient_store, is_sound, job, url_of

# From 3.12 on Python warns of any fork beside threads; here it is the point.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(open_store(url_of(path))) as opened:
        opened.enqueue([job()])
        yield opened


def forked(work: Callable[[], object]) -> int:
    """Do the work in a forked child; the child's process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException:  # noqa: BLE001  # the test must not go on twice
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_both_sides_write(store, path):
    """Parent and children write at the same time, blocking and async, and all is there."""

    def work():
        for _ in range(20):
            store.enqueue([job()])
            asyncio.run(store.aenqueue([job()]))

    asyncio.run(store.aenqueue([job()]))
    children = [forked(work) for _ in range(3)]
    work()

    assert [exit_code(child) for child in children] == [0, 0, 0]
    assert count_jobs(path) == 2 + 4 * 40
    assert is_sound(path)


def test_fork_by_multiprocessing(store, path):
    """The fork method of multiprocessing works as well."""
    process = multiprocessing.get_context("fork").Process(target=store.enqueue, args=([job()],))
    process.start()
    process.join(60)
    store.enqueue([job()])

    assert process.exitcode == 0
    assert count_jobs(path) == 3


def test_fork_while_other_threads_write(store, path):
    """Forks wait for the transactions of other threads, which go on afterwards."""
    is_over = threading.Event()
    written = []

    def write():
        while not is_over.is_set():
            written.extend(store.enqueue([job()]))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        codes = [exit_code(forked(lambda: store.enqueue([job()]))) for _ in range(20)]
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)

    assert codes == [0] * 20
    assert 1 + 20 + len(written) == count_jobs(path)
    assert is_sound(path)


def test_fork_from_a_running_loop(store, path):
    """Requests of the parent's loop are answered across a fork, by the same thread or a new one."""

    async def main():
        asked = [asyncio.create_task(store.aenqueue([job()])) for _ in range(50)]
        await asyncio.sleep(0)
        child = forked(lambda: store.enqueue([job()]))
        await asyncio.wait_for(asyncio.gather(*asked), timeout=30)
        await store.aenqueue([job()])
        return child

    assert exit_code(asyncio.run(main())) == 0
    assert count_jobs(path) == 1 + 50 + 1 + 1


def test_fork_inside_a_transaction(store, path):
    """The parent's transaction goes on unharmed; the child is told that it can't use the file."""

    def work():
        with pytest.raises(StoreUnavailable, match="forked inside a transaction"):
            store.enqueue([job()])

    session = store.engine._session()
    insert = "INSERT INTO rowlock_queue (name) VALUES (?)"
    with session.transaction(writes=True):
        session.connection.execute(insert, ("before",))
        child = forked(work)
        code = exit_code(child)
        session.connection.execute(insert, ("after",))
    store.enqueue([job()])

    assert code == 0
    assert count_jobs(path) == 2
    assert is_sound(path)


def test_the_end_of_a_transaction_in_the_child_changes_nothing(store, path):
    """A child that leaves the parent's transaction gets an error, and the parent keeps its lock."""
    session = store.engine._session()

    def work_inside():
        with pytest.raises(StoreUnavailable, match="closed inside a transaction"):
            session.end(writes=True, is_good=True)

    with session.transaction(writes=True):
        code = exit_code(forked(work_inside))
        with closing(impatient_store(path)) as other, pytest.raises(StoreUnavailable):
            other.enqueue([job()])

    assert code == 0
    assert count_jobs(path) == 1


def test_a_child_holds_no_lock_of_a_dead_parent(store, path):
    """A lock taken before the fork is not kept by a child that outlives its parent."""
    outer = os.pipe()

    def parent():
        with store.engine._session().transaction(writes=True):
            if os.fork() == 0:
                os.read(outer[0], 1)
                os._exit(0)
            os._exit(0)

    assert exit_code(forked(parent)) == 0
    with WriteLock(SqliteFile(path, busy_seconds=1)):
        os.write(outer[1], b"x")
    store.enqueue([job()])
    for descriptor in outer:
        os.close(descriptor)


def test_a_fork_does_not_wait_for_ever(store, path, monkeypatch):
    """A thread that stays in a transaction delays a fork, but does not hang it."""
    monkeypatch.setattr(config, "SQLITE_FORK_WAIT_SECONDS", 0.05)
    is_inside, is_over = threading.Event(), threading.Event()

    def stay():
        with store.engine._session().transaction(writes=False):
            is_inside.set()
            is_over.wait(60)

    thread = threading.Thread(target=stay)
    thread.start()
    is_inside.wait(60)
    code = exit_code(forked(lambda: None))
    is_over.set()
    thread.join(60)
    store.enqueue([job()])

    assert code == 0
    assert count_jobs(path) == 2


def test_fork_after_close(store, path):
    """Closed stores are no obstacle to a fork."""
    store.close()

    assert exit_code(forked(lambda: store.enqueue([job()]))) == 0
    assert count_jobs(path) == 2
