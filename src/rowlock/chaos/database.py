"""Where a run takes place: a database that is its own, and the lines to it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from rowlock.chaos.machine import SmallDisk, WrongClocks, small_disk
from rowlock.chaos.plan import Fault, Plan
from rowlock.chaos.proxy import FaultyProxy
from rowlock.store.scratch import scratch
from rowlock.testing.database import away, execute, is_sqlite
from rowlock.testing.postgres import ThrowAwayPostgres

CONNECTIONS_MAX: Final = 80
SCHEMA: Final = "rowlock"
PREFIX: Final = "rowlock_chaos_"


@dataclass(slots=True)
class Stage:
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

    def address(self, place: int, name: str) -> str:
        """The URL for a process: its line, and a name by which the witness knows it."""
        if self.is_sqlite:
            return self.url
        url = self.lines[place % len(self.lines)].url if self.lines else self.url
        return f"{url}{'&' if '?' in url else '?'}{urlencode({'application_name': name})}"

    def now_us(self) -> int:
        """The database's clock."""
        if self.is_sqlite:
            return time.time_ns() // 1000
        now: int = execute(
            self.url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )[0][0]
        return now


class Clocks:
    """Which nanosecond of this machine's monotonic clock a time of the database was.

    By the look at it that took the shortest time: within minutes, clocks drift by less than a
    busy machine keeps an answer waiting.
    """

    def __init__(self) -> None:
        self._width: float = math.inf
        self._offset = 0

    def look(self, stage: Stage) -> None:
        """Ask the database once more, unless it is away."""
        before = time.monotonic_ns()
        try:
            theirs = stage.now_us()
        except away():
            return
        width = time.monotonic_ns() - before
        if width < self._width:
            self._width, self._offset = width, before + width // 2 - theirs * 1000

    def to_monotonic(self, theirs: int) -> int:
        """The nanosecond of a microsecond of the database."""
        return theirs * 1000 + self._offset


@contextmanager
def open_stage(
    plan: Plan, store: str, place: Path, *, database: str | None = None
) -> Iterator[Stage]:
    """A database of the run's own: a throw-away one, or a place in somebody's that is removed.

    Args:
        plan: What is to befall it.
        store: `sqlite` or `postgres`, without a database.
        place: A directory for files.
        database: The URL of somebody's database.
    """
    # So that each process can be troubled by itself.
    lines = plan.workers + plan.producers
    if database is not None:
        with scratch(database, prefix=PREFIX) as found, _lines_to(found.url, lines) as proxies:
            yield Stage(found.url, found.schema, None, proxies)
    elif store == "sqlite" and Fault.FILL_DISK in plan.faults:
        with small_disk(place / "disk") as disk:
            yield Stage(f"sqlite:///{disk.path / 'chaos.db'}", SCHEMA, disk=disk)
    elif store == "sqlite":
        yield Stage(f"sqlite:///{place / 'chaos.db'}", SCHEMA)
    else:
        clocks = WrongClocks(place) if Fault.STEP_CLOCK in plan.faults else None
        settings = {"max_connections": str(CONNECTIONS_MAX)}
        with (
            ThrowAwayPostgres(durable=True, settings=settings) as server,
            _lines_to(server.url, lines) as proxies,
        ):
            yield Stage(server.url, SCHEMA, server, proxies, clocks=clocks)


@contextmanager
def _lines_to(url: str, count: int) -> Iterator[list[FaultyProxy]]:
    with ExitStack() as stack:
        wanted = 0 if is_sqlite(url) else count
        yield [stack.enter_context(FaultyProxy(url)) for _ in range(wanted)]
