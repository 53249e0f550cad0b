"""Blocks on SQLite: the only write lock of the file, lent to a handler for a bounded time.

1. Each has a connection of its own, closed at its end: nothing that a handler sets on it stays.
2. A block that is open for too long is undone from a watchdog's thread, so that others can write.
   From then on its connection can't write, so nothing is committed beside the block.
3. OPEN → ENDING by the handler, or OPEN → OVERDUE by the watchdog. The first of them ends it.
4. A savepoint marks the block's own transaction: if it was committed, or another begun, the block
   notices.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from concurrent.futures import Executor
from enum import Enum, auto

from rowlock.errors import InvalidTransition, StoreUnavailable
from rowlock.store.blocks import Conclusion
from rowlock.store.borrowed import Callers
from rowlock.store.sqlite.engine import SqliteEngine
from rowlock.store.sqlite.session import SqliteSession

logger: logging.Logger = logging.getLogger("rowlock.sqlite")


class _State(Enum):
    OPEN = auto()
    ENDING = auto()
    OVERDUE = auto()


class HeldWriteLock:
    """The write lock while a handler holds it, and the watchdog that limits the time."""

    def __init__(self, session: SqliteSession, *, seconds: float) -> None:
        self.session = session
        self.connection: sqlite3.Connection = session.connection
        self._seconds = seconds
        self._guard = threading.Lock()
        self._state = _State.OPEN
        self.connection.execute("SAVEPOINT rowlock_block")
        # If the handler continues after its transaction is gone, its writes begin another one,
        # which is never committed, instead of being committed one by one.
        self.connection.isolation_level = "IMMEDIATE"
        self._watchdog = threading.Timer(seconds, self._give_way)
        self._watchdog.name = "rowlock-watchdog"
        self._watchdog.daemon = True
        self._watchdog.start()

    @property
    def overdue(self) -> Exception | None:
        if self._state is not _State.OVERDUE:
            return None
        return StoreUnavailable(
            f"the block of ctx.transaction() was undone after {self._seconds:g} s, a third of the "
            "lease: nothing else can write to the file while it is open. Do slow work before it"
        )

    def _leave_open(self, state: _State) -> bool:
        with self._guard:
            if self._state is not _State.OPEN:
                return False
            self._state = state
            return True

    def _give_way(self) -> None:
        if self._leave_open(_State.OVERDUE):
            try:
                self.session.give_way()
            except sqlite3.Error as error:
                path = self.session.file.path
                logger.warning("%s: an overdue block could not be undone: %s", path, error)

    def end(self) -> None:
        """The handler is done with it. From here on the watchdog does nothing."""
        self._watchdog.cancel()
        if not self._leave_open(_State.ENDING):
            # The watchdog is at work, and must finish before the connection is closed.
            self._watchdog.join()

    def check(self, conclusion: Conclusion) -> None:
        """Refuse to conclude a transaction that is no longer the block's own."""
        if self.overdue is not None:
            raise self.overdue
        try:
            self.connection.execute("RELEASE rowlock_block")
        except sqlite3.Error as error:
            raise InvalidTransition(
                conclusion.lease.id,
                "its transaction was ended inside the block; leave COMMIT and ROLLBACK to rowlock",
            ) from error

    def close(self, *, is_good: bool = False) -> None:
        """Commit or undo, let others write, close the connection."""
        session = self.session
        try:
            _ = self.connection.in_transaction
        except sqlite3.ProgrammingError:
            # The handler closed it.
            session.close()
        try:
            session.end(writes=True, is_good=is_good)
        finally:
            with session.busy:
                session.dispose()


class SqliteBlock:
    """A block for a plain function."""

    def __init__(self, engine: SqliteEngine, callers: Callers, *, seconds: float) -> None:
        self._engine = engine
        self._callers = callers
        self._seconds = seconds
        self._lock: HeldWriteLock | None = None

    @property
    def overdue(self) -> Exception | None:
        return None if self._lock is None else self._lock.overdue

    def begin(self) -> sqlite3.Connection:
        session = self._engine.new_session()
        try:
            session.begin(writes=True)
        except sqlite3.Error as error:
            raise self._engine.file.mapped(error) from error
        self._lock = HeldWriteLock(session, seconds=self._seconds)
        return self._lock.connection

    def conclude(self, conclusion: Conclusion) -> None:
        lock = self._entered()
        lock.end()
        is_good = False
        try:
            try:
                lock.check(conclusion)
                settled = self._callers.run(
                    conclusion.op(), lock.connection, notify_in_transaction=False
                )
                settled.raise_if_missed()
                is_good = True
            finally:
                lock.close(is_good=is_good)
        except sqlite3.Error as error:
            raise self._engine.file.mapped(error) from error

    def undo(self) -> None:
        lock = self._entered()
        lock.end()
        lock.close()

    def _entered(self) -> HeldWriteLock:
        assert self._lock is not None, "a block must begin first"
        return self._lock


class AsyncSqliteBlock:
    """A block for a coroutine, which waits for the lock in line with the others of its loop.

    Its short statements run on the loop. The COMMIT, which waits for the disk, runs in a thread.
    """

    def __init__(
        self,
        engine: SqliteEngine,
        callers: Callers,
        *,
        seconds: float,
        line: asyncio.Lock,
        committer: Executor,
    ) -> None:
        self._engine = engine
        self._callers = callers
        self._seconds = seconds
        self._line = line
        self._committer = committer
        self._lock: HeldWriteLock | None = None

    @property
    def overdue(self) -> Exception | None:
        return None if self._lock is None else self._lock.overdue

    async def begin(self) -> sqlite3.Connection:
        await self._line.acquire()
        try:
            session = self._engine.new_session()
            await session.abegin()
            self._lock = HeldWriteLock(session, seconds=self._seconds)
        except BaseException as error:
            self._line.release()
            if isinstance(error, sqlite3.Error):
                raise self._engine.file.mapped(error) from error
            raise
        return self._lock.connection

    async def conclude(self, conclusion: Conclusion) -> None:
        lock = self._entered()
        lock.end()
        try:
            lock.check(conclusion)
            settled = self._callers.run(
                conclusion.op(), lock.connection, notify_in_transaction=False
            )
            settled.raise_if_missed()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._committer, lock.connection.execute, "COMMIT")
        except sqlite3.Error as error:
            raise self._engine.file.mapped(error) from error
        finally:
            self._close(lock)

    async def undo(self) -> None:
        lock = self._entered()
        lock.end()
        self._close(lock)

    def _close(self, lock: HeldWriteLock) -> None:
        """Undo what was not committed, and close. The log is folded by other writers."""
        try:
            lock.close()
        finally:
            self._line.release()

    def _entered(self) -> HeldWriteLock:
        assert self._lock is not None, "a block must begin first"
        return self._lock
