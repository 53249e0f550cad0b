"""Blocks on PostgreSQL: a pooled connection, lent to a handler for one transaction.

It counts toward the pool's bound, and two connections are always left for beats, claims and
settles. Whatever the handler set on it is undone before it is used again. If that fails, it is
closed.
"""

from __future__ import annotations

import asyncio
import threading
import weakref

import psycopg
from psycopg import AsyncCursor, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from rowlock import config
from rowlock.errors import InvalidTransition, StoreUnavailable
from rowlock.store.blocks import Conclusion
from rowlock.store.borrowed.connection import Borrowed
from rowlock.store.borrowed.libraries import aborrow_psycopg, borrow_psycopg
from rowlock.store.borrowed.visit import Visit, avisit, visit
from rowlock.store.postgres.connections import SessionSetup
from rowlock.store.postgres.engine import AsyncConnection, Connection, PostgresEngine
from rowlock.store.postgres.errors import Meaning, mapped, meaning_of

# The handler's own statements get the planner's default choices.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL enable_seqscan TO DEFAULT"
# As DISCARD ALL, which can't run together with other statements and drops prepared statements.
_CLEAN = (
    "RESET SESSION AUTHORIZATION; RESET ALL; UNLISTEN *; CLOSE ALL; DISCARD TEMP; "
    "SELECT pg_advisory_unlock_all()"
)
# The server may have committed without being able to answer.
_UNKNOWN = (Meaning.AWAY, Meaning.SILENT)


def _clean(setup: SessionSetup) -> bytes:
    return f"{_CLEAN}; {setup.settings}".encode()


class PostgresBlock:
    """A block for a plain function."""

    overdue: Exception | None = None

    def __init__(self, engine: PostgresEngine, *, places: threading.BoundedSemaphore) -> None:
        self._engine = engine
        self._places = places
        self._connection: Connection | None = None

    def begin(self) -> Connection:
        if not self._places.acquire(timeout=config.POSTGRES_POOL_WAIT_SECONDS):
            raise _no_place()
        try:
            self._connection = self._take()
        except BaseException:
            self._places.release()
            raise
        return self._connection

    def _take(self) -> Connection:
        for tries in range(1, config.STORE_TRIES_MAX + 1):
            connection = self._engine.pool.take()
            try:
                connection.execute(_BEGIN)
            except psycopg.Error as error:
                self._engine.pool.give(connection, is_sound=False)
                # The other kept connections are probably dead too.
                self._engine.pool.close()
                if tries == config.STORE_TRIES_MAX:
                    raise _ours(self._engine, error, connection) from error
            except BaseException:
                self._engine.pool.give(connection, is_sound=False)
                raise
            else:
                # The handler's own statements may take any time.
                connection.call_seconds = None
                connection.was_lent = True
                return connection
        raise AssertionError("the last try raises")

    def conclude(self, conclusion: Conclusion) -> None:
        connection = self._lent()
        try:
            _check_open(connection, conclusion)
            connection.call_seconds = self._engine.url.call_seconds
            borrowed = borrow_psycopg(connection)
            visit(borrowed, _visit(self._engine, borrowed), conclusion.op()).raise_if_missed()
        except psycopg.Error as error:
            self.undo()
            raise _ours(self._engine, error, connection) from error
        except BaseException:
            self.undo()
            raise
        self._commit(connection, conclusion)
        if conclusion.queues:
            self._engine.ring(conclusion.queues)

    def _commit(self, connection: Connection, conclusion: Conclusion) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            meaning = meaning_of(error, is_closed=connection.closed)
            ours = _ours(self._engine, error, connection)
            self._give_back(is_sound=False)
            if meaning not in _UNKNOWN or self._engine.run(conclusion.lookup()).lost:
                raise ours from error
        except BaseException:
            self._give_back(is_sound=False)
            raise
        else:
            self._give_back(is_sound=True)

    def undo(self) -> None:
        connection = self._lent()
        try:
            connection.call_seconds = self._engine.url.call_seconds
            connection.rollback()
        except psycopg.Error:
            self._give_back(is_sound=False)
        except BaseException:
            self._give_back(is_sound=False)
            raise
        else:
            self._give_back(is_sound=True)

    def _give_back(self, *, is_sound: bool) -> None:
        connection, self._connection = self._lent(), None
        try:
            if is_sound:
                connection.row_factory = tuple_row
                connection.cursor_factory = Cursor
                connection.prepare_threshold = None
                connection.execute(_clean(connection.setup), prepare=False)
        except psycopg.Error:
            # Its work is done. Another connection is made for the next block.
            is_sound = False
        finally:
            is_sound = is_sound and not connection.closed and connection.autocommit
            self._engine.pool.give(connection, is_sound=is_sound)
            self._places.release()

    def _lent(self) -> Connection:
        assert self._connection is not None, "a block ends once"
        return self._connection


