"""Statements past the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

import rowlock
from rowlock.store.statements import Dialect


def execute(app: rowlock.App, statement: str, values: tuple[object, ...] = ()) -> list[tuple]:
    """Run a statement past the store, in the words of SQLite but for the schema."""
    if app.store.engine.dialect is Dialect.POSTGRES:
        with psycopg.connect(app.url, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(path_of(app), isolation_level=None, timeout=60)) as connection:
        return connection.execute(statement.replace("rowlock.", "rowlock_"), values).fetchall()


def path_of(app: rowlock.App) -> str:
    return app.url.removeprefix("sqlite:///")
