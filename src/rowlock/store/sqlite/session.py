"""A connection of one thread to a SQLite file: its transactions, and its handling at a fork.

1. A writer waits for its turn without holding `busy`. All code that touches SQLite holds it.
2. Between transactions the connection may be closed by any thread that holds `busy`. The next
   transaction opens a new one. During a transaction it never changes.
3. Committed work is never reported as failed: errors while folding the log are only logged.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import sqlite3
import threading
import time
from types import TracebackType
from typing import TypeVar

from rowlock import config
from rowlock.clock import Clock
from rowlock.errors import StoreUnavailable
from rowlock.store import drive
from rowlock.store.sqlite.file import (
    LogGauge,
    SqliteFile,
    WriteLock,
    fork_gate,
    pause_as_writer,
    writer_pause,
)
from rowlock.store.steps import COPIED, Begin, Commit, Copy, Op, Ring, Rows, Step

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("rowlock.sqlite")


class SqliteSession:
    """A connection of one thread, and the right to write with it."""

    def __init__(self, file: SqliteFile, binder: drive.Binder, clock: Clock) -> None:
        self.file = file
        self._binder = binder
        self._clock = clock
        self._turn = WriteLock(file)
        self._gauge = LogGauge(config.SQLITE_WAL_FRAMES)
        self._idle_gauge = LogGauge(config.SQLITE_IDLE_WAL_FRAMES)
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._pid = os.getpid()
        self.busy: threading.RLock = threading.RLock()
        self.is_in_transaction: bool = False
        self.now: int = 0

    def run(self, op: Op[T]) -> T:
        self._check_idle()
        try:
            with self.transaction(writes=op.writes):
                return drive.run(op.start(), self.perform)
        except BaseException:
            self._let_go()
            raise

    def _check_idle(self) -> None:
        if self.is_in_transaction:
            raise StoreUnavailable(
                f"{self.file.path} is being used by this very thread: a signal handler can't "
                "use it while it interrupts a call"
            )

    def _let_go(self) -> None:
        """End an open transaction. An interrupt may come between any two lines, even of `begin`."""
        if self.is_in_transaction:
            self.end(writes=False, is_good=False)
        self._turn.release()

    def version(self) -> int:
        """A number that changes with every commit of other connections to the file."""
        with self.busy:
            try:
                number: int = self._open().execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise self.file.mapped(error) from error
        return number

    def transaction(self, *, writes: bool) -> SqliteTransaction:
        """One transaction as a context manager. After an error nothing of it stays."""
        return SqliteTransaction(self, writes=writes)

    def perform(self, step: Step) -> Rows:
        if isinstance(step, Begin | Ring):
            # A transaction is already open, and the log file itself is the bell.
            return []
        if isinstance(step, Commit):
            self._commit_halfway()
            return []
        if isinstance(step, Copy):
            if self._has_copied(step):
                return COPIED
            step = step.instead()
        parts, runs = self._binder.bind_rows(step, now=self.now)
        execute = self.connection.execute
        *earlier, last = parts
        rows: Rows = []
        for values in runs:
            for part in earlier:
                execute(part, values)
            rows += execute(last, values).fetchall()
        return rows

    def _has_copied(self, step: Copy) -> bool:
        """Insert the rows in one call. A statement that answers per row takes four times as long.

        Returns False, with nothing done, if one of them is there already.
        """
        marks = ", ".join("?" * len(step.columns))
        table = f"{self._binder.schema}_{step.table}"
        sql = f"INSERT INTO {table} ({', '.join(step.columns)}) VALUES ({marks})"  # noqa: S608  # the schema's name is checked
        execute = self.connection.execute
        execute("SAVEPOINT copied")
        try:
            self.connection.executemany(sql, step.rows)
            is_done = True
        except sqlite3.IntegrityError:
            execute("ROLLBACK TO copied")
            is_done = False
        # After other errors there is nothing to release: SQLite itself may have undone everything.
        execute("RELEASE copied")
        return is_done

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of the current transaction."""
        if self._connection is None:
            raise StoreUnavailable(f"{self.file.path} was closed inside a transaction")
        return self._connection

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def begin(self, *, writes: bool) -> None:
        """Start a transaction. A writer waits for its turn first."""
        self._check_idle()
        if writes:
            # Opened before, so that errors of the file itself show before any wait.
            with self.busy:
                self._open()
        try:
            if writes:
                self._turn.__enter__()
            self.busy.acquire()
        except BaseException:
            self._turn.release()
            raise
        try:
            self._open().execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            self._note_begun()
        except BaseException:
            self._give_up(writes=writes)
            raise

    async def abegin(self) -> None:
        """As `begin` of a writer, for a coroutine: it waits without blocking its loop."""
        with self.busy:
            self._open()
        await self._turn.atake()
        self.busy.acquire()
        try:
            await self._begin_when_free()
            self._note_begun()
        except BaseException:
            self._give_up(writes=True)
            raise

    def _note_begun(self) -> None:
        self.is_in_transaction = True
        self.now = self._clock.now_us()

    def _give_up(self, *, writes: bool) -> None:
        """Clean up after a BEGIN that failed or was interrupted, even if it has taken effect."""
        self.is_in_transaction = False
        self._undo_rest()
        self._leave(writes=writes)

    async def _begin_when_free(self) -> None:
        """Begin while we hold the turn: only connections of other programs can be in the way."""
        deadline = time.monotonic() + self.file.busy_seconds
        while True:
            connection = self._open()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(self.file.busy_seconds * 1000)}")
            await asyncio.sleep(writer_pause())

    def give_way(self) -> None:
        """Undo a writer's transaction from another thread, and let others write. `end` follows.

        From now on the connection can only read, for anyone who still holds it.
        """
        try:
            self.connection.interrupt()
            self.connection.execute("PRAGMA query_only = ON")
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        finally:
            self._turn.release()

    def end(self, *, writes: bool, is_good: bool) -> None:
        """Commit, or undo. Then others get their turn."""
        self.is_in_transaction = False
        try:
            if is_good:
                self.connection.execute("COMMIT")
                if writes:
                    self._report_commit()
        finally:
            self._undo_rest()
            self._leave(writes=writes)

    def _leave(self, *, writes: bool) -> None:
        self.busy.release()
        if writes:
            self._turn.__exit__(None, None, None)

    def _commit_halfway(self) -> None:
        """Commit what was done so far, and let others write before it continues."""
        self.end(writes=True, is_good=True)
        pause_as_writer()
        self.begin(writes=True)

    def _open(self) -> sqlite3.Connection:
        """The connection, to the file that is at the path now: others write to that one."""
        identity = self.file.identity()
        if self._connection is None:
            self._connection = self.file.connect(self._turn)
            self._identity = identity
            self._pid = os.getpid()
        elif identity != self._identity:
            self.close()
            raise StoreUnavailable(
                f"{self.file.path} was deleted or replaced while it was open; nothing was "
                "written. The next call opens the file that is there now"
            )
        return self._connection

    def _undo_rest(self) -> None:
        """Roll back the rest of a transaction. A connection that can't is given up."""
        if self._connection is None or not self._connection.in_transaction:
            return
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            logger.warning("%s: a rollback failed, reconnecting: %s", self.file.path, error)
            self.close()

    def wants_fold(self) -> bool:
        """Whether the log is long enough to be folded while this session is idle."""
        with self.busy:
            try:
                return self.is_open and self._idle_gauge.is_long(self.file.wal_path)
            except OSError:
                # The file was deleted: the next transaction reports it.
                return False

    def fold_idle(self) -> None:
        """Fold the log now, for no transaction of its own."""
        try:
            with self._turn, self.busy:
                self._open()
                self._idle_gauge.note_try()
                self._checkpoint()
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            logger.warning("%s: its log could not be folded: %s", self.file.path, error)

    def _report_commit(self) -> None:
        """Wake those who wait for commits. Copy the log into the file when it is long.

        Holds the turn, so no other writer runs.
        """
        try:
            self._turn.report_commit()
            if self._gauge.is_long(self.file.wal_path):
                self._gauge.note_try()
                self._checkpoint()
        except (sqlite3.Error, OSError) as error:
            logger.warning("%s: its log could not be folded: %s", self.file.path, error)

    def _checkpoint(self) -> None:
        execute = self.connection.execute
        # Readers may hold it up, but not for long: it is tried again when the log has grown.
        execute(f"PRAGMA busy_timeout = {config.SQLITE_CHECKPOINT_BUSY_MILLISECONDS}")
        try:
            execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            execute(f"PRAGMA busy_timeout = {int(self.file.busy_seconds * 1000)}")

    def close(self) -> None:
        """Close the connection. The next transaction opens a new one. Needs `busy`."""
        connection, self._connection = self._connection, None
        self._gauge.close()
        self._idle_gauge.close()
        if connection is None:
            return
        if self._pid == os.getpid():
            connection.close()
        else:
            _keep_forever(connection)

    def dispose(self) -> None:
        """Close everything for good. In a forked child, the parent's locks stay as they are."""
        self.close()
        self._turn.close()

    def __del__(self) -> None:
        # The thread has ended, and its session with it: the engine holds only a weak reference.
        # Not forever: a thread that was cut off by the interpreter's end may hold the gate.
        if fork_gate.acquire(timeout=config.SQLITE_FORK_WAIT_SECONDS):
            try:
                self.dispose()
            finally:
                fork_gate.release()


class SqliteTransaction:
    """One transaction of a session, as a context manager. It maps the driver's errors to ours."""

    __slots__ = ("_session", "_writes")

    def __init__(self, session: SqliteSession, *, writes: bool) -> None:
        self._session = session
        self._writes = writes

    def __enter__(self) -> None:
        try:
            self._session.begin(writes=self._writes)
        except sqlite3.Error as error:
            raise self._session.file.mapped(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session.is_in_transaction:
            try:
                self._session.end(writes=self._writes, is_good=error is None)
            except sqlite3.Error as failure:
                raise self._session.file.mapped(failure) from failure
        if isinstance(error, sqlite3.Error):
            raise self._session.file.mapped(error) from error


def _keep_forever(connection: sqlite3.Connection) -> None:
    """Keep it open: closing it here would change, in shared memory, what the parent is doing."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
