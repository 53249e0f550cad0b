"""Whether a pooler between us and PostgreSQL shares its connections among clients.

A pooler answers a client's connection with a process id of its own making, because a cancel request
must reach the pooler first. The server itself reports the true one. And in transaction mode, two
transactions of one client may be answered by two processes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from typing import Any

import psycopg

from rowlock.errors import StoreUnavailable
from rowlock.store.postgres.connections import connecting
from rowlock.store.postgres.engine import Connection
from rowlock.store.statements import Dialect, ParameterStyle, compiled
from rowlock.store.url import PostgresUrl


class Pooler(StrEnum):
    """What stands between us and the server."""

    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"


def find_pooler(
    url: PostgresUrl, *, connect: Callable[[PostgresUrl], Connection] | None = None
) -> Pooler:
    """Find out on two connections, of which the second takes what the first has given back."""
    try:
        with ExitStack() as stack:
            first = stack.enter_context((connect or connect_plainly)(url))
            home = _process(first)
            if home == first.info.backend_pid:
                return Pooler.NONE
            second = stack.enter_context((connect or connect_plainly)(url))
            second.execute("BEGIN")
            _process(second)
            return Pooler.SESSION if _process(first) == home else Pooler.TRANSACTION
    except psycopg.Error as error:
        problem = url.mask(" ".join(str(error).split()))
        raise StoreUnavailable(f"{url.shown} can't be reached: {problem}") from error


def connect_plainly(url: PostgresUrl) -> Connection:
    """A connection that is not shared, and needs nothing from the schema."""
    with connecting(url.conninfo, url.call_seconds):
        connection = Connection.connect(
            url.conninfo, autocommit=True, prepare_threshold=None, **url.defaults
        )
    connection.call_seconds = url.call_seconds
    return connection


def _process(connection: Connection) -> int:
    statement = compiled("health_backend", Dialect.POSTGRES, "rowlock", ParameterStyle.PYFORMAT)
    row: tuple[Any, ...] | None = connection.execute(statement.parts[0].encode()).fetchone()
    assert row is not None
    process: int = row[0]
    return process
