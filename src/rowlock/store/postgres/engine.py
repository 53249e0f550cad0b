"""The PostgreSQL store's engine: verbs on pooled psycopg connections, blocking and async.

1. Connections are in autocommit. A verb that needs a transaction yields `Begin`.
2. Nothing needs session state: names are qualified. Statements are prepared, and sequential scans
   turned off, only where no pooler stands between us and the server, or where the URL asks for it.
   This stops once it turns out to be wrong.
3. A transaction that lost a race is run again, and so is one that lost its connection before its
   COMMIT was sent. After that a verb is repeated only in the form that is safe when the first try
   may have been committed.
4. Every call has a deadline. Once it has passed, nothing is retried.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import psycopg

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.clock import Clock
from rowlock.errors import Forbidden, RowlockError, StoreUnavailable
from rowlock.ids import new_id
from rowlock.interrupts import shielded
from rowlock.store import drive
from rowlock.store import migrate as migrations
from rowlock.store.postgres.bell import Bell, news_text, read_news
from rowlock.store.postgres.connections import (
    AsyncPool,
    BoundedAsyncConnection,
    BoundedConnection,
    Pool,
    SessionSetup,
    connecting,
    is_alive,
    set_up,
)
from rowlock.store.postgres.ear import Ear
from rowlock.store.postgres.errors import Meaning, is_login_refused, mapped, meaning_of
from rowlock.store.postgres.migrate import apply_missing, migrate_patiently
from rowlock.store.postgres.session import AsyncPostgresSession, PostgresSession
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Batch, News, Op, Statement, Steps, writing
from rowlock.store.url import PostgresUrl

T = TypeVar("T")
Connection = BoundedConnection
AsyncConnection = BoundedAsyncConnection

# A statement on its own is a transaction too: with a stricter default, one of eight claimers that
# worked at once failed to serialize five times in a row. None of our plans is worth compiling, and
# one that must scan a table after all looks so expensive that it was: that took 30 to 400 ms.
_ON_OUR_OWN = (
    "SET enable_seqscan = off; SET jit = off; SET default_transaction_isolation = 'read committed'"
)
# This connection can't be used again, and the others of the pool are probably dead too.
_CONNECTION_LOST = (Meaning.AWAY, Meaning.SILENT, Meaning.UNPREPARED)


class PostgresEngine:
    """Runs verbs on one PostgreSQL database."""

    dialect = Dialect.POSTGRES

    def __init__(self, url: str, *, schema: str, clock: Clock | None) -> None:
        self.url: PostgresUrl = PostgresUrl.parse(url)
        self.address = url
        self.schema = schema
        self.clock = clock
        self.binder: drive.Binder = drive.Binder(Dialect.POSTGRES, schema, ParameterStyle.PYFORMAT)
        self._numbered = drive.Binder(Dialect.POSTGRES, schema, ParameterStyle.NUMERIC)
        self._is_checked = False
        self._may_prepare = True
        # Until a table with row-level security refuses a copy.
        self.may_copy: bool = True
        self._make_own()
        _engines.add(self)

    def _make_own(self) -> None:
        """Create the state that belongs to this process only, again after a fork."""
        self._pool: Pool[Connection] = Pool(self._connect, is_alive=is_alive)
        self._async_pools: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, AsyncPool[AsyncConnection]
        ] = weakref.WeakKeyDictionary()
        self._guard = threading.Lock()
        self._bell = Bell(self._notify)
        # Closed together with an engine that is no longer referenced. Lists, because a pool
        # references its engine, which would then never be collected.
        self._kept: list[list[Any]] = [self._pool.idle]
        self._closing = weakref.finalize(self, _close_kept, self._kept)
        self._closing.atexit = False

    def after_fork(self) -> None:
        """Reset in a forked child. The parent's connections are left alone, not even closed."""
        self._closing.detach()
        _inherited.append((self._pool, self._async_pools))
        self._make_own()

    def now(self) -> int | None:
        """Always None: the server's clock decides."""
        return None if self.clock is None else self.clock.now_us()

    def bind_prepared(self, step: Statement | Batch) -> tuple[str, Sequence[Any]]:
        """The SQL and the values of a prepared call."""
        return self._numbered.bind(step, now=self.now())

    # Blocking

    def run(self, op: Op[T]) -> T:
        with shielded():
            return self._run(op)

    def _run(self, op: Op[T]) -> T:
        steps = op.start
        for tries in range(1, config.STORE_TRIES_MAX + 1):
            connection = self._pool.take()
            session = PostgresSession(connection, self)
            is_sound = False
            try:
                result = session.run(steps())
                is_sound = True
                return result
            except psycopg.Error as error:
                meaning = meaning_of(error, is_closed=session.is_closed)
                if meaning in _CONNECTION_LOST:
                    self._pool.close()
                again = self._again(op, error, meaning, session, tries=tries)
                # A race leaves the transaction open and failed.
                is_sound = session.roll_back() and meaning not in _CONNECTION_LOST
                steps = again
            except BaseException:
                is_sound = session.roll_back()
                raise
            finally:
                self._pool.give(connection, is_sound=is_sound)
            time.sleep(_pause(tries))
        raise AssertionError("the last try raises")

    @property
    def pool(self) -> Pool[Connection]:
        """The connections for threads. Blocks use them too."""
        return self._pool

    def _connect(self) -> Connection:
        try:
            connection = self._open()
            connection.call_seconds = self.url.call_seconds
            try:
                session = PostgresSession(connection, self)
                if not self._is_checked:
                    self._check(session.run(_applied(self.schema)))
                setup = session.run(self._session_setup(connection.info.backend_pid))
                set_up(connection, setup)
                if setup.settings:
                    connection.execute(setup.settings.encode())
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise self._unreachable(error) from error
        return connection

    def _open(self) -> Connection:
        with connecting(self.url.conninfo, self.url.call_seconds):
            return Connection.connect(
                self.url.conninfo,
                autocommit=True,
                prepare_threshold=None,
                **self.url.defaults,
            )

    def _session_setup(self, process: int) -> Steps[SessionSetup]:
        """How to set up a connection that was answered with this process id."""
        if self.url.prepare == "never" or not self._may_prepare:
            return SessionSetup()
        if self.url.prepare == "always":
            return SessionSetup(is_preparing=True)
        # A pooler answers with an id that it made up.
        if (yield Statement("health_backend"))[0][0] != process:
            return SessionSetup()
        return SessionSetup(is_preparing=True, settings=_ON_OUR_OWN)

    def _check(self, applied: migrations.Applied) -> None:
        """Check the schema once per process: PostgreSQL is migrated only on request."""
        migrations.check(Dialect.POSTGRES, applied)
        self._is_checked = True

    def _unreachable(self, error: psycopg.Error) -> RowlockError:
        meaning = meaning_of(error, is_closed=False)
        if meaning is Meaning.FORBIDDEN:
            return Forbidden(f"{self.url.shown}: {error}", by_database=True)
        problem = self.url.mask(" ".join(str(error).split()))
        if is_login_refused(error):
            text = f"{self.url.shown} refuses the user or the password: {problem}"
            return StoreUnavailable(text, refused_login=True)
        return StoreUnavailable(f"{self.url.shown} can't be reached: {problem}")

    def _again(
        self,
        op: Op[T],
        error: psycopg.Error,
        meaning: Meaning,
        session: PostgresSession | AsyncPostgresSession,
        *,
        tries: int,
    ) -> Any:
        """The steps of another try, or our error for the last one."""
        if meaning is Meaning.UNPREPARED and not session.was_lent:
            self._may_prepare = False
        if meaning is Meaning.UNCOPIED:
            self.may_copy = False
        if tries < config.STORE_TRIES_MAX:
            if meaning in (Meaning.RACE, Meaning.UNPREPARED, Meaning.UNCOPIED):
                return op.start
            if meaning is Meaning.AWAY and session.fate.is_undone(looks_first=op.looks_first):
                return op.start
            if meaning is Meaning.AWAY and op.repeat is not None:
                return op.repeat
        ours = mapped(error, meaning, shown_url=self.url.shown)
        if ours is None:
            raise error
        raise ours from error

    def migrate(self) -> list[int]:
        """Apply missing migrations in one transaction. Return the numbers of those applied."""
        try:
            with self._open() as connection:
                self._check_encoding(connection)
                return migrate_patiently(connection, self._apply, schema=self.schema)
        except psycopg.Error as error:
            raise self._unreachable(error) from error

    def _apply(self, connection: Connection) -> list[int]:
        applied = PostgresSession(connection, self).run(_applied(self.schema))
        return apply_missing(connection, applied, schema=self.schema)

    def applied(self) -> migrations.Applied:
        """The migrations that this database has. Empty if it was never migrated."""
        try:
            with self._open() as connection:
                self._check_encoding(connection)
                return PostgresSession(connection, self).run(_applied(self.schema))
        except psycopg.Error as error:
            raise self._unreachable(error) from error

    def _check_encoding(self, connection: Connection) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        migrations.check_encoding(encoding, shown=self.url.shown)

    def ring(self, queues: frozenset[str]) -> None:
        self._bell.ring(queues)

    def takes_turn(self, queue: str) -> bool:
        """Whether the caller notifies for this queue itself, because nobody did a moment ago."""
        return self._bell.takes_turn(queue)

    def ring_statement(self, news: News) -> Statement:
        """The statement that notifies listeners of this."""
        return _ring_statement(self.schema, [news_text(news)])

    def _notify(self, queues: list[str]) -> None:
        self.run(_ring(self.schema, queues))

    def apart(self) -> PostgresEngine:
        return PostgresEngine(self.address, schema=self.schema, clock=self.clock)

    def close(self) -> None:
        self._bell.close()
        self._pool.close()
        with self._guard:
            self._leave_closed_loops()

    # Async

    async def arun(self, op: Op[T]) -> T:
        pool = self._async_pool()
        steps = op.start
        for tries in range(1, config.STORE_TRIES_MAX + 1):
            connection = await pool.take()
            session = AsyncPostgresSession(connection, self)
            is_sound = False
            try:
                result = await session.run(steps())
                is_sound = True
                return result
            except psycopg.Error as error:
                meaning = meaning_of(error, is_closed=session.is_closed)
                if meaning in _CONNECTION_LOST:
                    await pool.close()
                again = self._again(op, error, meaning, session, tries=tries)
                # A race leaves the transaction open and failed.
                is_sound = await session.roll_back() and meaning not in _CONNECTION_LOST
                steps = again
            except asyncio.CancelledError:
                # Cancelled in the middle of an answer: the connection can no longer be trusted.
                raise
            except BaseException:
                is_sound = await session.roll_back()
                raise
            finally:
                await pool.give(connection, is_sound=is_sound)
            await asyncio.sleep(_pause(tries))
        raise AssertionError("the last try raises")

    def _async_pool(self) -> AsyncPool[AsyncConnection]:
        loop = asyncio.get_running_loop()
        with self._guard:
            pool = self._async_pools.get(loop)
            if pool is None:
                self._leave_closed_loops()
                pool = self._async_pools[loop] = AsyncPool(self._aconnect, is_alive=is_alive)
                self._kept.append(pool.idle)
            return pool

    def _leave_closed_loops(self) -> None:
        """Drop the pools of closed loops.

        A pool that was waited for references its loop, so neither would ever be collected.
        """
        for loop in [loop for loop in self._async_pools if loop.is_closed()]:
            pool = self._async_pools.pop(loop)
            for connection in pool.emptied():
                connection.pgconn.finish()
            self._forget(pool)

    def _forget(self, pool: AsyncPool[AsyncConnection]) -> None:
        self._kept[:] = [idle for idle in self._kept if idle is not pool.idle]

    def async_pool(self) -> AsyncPool[AsyncConnection]:
        """As `pool`, for the running loop."""
        return self._async_pool()

    async def _aconnect(self) -> AsyncConnection:
        try:
            with connecting(self.url.conninfo, self.url.call_seconds):
                connection = await AsyncConnection.connect(
                    self.url.conninfo,
                    autocommit=True,
                    prepare_threshold=None,
                    **self.url.defaults,
                )
            connection.call_seconds = self.url.call_seconds
            try:
                session = AsyncPostgresSession(connection, self)
                if not self._is_checked:
                    self._check(await session.run(_applied(self.schema)))
                setup = await session.run(self._session_setup(connection.info.backend_pid))
                set_up(connection, setup)
                if setup.settings:
                    await connection.execute(setup.settings.encode())
            except BaseException:
                await connection.close()
                raise
        except psycopg.Error as error:
            raise self._unreachable(error) from error
        return connection

    async def notifications(self) -> AsyncIterator[News | None]:
        """Listen on a connection of its own. Raises `StoreUnavailable` when it is lost.

        It counts as listening only while it receives its own notifications. It sends them by way
        of the pool, on a channel of its own.
        """
        connection = await self._aconnect()
        own = f"{self.schema}_{new_id()[-12:]}"
        try:
            await connection.execute(f"LISTEN {self.schema}; LISTEN {own}".encode())
            connection.call_seconds = None
            async for note in self._heard(connection, own):
                yield note
        except psycopg.Error as error:
            raise self._unreachable(error) from error
        finally:
            await connection.close()

    async def _heard(self, connection: AsyncConnection, own: str) -> AsyncIterator[News | None]:
        is_asked, is_working, due = False, False, 0.0
        with Ear(connection.pgconn) as ear:
            while True:
                if time.monotonic() >= due:
                    if is_asked:
                        raise StoreUnavailable("LISTEN is silent: a dead connection, or a pooler")
                    await self.arun(_ring(own, [""]))
                    is_asked, due = True, time.monotonic() + config.BELL_ANSWER_SECONDS
                await ear.wait(due)
                for channel, text in ear.heard():
                    if channel != own:
                        yield read_news(text)
                        continue
                    is_asked, due = False, time.monotonic() + config.BELL_PING_SECONDS
                    if not is_working:
                        is_working = True
                        yield None

    async def aclose(self) -> None:
        await self.aclose_loop()
        await asyncio.to_thread(self.close)

    async def aclose_loop(self) -> None:
        with self._guard:
            pool = self._async_pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
            self._forget(pool)


