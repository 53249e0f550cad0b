"""The columns of a job, declared once.

`JobRow` is a job as every statement returns it. The annotation of a field says what its column is:
its type, which tables have it, whether an enqueue gives it, whether a retry keeps it, whether it is
too large for a list. The records, the SQL column lists, the inserts and the move's tables are
derived from it, and a test compares it with both schemas.

To add a column: add a field here, write the migration of both dialects, and take the value where it
comes from (`NewJob`, for one that an enqueue gives) and to where it is shown (`Job`).
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

from rowlock import config

# One error with its type, message and traceback has fewer.
_ERROR_CHARACTERS: Final = 4 * config.ERROR_BYTES_MAX


class JobTable(Enum):
    """The tables of jobs that have a column."""

    LIVE = "live"
    FINISHED = "finished"
    BOTH = "both"


class Column(NamedTuple):
    """One column: its type in PostgreSQL, and what happens to its value."""

    type: str
    table: JobTable = JobTable.BOTH
    is_given: bool = False
    """An enqueue sets it, from a field of `NewJob`."""
    is_kept: bool = False
    """A retry of a finished job keeps it. It also keeps all that an enqueue set."""
    is_large: bool = False
    """It may have up to a mebibyte, so lists and locks leave it out."""
    absent: str | None = None
    """The expression for it where the other table has it."""


def _given(type: str, *, is_large: bool = False) -> Column:
    return Column(type, is_given=True, is_large=is_large)


class JobRow(NamedTuple):
    """A job as every statement returns it, live or finished, in this order of columns."""

    id: Annotated[str, _given("uuid")]
    kind: Annotated[str, _given("text")]
    queue: Annotated[str, _given("text")]
    rank: Annotated[int, _given("smallint")]
    tenant: Annotated[str | None, _given("text")]
    key: Annotated[str | None, _given("text")]
    key_hold: Annotated[int | None, _given("bigint")]
    payload: Annotated[str, _given("text", is_large=True)]
    max_attempts: Annotated[int | None, _given("integer")]
    tags: Annotated[str | None, _given("text")]
    meta: Annotated[str | None, _given("text", is_large=True)]
    policy: Annotated[str | None, _given("text")]
    run_at: Annotated[int, Column("bigint")]
    created_at: Annotated[int, Column("bigint", is_kept=True)]
    attempt: Annotated[int, Column("integer")] = 0
    started_at: Annotated[int | None, Column("bigint")] = None
    lease_expires_at: Annotated[int | None, Column("bigint", JobTable.LIVE)] = None
    worker: Annotated[str | None, Column("text")] = None
    token: Annotated[int, Column("bigint", is_kept=True)] = 0
    crashes: Annotated[int, Column("integer")] = 0
    cancel_requested: Annotated[bool, Column("boolean")] = False
    errors: Annotated[str | None, Column("text", is_kept=True, is_large=True)] = None
    progress: Annotated[str | None, Column("text")] = None
    begun: Annotated[bool, Column("boolean", JobTable.LIVE, absent="false")] = False
    losses: Annotated[int, Column("smallint", JobTable.LIVE, absent="0")] = 0
    interruptions: Annotated[int, Column("smallint", JobTable.LIVE, absent="0")] = 0
    quarantined: Annotated[bool, Column("boolean", JobTable.LIVE, absent="false")] = False
    state: Annotated[str | None, Column("text", JobTable.FINISHED)] = None
    finished_at: Annotated[int | None, Column("bigint", JobTable.FINISHED)] = None
    result: Annotated[str | None, Column("text", JobTable.FINISHED, is_large=True)] = None
    limit_name: Annotated[str | None, Column("text", is_kept=True)] = None
    limit_key: Annotated[str | None, Column("text", is_kept=True)] = None
    place: Annotated[int | None, Column("bigint", is_kept=True)] = None
    workflow: Annotated[str | None, Column("uuid", is_kept=True)] = None
    pending: Annotated[int | None, Column("integer", JobTable.LIVE)] = None
    inputs: Annotated[str | None, Column("text", is_kept=True)] = None
    stack: Annotated[int | None, Column("bigint", is_kept=True)] = None


def _declared(record: type) -> dict[str, Column]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


_OF_ROWS: Final[Mapping[str, Column]] = _declared(JobRow)
# Columns that only SQL reads.
COLUMNS: Final[Mapping[str, Column]] = {
    **_OF_ROWS,
    "log_lines": Column("integer", is_kept=True),
    "lease_taken": Column("boolean", is_kept=True),
    "beat_at": Column("bigint", JobTable.LIVE),
    "held_by": Column("smallint", JobTable.LIVE),
    "watched": Column("boolean", is_kept=True),
    "cause": Column("smallint", JobTable.FINISHED),
    "expires_at": Column("bigint", JobTable.FINISHED),
    "fingerprint": Column("text", JobTable.FINISHED),
}

POSTGRES_COLUMNS: Final[Mapping[str, Column]] = {
    "indexed_lease": Column("bigint", JobTable.LIVE),
    "is_retry": Column("boolean", JobTable.LIVE),
    "turn": Column("bigint", JobTable.LIVE),
}
"""Columns that only the indexes of PostgreSQL need. A move derives them from others."""

OF_LIMITS: Final = ("limit_name", "limit_key", "place")
"""The columns that only jobs with a limit have. No such job is in a lane."""

OF_WORKFLOWS: Final = ("workflow", "pending", "inputs", "stack", "watched")
"""The columns that only jobs of workflows have. Statements for plain jobs leave them out."""

# Of a block of one lane: the columns that every job has, and those that its lane and its claim say.
BLOCK: Final = (
    "id",
    "payload",
    "max_attempts",
    "policy",
    "run_at",
    "created_at",
    "attempt",
    "token",
)
_OF_CLAIM: Final = ("kind", "queue", "rank", "started_at", "lease_expires_at", "worker", "begun")
# A job that can be claimed waits for no other.
_OF_WAITING: Final = ("pending",)
RARE: Final = tuple(
    name
    for name, column in _OF_ROWS.items()
    if column.table is not JobTable.FINISHED
    and name not in (*BLOCK, *_OF_CLAIM, *OF_LIMITS, *_OF_WAITING)
)
"""The columns that have a value in few jobs. A block has them as one JSON text, mostly NULL."""

GIVEN: Final = tuple(name for name, column in COLUMNS.items() if column.is_given)
"""The columns that a `NewJob` sets, besides its time."""

given_of: Final[attrgetter[tuple[Any, ...]]] = attrgetter(*GIVEN)
"""Reads the values of `GIVEN` from an object that has them."""


def columns_of(table: JobTable) -> tuple[str, ...]:
    """Return the columns of a table, including those that both have."""
    return tuple(name for name, it in COLUMNS.items() if it.table in (table, JobTable.BOTH))


def macros(*, is_postgres: bool) -> dict[str, str]:
    """Return the column lists that statements name, such as `{job}`. `{of}` is a table's alias."""
    shared = [name for name, column in COLUMNS.items() if column.table is JobTable.BOTH]
    plain = [name for name in shared if name not in OF_WORKFLOWS]
    kept = [name for name in shared if COLUMNS[name].is_kept or COLUMNS[name].is_given]
    # A retry may bring another payload.
    kept.remove("payload")
    # A job that is run again gets these from the first one, and an id, payload and meta of its own.
    again = [name for name in GIVEN if name not in ("id", "payload", "meta")]
    # A waiting job gets these from an enqueue that replaces it. Others say which job it is.
    replaced = [name for name in GIVEN if name not in ("id", "kind", "tenant", "key")]
    new = "fresh." if is_postgres else ":"
    casts = {name: f"::{COLUMNS[name].type}" if is_postgres else "" for name in COLUMNS}
    rows = _Rows(is_postgres=is_postgres)
    # The last error is at the end.
    end = "right({{}}, {})" if is_postgres else "substr({{}}, -{})"
    start = "left({{}}, {})" if is_postgres else "substr({{}}, 1, {})"
    listed = {
        "errors": end.format(_ERROR_CHARACTERS),
        "payload": start.format(config.PAYLOAD_PREVIEW_CHARACTERS),
    }
    return {
        "job": rows.of(JobTable.LIVE, "job."),
        "row": rows.of(JobTable.LIVE, ""),
        "finished": rows.of(JobTable.FINISHED, "finished."),
        "block": rows.of_block("job." if is_postgres else ""),
        "listed_job": rows.of(JobTable.LIVE, "job.", large=listed),
        "listed_finished": rows.of(JobTable.FINISHED, "finished.", large=listed),
        # Hundreds of jobs are locked at a time.
        "held": rows.of(JobTable.LIVE, "job.", large={"errors": "{}"}),
        "ended": rows.of(JobTable.FINISHED, "finished.", large={}),
        "shared": ", ".join(shared),
        "shared_job": _listed(f"job.{name}" for name in shared),
        "settled": _listed(_settled(name) for name in shared),
        "plain": ", ".join(plain),
        "plain_job": _listed(f"job.{name}" for name in plain),
        "plain_settled": _listed(_settled(name) for name in plain),
        "given": ", ".join(GIVEN),
        "given_values": _listed(f":{name}{casts[name]}" for name in GIVEN),
        "given_arrays": _listed(f":{name}{casts[name]}[]" for name in GIVEN),
        "fresh": _listed(f"fresh.{name}" for name in GIVEN),
        "replaced": _listed(f"{name} = {new}{name}" for name in replaced),
        "again": ", ".join(again),
        "again_of": _listed(f"finished.{name}" for name in again),
        "kept": ", ".join(kept),
        "kept_of": _listed(f"finished.{name}" for name in kept),
    }


