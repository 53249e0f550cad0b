"""Statements of a test, on either store, beside rowlock's connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

BUSY_SECONDS: Final = 30.0
_ROWS: Final = 5_000


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def away() -> tuple[type[Exception], ...]:
    """Return the errors raised while a database is unavailable or has no connection left."""
    try:
        import psycopg
    except ModuleNotFoundError:
        return (OSError, sqlite3.OperationalError)
    return (OSError, sqlite3.OperationalError, psycopg.OperationalError)


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in one transaction. Return the rows of the last one."""
    with closing(connect(url)) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    return rows


def stream(url: str, statement: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, read some thousands at a time."""
    with closing(connect(url)) as connection:
        if is_sqlite(url):
            yield from connection.execute(statement)
            return
        with connection.cursor(name="rowlock_stream") as cursor:
            cursor.itersize = _ROWS
            yield from cursor.execute(statement)


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Any:
    """Return a connection of the driver. Both drivers have `execute` and `commit`."""
    if not is_sqlite(url):
        import psycopg

        return psycopg.connect(url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=busy_seconds)
    # Old versions of SQLite may corrupt a file when a checkpoint runs beside a writer.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection
