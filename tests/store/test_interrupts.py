"""An exception out of a signal's handler, in the middle of a verb: nothing stays begun or held."""

from __future__ import annotations

import asyncio
import fcntl
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest

from rowlock.errors import StoreUnavailable
from rowlock.store import Store, open_store
from rowlock.store.postgres.connections import BoundedConnection
from rowlock.store.steps import Statement, Steps, writing
from tests.store.sqlite_processes import count_jobs, impatient_store, job, look, url_of

WAIT_SECONDS = 60.0
# Between a turn that is taken and the statement that waits there are some microseconds.
SETTLED_SECONDS = 0.1


class SoftLimit(Exception):
    """What a library's time limit raises, out of a signal's handler."""


@contextmanager
def raising(error: type[BaseException]) -> Iterator[None]:
    """In the block, SIGUSR1 raises that in the main thread."""

    def handle(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def wait_for_a_writer(path: Path) -> None:
    """Until somebody has the turn to write to a SQLite file."""
    deadline = time.monotonic() + WAIT_SECONDS
    with Path(f"{path}-rowlock").open() as file:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.001)
    raise AssertionError("nobody writes")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftLimit])
def test_a_writer_of_sqlite_that_is_interrupted_while_it_waits(tmp_path, error):
    """The lock that it got all the same is given back, and its thread can write again."""
    path = tmp_path / "jobs.db"
    with closing(open_store(url_of(path))) as store, raising(error):
        store.enqueue([job()])
        stranger = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        stranger.execute("BEGIN IMMEDIATE")

        def interrupt() -> None:
            wait_for_a_writer(path)
            time.sleep(SETTLED_SECONDS)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            stranger.execute("COMMIT")

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(error):
            store.enqueue([job()])
        thread.join(WAIT_SECONDS)
        stranger.close()
        with closing(impatient_store(path)) as other:
            other.enqueue([job()])
        store.enqueue([job()])

    assert count_jobs(path) == 3


# Python swallows an exception that a signal's handler raises inside a weak reference's callback.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_writer_of_sqlite_that_is_interrupted_anywhere(tmp_path):
    """Whenever it comes: the turn to write, and the transaction, are given back."""
    path = tmp_path / "jobs.db"
    chance = random.Random(1)
    with closing(open_store(url_of(path))) as store, closing(impatient_store(path)) as other:
        store.enqueue([job()])
        for _ in range(200):
            with (
                suppress(SoftLimit),
                interrupted_in(chance.uniform(0.0001, 0.005)) as is_awaited,
            ):
                while is_awaited():
                    store.enqueue([job(key="a")])
            other.resume("default")
        store.enqueue([job()])


@contextmanager
def interrupted_in(seconds: float) -> Iterator[Callable[[], bool]]:
    """Raise `SoftLimit` after so long of work, and tell whether that is still to come.

    (The timer of real time is pytest's.)
    """
    armed = [True]

    def handle(*_: object) -> None:
        if armed:
            armed.clear()
            raise SoftLimit

    before = signal.signal(signal.SIGPROF, handle)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        yield lambda: bool(armed)
    finally:
        armed.clear()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_a_signal_handler_that_enqueues_in_the_middle_of_a_call(tmp_path):
    """It is refused, and the call that it interrupts is as good as any."""
    path = tmp_path / "jobs.db"

    def steps() -> Steps[None]:
        yield Statement("set_pause", {"queue": "first", "is_paused": 1})
        with pytest.raises(StoreUnavailable, match="signal"):
            store.enqueue([job()])
        yield Statement("set_pause", {"queue": "second", "is_paused": 1})

    with closing(open_store(url_of(path))) as store:
        store.run(writing("interrupted", steps))
        store.enqueue([job()])

    assert sorted(look(path, "SELECT name FROM rowlock_queue")) == ["first", "second"]


@pytest.fixture
def store(postgres_url) -> Iterator[Store]:
    with closing(open_store(postgres_url)) as store:
        yield store


