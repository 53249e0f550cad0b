"""The database of a run, with its lines, disk and clock, and a check that it is whole."""

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
    """A database. `server` if it may be crashed, `lines` if what goes to it may be troubled."""

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
        """The URL for a process: its line, and a name by which the witness knows it."""
        if self.is_sqlite:
            return self.url
        url = self.lines[line % len(self.lines)].url if self.lines else self.url
        return f"{url}{'&' if '?' in url else '?'}{urlencode({'application_name': name})}"

    def now_us(self) -> int:
        """The database's clock."""
        if self.is_sqlite:
            return time.time_ns() // 1000
        now: int = execute(
            self.url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )[0][0]
        return now


class DatabaseClock:
    """Which nanosecond of this machine's monotonic clock a time of the database was.

    By the look at it that took the shortest time: within minutes, clocks drift by less than a
    busy machine keeps an answer waiting.
    """

    def __init__(self) -> None:
        self._width: float = math.inf
        self._offset = 0

    def look(self, database: ChaosDatabase) -> None:
        """Ask the database once more, unless it is away."""
        before = time.monotonic_ns()
        try:
            theirs = database.now_us()
        except away():
            return
        width = time.monotonic_ns() - before
        if width < self._width:
            self._width, self._offset = width, before + width // 2 - theirs * 1000

    def to_monotonic(self, theirs: int) -> int:
        """The nanosecond of a microsecond of the database."""
        return theirs * 1000 + self._offset


@contextmanager
def open_database(
    plan: ChaosPlan, store: str, directory: Path, *, url: str | None = None
) -> Iterator[ChaosDatabase]:
    """A database of the run's own: a throw-away one, or a schema or file in somebody's (removed).

    Args:
        plan: What is to befall it.
        store: `sqlite` or `postgres`; ignored with a URL.
        directory: A directory for files.
        url: Somebody's database instead.
    """
    # So that each process can be troubled by itself.
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
    """What is wrong with it; nothing, if it is whole."""
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
    """Whether PostgreSQL's own check is installed; in a server of others it is not used."""
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
    """A file system in memory that can be full, and then not be full any more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no room for what comes next."""
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
        """Have room again."""
        self._resize(_ROOM_BYTES)

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.path))


class DiskNotPossible(RuntimeError):
    """No file system can be mounted here; the message says why."""


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount one there while the block runs; only root may."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES},mode=0700", "rowlock-chaos", str(path))
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: who was killed a moment ago may not have let go of it yet.
        _run("umount", "-l", str(path))


def _run(program: str, *words: str) -> None:
    found = shutil.which(program)
    if found is None:
        raise DiskNotPossible(f"there is no {program} here")
    done = subprocess.run([found, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DiskNotPossible(f"{program} {' '.join(words)}: {done.stderr.strip()}")
