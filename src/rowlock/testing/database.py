"""Statements of a test's own, on either store, beside rowlock's connections."""

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
    """What is raised while a database is away, or has no connection left."""
    try:
        import psycopg
    except ModuleNotFoundError:
        return (OSError, sqlite3.OperationalError)
    return (OSError, sqlite3.OperationalError, psycopg.OperationalError)


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in one transaction; the rows of the last one."""
    with closing(connect(url)) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    return rows


def stream(url: str, statement: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a question, some thousands at a time."""
    with closing(connect(url)) as connection:
        if is_sqlite(url):
            yield from connection.execute(statement)
            return
        with connection.cursor(name="rowlock_stream") as cursor:
            cursor.itersize = _ROWS
            yield from cursor.execute(statement)


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Any:
    """A connection of the driver's, which for both has `execute` and `commit`."""
    if not is_sqlite(url):
        import psycopg

        return psycopg.connect(url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=busy_seconds)
    # Folding the log beside a writer is what old libraries of SQLite do not survive.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection
