"""Health: what a database reports about itself, for `rowlock doctor`. Short reads only.

The owner of a query may be shown, but not its text: statements hold people's data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from rowlock import config
from rowlock.job import WorkerInfo
from rowlock.store import migrate
from rowlock.store.ops.limit_info import room_ages
from rowlock.store.statements import Dialect
from rowlock.store.steps import Op, Row, Statement, Steps, reading

T = TypeVar("T")


class Server(msgspec.Struct, frozen=True):
    """The database's version, as it names it, and its clock in microseconds."""

    version: str
    now: int


class Connections(msgspec.Struct, frozen=True):
    """How many connections the server has, and how many are allowed for ordinary users."""

    used: int
    limit: int


class DeadTuples(msgspec.Struct, frozen=True):
    """The live table's rows, those that wait for vacuum, and the seconds since the last vacuum."""

    live: int
    dead: int
    vacuum_seconds: float | None


class OldestTransaction(msgspec.Struct, frozen=True):
    """The session with the oldest transaction of the server. A prepared one has no `pid`."""

    pid: int | None
    application: str
    user: str
    database: str
    state: str
    seconds: float


class ExpiredLeases(msgspec.Struct, frozen=True):
    """Leases that expired and that nobody has taken over, counted up to a bound."""

    count: int
    oldest_seconds: float


class DueLane(msgspec.Struct, frozen=True):
    """Jobs of one kind in a queue, and for how many seconds the oldest has been due.

    `limit`: the jobs wait for this limit.
    """

    queue: str
    kind: str
    seconds: float
    limit: str | None = None

    def is_served_by(self, worker: WorkerInfo) -> bool:
        """Whether a worker takes these jobs. One that names no queues or kinds takes all."""
        return (not worker.queues or self.queue in worker.queues) and (
            not worker.kinds or self.kind in worker.kinds
        )


def server() -> Op[Server]:
    """The database's version and its current time."""
    return _one("health_server", lambda row: Server(*row))


def journal_mode() -> Op[str]:
    """The journal mode of a SQLite file: `wal` if all is well."""
    return _one("health_journal", lambda row: str(row[0]))


def size() -> Op[int]:
    """The size of our tables in bytes, or of the whole file on SQLite."""
    return _one("health_size", lambda row: int(row[0]))


def connections() -> Op[Connections]:
    """How many of the PostgreSQL server's connections are in use."""
    return _one("health_connections", lambda row: Connections(*row))


def dead_tuples() -> Op[DeadTuples]:
    """Whether vacuum keeps up with the table of live jobs."""
    return _one("health_dead_tuples", lambda row: DeadTuples(*row))


def oldest_transaction() -> Op[OldestTransaction | None]:
    """The session that keeps vacuum from removing dead rows, or None."""

    def steps() -> Steps[OldestTransaction | None]:
        rows = yield Statement("health_oldest_transaction")
        return OldestTransaction(*rows[0]) if rows else None

    return reading("oldest_transaction", steps)


def expired_leases() -> Op[ExpiredLeases]:
    """Running jobs whose lease has expired."""

    def steps() -> Steps[ExpiredLeases]:
        rows = yield Statement("health_leases", {"cap": config.COUNT_EXACT_MAX})
        count, expired_at, now = rows[0]
        return ExpiredLeases(count, (now - expired_at) / config.SECOND_US if count else 0.0)

    return reading("expired_leases", steps)


def queue_names() -> Op[list[str]]:
    """The names of all queues that have a job."""

    def steps() -> Steps[list[str]]:
        return [row[0] for row in (yield Statement("queue_names"))]

    return reading("queue_names", steps)


def due_lanes() -> Op[list[DueLane]]:
    """Every queue and kind with a job that could run now, and for how long it has been due."""

    def steps() -> Steps[list[DueLane]]:
        names = [row[0] for row in (yield Statement("queue_names"))]
        lanes = (yield Statement("all_lanes", {"queues": names})) if names else []
        now = (yield Statement("clock"))[0][0]
        since: dict[tuple[str, str, str | None], int] = {}
        ages = [(queue, kind, None, run_at) for queue, _, kind, run_at in lanes]
        for queue, kind, limit, run_at in (*ages, *(yield from room_ages())):
            place = queue, kind, limit
            since[place] = min(run_at, since.get(place, run_at))
        return [
            DueLane(queue, kind, (now - run_at) / config.SECOND_US, limit)
            for (queue, kind, limit), run_at in sorted(since.items(), key=str)
            if run_at <= now
        ]

    return reading("due_lanes", steps)


def _one(name: str, read: Callable[[Row], T]) -> Op[T]:
    def steps() -> Steps[T]:
        return read((yield Statement(name))[0])

    return reading(name, steps)


def check_schema(dialect: Dialect) -> Op[None]:
    """Raise `MigrationNeeded` if the schema has a change that this version would have to know."""

    def steps() -> Steps[None]:
        known = len(migrate.migrations(dialect))
        rows = yield Statement("unfit_migrations", {"known": known})
        if rows:
            raise migrate.too_new(max(number for (number,) in rows), known)

    return reading("check_schema", steps)


def instance() -> Op[str]:
    """The id of the store's database."""

    def steps() -> Steps[str]:
        rows = yield Statement("instance")
        return str(rows[0][0])

    return reading("instance", steps)


def cursor_key() -> Op[bytes]:
    """The key by which servers seal cursors, the same for all of them."""

    def steps() -> Steps[bytes]:
        ((value,),) = yield Statement("secret", {"name": "cursor"})
        return bytes.fromhex(value)

    return reading("cursor_key", steps)
