"""The real worker: drain against the bare loop, latency of an idle one, and what idling costs.

python -m benchmarks.worker
"""

from __future__ import annotations

import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.engine import DAY_US, drain_bare_postgres, drain_bare_sqlite
from rowlock import App
from rowlock.job import Policy
from rowlock.store.options import new_job
from rowlock.testing import ThrowAwayPostgres

JOBS = 30_000
ROUNDS = 3
LATENCIES = 200
IDLE_SECONDS = 15.0
PAYLOAD = '{"i":1,"t":0.0,"to":"someone@example.com","template":"welcome","lang":"en"}'


@contextmanager
def worker(url: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "rowlock.cli", "--app", "benchmarks.worker_app:app", "worker"]
    process = subprocess.Popen(
        [*command, *words],
        env={**os.environ, "ROWLOCK_DATABASE_URL": url, "ROWLOCK_LOG_LEVEL": "error"},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def fill(app: App) -> None:
    # With a policy, as a task's own enqueue gives it; without, the worker must write it first.
    app.store.enqueue([new_job(kind="noop", payload=PAYLOAD, policy=Policy()) for _ in range(JOBS)])


def enqueue_late(app: App) -> str:
    payload = f'{{"t":{time.time()}}}'
    return app.store.enqueue([new_job(kind="late", payload=payload, policy=Policy())])[0].id


def drain_rate(app: App, span: Callable[[], tuple[int, int]]) -> float:
    """Jobs a second from the first claim to the last settle, both by the database's clock."""
    fill(app)
    with worker(app.url, "--drain", "-c", "100") as process:
        process.wait()
    first, last = span()
    return JOBS / ((last - first) / 1e6)


def latencies(app: App) -> list[float]:
    """Milliseconds from just before an enqueue to the start of its handler."""
    found: list[float] = []
    with worker(app.url):
        app.wait(enqueue_late(app), timeout=30)
        for _ in range(LATENCIES):
            time.sleep(random.uniform(0.02, 0.08))
            found.append(1000 * app.wait(enqueue_late(app), timeout=30).result)
    return sorted(found)


def cpu_seconds(pid: int) -> float:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = 0
    for each in [str(pid), *children]:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def idle_cost(app: App, transactions: Callable[[], int]) -> tuple[float, float]:
    """Transactions a second, and the share of a core of supervisor and child."""
    with worker(app.url) as process:
        app.wait(enqueue_late(app), timeout=30)
        time.sleep(3)
        before, cpu = transactions(), cpu_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        done, used = transactions() - before, cpu_seconds(process.pid) - cpu
    return done / IDLE_SECONDS, used / IDLE_SECONDS


def report(
    name: str,
    app: App,
    *,
    span: Callable[[], tuple[int, int]],
    bare: Callable[[], int],
    transactions: Callable[[], int],
) -> None:
    app.migrate()
    real: list[float] = []
    limit: list[float] = []
    for _ in range(ROUNDS):
        real.append(drain_rate(app, span))
        fill(app)
        start = time.perf_counter()
        limit.append(bare() / (time.perf_counter() - start))
        span()
    ratio = statistics.median(one / other for one, other in zip(real, limit, strict=True))
    print(f"{name}: drain {statistics.median(real):,.0f}/s, bare loop ", end="")
    print(f"{statistics.median(limit):,.0f}/s, ratio {ratio:.2f}")
    found = latencies(app)
    print(f"{name}: enqueue to start, p50 {statistics.median(found):.1f} ms, ", end="")
    print(f"p99 {found[int(0.99 * len(found))]:.1f} ms, max {found[-1]:.1f} ms")
    rate, share = idle_cost(app, transactions)
    print(f"{name}: idle {rate:.1f} transactions/s, {100 * share:.2f} % of a core")
    app.close()


def report_postgres() -> None:
    with ThrowAwayPostgres(durable=True, settings={"shared_buffers": "256MB"}) as server:
        connection = psycopg.connect(server.url, autocommit=True, prepare_threshold=None)

        def asked(sql: str) -> tuple[int, ...]:
            row = connection.execute(sql.encode()).fetchone()
            assert row is not None
            return tuple(map(int, row))

        def span() -> tuple[int, int]:
            found = asked("SELECT min(started_at), max(finished_at) FROM rowlock.finished")
            connection.execute("TRUNCATE rowlock.finished")
            return found[0], found[1]

        report(
            "PostgreSQL",
            App(server.url),
            span=span,
            bare=lambda: drain_bare_postgres(connection, DAY_US),
            transactions=lambda: asked(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database"
                " WHERE datname = current_database()"
            )[0],
        )
        connection.close()


def report_sqlite() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bench.db"
        app = App(f"sqlite:///{path}")
        app.migrate()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")

        def span() -> tuple[int, int]:
            first, last = connection.execute(
                "SELECT min(started_at), max(finished_at) FROM rowlock_finished"
            ).fetchone()
            connection.execute("DELETE FROM rowlock_finished")
            return first, last

        report(
            "SQLite",
            app,
            span=span,
            bare=lambda: drain_bare_sqlite(connection, DAY_US),
            transactions=lambda: 0,
        )
        connection.close()


if __name__ == "__main__":
    report_postgres()
    report_sqlite()
