"""Connections of every library but SQLAlchemy. None is imported before its connection is used."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rowlock.errors import OptionInvalid
from rowlock.store.borrowed import alchemy
from rowlock.store.borrowed.connection import (
    Borrowed,
    RingNow,
    TransactionStatus,
    postgres_status,
    sqlite_status,
)
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Rows


def borrow_sqlite(conn: Any) -> Borrowed[Rows]:
    """A `sqlite3.Connection`."""

    def execute(sql: str, values: Any) -> Rows:
        # The user's factories may turn rows into dicts and texts into bytes.
        text_factory, conn.text_factory = conn.text_factory, str
        try:
            cursor = conn.cursor()
            cursor.row_factory = None
            rows: Rows = cursor.execute(sql, values or {}).fetchall()
            return rows
        finally:
            conn.text_factory = text_factory

    return Borrowed(Dialect.SQLITE, ParameterStyle.NAMED, sqlite_status(conn), conn, execute)


async def borrow_aiosqlite(conn: Any) -> Borrowed[Awaitable[Rows]]:
    """An `aiosqlite.Connection`."""

    async def execute(sql: str, values: Any) -> Rows:
        async with conn.execute(sql, values or {}) as cursor:
            # Set before the first row is made. The user's choice for other cursors stays.
            cursor.row_factory = None
            return [tuple(row) for row in await cursor.fetchall()]

    return Borrowed(Dialect.SQLITE, ParameterStyle.NAMED, sqlite_status(conn), conn, execute)


def borrow_psycopg(conn: Any) -> Borrowed[Rows]:
    """A `psycopg.Connection`."""
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _refuse_pipeline(conn)

    def execute(sql: str, values: Any) -> Rows:
        # Not conn.cursor(): the user's factories may use other placeholders and make other rows.
        with Cursor(conn, row_factory=tuple_row) as cursor:
            cursor.execute(sql.encode(), values)
            return cursor.fetchall() if cursor.description else []

    return _postgres(conn, execute)


async def aborrow_psycopg(conn: Any) -> Borrowed[Awaitable[Rows]]:
    """A `psycopg.AsyncConnection`."""
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    _refuse_pipeline(conn)

    async def execute(sql: str, values: Any) -> Rows:
        async with AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    return _postgres(conn, execute)


def _refuse_pipeline(conn: Any) -> None:
    if conn.pgconn.pipeline_status:
        raise OptionInvalid(
            "conn", "is in pipeline mode, where answers come later: enqueue outside the pipeline"
        )


def borrow_psycopg2(conn: Any) -> Borrowed[Rows]:
    """A connection of psycopg2."""
    from psycopg2.extensions import cursor as plain_cursor

    if conn.async_:
        raise OptionInvalid("conn", "is a psycopg2 connection in async mode: use a blocking one")

    def execute(sql: str, values: Any) -> Rows:
        with conn.cursor(cursor_factory=plain_cursor) as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    return _postgres(conn, execute)


def _postgres(conn: Any, execute: Any) -> Borrowed[Any]:
    status = postgres_status(conn)
    return Borrowed(Dialect.POSTGRES, ParameterStyle.PYFORMAT, status, conn, execute)


async def borrow_asyncpg(conn: Any) -> Borrowed[Awaitable[Rows]]:
    """An `asyncpg.Connection`, from a pool or not."""

    async def execute(sql: str, values: Any) -> Rows:
        return [tuple(record) for record in await conn.fetch(sql, *(values or ()))]

    status = TransactionStatus.OPEN if conn.is_in_transaction() else TransactionStatus.AUTOCOMMIT
    # A pool's connections come in a wrapper that is made anew each time and does not allow weak
    # references. The wrapped connection is only used to remember that it was checked.
    driver = getattr(conn, "_con", None) or conn
    return Borrowed(Dialect.POSTGRES, ParameterStyle.NUMERIC, status, driver, execute)


_VENDORS = {
    "sqlite": (Dialect.SQLITE, sqlite_status),
    "postgresql": (Dialect.POSTGRES, postgres_status),
}


def borrow_django(wrapper: Any) -> Borrowed[Rows]:
    """A connection of `django.db.connections`, or `django.db.connection` itself."""
    if wrapper.vendor not in _VENDORS:
        raise OptionInvalid("conn", f"is a Django connection to {wrapper.vendor}: not supported")
    dialect, status_of = _VENDORS[wrapper.vendor]
    wrapper.ensure_connection()

    # Through Django's cursor, so that its instrumentation and its checks see our statements too.
    def execute(sql: str, values: Any) -> Rows:
        with wrapper.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def ring_later(ring: RingNow, queues: frozenset[str]) -> bool:
        # Outside atomic(), after set_autocommit(False), Django has no hook.
        if not wrapper.in_atomic_block:
            return False
        wrapper.on_commit(lambda: ring(queues))
        return True

    driver = wrapper.connection
    # On SQLite too: Django's cursor turns these placeholders into those of the driver.
    style = ParameterStyle.PYFORMAT
    return Borrowed(dialect, style, status_of(driver), driver, execute, ring_later)


B = TypeVar("B")
_Kinds = tuple[tuple[str, str, Callable[[Any], B]], ...]

_BLOCKING: _Kinds[Borrowed[Rows]] = (
    ("sqlite3", "Connection", borrow_sqlite),
    ("psycopg", "Connection", borrow_psycopg),
    ("psycopg2.extensions", "connection", borrow_psycopg2),
    ("sqlalchemy.engine", "Connection", alchemy.borrow_connection),
    ("sqlalchemy.orm", "Session", alchemy.borrow_session),
    ("sqlalchemy.orm", "scoped_session", alchemy.borrow_scoped),
    ("django.db.backends.base.base", "BaseDatabaseWrapper", borrow_django),
    ("django.utils.connection", "ConnectionProxy", borrow_django),
)
_ASYNC: _Kinds[Awaitable[Borrowed[Awaitable[Rows]]]] = (
    ("psycopg", "AsyncConnection", aborrow_psycopg),
    # Its metaclass also accepts a pool's wrappers as connections.
    ("asyncpg", "Connection", borrow_asyncpg),
    ("aiosqlite", "Connection", borrow_aiosqlite),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", alchemy.aborrow_connection),
    ("sqlalchemy.ext.asyncio", "AsyncSession", alchemy.aborrow_session),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", alchemy.aborrow_scoped),
)
_ACCEPTED = (
    "a connection of sqlite3, aiosqlite, psycopg, psycopg2, asyncpg or Django, "
    "or a connection or session of SQLAlchemy"
)


def borrow(conn: object) -> Borrowed[Rows]:
    """Borrow a blocking connection. Raises `OptionInvalid` for anything else."""
    open_it = _opener(_BLOCKING, conn)
    if open_it is None:
        is_async = _opener(_ASYNC, conn) is not None
        raise _refusal(conn, "is asynchronous: use aenqueue with it" if is_async else None)
    return open_it(conn)


async def aborrow(conn: object) -> Borrowed[Awaitable[Rows]]:
    """Borrow an async connection. Raises `OptionInvalid` for anything else."""
    open_it = _opener(_ASYNC, conn)
    if open_it is None:
        is_blocking = _opener(_BLOCKING, conn) is not None
        raise _refusal(conn, "would block the loop: use enqueue with it" if is_blocking else None)
    return await open_it(conn)


def _opener(kinds: _Kinds[B], conn: object) -> Callable[[Any], B] | None:
    for module, name, open_it in kinds:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and isinstance(conn, found):
            return open_it
    return None


def _refusal(conn: object, problem: str | None) -> OptionInvalid:
    kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
    return OptionInvalid(
        "conn", f"{kind} {problem}" if problem else f"must be {_ACCEPTED}, not {kind}"
    )
