"""Eight processes that enqueue one by one into one SQLite file: throughput, fairness, errors.

    python -m benchmarks.sqlite_writers [WRITES]

Compares the store with bare inserts of a like row: under the lock file, and with BEGIN IMMEDIATE
and a busy timeout alone. `longest` is the worst wait of any one write; `first` and `last` are when
the first and the last process were done.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from rowlock.errors import RowlockError
from rowlock.store import open_store
from rowlock.store.options import new_job
from rowlock.store.sqlite.file import SqliteFile, WriteLock

PROCESSES = 8
_SPAWN = multiprocessing.get_context("spawn")


def main(writes: int) -> None:
    for target in (through_the_store, bare_with_the_lock_file, bare_with_a_busy_timeout):
        with tempfile.TemporaryDirectory() as directory:
            measure(target, Path(directory) / "jobs.db", writes)


def measure(target: Callable[[Path, int], list[float]], path: Path, writes: int) -> None:
    prepare(path)
    start = time.monotonic()
    with _SPAWN.Pool(PROCESSES) as pool:
        pool.starmap(nothing, [()] * PROCESSES * 4)
        start = time.monotonic()
        answers = pool.starmap(timed, [(target, path, writes)] * PROCESSES, chunksize=1)
    seconds = [done - start for done, _, _ in answers]
    errors = sum(count for _, _, count in answers)
    print(
        f"{target.__name__:26} {PROCESSES * writes / max(seconds):8.0f} writes/s, "
        f"longest {max(longest for _, longest, _ in answers) * 1000:5.0f} ms, "
        f"first {min(seconds):.2f} s, last {max(seconds):.2f} s, errors {errors}"
    )


def nothing() -> None:
    """Only to have every process started."""


def timed(
    target: Callable[[Path, int], list[float]], path: Path, writes: int
) -> tuple[float, float, int]:
    """When this process was done, its longest wait, and how many of its writes failed."""
    waits = target(path, writes)
    return time.monotonic(), max(waits), writes - len(waits)


def prepare(path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.enqueue([new_job(kind="bench", payload="{}")])
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE bare (id text PRIMARY KEY, number integer, text text)")
        connection.execute("CREATE INDEX bare_number ON bare (number, text)")


def through_the_store(path: Path, writes: int) -> list[float]:
    with closing(open_store(f"sqlite:///{path}")) as store:
        return waits_of(lambda: store.enqueue([new_job(kind="bench", payload="{}")]), writes)


def bare_with_the_lock_file(path: Path, writes: int) -> list[float]:
    return bare(path, writes, turn=WriteLock(SqliteFile(path)))


def bare_with_a_busy_timeout(path: Path, writes: int) -> list[float]:
    return bare(path, writes, turn=nullcontext())


def bare(path: Path, writes: int, *, turn: AbstractContextManager[object]) -> list[float]:
    with closing(connect(path)) as connection:

        def write() -> None:
            with turn:
                connection.execute("BEGIN IMMEDIATE")
                row = (str(uuid.uuid4()), 1, "x" * 100)
                connection.execute("INSERT INTO bare VALUES (?, ?, ?)", row)
                connection.execute("COMMIT")

        return waits_of(write, writes)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def waits_of(write: Callable[[], object], writes: int) -> list[float]:
    waits: list[float] = []
    for _ in range(writes):
        start = time.monotonic()
        try:
            write()
        except (RowlockError, sqlite3.Error) as error:
            print(f"failed: {error}", file=sys.stderr)
            continue
        waits.append(time.monotonic() - start)
    return waits


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
