"""Numbered SQL files per dialect, checksummed, applied once and in order.

Migrations with the same number do the same on both stores. A file that was applied is never
changed afterwards: its checksum is stored and compared.

Which code works on which schema:

1. Code needs every migration that it knows: an older schema is refused.
2. Code does not need to know a newer migration that says so, by a line `-- needs 0008`: code that
   knows 0008 works on it. That is for migrations that only add. Without the line, code must know
   the migration itself.
3. This number is stored with the migration, so that code that is older than the file can read it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import msgspec

from rowlock.errors import MigrationNeeded, UnsupportedStore
from rowlock.store.statements import Dialect, in_schema

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_NEEDS = re.compile(r"^-- needs (\d{4})$", re.MULTILINE)
_CREATED = re.compile(r"^CREATE (?:UNLOGGED )?(TABLE|SEQUENCE) ([\w.]+)", re.MULTILINE)
_FILLED = re.compile(r"^INSERT INTO ([\w.]+)", re.MULTILINE)

_TABLE = """\
CREATE TABLE IF NOT EXISTS rowlock.migration (
    number integer NOT NULL PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    needs integer
)"""

Applied = dict[int, str]

# Taken on PostgreSQL while migrating: if many processes start at once, one migrates.
LOCK = 0x726F776C6F636B


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema's history."""

    number: int
    name: str
    sql: str
    checksum: str

    @property
    def needs(self) -> int:
        """The newest migration that code must know to work on a schema with this one."""
        said = _NEEDS.search(self.sql)
        return int(said.group(1)) if said else self.number


@cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """All migrations of a dialect, in order, without gaps."""
    found: list[Migration] = []
    for file in (Path(__file__).with_name("migrations") / dialect).iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            sql = file.read_text(encoding="utf-8")
            checksum = hashlib.sha256(sql.encode()).hexdigest()
            found.append(Migration(int(match.group(1)), match.group(2), sql, checksum))
    found.sort(key=lambda migration: migration.number)
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    return tuple(found)


def is_ahead(dialect: Dialect, applied: Applied) -> bool:
    """Whether a schema has migrations that this version does not know."""
    return max(applied, default=0) > len(migrations(dialect))


def without(applied: Applied, dialect: Dialect, unfit: Collection[int]) -> Applied:
    """The applied migrations, without those unknown ones that this version need not know."""
    known = len(migrations(dialect))
    return {
        number: checksum
        for number, checksum in applied.items()
        if number <= known or number in unfit
    }


def pending(dialect: Dialect, applied: Applied) -> tuple[Migration, ...]:
    """The missing migrations. Refuses a schema that this version can't work on."""
    known = migrations(dialect)
    newest = max(applied, default=0)
    if newest > len(known):
        raise too_new(newest, len(known))
    for migration in known[:newest]:
        if applied.get(migration.number) != migration.checksum:
            raise MigrationNeeded(
                f"migration {migration.number:04} ({migration.name}) was applied with different "
                "content from this version's; the schema was not made by a released version of "
                "rowlock",
                "restore it from a backup, or start with an empty one",
                is_behind=False,
            )
    return known[newest:]


def too_new(newest: int, known: int) -> MigrationNeeded:
    """The error for a schema with a change that this version would have to know."""
    return MigrationNeeded(
        f"the schema is at {newest}, but this rowlock knows only {known} and can't work on it",
        "it was migrated by a newer version; upgrade rowlock here as well",
        is_behind=False,
    )


def check(dialect: Dialect, applied: Applied) -> None:
    """Raise `MigrationNeeded` unless the schema fits this version."""
    missing = pending(dialect, applied)
    if missing:
        state = "has no rowlock tables yet" if not applied else f"is at {max(applied)}"
        raise MigrationNeeded(
            f"the database {state}, but this version needs {missing[-1].number}",
            "run `rowlock migrate` (or app.migrate()) once, with a role that may create tables",
            is_behind=True,
        )


def check_encoding(encoding: str | None, *, shown: str = "PostgreSQL") -> None:
    """Refuse a database that can't hold every text. `None`: a pooler does not report it.

    LATIN1 refuses most of the world's letters, one job at a time. SQL_ASCII accepts any bytes, and
    returns some that no reader can decode.
    """
    if encoding not in (None, "UTF8"):
        raise UnsupportedStore(
            f"{shown}: the database is encoded in {encoding}, and rowlock needs UTF8. Create "
            "another database for it: CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8'"
        )


def script(migration: Migration, *, dialect: Dialect, schema: str) -> str:
    """A migration's SQL for a schema."""
    sql = in_schema(migration.sql, dialect=dialect, schema=schema)
    if dialect is Dialect.SQLITE and schema != "rowlock":
        return sql.replace("INDEX rowlock_", f"INDEX {schema}_")
    return sql


def created(*, dialect: Dialect, schema: str) -> list[tuple[str, str]]:
    """The tables and sequences of all migrations, each with its sort, in the order of creation."""
    scripts = [script(each, dialect=dialect, schema=schema) for each in migrations(dialect)]
    return [found for text in scripts for found in _CREATED.findall(text)]


def emptied(*, dialect: Dialect, schema: str) -> list[str]:
    """The tables that hold what users and workers wrote, those that refer to others first.

    Left out are tables whose rows a migration wrote: nothing would write them again.
    """
    scripts = [script(each, dialect=dialect, schema=schema) for each in migrations(dialect)]
    filled = {name for text in scripts for name in _FILLED.findall(text)}
    found = created(dialect=dialect, schema=schema)
    return [name for sort, name in reversed(found) if sort == "TABLE" and name not in filled]


def table(*, dialect: Dialect, schema: str, has_schema: bool = False) -> str:
    """The SQL that creates the schema and the table of applied migrations.

    `has_schema`: the schema exists. IF NOT EXISTS would still need the right to create one.
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
    records = _records(dialect, schema)
    for migration in missing:
        scripts.append(script(migration, dialect=dialect, schema=schema))
        values = f"{migration.number}, '{migration.name}', '{migration.checksum}'"
        scripts.append(f"INSERT INTO {records} (number, name, checksum) VALUES ({values});")  # noqa: S608  # all of it is ours
        scripts += [f"{word};" for word in words(migration, dialect=dialect, schema=schema)]
    return "BEGIN;\n\n" + "\n".join(scripts) + "\n\nCOMMIT;"


def words(migration: Migration, *, dialect: Dialect, schema: str) -> list[str]:
    """The statements that store what code must know, once the migration is recorded."""
    if migration.needs == migration.number:
        return []
    where = f"WHERE number = {migration.number}"
    return [f"UPDATE {_records(dialect, schema)} SET needs = {migration.needs} {where}"]  # noqa: S608  # all of it is ours


def _records(dialect: Dialect, schema: str) -> str:
    return f"{schema}_migration" if dialect is Dialect.SQLITE else f"{schema}.migration"


def statements(sql: str) -> Sequence[str]:
    """The statements of a script, one by one, without comments."""
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


def roles(schema: str) -> str:
    """The SQL of the roles migrator, worker, producer and reader, and their rights."""
    return _read("roles.sql", schema)


def row_security(schema: str) -> str:
    """The SQL of policies that bind producers and readers to their session's tenant.

    Run it after `roles`.
    """
    return _read("row_security.sql", schema)


def _read(name: str, schema: str) -> str:
    text = (Path(__file__).with_name("grants") / name).read_text(encoding="utf-8")
    return text.replace("{schema}", schema).rstrip()
