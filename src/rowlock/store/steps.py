"""What a verb asks of a database, step by step: statements out, rows in, no I/O.

A verb is a generator. It yields steps and is sent rows; `drive` runs it on any connection, in
either colour. A verb that yields no `Begin` has each of its statements committed on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from rowlock.errors import StoreRefused

T = TypeVar("T")

Row = tuple[Any, ...]
Rows = list[Row]


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of the SQL file `name`; a list among the values is bound as an array."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def statement(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Batch:
    """One statement for many rows: arrays on PostgreSQL, one run a row on SQLite.

    `alone` is a statement for PostgreSQL that does the same for a single row, for less.
    """

    name: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    alone: str | None = None

    @property
    def statement(self) -> str:
        """Which statement to send to PostgreSQL."""
        return self.alone if self.alone is not None and len(self.rows) == 1 else self.name


# What is answered to a copy, which does not tell of each row as a statement does.
COPIED: Final[Rows] = [()]


@dataclass(frozen=True, slots=True)
class Copy:
    """New rows of a table, by PostgreSQL's COPY, or in one call of SQLite's: `COPIED`.

    On callers' connections, and where one of them is there already, by the statement `instead`.
    The columns of a row are those of the batch, of which the table may call some otherwise.
    """

    table: str
    columns: tuple[str, ...]
    instead: Batch


@dataclass(frozen=True, slots=True)
class Begin:
    """From here on, all or nothing.

    `is_look`: nothing is changed, and all statements see the database as it is now. On SQLite that
    holds for every op that only reads.
    """

    is_look: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """What was done so far stands; long work goes on in a new transaction."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Wake the workers of these queues once the work is committed."""

    queues: frozenset[str]


Step = Statement | Batch | Copy | Begin | Commit | Ring
Steps = Generator[Step, Rows, T]


@dataclass(frozen=True, slots=True)
class Op(Generic[T]):
    """One call of a verb, not yet run.

    `start` begins it anew each time, so that a transaction that lost a race can be run again;
    `repeat` is for when the database may or may not have done it already, None where that is not
    safe. `looks_first`: so many of its first statements change nothing, though they are not in a
    transaction: an op that is lost there can be begun anew all the same.

    What a `Commit` has made stand is not begun anew: work of several transactions keeps its count
    and its place beside its steps, and moves them once that was answered. A commit whose answer was
    lost is not counted. So an op is run once.

    `on_refused` is called when the database refuses it, for example by a constraint of a user's
    own. If it returns, the op is begun anew; it raises the error otherwise.
    """

    name: str
    writes: bool
    start: Callable[[], Steps[T]]
    repeat: Callable[[], Steps[T]] | None = None
    looks_first: int = 0
    on_refused: Callable[[StoreRefused], None] | None = None


def reading(name: str, start: Callable[[], Steps[T]]) -> Op[T]:
    """An op that changes nothing: it can always be asked again."""
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
