"""What the processes of the SQLite tests do, and what is in their file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from rowlock.store import Store, open_store
from rowlock.store.options import NewJob, new_job
from rowlock.store.sqlite.engine import SqliteEngine
from tests.support.processes import FRESH

WAIT_SECONDS = 100


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def job(**options: Any) -> NewJob:
    return new_job(kind="count", payload="{}", **options)


def impatient_store(path: Path, *, busy_seconds: float = 0.2) -> Store:
    """A store that gives up waiting for others soon."""
    engine = SqliteEngine(url_of(path), schema="rowlock", clock=None, busy_seconds=busy_seconds)
    return Store(engine)


def run_all(target: Callable[..., None], arguments: list[tuple[Any, ...]]) -> list[int | None]:
    """Start a process for each, wait for all; their exit codes."""
    processes = [FRESH.Process(target=target, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(WAIT_SECONDS)
    return [process.exitcode for process in processes]


def enqueue_many(path: Path, count: int) -> None:
    with closing(open_store(url_of(path))) as store:
        for _ in range(count):
            store.enqueue([job()])


def write_as_a_stranger(path: Path, count: int) -> None:
    """An application's own writes to its own table in the same file."""
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS own (text text)")
        for _ in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO own VALUES (?)", ("x" * 500,))
            connection.execute("COMMIT")


def read_many(path: Path, count: int) -> None:
    with closing(open_store(url_of(path))) as store:
        for _ in range(count):
            store.stats()


def enqueue_until_killed(path: Path, note: Path) -> None:
    """Write down each id after it is acknowledged."""
    store = open_store(url_of(path))
    descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        [done] = store.enqueue([job()])
        os.write(descriptor, f"{done.id}\n".encode())


def look(path: Path, sql: str) -> list[Any]:
    """The first column of what a plain connection sees."""
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        return [row[0] for row in connection.execute(sql)]


def count_jobs(path: Path) -> int:
    return int(look(path, "SELECT count(*) FROM rowlock_job")[0])


def is_sound(path: Path) -> bool:
    return look(path, "PRAGMA integrity_check") == ["ok"]
