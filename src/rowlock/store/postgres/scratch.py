"""PostgreSQL's part of `scratch`: check the rights, list other places, and remove them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from rowlock.errors import Forbidden, StoreUnavailable
from rowlock.store.postgres.engine import Connection
from rowlock.store.postgres.pooler import connect_plainly
from rowlock.store.statements import Dialect, ParameterStyle, check_schema, compiled
from rowlock.store.url import PostgresUrl


def check_rights(url: str) -> None:
    """Refuse before anything is tried, and say which right is missing."""
    (row,) = _ask(url, "scratch_rights")
    may_create, user, database = row
    if not may_create:
        raise Forbidden(
            f"the role {user} may not create a schema in the database {database}; this command "
            f"needs one of its own for as long as it runs: GRANT CREATE ON DATABASE "
            f"{database} TO {user}, or name another role with --database-url"
        )


def schemas(url: str, prefix: str) -> list[str]:
    """The schemas whose names begin with a prefix."""
    return [row[0] for row in _ask(url, "scratch_schemas", {"prefix": prefix})]


def drop(url: str, schema: str) -> None:
    """Remove a schema and all that is in it. Harmless if it does not exist."""
    statement = f"DROP SCHEMA IF EXISTS {check_schema(schema)} CASCADE"
    try:
        with _open(url) as connection:
            connection.execute(statement.encode())
    except (psycopg.Error, StoreUnavailable) as error:
        shown = PostgresUrl.parse(url).mask(" ".join(str(error).split()))
        raise StoreUnavailable(
            f"the schema {schema} could not be removed: {shown}; remove it by hand: {statement}"
        ) from error


@contextmanager
def hold(url: str) -> Iterator[None]:
    """Keep a transaction with an id of its own open, like a long transaction of a user."""
    with _open(url) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        _run(connection, "scratch_hold")
        yield
        connection.execute("ROLLBACK")


def _ask(url: str, name: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    with _open(url) as connection:
        return _run(connection, name, values)


def _run(
    connection: Connection, name: str, values: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    statement = compiled(name, Dialect.POSTGRES, "rowlock", ParameterStyle.PYFORMAT)
    return connection.execute(statement.parts[0].encode(), values).fetchall()


@contextmanager
def _open(url: str) -> Iterator[Connection]:
    parsed = PostgresUrl.parse(url)
    try:
        with connect_plainly(parsed) as connection:
            yield connection
    except psycopg.Error as error:
        problem = parsed.mask(" ".join(str(error).split()))
        raise StoreUnavailable(f"{parsed.shown} can't be reached: {problem}") from error
