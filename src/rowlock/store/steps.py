"""What a verb asks of a database, step by step: statements out, rows in, no I/O.

A verb is a generator. It yields steps and is sent rows. `drive` runs it on any connection, blocking
or async. If a verb yields no `Begin`, each of its statements is committed on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from rowlock.errors import StoreRefused

T = TypeVar("T")

Row = tuple[Any, ...]
Rows = list[Row]


class News(NamedTuple):
    """A job may be due in this queue. Empty: in any. With a kind: it is of this rank and kind."""

    queue: str
    rank: int = 0
    kind: str | None = None


class Statement(msgspec.Struct, frozen=True):
    """The statement `name` of the SQL files. A list among the values is bound as an array."""

    name: str
    values: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def statement(self) -> str:
        return self.name


class Batch(msgspec.Struct, frozen=True):
    """One statement for many rows: arrays on PostgreSQL, one run per row on SQLite.

    `alone` is a cheaper statement for PostgreSQL that does the same for a single row. `rings`: a
    `Ring` for this queue follows if the rows are new. A connection may notify along with the
    statement, if that is a transaction of its own.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    values: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    alone: str | None = None
    rings: News | None = None

    @property
    def statement(self) -> str:
        """Which statement to send to PostgreSQL."""
        return self.alone if self.alone is not None and len(self.rows) == 1 else self.name


# The answer to a copy, which has no row for each job as a statement does.
COPIED: Final[Rows] = [()]


class Copy(msgspec.Struct, frozen=True):
    """New rows of a table, by PostgreSQL's COPY or in one call on SQLite. The answer is `COPIED`.

    On callers' connections, and if one of the rows exists already, the batch of `instead` is run.
    The first two values of a row are its own, the others are mostly those of the row before.
    """

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    instead: Callable[[], Batch]


class Begin(msgspec.Struct, frozen=True):
    """Begin a transaction: from here on, all or nothing.

    `is_look`: nothing is changed, and all statements see the database as it is now. On SQLite that
    holds for every op that only reads.
    """

    is_look: bool = False


class Commit(msgspec.Struct, frozen=True):
    """Commit the work so far. Long work continues in a new transaction."""


class Ring(msgspec.Struct, frozen=True):
    """Wake the workers of these queues once the work is committed."""

    queues: frozenset[str]


Step = Statement | Batch | Copy | Begin | Commit | Ring
Steps = Generator[Step, Rows, T]


class Op(msgspec.Struct, Generic[T], frozen=True):
    """One call of a verb, not yet run.

    `start` starts it from the beginning each time, so that a transaction that lost a race can be
    run again. `repeat` is for when the database may or may not have done it already. It is None
    where that is not safe. `looks_first`: this many of its first statements change nothing, though
    they are not in a transaction. An op that is lost there can be started again nevertheless.

    Committed work is not started again: an op of several transactions keeps its count and its place
    beside its steps, and advances them once a `Commit` was answered. A commit whose answer was lost
    is not counted. So an op is run once.

    `on_refused` is called when the database refuses it, for example by a user's own constraint. It
    returns to have the op started again, or raises the error.
    """

    name: str
    writes: bool
    start: Callable[[], Steps[T]]
    repeat: Callable[[], Steps[T]] | None = None
    looks_first: int = 0
    on_refused: Callable[[StoreRefused], None] | None = None


def reading(name: str, start: Callable[[], Steps[T]]) -> Op[T]:
    """An op that changes nothing. It can always be repeated."""
    return Op(name, False, start, start)


def writing(
    name: str,
    start: Callable[[], Steps[T]],
    *,
    repeat: Callable[[], Steps[T]] | None = None,
    looks_first: int = 0,
    on_refused: Callable[[StoreRefused], None] | None = None,
) -> Op[T]:
    """An op that changes something."""
    return Op(name, True, start, repeat, looks_first, on_refused)
