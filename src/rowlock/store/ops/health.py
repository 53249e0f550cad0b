"""Health: what a database tells of itself, for `rowlock doctor`. Only reads, and only briefly.

Whose query it is may be told; what it says may not: statements hold people's data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rowlock import config
from rowlock.store import migrate
from rowlock.store.statements import Dialect
from rowlock.store.steps import Op, Row, Statement, Steps, reading

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """The database's version as it names it, and its clock in microseconds."""

    version: str
    now: int


@dataclass(frozen=True, slots=True)
class Connections:
    """How many connections the server has, and how many ordinary users may have."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class DeadTuples:
    """The live table's rows, those that wait for vacuum, and the seconds since it last came."""

    live: int
    dead: int
    vacuum_seconds: float | None


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """Who holds the oldest transaction of the server. `pid` None: it is a prepared one."""

    pid: int | None
    application: str
    user: str
    database: str
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ExpiredLeases:
    """Leases that ran out and that nobody took over; counted to a bound."""

    count: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class DueLane:
    """Jobs of one kind that wait in a queue since so many seconds."""

    queue: str
    kind: str
    seconds: float


def server() -> Op[Server]:
    """What the database is, and what time it is there."""
    return _one("health_server", lambda row: Server(*row))


def journal_mode() -> Op[str]:
    """How a SQLite file keeps its log: `wal`, if all is well."""
    return _one("health_journal", lambda row: str(row[0]))


def size() -> Op[int]:
    """How many bytes our tables take, or the whole file of SQLite."""
    return _one("health_size", lambda row: int(row[0]))


def connections() -> Op[Connections]:
    """How full the PostgreSQL server is."""
    return _one("health_connections", lambda row: Connections(*row))


def dead_tuples() -> Op[DeadTuples]:
    """Whether vacuum keeps up with the table of live jobs."""
    return _one("health_dead_tuples", lambda row: DeadTuples(*row))


def oldest_transaction() -> Op[OldestTransaction | None]:
    """Who keeps vacuum from removing what others are done with; None if nobody does."""

    def steps() -> Steps[OldestTransaction | None]:
        rows = yield Statement("health_oldest_transaction")
        return OldestTransaction(*rows[0]) if rows else None

    return reading("oldest_transaction", steps)


def expired_leases() -> Op[ExpiredLeases]:
    """Running jobs whose lease is over."""

    def steps() -> Steps[ExpiredLeases]:
        rows = yield Statement("health_leases", {"cap": config.COUNT_EXACT_MAX})
        count, expired_at, now = rows[0]
        return ExpiredLeases(count, (now - expired_at) / config.SECOND_US if count else 0.0)

    return reading("expired_leases", steps)


def due_lanes() -> Op[list[DueLane]]:
    """Every queue and kind with a job that could run now, and since when."""

    def steps() -> Steps[list[DueLane]]:
        names = [row[0] for row in (yield Statement("queue_names"))]
        lanes = (yield Statement("all_lanes", {"queues": names})) if names else []
        now = (yield Statement("clock"))[0][0]
        since: dict[tuple[str, str], int] = {}
        for queue, _, kind, run_at in lanes:
            since[queue, kind] = min(run_at, since.get((queue, kind), run_at))
        return [
            DueLane(queue, kind, (now - run_at) / config.SECOND_US)
            for (queue, kind), run_at in sorted(since.items())
            if run_at <= now
        ]

    return reading("due_lanes", steps)


def _one(name: str, read: Callable[[Row], T]) -> Op[T]:
    def steps() -> Steps[T]:
        return read((yield Statement(name))[0])

    return reading(name, steps)


def check_schema(dialect: Dialect) -> Op[None]:
    """Raise `MigrationNeeded` once the schema has something that this version had to know."""

    def steps() -> Steps[None]:
        known = len(migrate.migrations(dialect))
        rows = yield Statement("unfit_migrations", {"known": known})
        if rows:
            raise migrate.too_new(max(number for (number,) in rows), known)

    return reading("check_schema", steps)


def instance() -> Op[str]:
    """The id of the store's own database."""

    def steps() -> Steps[str]:
        rows = yield Statement("instance")
        return str(rows[0][0])

    return reading("instance", steps)
