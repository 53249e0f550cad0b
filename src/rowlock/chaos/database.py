"""The database of a run, with its lines, disk and clock, and an integrity check."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from rowlock.chaos.plan import ChaosPlan, Fault
from rowlock.chaos.proxy import FaultyProxy
from rowlock.chaos.worker import WrongClocks
from rowlock.store.scratch import scratch
from rowlock.testing.database import away, execute, is_sqlite
from rowlock.testing.postgres import ThrowAwayPostgres

CONNECTIONS_MAX: Final = 80
SCHEMA: Final = "rowlock"
PREFIX: Final = "rowlock_chaos_"
_ROOM_BYTES: Final = 2 * 1024**3
# What a full disk has left: less than a transaction needs.
_LEFT_BYTES: Final = 16 * 1024
# The disk may be written to while its size is changed.
_TRIES: Final = 20

_TABLES: Final = ("job", "finished", "key_hold")
_KEYS: Final = {"job": "id", "finished": "id", "key_hold": "holder"}
# All rows by a scan of the table, and by a scan of its primary key.
_BY_TABLE: Final = ("SET LOCAL enable_indexscan = off", "SET LOCAL enable_indexonlyscan = off")
_BY_INDEX: Final = ("SET LOCAL enable_seqscan = off", "SET LOCAL enable_bitmapscan = off")


@dataclass(slots=True)
class ChaosDatabase:
    """A database. It has a `server` that may be crashed, and `lines` that may fail."""

    url: str
    schema: str
    server: ThrowAwayPostgres | None = None
    lines: list[FaultyProxy] = field(default_factory=list[FaultyProxy])
    # The disk that can be full, and the clocks of workers that can be wrong.
    disk: SmallDisk | None = None
    clocks: WrongClocks | None = None

    @property
    def is_sqlite(self) -> bool:
        return is_sqlite(self.url)

    def address(self, line: int, name: str) -> str:
        """Return the URL for a process, with its line and the name that the witness sees."""
        if self.is_sqlite:
            return self.url
        url = self.lines[line % len(self.lines)].url if self.lines else self.url
        return f"{url}{'&' if '?' in url else '?'}{urlencode({'application_name': name})}"

    def now_us(self) -> int:
        """Return the time by the database's clock."""
        if self.is_sqlite:
            return time.time_ns() // 1000
        now: int = execute(
            self.url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )[0][0]
        return now


class DatabaseClock:
    """Converts times of the database to nanoseconds of this machine's monotonic clock.

    It uses the look that took the shortest time: within minutes, clocks drift by less than a busy
    machine delays an answer.
    """

    def __init__(self) -> None:
        self._width: float = math.inf
        self._offset = 0

    def look(self, database: ChaosDatabase) -> None:
        """Read the database's clock once more, unless it is unavailable."""
        before = time.monotonic_ns()
        try:
            theirs = database.now_us()
        except away():
            return
        width = time.monotonic_ns() - before
        if width < self._width:
            self._width, self._offset = width, before + width // 2 - theirs * 1000

    def to_monotonic(self, theirs: int) -> int:
        """Convert a time of the database, in microseconds, to nanoseconds."""
        return theirs * 1000 + self._offset


@contextmanager
def open_database(
    plan: ChaosPlan, store: str, directory: Path, *, url: str | None = None
) -> Iterator[ChaosDatabase]:
    """Open a database for the run: a throw-away one, or a schema or file in a user's database.

    Args:
        plan: The faults to prepare for.
        store: `sqlite` or `postgres`. Ignored with a URL.
        directory: A directory for files.
        url: A user's database instead. What the run creates in it is removed.
    """
    # One line per process, so that faults can hit a single one.
    lines = plan.workers + plan.producers
    if url is not None:
        with scratch(url, prefix=PREFIX) as found, _lines_to(found.url, lines) as proxies:
            yield ChaosDatabase(found.url, found.schema, None, proxies)
    elif store == "sqlite" and Fault.FILL_DISK in plan.faults:
        with small_disk(directory / "disk") as disk:
            yield ChaosDatabase(f"sqlite:///{disk.path / 'chaos.db'}", SCHEMA, disk=disk)
    elif store == "sqlite":
        yield ChaosDatabase(f"sqlite:///{directory / 'chaos.db'}", SCHEMA)
    else:
        clocks = WrongClocks(directory) if Fault.STEP_CLOCK in plan.faults else None
        settings = {"max_connections": str(CONNECTIONS_MAX)}
        with (
            ThrowAwayPostgres(durable=True, settings=settings) as server,
            _lines_to(server.url, lines) as proxies,
        ):
            yield ChaosDatabase(server.url, SCHEMA, server, proxies, clocks=clocks)


@contextmanager
def _lines_to(url: str, count: int) -> Iterator[list[FaultyProxy]]:
    with ExitStack() as stack:
        wanted = 0 if is_sqlite(url) else count
        yield [stack.enter_context(FaultyProxy(url)) for _ in range(wanted)]


def integrity_problems(database: ChaosDatabase) -> list[str]:
    """Return the problems of the database, none if it is intact."""
    if database.is_sqlite:
        rows = execute(database.url, "PRAGMA integrity_check")
        return [row[0] for row in rows if row[0] != "ok"]
    return list(_postgres(database))


def _postgres(database: ChaosDatabase) -> Iterator[str]:
    for table in _TABLES:
        name, key = f"{database.schema}.{table}", _KEYS[table]
        look = f"SELECT count({key}), min({key}::text), max({key}::text) FROM {name}"  # noqa: S608  # ours
        scanned, found = (execute(database.url, *how, look) for how in (_BY_TABLE, _BY_INDEX))
        if scanned != found:
            yield f"{table} has {scanned}, and its primary key {found}"
    if database.server is not None and _has_amcheck(database):
        yield from _amcheck(database)


def _has_amcheck(database: ChaosDatabase) -> bool:
    """Install PostgreSQL's own check if it is available, but not in a user's server."""
    question = "SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'"
    return bool(execute(database.url, question)[0][0])


def _amcheck(database: ChaosDatabase) -> Iterator[str]:
    import psycopg

    execute(database.url, "CREATE EXTENSION IF NOT EXISTS amcheck")
    listed = (
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON oid = indrelid "
        "WHERE indisvalid AND relnamespace = "
    )
    indexes = execute(database.url, f"{listed}'{database.schema}'::regnamespace")
    for (index,) in indexes:
        try:
            execute(database.url, f"SELECT bt_index_check('{index}', true)")
        except psycopg.Error as error:
            yield f"{index}: {error}"


class SmallDisk:
    """A file system in memory that can be filled and freed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no room for further writes."""
        for tries_left in reversed(range(_TRIES)):
            found = os.statvfs(self.path)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                self._resize(used + _LEFT_BYTES)
            except DiskNotPossible:
                if not tries_left:
                    raise
            else:
                return

    def free(self) -> None:
        """Make room again."""
        self._resize(_ROOM_BYTES)

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.path))


class DiskNotPossible(RuntimeError):
    """No file system can be mounted here. The message says why."""


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a small disk at `path` while the block runs. Needs root."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES},mode=0700", "rowlock-chaos", str(path))
    try:
        yield SmallDisk(path)
    finally:
        # Lazily, because a process that was just killed may still hold it.
        _run("umount", "-l", str(path))


def _run(program: str, *words: str) -> None:
    found = shutil.which(program)
    if found is None:
        raise DiskNotPossible(f"there is no {program} here")
    done = subprocess.run([found, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DiskNotPossible(f"{program} {' '.join(words)}: {done.stderr.strip()}")
