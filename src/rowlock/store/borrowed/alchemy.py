"""Connections and sessions of SQLAlchemy, over the drivers whose placeholders we can write."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from rowlock.errors import OptionInvalid
from rowlock.store.borrowed.connection import (
    Borrowed,
    RingLater,
    RingNow,
    TransactionStatus,
    never_rings,
    postgres_status,
    sqlite_status,
)
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Rows

_DRIVERS = {
    "pysqlite": (Dialect.SQLITE, ParameterStyle.NAMED),
    "aiosqlite": (Dialect.SQLITE, ParameterStyle.NAMED),
    "psycopg": (Dialect.POSTGRES, ParameterStyle.PYFORMAT),
    "psycopg_async": (Dialect.POSTGRES, ParameterStyle.PYFORMAT),
    "psycopg2": (Dialect.POSTGRES, ParameterStyle.PYFORMAT),
    "asyncpg": (Dialect.POSTGRES, ParameterStyle.NUMERIC),
}


# A plain connection only has an event before the COMMIT. A worker woken by it would look too early,
# and find the job at its next poll. So NOTIFY is used instead.
def borrow_connection(conn: Any, ring_later: RingLater = never_rings) -> Borrowed[Rows]:
    """A `Connection`."""
    dialect, style = _driver_of(conn)
    if not conn.in_transaction():
        # As the first statement would do. Hooks on it may begin a transaction of the database.
        conn.begin()

    def execute(sql: str, values: Any) -> Rows:
        return _rows(conn.exec_driver_sql(sql, _one_set(values)))

    raw = conn.connection
    return Borrowed(dialect, style, _status(raw), raw.driver_connection, execute, ring_later)


def borrow_session(session: Any) -> Borrowed[Rows]:
    """A `Session`."""
    return borrow_connection(session.connection(), _later(session))


def borrow_scoped(scoped: Any) -> Borrowed[Rows]:
    """A `scoped_session`: the session of this scope."""
    return borrow_session(scoped())


async def aborrow_connection(
    conn: Any, ring_later: RingLater = never_rings
) -> Borrowed[Awaitable[Rows]]:
    """An `AsyncConnection`."""
    dialect, style = _driver_of(conn)
    if not conn.in_transaction():
        await conn.begin()

    async def execute(sql: str, values: Any) -> Rows:
        return _rows(await conn.exec_driver_sql(sql, _one_set(values)))

    raw = await conn.get_raw_connection()
    return Borrowed(dialect, style, _status(raw), raw.driver_connection, execute, ring_later)


async def aborrow_session(session: Any) -> Borrowed[Awaitable[Rows]]:
    """An `AsyncSession`."""
    return await aborrow_connection(await session.connection(), _later(session.sync_session))


async def aborrow_scoped(scoped: Any) -> Borrowed[Awaitable[Rows]]:
    """An `async_scoped_session`: the session of this scope."""
    return await aborrow_session(scoped())


def _driver_of(conn: Any) -> tuple[Dialect, ParameterStyle]:
    driver: str = conn.dialect.driver
    if driver not in _DRIVERS:
        known = ", ".join(_DRIVERS)
        raise OptionInvalid("conn", f"uses the driver {driver}; supported are {known}")
    return _DRIVERS[driver]


def _one_set(values: Any) -> Any:
    """One set of parameters as a tuple: a list would mean many sets."""
    return tuple(values) if isinstance(values, list) else values


def _rows(result: Any) -> Rows:
    return [tuple(row) for row in result] if result.returns_rows else []


def _status(raw: Any) -> TransactionStatus:
    driver = raw.driver_connection
    if hasattr(driver, "in_transaction"):
        return sqlite_status(driver)
    if hasattr(driver, "is_in_transaction"):
        # asyncpg has no autocommit: SQLAlchemy opens a transaction at the first statement.
        if driver.is_in_transaction():
            return TransactionStatus.OPEN
        return (
            TransactionStatus.AUTOCOMMIT
            if raw.dbapi_connection.autocommit
            else TransactionStatus.IDLE
        )
    return postgres_status(driver)


def _later(session: Any) -> RingLater:
    def ring_later(ring: RingNow, queues: frozenset[str]) -> bool:
        """Ring after the session's commit, also for jobs that were rolled back with a savepoint."""
        # Bound to the session, so that both end together. One per app that uses the session.
        place = ("rowlock.bell", ring)
        if place not in session.info:
            session.info[place] = _SessionBell(session, ring)
        session.info[place].pending |= queues
        return True

    return ring_later


class _SessionBell:
    """Rings for the jobs that were enqueued in a session's transaction, if it is committed.

    Its listeners stay as long as the session: SQLAlchemy forbids removing one while it is called.
    """

    def __init__(self, session: Any, ring: RingNow) -> None:
        from sqlalchemy import event

        self._ring = ring
        self.pending: frozenset[str] = frozenset()
        event.listen(session, "after_commit", self._after_commit)
        event.listen(session, "after_transaction_end", self._after_end)

    def _after_commit(self, session: Any) -> None:
        # Also called when a savepoint is released.
        if not session.in_nested_transaction() and self.pending:
            self._ring(self.pending)
            self.pending = frozenset()

    def _after_end(self, session: Any, transaction: Any) -> None:
        # After a commit nothing is left, and after a rollback there is nothing to ring for.
        if transaction.parent is None:
            self.pending = frozenset()
