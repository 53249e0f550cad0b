"""The engine against its limit: claim + succeed through the store, and in a bare loop.

The bare loop sends the same two statements with nothing around them: a driver's connection, a
batch of 100, no checks, no records. Both run interleaved in one go on the same database, so that
their ratio holds on a noisy machine.
"""

from __future__ import annotations

import functools
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from rowlock.job import JobRow, Policy
from rowlock.store import NewJob, Store, open_store
from rowlock.store.drive import array_literal
from rowlock.store.ops.settle import FINISH_COLUMNS
from rowlock.store.options import new_job
from rowlock.store.text import Dialect, ParameterStyle, compiled
from rowlock.testing import ThrowAwayPostgres

BATCH = 100
JOBS = 10_000
ROUNDS = 5
PAYLOAD = '{"i":1,"t":0.0,"to":"someone@example.com","template":"welcome","lang":"en"}'
DAY_US = 86_400_000_000
LEASE_US = 30_000_000

Drain = Callable[[], int]


def jobs(count: int, policy: Policy) -> list[NewJob]:
    return [new_job(kind="noop", payload=PAYLOAD, policy=policy) for _ in range(count)]


def drain_store(store: Store) -> int:
    done = 0
    while leases := store.claim(worker="bench", queues=["default"], limit=BATCH):
        store.succeed(leases)
        done += len(leases)
    return done


def bare_values(keep: int) -> tuple[dict[str, Any], Callable[[list[Any]], dict[str, Any]]]:
    claim = {
        "queue": "default",
        "rank": 0,
        "kind": "noop",
        "limit": BATCH,
        "worker": "bench",
        "lease": LEASE_US,
        "now": None,
    }
    token = JobRow._fields.index("token")

    def finish(rows: list[Any]) -> dict[str, Any]:
        count = len(rows)
        columns = [
            [row[0] for row in rows],
            [row[token] for row in rows],
            [True] * count,
            [False] * count,
            ["succeeded"] * count,
            [None] * count,
            [None] * count,
            [None] * count,
            [keep] * count,
        ]
        # Arrays written as the store writes them: the driver's own way is slower for both.
        literals = map(array_literal, columns)
        values = dict(zip(FINISH_COLUMNS, literals, strict=True))
        return {**values, "remember": 900_000_000, "now": None}

    return claim, finish


def drain_bare_postgres(connection: psycopg.Connection[Any], keep: int) -> int:
    style = ParameterStyle.PYFORMAT
    (claim_sql,) = compiled("claim", Dialect.POSTGRES, "rowlock", style).parts
    name = "finish" if keep else "finish_held"
    (finish_sql,) = compiled(name, Dialect.POSTGRES, "rowlock", style).parts
    claim, finish = bare_values(keep)
    done = 0
    while rows := connection.execute(claim_sql.encode(), claim).fetchall():
        connection.execute(finish_sql.encode(), finish(rows)).fetchall()
        done += len(rows)
    return done


def drain_bare_sqlite(connection: sqlite3.Connection, keep: int) -> int:
    style = ParameterStyle.NAMED
    (claim_sql,) = compiled("claim", Dialect.SQLITE, "rowlock", style).parts
    name = "finish" if keep else "finish_held"
    finish_parts = compiled(name, Dialect.SQLITE, "rowlock", style).parts
    claim, _ = bare_values(keep)
    token = JobRow._fields.index("token")
    execute = connection.execute
    done = 0
    while True:
        now = time.time_ns() // 1000
        execute("BEGIN IMMEDIATE")
        rows = execute(claim_sql, {**claim, "now": now}).fetchall()
        execute("COMMIT")
        if not rows:
            return done
        execute("BEGIN IMMEDIATE")
        for row in rows:
            fixed = ("succeeded", None, None, None, keep)
            values = dict(zip(FINISH_COLUMNS, (row[0], row[token], 1, 0, *fixed), strict=True))
            values |= {"remember": 900_000_000, "now": now}
            for part in finish_parts:
                execute(part, values).fetchall()
        execute("COMMIT")
        done += len(rows)


def rate(drain: Drain) -> float:
    start = time.perf_counter()
    done = drain()
    assert done == JOBS, f"{done} of {JOBS}"
    return done / (time.perf_counter() - start)


def compare(store: Store, bare: Drain, policy: Policy) -> tuple[float, float, float]:
    """Medians of (store, bare, ratio) over interleaved rounds."""
    through: list[float] = []
    limit: list[float] = []
    for _ in range(ROUNDS):
        store.enqueue(jobs(JOBS, policy))
        through.append(rate(lambda: drain_store(store)))
        store.enqueue(jobs(JOBS, policy))
        limit.append(rate(bare))
    ratios = [one / other for one, other in zip(through, limit, strict=True)]
    return statistics.median(through), statistics.median(limit), statistics.median(ratios)


def wal_bytes(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def wal_per_job(store: Store, connection: psycopg.Connection[Any], policy: Policy) -> float:
    """Bytes of WAL of a job's whole life, after a checkpoint, so that first-touch pages count."""
    store.enqueue(jobs(JOBS, policy))
    drain_store(store)
    before = wal_bytes(connection)
    store.enqueue(jobs(JOBS, policy))
    drain_store(store)
    return (wal_bytes(connection) - before) / JOBS


def report_postgres() -> None:
    kept, unkept = Policy(), Policy(keep=0)
    with ThrowAwayPostgres(durable=True, settings={"shared_buffers": "256MB"}) as server:
        store = open_store(server.url)
        store.migrate()
        connection = psycopg.connect(server.url, autocommit=True, prepare_threshold=None)
        for name, policy, keep in (("kept", kept, DAY_US), ("not kept", unkept, 0)):
            bare = functools.partial(drain_bare_postgres, connection, keep)
            figures = compare(store, bare, policy)
            print_row(f"PostgreSQL, history {name}", figures)
        for name, policy in (("kept", kept), ("not kept", unkept)):
            print(f"PostgreSQL, WAL bytes a job, history {name}: ", end="")
            print(f"{wal_per_job(store, connection, policy):.0f}")
        connection.close()
        store.close()


def report_sqlite() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bench.db"
        store = open_store(f"sqlite:///{path}")
        store.migrate()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        for name, policy, keep in (
            ("kept", Policy(), DAY_US),
            ("not kept", Policy(keep=0), 0),
        ):
            bare = functools.partial(drain_bare_sqlite, connection, keep)
            figures = compare(store, bare, policy)
            print_row(f"SQLite, history {name}", figures)
        connection.close()
        store.close()


def print_row(name: str, figures: tuple[float, float, float]) -> None:
    through, limit, ratio = figures
    print(f"{name}: store {through:,.0f}/s, bare loop {limit:,.0f}/s, ratio {ratio:.2f}")


def main() -> None:
    print(f"claim + succeed, batch of {BATCH}, {ROUNDS} rounds of {JOBS:,} jobs each, medians")
    report_sqlite()
    report_postgres()


if __name__ == "__main__":
    main()