def _settled(name: str) -> str:
    """Return the value of a shared column when a job is settled."""
    match name:
        case "crashes" | "errors":
            return f"coalesce(ending.{name}, job.{name}) AS {name}"
        case "lease_taken":
            return f"ending.taken AS {name}"
        case _:
            return f"job.{name}"


class _Rows(NamedTuple):
    """Lists of the columns of a `JobRow`."""

    is_postgres: bool

    def of(self, table: JobTable, prefix: str, *, large: Mapping[str, str] | None = None) -> str:
        """Return the columns of one table. Of large columns, only `large`, as it reads them."""
        return _listed(
            self._one(name, column, table, prefix, large) for name, column in _OF_ROWS.items()
        )

    def of_block(self, prefix: str) -> str:
        """Return the columns of a block: `BLOCK`, and a JSON text of `RARE`, if there are any.

        In a RETURNING of SQLite 3.40, `IS NOT NULL` is always true, so it is not used.
        """
        own = [self._one(name, _OF_ROWS[name], JobTable.LIVE, prefix, None) for name in BLOCK]
        rare = [f"{prefix}{name}" for name in RARE]
        plain = JobRow._field_defaults
        texts = _listed(
            f"{prefix}{name}{'::text' if self.is_postgres else ''}"
            for name in RARE
            if plain.get(name) is None
        )
        numbers = [
            f"{prefix}{name}{'::integer' if self.is_postgres else ''} <> 0"
            for name in RARE
            if plain.get(name) is not None
        ]
        has_rare = " OR ".join([f"coalesce({texts}, '') <> ''", *numbers])
        array = "json_build_array" if self.is_postgres else "json_array"
        cast = "::text" if self.is_postgres else ""
        return _listed([*own, f"CASE WHEN {has_rare} THEN {array}({_listed(rare)}){cast} END"])

    def _one(
        self,
        name: str,
        column: Column,
        table: JobTable,
        prefix: str,
        large: Mapping[str, str] | None,
    ) -> str:
        if column.table not in (table, JobTable.BOTH):
            return column.absent or self._null(column)
        if not column.is_large or large is None:
            is_uuid = self.is_postgres and column.type == "uuid"
            return f"{prefix}{name}{'::text' if is_uuid else ''}"
        if name in large:
            return large[name].format(f"{prefix}{name}")
        return "''" if name == "payload" else self._null(column)

    def _null(self, column: Column) -> str:
        return f"NULL::{column.type}" if self.is_postgres else "NULL"


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
