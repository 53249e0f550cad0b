"""Migrate PostgreSQL while it is in use.

1. One transaction: all missing migrations, or nothing.
2. If many processes migrate at once, one does it: the others wait for an advisory lock, and then
   see what was done. So each statement must see the present: READ COMMITTED, whatever the default.
3. A table is changed under a lock that all other statements wait behind, and which itself waits
   for every transaction that has used the table. So it waits only briefly, is undone, and tried
   again: a transaction that was left open stalls a migration, never the queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.errors import StoreUnavailable
from rowlock.store import migrate as migrations
from rowlock.store.statements import Dialect

if TYPE_CHECKING:
    from rowlock.store.postgres.connections import BoundedConnection as Connection

logger: logging.Logger = logging.getLogger("rowlock.store")

_HOLDERS = """
SELECT DISTINCT lock.pid
FROM pg_catalog.pg_locks AS lock
JOIN pg_catalog.pg_class AS class ON class.oid = lock.relation
WHERE class.relnamespace = to_regnamespace(%s) AND lock.granted
    AND lock.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
ORDER BY lock.pid
"""

Apply = Callable[["Connection"], list[int]]


def migrate_patiently(connection: Connection, apply: Apply, *, schema: str) -> list[int]:
    """Apply missing migrations in one transaction. Return the numbers of those applied.

    Raises:
        StoreUnavailable: The tables were in use at every try. The message names the backends.
    """
    for tries_left in reversed(range(config.MIGRATION_TRIES_MAX)):
        try:
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [migrations.LOCK])
                lock_ms = round(1000 * config.MIGRATION_LOCK_SECONDS)
                connection.execute(f"SET LOCAL lock_timeout = {lock_ms}".encode())
                return apply(connection)
        except psycopg.errors.LockNotAvailable as error:
            holders = connection.execute(_HOLDERS, [schema]).fetchall()
            pids = ", ".join(str(pid) for (pid,) in holders) or "a backend that has ended since"
            if not tries_left:
                raise StoreUnavailable(
                    f"the tables of {schema} could not be locked for a migration: transactions "
                    f"that have used them are still open (backend {pids}); nothing was changed: "
                    "end them, then migrate again"
                ) from error
            logger.warning("the migration is waiting for open transactions: backend %s", pids)
            # Meanwhile the statements that had to wait behind us can run.
            pause = config.MIGRATION_PAUSE_SECONDS * CHANCE.uniform(0.5, 1.5)
            threading.Event().wait(pause)
    raise AssertionError("the last try raises")


def apply_missing(connection: Connection, applied: migrations.Applied, *, schema: str) -> list[int]:
    """Apply and record the missing migrations, on a connection in a transaction."""
    missing = migrations.pending(Dialect.POSTGRES, applied)
    if missing:
        there = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", [schema])
        table = migrations.table(
            dialect=Dialect.POSTGRES, schema=schema, has_schema=there.fetchall()[0][0]
        )
        connection.execute(table.encode())
    for migration in missing:
        script = migrations.script(migration, dialect=Dialect.POSTGRES, schema=schema)
        connection.execute(script.encode())
        insert = f"INSERT INTO {schema}.migration VALUES (%s, %s, %s)"  # noqa: S608  # the schema's name is checked
        values = [migration.number, migration.name, migration.checksum]
        connection.execute(insert.encode(), values)
        for word in migrations.words(migration, dialect=Dialect.POSTGRES, schema=schema):
            connection.execute(word.encode())
    return [migration.number for migration in missing]
