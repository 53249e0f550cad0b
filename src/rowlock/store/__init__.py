"""The store: the only place with SQL. `open_store` returns the `Store` of a database URL."""

from __future__ import annotations

from rowlock.clock import Clock
from rowlock.errors import OptionInvalid, UnsupportedStore
from rowlock.filters import JobFilter
from rowlock.store.engine import Engine
from rowlock.store.ops.claim import KnownPolicy
from rowlock.store.ops.schedule import NewSchedule
from rowlock.store.ops.settle import Settlement
from rowlock.store.options import NewJob
from rowlock.store.statements import check_schema
from rowlock.store.store import Store
from rowlock.store.url import scheme_of

__all__ = ["JobFilter", "KnownPolicy", "NewJob", "NewSchedule", "Settlement", "Store", "open_store"]


def open_store(url: str, *, schema: str = "rowlock", clock: Clock | None = None) -> Store:
    """The store of a database URL. Nothing is opened yet.

    Args:
        url: `sqlite:///FILE` or `postgresql://…`.
        schema: The schema of its tables. On SQLite, the prefix of their names.
        clock: For tests. Otherwise the database's clock decides (SQLite: the machine's).
    """
    if not isinstance(url, str):
        raise OptionInvalid("url", f"must be a string, not {type(url).__name__}")
    check_schema(schema)
    if scheme_of(url) == "sqlite":
        from rowlock.store.sqlite.engine import SqliteEngine

        return Store(SqliteEngine(url, schema=schema, clock=clock))
    return Store(_postgres(url, schema=schema, clock=clock))


def _postgres(url: str, *, schema: str, clock: Clock | None) -> Engine:
    try:
        from rowlock.store.postgres.engine import PostgresEngine
    except ImportError as error:
        raise UnsupportedStore(
            'PostgreSQL needs psycopg 3: pip install "rowlock[postgres]"'
        ) from error
    return PostgresEngine(url, schema=schema, clock=clock)
