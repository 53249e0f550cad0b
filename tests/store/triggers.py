"""Triggers of a user's own on our tables, which refuse some rows or take their time."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

SAID = "not on my watch"


def refuse(
    url: str,
    *,
    table: str,
    when: str,
    how: str = "ABORT",
    event: str = "INSERT",
    name: str = "mine",
) -> None:
    """Have inserts into a table refused where a condition on NEW holds.

    Args:
        name: Of the trigger, where there are several.
        event: Refuse UPDATE instead.
        how: What SQLite undoes: the statement (ABORT) or the transaction (ROLLBACK).
    """
    if url.startswith("sqlite"):
        _on_sqlite(
            url,
            f"CREATE TRIGGER {name} BEFORE {event} ON rowlock_{table} WHEN {when} "
            f"BEGIN SELECT RAISE({how}, '{SAID}'); END",
        )
    else:
        _on_postgres(
            url,
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{SAID}' USING DETAIL = NEW.payload; END $$",
            f"CREATE TRIGGER {name} BEFORE {event} ON rowlock.{table} FOR EACH ROW WHEN ({when}) "
            f"EXECUTE FUNCTION {name}()",
        )


def sleep_by_size(url: str, *, table: str, seconds_per_byte: float) -> None:
    """Have inserts into a table of PostgreSQL take as long as their results are large."""
    _on_postgres(
        url,
        "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM "
        f"pg_sleep(coalesce(octet_length(NEW.result), 0) * {seconds_per_byte}); "
        "RETURN NEW; END $$",
        f"CREATE TRIGGER mine BEFORE INSERT ON rowlock.{table} FOR EACH ROW "
        "EXECUTE FUNCTION mine()",
    )


def allow(url: str, *, table: str, name: str = "mine") -> None:
    """Take the trigger away."""
    if url.startswith("sqlite"):
        _on_sqlite(url, f"DROP TRIGGER {name}")
    else:
        _on_postgres(url, f"DROP TRIGGER {name} ON rowlock.{table}", f"DROP FUNCTION {name}")


def _on_sqlite(url: str, *statements: str) -> None:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        for statement in statements:
            connection.execute(statement)


def _on_postgres(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
