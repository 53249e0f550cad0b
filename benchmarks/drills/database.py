"""Statements of a drill's own, on either store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

BUSY_SECONDS = 30.0


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in one transaction; the rows of the last one."""
    with closing(connect(url)) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
        connection.commit()
    return rows


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Any:
    """A connection of the driver's, which for both has `execute` and `commit`."""
    if not is_sqlite(url):
        return psycopg.connect(url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=busy_seconds)
    # Folding the log beside a writer is what old libraries of SQLite do not survive.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection
