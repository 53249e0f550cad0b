"""The SQLite store's engine: a connection per thread for blocking callers, a group for async ones.

Every write is one BEGIN IMMEDIATE. The clock is read once the lock is held, so that times never
run behind the stored ones.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rowlock import config
from rowlock.clock import Clock, SystemClock
from rowlock.errors import StoreUnavailable
from rowlock.interrupts import shielded
from rowlock.store import drive
from rowlock.store import migrate as migrations
from rowlock.store.sqlite.file import SqliteFile, path_of
from rowlock.store.sqlite.group import CommitGroup
from rowlock.store.sqlite.session import SqliteSession
from rowlock.store.sqlite.watch import watch
from rowlock.store.statements import Dialect, ParameterStyle, compiled
from rowlock.store.steps import News, Op

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("rowlock.sqlite")


class SqliteEngine:
    """Runs verbs on one SQLite file."""

    dialect = Dialect.SQLITE

    def __init__(
        self,
        url: str,
        *,
        schema: str,
        clock: Clock | None,
        busy_seconds: float = config.SQLITE_BUSY_SECONDS,
    ) -> None:
        self.file: SqliteFile = SqliteFile(path_of(url), busy_seconds=busy_seconds)
        self.schema = schema
        # Absolute: other processes may be in other directories. A URL can't name a path with a `?`.
        path = str(self.file.path)
        self.address: str = url if "?" in path else f"sqlite:///{path}"
        self.clock: Clock = clock or SystemClock()
        self.binder: drive.Binder = drive.Binder(Dialect.SQLITE, schema, ParameterStyle.NAMED)
        self._is_migrated = False
        # Why this process must not use the file, if there is a reason.
        self._obstacle: str | None = None
        self._start_afresh()
        _engines.add(self)

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._local = threading.local()
        # Weak: a session lives as long as the thread it belongs to.
        self._sessions: weakref.WeakSet[SqliteSession] = weakref.WeakSet()
        self._frozen: list[SqliteSession] = []
        self._guard = threading.Lock()
        self._is_guarded = False
        self._group = CommitGroup(self.new_session, run_apart=self.run)

    def run(self, op: Op[T]) -> T:
        with shielded():
            return self._session().run(op)

    async def arun(self, op: Op[T]) -> T:
        if self._pid != os.getpid():
            self.after_fork()
        return await self._group.run(op)

    def _session(self) -> SqliteSession:
        if self._pid != os.getpid():
            self.after_fork()
        session: SqliteSession | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self.new_session()
        return session

    def new_session(self) -> SqliteSession:
        """A session for the calling thread, on a migrated file."""
        if not self._is_migrated:
            self.migrate()
            self._is_migrated = True
        return self._register(SqliteSession(self.file, self.binder, self.clock))

    def _register(self, session: SqliteSession) -> SqliteSession:
        if self._obstacle is not None:
            raise StoreUnavailable(f"{self.file.path} {self._obstacle}")
        with self._guard:
            self._sessions.add(session)
        return session

    def migrate(self) -> list[int]:
        """Apply missing migrations and return their numbers. Writes only if some are missing."""
        self.file.create()
        try:
            # A file that is up to date is opened without waiting for the write lock.
            if not migrations.pending(Dialect.SQLITE, self.applied()):
                return []
            with self._passing_session() as session, session.transaction(writes=True):
                return _migrate(session, schema=self.schema)
        except StoreUnavailable as error:
            if not _is_busy(error.__cause__):
                raise
            raise StoreUnavailable(
                f"{self.file.path}: rowlock's tables can't be created now, because another "
                "connection, perhaps your own, is in a transaction. Call app.migrate() before, for "
                f"example when your program starts ({error.__cause__})"
            ) from error

    def applied(self) -> migrations.Applied:
        """The migrations that the file has. Empty if there is no file, and none is created."""
        if not self.file.path.exists():
            return {}
        with self._passing_session() as session, session.transaction(writes=False):
            return _applied(session, schema=self.schema)

    @contextmanager
    def _passing_session(self) -> Iterator[SqliteSession]:
        """A session that does not need a migrated file, and is not kept."""
        session = self._register(SqliteSession(self.file, self.binder, self.clock))
        try:
            yield session
        finally:
            with session.busy:
                session.dispose()

    async def notifications(self) -> AsyncIterator[News | None]:
        """Yield for every write to the file: any of them may be news."""
        session = self.new_session()
        try:
            async for note in watch(self.file.path, session.version):
                yield note
        finally:
            with session.busy:
                session.dispose()

    def apart(self) -> SqliteEngine:
        """Its async calls have a thread of their own, so that long reads delay no write."""
        busy = self.file.busy_seconds
        return SqliteEngine(self.address, schema=self.schema, clock=self.clock, busy_seconds=busy)

    def close(self) -> None:
        """Close every connection of this process. The next call opens new ones."""
        self._group.close()
        with self._guard:
            sessions = list(self._sessions)
        for session in sessions:
            with session.busy:
                session.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    async def aclose_loop(self) -> None:
        """Nothing to close: no connection belongs to a loop."""

    def before_fork(self) -> None:
        """Close all connections, and prevent new ones until the fork is done."""
        self._is_guarded = self._guard.acquire(timeout=config.SQLITE_FORK_WAIT_SECONDS)
        for session in list(self._sessions):
            if not session.busy.acquire(timeout=config.SQLITE_FORK_WAIT_SECONDS):
                continue
            self._frozen.append(session)
            # The forking thread's own transaction continues in the parent.
            if not session.is_in_transaction:
                session.close()

    def after_fork_in_parent(self) -> None:
        """Let all threads continue."""
        frozen, self._frozen = self._frozen, []
        for session in frozen:
            session.busy.release()
        if self._is_guarded:
            self._is_guarded = False
            self._guard.release()

    def after_fork(self) -> None:
        """Reset in the child: threads and locks are not inherited, and connections must not be."""
        for session in list(self._sessions):
            if session.is_open:
                # SQLite believes that this process has that connection's locks, but it doesn't.
                self._obstacle = (
                    "can't be used in this process: it was forked inside a transaction. Fork "
                    "outside of it, or use the spawn method of multiprocessing"
                )
            session.dispose()
        self._start_afresh()


def _is_busy(error: BaseException | None) -> bool:
    code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) else None
    return code is not None and code & 0xFF == sqlite3.SQLITE_BUSY


def _applied(session: SqliteSession, *, schema: str) -> migrations.Applied:
    table = f"{schema}_migration"
    execute = session.connection.execute
    if not execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
        return {}
    applied = dict(execute(f"SELECT number, checksum FROM {table}"))  # noqa: S608  # the schema is checked
    if not migrations.is_ahead(Dialect.SQLITE, applied):
        return applied
    unfit = compiled("unfit_migrations", Dialect.SQLITE, schema, ParameterStyle.NAMED)
    known = {"known": len(migrations.migrations(Dialect.SQLITE))}
    found = [number for (number,) in execute(unfit.parts[0], known)]
    return migrations.without(applied, Dialect.SQLITE, found)


def _migrate(session: SqliteSession, *, schema: str) -> list[int]:
    execute = session.connection.execute
    execute(migrations.table(dialect=Dialect.SQLITE, schema=schema))
    missing = migrations.pending(Dialect.SQLITE, _applied(session, schema=schema))
    for migration in missing:
        sql = migrations.script(migration, dialect=Dialect.SQLITE, schema=schema)
        for statement in migrations.statements(sql):
            execute(statement)
        execute(
            f"INSERT INTO {schema}_migration (number, name, checksum) VALUES (?, ?, ?)",  # noqa: S608  # the schema is checked
            (migration.number, migration.name, migration.checksum),
        )
        for word in migrations.words(migration, dialect=Dialect.SQLITE, schema=schema):
            execute(word)
    return [migration.number for migration in missing]


# A connection must not cross a fork, and neither may SQLite's per-process record of its locks. So
# all are closed before, and each side opens its own afterwards.
_engines: weakref.WeakSet[SqliteEngine] = weakref.WeakSet()


def _each_engine(action: Callable[[SqliteEngine], None]) -> None:
    for engine in list(_engines):
        try:
            action(engine)
        except sqlite3.Error:
            # A fork can't be refused. The child handles a connection that could not be closed.
            logger.exception("%s: an error before or after a fork", engine.file.path)


os.register_at_fork(
    before=lambda: _each_engine(SqliteEngine.before_fork),
    after_in_parent=lambda: _each_engine(SqliteEngine.after_fork_in_parent),
    after_in_child=lambda: _each_engine(SqliteEngine.after_fork),
)
