"""The limits: what this machine and its database do with nothing of a queue around it.

The same claim and settle statements as the store sends, in a loop with a batch of 100; a bare
INSERT into the same table through the same pool; a bare COPY. No checks, no records, no
handlers. A figure of ours is read as a share of these.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import psycopg

from benchmarks.places import Database, PostgresDatabase, SqliteDatabase
from rowlock.columns import JobRow
from rowlock.ids import new_id
from rowlock.job import Policy
from rowlock.lifecycle import Succeeded
from rowlock.store import NewJob, Store, open_store
from rowlock.store.drive import Binder, run
from rowlock.store.local_state import LocalState
from rowlock.store.ops.claim import claim
from rowlock.store.ops.settle import Settlement, settle
from rowlock.store.options import new_job
from rowlock.store.postgres.engine import PostgresEngine
from rowlock.store.statements import Dialect, ParameterStyle
from rowlock.store.steps import Batch, Rows, Statement, Step

BATCH = 100
BULK = 1_000
PAYLOAD = '{"i":1,"t":0.0,"to":"someone@example.com","template":"welcome","lang":"en"}'
DAY_US = 86_400_000_000
# As a task's own enqueue gives it; without, the worker would have to write it first.
POLICY = Policy()

Said = Statement | Batch

_TOKEN = JobRow._fields.index("token")
_INSERTED = ("id", "kind", "queue", "rank", "payload", "run_at", "created_at", "policy")


def fill(store: Store, count: int) -> None:
    """Jobs to be drained by a loop in this process."""
    made: list[NewJob] = [
        new_job(kind="noop", payload=PAYLOAD, policy=POLICY) for _ in range(count)
    ]
    for start in range(0, count, BULK):
        store.enqueue(made[start : start + BULK])


# Drain


def drain_by_store(database: Database) -> int:
    """A loop of one's own: `store.claim` and `store.succeed`, as the documentation shows it."""
    done = 0
    with closing(open_store(database.url)) as store:
        while leases := store.claim(worker="bench", queues=["default"], limit=BATCH):
            store.succeed(leases)
            done += len(leases)
    return done


def drain_bare(database: Database) -> int:
    """The same two statements with nothing around them."""
    if isinstance(database, PostgresDatabase):
        with psycopg.connect(database.url, autocommit=True, prepare_threshold=None) as connection:
            return _drain_bare_postgres(connection)
    assert isinstance(database, SqliteDatabase)
    with closing(database.connect()) as connection:
        return _drain_bare_sqlite(connection)


def _drain_bare_postgres(connection: psycopg.Connection[Any]) -> int:
    binder = Binder(Dialect.POSTGRES, "rowlock", ParameterStyle.PYFORMAT)

    def perform(step: Said) -> Rows:
        sql, values = binder.bind(step, now=None)
        return connection.execute(sql, values).fetchall()

    done, claim, finish = _overheard(perform)
    sql, values = binder.bind(claim, now=None)
    claim_sql = sql.encode()
    while rows := connection.execute(claim_sql, values).fetchall():
        perform(_finishing(finish, rows))
        done += len(rows)
    return done