def _close_kept(kept: list[list[Any]]) -> None:
    """Close the connections that a pool has kept, blocking or async."""
    for connection in [connection for idle in kept for connection in idle]:
        connection.discard()


def _pause(tries: int) -> float:
    return config.STORE_RETRY_SECONDS * float(2**tries) * CHANCE.uniform(0.5, 1.5)


def _ring(channel: str, queues: list[str]) -> Op[None]:
    def steps() -> Steps[None]:
        yield _ring_statement(channel, queues)

    # Ringing twice does no harm.
    return writing("ring", steps, repeat=steps)


def _ring_statement(channel: str, queues: list[str]) -> Statement:
    return Statement("ring", {"channel": channel, "queues": queues})


def _applied(schema: str) -> Steps[migrations.Applied]:
    known = yield Statement("migration_table", {"table": f"{schema}.migration"})
    if not known[0][0]:
        return {}
    applied: migrations.Applied = dict((yield Statement("applied")))
    if not migrations.is_ahead(Dialect.POSTGRES, applied):
        return applied
    newest = len(migrations.migrations(Dialect.POSTGRES))
    unfit = yield Statement("unfit_migrations", {"known": newest})
    return migrations.without(applied, Dialect.POSTGRES, [number for (number,) in unfit])


# Parents' pools in a forked child: never used and never closed, so never collected.
_inherited: list[object] = []
_engines: weakref.WeakSet[PostgresEngine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)