@pytest.mark.parametrize("error", [KeyboardInterrupt, SoftLimit])
def test_a_begin_of_postgres_that_is_interrupted(store, postgres_url, monkeypatch, error):
    """Its connection is not used again as it is: what the next call answers for is committed."""
    store.enqueue([job()])
    execute, due = BoundedConnection.execute, [True]

    def interrupted(self: BoundedConnection, *given: Any, **named: Any) -> Any:
        cursor = execute(self, *given, **named)
        if due and str(given[0]).startswith("BEGIN"):
            due.clear()
            raise error
        return cursor

    monkeypatch.setattr(BoundedConnection, "execute", interrupted)
    with pytest.raises(error):
        store.enqueue([job(key="a")])
    store.enqueue([job()])

    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM rowlock.job").fetchall() == [(2,)]


def test_a_statement_of_postgres_that_is_interrupted(store, postgres_url):
    """A connection that still waits for an answer is given up; the next call has another."""
    (first,) = store.enqueue([job()])
    with psycopg.connect(postgres_url) as stranger, raising(SoftLimit):
        stranger.execute("LOCK TABLE rowlock.job")

        def interrupt() -> None:
            wait_for_a_lock(postgres_url)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(SoftLimit):
            store.enqueue([job()])
        thread.join(WAIT_SECONDS)
    store.delete(first.id)

    assert store.get(first.id) is None


def wait_for_a_lock(url: str) -> None:
    """Until somebody waits for a lock of a PostgreSQL server."""
    deadline = time.monotonic() + WAIT_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.001)


class InterruptedCursor(sqlite3.Cursor):
    """A user's, whose BEGIN is interrupted: told, as by Python, once it has begun."""

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        super().execute(sql, *given)
        if sql.startswith(("BEGIN", "SAVEPOINT")):
            raise SoftLimit
        return self


class InterruptedConnection(sqlite3.Connection):
    def cursor(self, *_: Any) -> sqlite3.Cursor:
        return super().cursor(InterruptedCursor)


@pytest.mark.parametrize("isolation_level", [None, ""])
def test_a_connection_of_the_users_that_is_interrupted(tmp_path, isolation_level):
    """Where there was no transaction there is none afterwards, which nobody would end."""
    path = tmp_path / "jobs.db"
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        own = sqlite3.connect(path, isolation_level=isolation_level, factory=InterruptedConnection)
        with pytest.raises(SoftLimit):
            store.enqueue([job()], conn=own)
        is_left = own.in_transaction
        own.close()

    assert not is_left


def test_an_enqueue_that_is_cancelled_while_it_waits_on_the_users_connection(tmp_path):
    """A lock that its driver's thread got after that is given back."""
    path = tmp_path / "jobs.db"
    with closing(open_store(url_of(path))) as store:
        store.enqueue([job()])
        is_left = asyncio.run(cancel_while_waiting(store, path))
        with closing(impatient_store(path)) as other:
            other.enqueue([job()])

    assert not is_left
    assert count_jobs(path) == 2


async def cancel_while_waiting(store: Store, path: Path) -> bool:
    """Whether the connection is left in a transaction."""
    stranger = sqlite3.connect(path, isolation_level=None)
    async with aiosqlite.connect(path, isolation_level=None, timeout=WAIT_SECONDS) as own:
        stranger.execute("BEGIN IMMEDIATE")
        enqueuing = asyncio.ensure_future(store.aenqueue([job()], conn=own))
        await asyncio.sleep(SETTLED_SECONDS)
        enqueuing.cancel()
        # Once: it then waits for the lock in order to undo what gets it.
        await asyncio.sleep(SETTLED_SECONDS)
        stranger.execute("COMMIT")
        stranger.close()
        with suppress(asyncio.CancelledError):
            await enqueuing
        await own.execute("SELECT 1")
        return own.in_transaction
