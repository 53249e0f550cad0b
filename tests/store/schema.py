"""The schema of a database as text, read from its catalogs: tables, columns, types, indexes.

`python -m tests.store.schema` writes the snapshots anew after a migration was added; their
difference then shows what the migration does.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psycopg

from rowlock.store import open_store
from rowlock.testing import ThrowAwayPostgres

SNAPSHOTS = Path(__file__).resolve().parents[1] / "snapshots"

POSTGRES_COLUMNS = """
SELECT pg_class.relname, attname, format_type(atttypid, atttypmod),
    CASE WHEN attcollation <> 0 AND collname <> 'default' THEN ' COLLATE ' || quote_ident(collname)
        ELSE '' END,
    CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END,
    coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), ''),
    coalesce(array_to_string(reloptions, ', '), '')
FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    LEFT JOIN pg_collation ON pg_collation.oid = attcollation
WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
ORDER BY pg_class.relname, attnum
"""
POSTGRES_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s ORDER BY indexname"
SQLITE_OBJECTS = """
SELECT type, name, tbl_name, sql
FROM sqlite_schema
WHERE tbl_name LIKE ? ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
ORDER BY name
"""


def dump_postgres(url: str, *, schema: str = "rowlock") -> str:
    """The schema of a PostgreSQL database."""
    with psycopg.connect(url) as connection:
        # Names are written in full, whoever asks.
        connection.execute("SET search_path = pg_catalog")
        columns = connection.execute(POSTGRES_COLUMNS, [schema]).fetchall()
        indexes = connection.execute(POSTGRES_INDEXES, [schema]).fetchall()
    tables: dict[tuple[str, str], list[str]] = {}
    for table, column, kind, collation, null, default, options in columns:
        line = f"{column} {kind}{collation}{null}{default}"
        tables.setdefault((table, options), []).append(line)
    lines = [
        _table(table, members, f" WITH ({options})" if options else "")
        for (table, options), members in tables.items()
    ]
    return "\n".join([*lines, *(" ".join(row[0].split()) + ";" for row in indexes)]) + "\n"


def dump_sqlite(path: Path, *, schema: str = "rowlock") -> str:
    """The schema of a SQLite file."""
    connection = sqlite3.connect(path)
    try:
        objects = connection.execute(SQLITE_OBJECTS, [f"{schema}\\_%"]).fetchall()
        tables = [name for kind, name, _, _ in objects if kind == "table"]
        lines = [_table(table, _sqlite_columns(connection, table)) for table in tables]
    finally:
        connection.close()
    indexes = [" ".join(sql.split()) + ";" for kind, _, _, sql in objects if kind == "index"]
    return "\n".join([*lines, *indexes]) + "\n"


def _sqlite_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [
        # Some versions of SQLite spell the types of columns in capitals.
        f"{name} {kind.lower()}"
        + (" NOT NULL" if is_set else "")
        + (f" DEFAULT {default}" if default is not None else "")
        + (f" PRIMARY KEY {place}" if place else "")
        for _, name, kind, is_set, default, place in connection.execute(
            "SELECT * FROM pragma_table_info(?)", [table]
        )
    ]


def _table(name: str, columns: Iterable[str], options: str = "") -> str:
    body = "".join(f"    {column}\n" for column in columns)
    return f"TABLE {name}{options} (\n{body});\n"


def main() -> None:
    """Write both snapshots anew."""
    SNAPSHOTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rowlock.db"
        _migrate(f"sqlite:///{path}")
        (SNAPSHOTS / "schema.sqlite.sql").write_text(dump_sqlite(path), encoding="utf-8")
    with ThrowAwayPostgres() as server:
        _migrate(server.url)
        (SNAPSHOTS / "schema.postgres.sql").write_text(dump_postgres(server.url), encoding="utf-8")


def _migrate(url: str) -> None:
    store = open_store(url)
    try:
        store.migrate()
    finally:
        store.close()


if __name__ == "__main__":
    main()
