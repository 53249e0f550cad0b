"""Numbered SQL files per dialect, checksummed, applied once and in order.

Migrations with the same number do the same on both stores. A file that was applied is never
changed afterwards: its checksum is stored and compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rowlock.errors import MigrationNeeded
from rowlock.store.text import Dialect, in_schema

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")

_TABLE = """\
CREATE TABLE IF NOT EXISTS rowlock.migration (
    number integer NOT NULL PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL
)"""

Applied = dict[int, str]

# Taken on PostgreSQL while migrating, so that of many that start at once one does it.
LOCK = 0x726F776C6F636B


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema's history."""

    number: int
    name: str
    sql: str
    checksum: str


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """All migrations of a dialect, in order, without gaps."""
    found: list[Migration] = []
    for file in files(__package__).joinpath("migrations", dialect).iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            sql = file.read_text(encoding="utf-8")
            checksum = hashlib.sha256(sql.encode()).hexdigest()
            found.append(Migration(int(match.group(1)), match.group(2), sql, checksum))
    found.sort(key=lambda migration: migration.number)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    return tuple(found)


def pending(dialect: Dialect, applied: Applied) -> tuple[Migration, ...]:
    """What is still to be applied; refuses a schema that this version can't work on."""
    known = migrations(dialect)
    newest = max(applied, default=0)
    if newest > len(known):
        raise MigrationNeeded(
            f"the schema is at {newest}, this rowlock knows only {len(known)}: "
            "it was migrated by a newer version; upgrade rowlock here as well"
        )
    for migration in known[:newest]:
        if applied.get(migration.number) != migration.checksum:
            raise MigrationNeeded(
                f"migration {migration.number:04} ({migration.name}) was applied with other "
                "content than this version's; the schema was made by something else than a "
                "released rowlock: restore it from a backup, or start with an empty one"
            )
    return known[newest:]


def check(dialect: Dialect, applied: Applied) -> None:
    """Raise `MigrationNeeded` unless the schema is just right."""
    missing = pending(dialect, applied)
    if missing:
        state = "has no rowlock tables yet" if not applied else f"is at {max(applied)}"
        raise MigrationNeeded(
            f"the database {state}, this version needs {missing[-1].number}: "
            "run `rowlock migrate` (or app.migrate()) once, with a role that may create tables"
        )


def script(migration: Migration, *, dialect: Dialect, schema: str) -> str:
    """A migration's SQL for a schema."""
    sql = in_schema(migration.sql, dialect=dialect, schema=schema)
    if dialect is Dialect.SQLITE and schema != "rowlock":
        return sql.replace("INDEX rowlock_", f"INDEX {schema}_")
    return sql


def table(*, dialect: Dialect, schema: str, has_schema: bool = False) -> str:
    """The SQL that makes the schema and the table of what was applied.

    `has_schema`: the schema is there. To say IF NOT EXISTS takes the right to make one even so.
    """
    if dialect is Dialect.SQLITE:
        return f"{_TABLE.replace('rowlock.migration', f'{schema}_migration')};"
    made = "" if has_schema else f"CREATE SCHEMA IF NOT EXISTS {schema};\n"
    return f"{made}{_TABLE.replace('rowlock', schema)};"


def by_hand(missing: Sequence[Migration], *, dialect: Dialect, schema: str) -> str:
    """A script that does what `migrate` would do, for those who run SQL themselves."""
    if not missing:
        return "-- Nothing is missing."
    scripts = [table(dialect=dialect, schema=schema, has_schema=missing[0].number > 1)]
    records = f"{schema}_migration" if dialect is Dialect.SQLITE else f"{schema}.migration"
    for migration in missing:
        scripts.append(script(migration, dialect=dialect, schema=schema))
        values = f"{migration.number}, '{migration.name}', '{migration.checksum}'"
        scripts.append(f"INSERT INTO {records} (number, name, checksum) VALUES ({values});")  # noqa: S608  # all of it is ours
    return "BEGIN;\n\n" + "\n".join(scripts) + "\n\nCOMMIT;"


def statements(sql: str) -> Sequence[str]:
    """The single statements of a script, without comments."""
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]
