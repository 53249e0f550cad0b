"""Measure: the statements of `rowlock bench`, for a schema of its own without a user's jobs."""

from __future__ import annotations

import msgspec

from rowlock import config
from rowlock.store.steps import Begin, Op, Statement, Steps, reading, writing


class FinishedCount(msgspec.Struct, frozen=True):
    """How many jobs have ended, and how long that took by the database's clock."""

    count: int
    seconds: float


def finished(queue: str) -> Op[FinishedCount]:
    """How many jobs of a queue have ended, and the time from the first start to the last end."""

    def steps() -> Steps[FinishedCount]:
        count, first, last = (yield Statement("measure_finished", {"queue": queue}))[0]
        return FinishedCount(count, (last - first) / config.SECOND_US if count else 0.0)

    return reading("finished", steps)


def wal_position() -> Op[int]:
    """The end of PostgreSQL's write-ahead log, in bytes. It contains all that the server writes."""

    def steps() -> Steps[int]:
        position: int = (yield Statement("measure_wal"))[0][0]
        return position

    return reading("wal_position", steps)


def is_durable() -> Op[bool]:
    """Whether PostgreSQL waits for the disk when it commits."""

    def steps() -> Steps[bool]:
        answer: bool = (yield Statement("measure_durability"))[0][0]
        return answer

    return reading("is_durable", steps)


def commit(*, lazily: bool) -> Op[None]:
    """Change one row on PostgreSQL. `lazily`: without waiting for the disk."""

    def steps() -> Steps[None]:
        yield Begin()
        yield Statement("measure_patience", {"lazily": lazily})
        yield Statement("set_pause", {"queue": "measured", "is_paused": False})

    return writing("commit", steps, repeat=steps)