def _drain_bare_sqlite(connection: sqlite3.Connection) -> int:
    binder = Binder(Dialect.SQLITE, "rowlock", ParameterStyle.NAMED)
    execute = connection.execute

    def perform(step: Said) -> Rows:
        parts, runs = binder.bind_rows(step, now=time.time_ns() // 1000)
        execute("BEGIN IMMEDIATE")
        rows: Rows = []
        for values in runs:
            for part in parts:
                rows = execute(part, values).fetchall()
        execute("COMMIT")
        return rows

    done, claim, finish = _overheard(perform)
    while rows := perform(claim):
        perform(_finishing(finish, rows))
        done += len(rows)
    return done


def _overheard(perform: Callable[[Said], Rows]) -> tuple[int, Statement, Batch]:
    """Let the store claim and settle a first batch, and note what it says to the database."""
    said: list[Said] = []

    def note(step: Step) -> Rows:
        if not isinstance(step, Statement | Batch):
            return []
        said.append(step)
        return perform(step)

    wanted = claim(LocalState(), worker="bench", queues=["default"], kinds=["noop"], limit=BATCH)
    leases = run(wanted.start(), note)
    # Not plain successes, whose statement takes ids under one token only.
    settlements = [Settlement(lease, Succeeded("0")) for lease in leases]
    run(settle(settlements, chance=random.Random(0)).start(), note)
    *_, claimed, finished = said
    assert isinstance(claimed, Statement)
    assert isinstance(finished, Batch)
    return len(leases), claimed, finished


def _finishing(finish: Batch, rows: Rows) -> Batch:
    """The settle of other rows: the same but for their ids and tokens."""
    assert finish.columns[:2] == ("id", "token")
    rest = finish.rows[0][2:]
    return msgspec.structs.replace(finish, rows=[(row[0], row[_TOKEN], *rest) for row in rows])


# Enqueue


def insert_one_by_one(database: Database, count: int) -> float:
    """Rows a second, each committed on its own; on PostgreSQL through the store's own pool."""
    rows = list(_rows(count))
    if isinstance(database, PostgresDatabase):
        with closing(open_store(database.url)) as store:
            engine = store.engine
            assert isinstance(engine, PostgresEngine)
            return _rate(count, lambda: _insert_by_pool(engine, rows))
    assert isinstance(database, SqliteDatabase)
    with closing(database.connect()) as connection:
        return _rate(count, lambda: _insert_each(connection, rows))


def _insert_by_pool(engine: PostgresEngine, rows: Sequence[tuple[Any, ...]]) -> None:
    names = ", ".join(_INSERTED)
    marks = ", ".join(["%s"] * len(_INSERTED))
    sql = f"INSERT INTO rowlock.job ({names}) VALUES ({marks})".encode()
    for row in rows:
        connection = engine.pool.take()
        connection.execute(sql, row)
        engine.pool.give(connection, is_sound=True)


def _insert_each(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    for row in rows:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_sqlite_insert(), row)
        connection.execute("COMMIT")


def insert_in_bulk(database: Database, count: int) -> float:
    """Rows a second, 1,000 a transaction: by COPY on PostgreSQL, by executemany on SQLite."""
    rows = list(_rows(count))
    if isinstance(database, PostgresDatabase):
        with psycopg.connect(database.url, autocommit=True) as connection:
            return _rate(count, lambda: _copy(connection, rows))
    assert isinstance(database, SqliteDatabase)
    with closing(database.connect()) as connection:
        return _rate(count, lambda: _insert_many(connection, rows))


def _copy(connection: psycopg.Connection[Any], rows: Sequence[tuple[Any, ...]]) -> None:
    sql = f"COPY rowlock.job ({', '.join(_INSERTED)}) FROM STDIN".encode()
    for start in range(0, len(rows), BULK):
        with connection.cursor().copy(sql) as copy:
            for row in rows[start : start + BULK]:
                copy.write_row(row)


def _insert_many(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    for start in range(0, len(rows), BULK):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_sqlite_insert(), rows[start : start + BULK])
        connection.execute("COMMIT")


def _sqlite_insert() -> str:
    marks = ", ".join("?" * len(_INSERTED))
    return f"INSERT INTO rowlock_job ({', '.join(_INSERTED)}) VALUES ({marks})"


def _rows(count: int) -> Iterator[tuple[Any, ...]]:
    now = time.time_ns() // 1000
    policy = POLICY.encoded()
    return ((new_id(), "noop", "default", 0, PAYLOAD, now, now, policy) for _ in range(count))


def _rate(count: int, act: Callable[[], None]) -> float:
    start = time.perf_counter()
    act()
    return count / (time.perf_counter() - start)
