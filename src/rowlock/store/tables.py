"""The tables that a move takes from one database to another: their columns and their keys.

Statements for any of them are named with it, as in `move_put/finished`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rowlock import columns


@dataclass(frozen=True, slots=True)
class Table:
    """All columns, in any order; the key is one value, of a type that PostgreSQL knows.

    `first` is below any key.
    """

    columns: tuple[str, ...]
    key: str
    key_type: str = "uuid"

    @property
    def first(self) -> str:
        return "" if self.key_type == "text" else "00000000-0000-0000-0000-000000000000"

    def macros(self, name: str) -> dict[str, str]:
        """What stands for `{columns}` and its like in the statements of this table."""
        return {
            "table": name,
            "columns": ", ".join(self.columns),
            "key": self.key,
            "own_key": self.key.replace("moved.", ""),
            "key_type": self.key_type,
            "object": _object(self.columns, "moved."),
            "own_object": _object(self.columns, ""),
            "fields": ", ".join(f"json_extract(value, '$.{each}')" for each in self.columns),
        }


def _object(columns: tuple[str, ...], prefix: str) -> str:
    """A row as JSON, in SQLite's words."""
    return "json_object(" + ", ".join(f"'{each}', {prefix}{each}" for each in columns) + ")"


def _names(listed: str) -> tuple[str, ...]:
    return tuple(listed.split())


TABLES: Final[Mapping[str, Table]] = {
    "job": Table(columns.columns_of(columns.Table.LIVE), "moved.id"),
    "finished": Table(columns.columns_of(columns.Table.FINISHED), "moved.id"),
    # Read and removed by the job they are of.
    "log": Table(_names("job_id line at text"), "moved.job_id"),
    "key_hold": Table(
        _names("holder until key_until token lease_taken state kind queue tenant key"),
        "moved.holder",
    ),
    "schedule": Table(
        _names(
            """name next_at last_at last_job_id key_hold max_attempts rank is_paused source missed
            cron timezone kind queue tenant key payload policy tags meta"""
        ),
        "moved.name",
        "text",
    ),
    "queue": Table(_names("name is_paused by_age"), "moved.name", "text"),
    "token": Table(
        _names("id created_at expires_at revoked_at digest name scopes tenant"),
        "moved.id",
        "text",
    ),
    "audit": Table(_names("id at token_id actor tenant action target detail"), "moved.id"),
    "history": Table(
        _names("part at width queue kind sums"),
        "moved.part || '/' || moved.queue || '/' || moved.kind",
        "text",
    ),
}