class AsyncPostgresBlock:
    """A block for a coroutine."""

    overdue: Exception | None = None

    def __init__(self, engine: PostgresEngine, *, places: asyncio.BoundedSemaphore) -> None:
        self._engine = engine
        self._places = places
        self._connection: AsyncConnection | None = None

    async def begin(self) -> AsyncConnection:
        try:
            async with asyncio.timeout(config.POSTGRES_POOL_WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise _no_place() from None
        try:
            self._connection = await self._take()
        except BaseException:
            self._places.release()
            raise
        return self._connection

    async def _take(self) -> AsyncConnection:
        pool = self._engine.async_pool()
        for tries in range(1, config.STORE_TRIES_MAX + 1):
            connection = await pool.take()
            try:
                await connection.execute(_BEGIN)
            except psycopg.Error as error:
                await pool.give(connection, is_sound=False)
                await pool.close()
                if tries == config.STORE_TRIES_MAX:
                    raise _ours(self._engine, error, connection) from error
            except BaseException:
                await pool.give(connection, is_sound=False)
                raise
            else:
                connection.call_seconds = None
                connection.was_lent = True
                return connection
        raise AssertionError("the last try raises")

    async def conclude(self, conclusion: Conclusion) -> None:
        connection = self._lent()
        try:
            _check_open(connection, conclusion)
            connection.call_seconds = self._engine.url.call_seconds
            borrowed = await aborrow_psycopg(connection)
            plan = _visit(self._engine, borrowed)
            (await avisit(borrowed, plan, conclusion.op())).raise_if_missed()
        except psycopg.Error as error:
            await self.undo()
            raise _ours(self._engine, error, connection) from error
        except BaseException:
            await self.undo()
            raise
        await self._commit(connection, conclusion)
        if conclusion.queues:
            self._engine.ring(conclusion.queues)

    async def _commit(self, connection: AsyncConnection, conclusion: Conclusion) -> None:
        try:
            await connection.commit()
        except psycopg.Error as error:
            meaning = meaning_of(error, is_closed=connection.closed)
            ours = _ours(self._engine, error, connection)
            await self._give_back(is_sound=False)
            if meaning not in _UNKNOWN or (await self._engine.arun(conclusion.lookup())).lost:
                raise ours from error
        except BaseException:
            await self._give_back(is_sound=False)
            raise
        else:
            await self._give_back(is_sound=True)

    async def undo(self) -> None:
        connection = self._lent()
        try:
            connection.call_seconds = self._engine.url.call_seconds
            await connection.rollback()
        except psycopg.Error:
            await self._give_back(is_sound=False)
        except BaseException:
            await self._give_back(is_sound=False)
            raise
        else:
            await self._give_back(is_sound=True)

    async def _give_back(self, *, is_sound: bool) -> None:
        connection, self._connection = self._lent(), None
        try:
            if is_sound:
                connection.row_factory = tuple_row
                connection.cursor_factory = AsyncCursor
                connection.prepare_threshold = None
                await connection.execute(_clean(connection.setup), prepare=False)
        except psycopg.Error:
            is_sound = False
        finally:
            is_sound = is_sound and not connection.closed and connection.autocommit
            await self._engine.async_pool().give(connection, is_sound=is_sound)
            self._places.release()

    def _lent(self) -> AsyncConnection:
        assert self._connection is not None, "a block ends once"
        return self._connection


def _visit(engine: PostgresEngine, borrowed: Borrowed[object]) -> Visit:
    """As on a user's connection, which may have another row factory. This one is known."""
    known = weakref.WeakSet([borrowed.driver])
    return Visit(engine, borrowed, known=known, instance="", notify_in_transaction=False)


def _check_open(connection: Connection | AsyncConnection, conclusion: Conclusion) -> None:
    """Refuse to conclude a transaction that failed or is no longer the block's own."""
    status = connection.info.transaction_status
    if status is TransactionStatus.INERROR:
        problem = "a statement failed, which undoes the transaction: let its error leave the block"
    elif status is not TransactionStatus.INTRANS:
        problem = "its transaction was ended inside the block; leave COMMIT and ROLLBACK to rowlock"
    else:
        return
    raise InvalidTransition(conclusion.lease.id, problem)


def _no_place() -> StoreUnavailable:
    return StoreUnavailable(
        f"all {config.POSTGRES_BLOCKS_MAX} connections for ctx.transaction() were busy for "
        f"{config.POSTGRES_POOL_WAIT_SECONDS:.0f} s; keep the blocks short"
    )


def _ours(
    engine: PostgresEngine, error: psycopg.Error, connection: Connection | AsyncConnection
) -> Exception:
    """Our error for the driver's. An error about the handler's own data stays as it is."""
    meaning = meaning_of(error, is_closed=connection.closed)
    if meaning is Meaning.REFUSED:
        return error
    return mapped(error, meaning, shown_url=engine.url.shown) or error
