"""Connections of drivers. A library is imported here only where its connection is at hand."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from rowlock.errors import OptionInvalid
from rowlock.store.caller.borrowed import (
    Borrowed,
    Standing,
    postgres_standing,
    sqlite_standing,
)
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Rows


def borrow_sqlite(conn: Any) -> Borrowed[Rows]:
    """A `sqlite3.Connection`."""

    def execute(sql: str, values: Any) -> Rows:
        # The user's factories may make rows into dicts and texts into bytes.
        text_factory, conn.text_factory = conn.text_factory, str
        try:
            cursor = conn.cursor()
            cursor.row_factory = None
            rows: Rows = cursor.execute(sql, values or {}).fetchall()
            return rows
        finally:
            conn.text_factory = text_factory

    return Borrowed(Dialect.SQLITE, ParameterStyle.NAMED, sqlite_standing(conn), conn, execute)


async def borrow_aiosqlite(conn: Any) -> Borrowed[Awaitable[Rows]]:
    """An `aiosqlite.Connection`."""

    async def execute(sql: str, values: Any) -> Rows:
        async with conn.execute(sql, values or {}) as cursor:
            # Set before the first row is made; what the user chose for others stays.
            cursor.row_factory = None
            return [tuple(row) for row in await cursor.fetchall()]

    return Borrowed(Dialect.SQLITE, ParameterStyle.NAMED, sqlite_standing(conn), conn, execute)


def borrow_psycopg(conn: Any) -> Borrowed[Rows]:
    """A `psycopg.Connection`."""
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _refuse_pipeline(conn)

    def execute(sql: str, values: Any) -> Rows:
        # Not conn.cursor(): the user's factories may take other placeholders and make other rows.
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
            "conn", "is in pipeline mode, where no statement has its answer yet: enqueue outside"
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
    standing = postgres_standing(conn)
    return Borrowed(Dialect.POSTGRES, ParameterStyle.PYFORMAT, standing, conn, execute)


async def borrow_asyncpg(conn: Any) -> Borrowed[Awaitable[Rows]]:
    """An `asyncpg.Connection`, from a pool or not."""

    async def execute(sql: str, values: Any) -> Rows:
        return [tuple(record) for record in await conn.fetch(sql, *(values or ()))]

    standing = Standing.OPEN if conn.is_in_transaction() else Standing.AUTOCOMMIT
    # A pool's connections come in a wrapper that is made anew each time and takes no weak
    # reference; what it wraps is only used to remember that this connection was checked.
    driver = getattr(conn, "_con", None) or conn
    return Borrowed(Dialect.POSTGRES, ParameterStyle.NUMERIC, standing, driver, execute)
