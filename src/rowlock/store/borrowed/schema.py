"""Our schema on a connection of Django's: created, inspected, emptied, and dropped.

All of it happens in the open transaction, which the caller commits.
"""

from __future__ import annotations

from rowlock.store import migrate as migrations
from rowlock.store.borrowed.connection import Borrowed
from rowlock.store.statements import Dialect, ParameterStyle, compiled, in_schema
from rowlock.store.steps import Rows


class BorrowedSchema:
    """The tables of one schema, as a connection in Django's style of parameters sees them."""

    def __init__(self, borrowed: Borrowed[Rows], *, schema: str) -> None:
        assert borrowed.style is ParameterStyle.PYFORMAT
        self._execute = borrowed.execute
        self._dialect = borrowed.dialect
        self._schema = schema
        is_sqlite = self._dialect is Dialect.SQLITE
        written = "rowlock_migration" if is_sqlite else "rowlock.migration"
        self._records = in_schema(written, dialect=self._dialect, schema=schema)

    def applied(self) -> migrations.Applied:
        """The applied migrations. Empty if it was never migrated."""
        found = "SELECT 1 WHERE to_regclass(%(table)s) IS NOT NULL"
        if self._dialect is Dialect.SQLITE:
            found = "SELECT 1 FROM sqlite_master WHERE name = %(table)s"
        if not self._execute(found, {"table": self._records}):
            return {}
        rows = self._execute(f"SELECT number, checksum FROM {self._records}", None)  # noqa: S608  # the schema is checked
        applied: migrations.Applied = dict(rows)
        if not migrations.is_ahead(self._dialect, applied):
            return applied
        unfit = compiled("unfit_migrations", self._dialect, self._schema, ParameterStyle.PYFORMAT)
        known = {"known": len(migrations.migrations(self._dialect))}
        numbers = [number for (number,) in self._execute(unfit.parts[0], known)]
        return migrations.without(applied, self._dialect, numbers)

    def migrate(self, *, newest: int | None = None) -> list[int]:
        """Apply missing migrations, up to a number. Return the numbers of those applied."""
        if self._dialect is Dialect.POSTGRES:
            ((encoding,),) = self._execute("SHOW server_encoding", None)
            migrations.check_encoding(encoding)
            # As `rowlock migrate` does: if many start at once, one does it.
            self._execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": migrations.LOCK})
        missing = [
            migration
            for migration in migrations.pending(self._dialect, self.applied())
            if newest is None or migration.number <= newest
        ]
        if missing:
            self._run_script(
                migrations.table(
                    dialect=self._dialect, schema=self._schema, has_schema=self._has_schema()
                )
            )
        for migration in missing:
            self._run_script(
                migrations.script(migration, dialect=self._dialect, schema=self._schema)
            )
            self._execute(
                f"INSERT INTO {self._records} (number, name, checksum) "  # noqa: S608  # the schema is checked
                "VALUES (%(number)s, %(name)s, %(checksum)s)",
                {
                    "number": migration.number,
                    "name": migration.name,
                    "checksum": migration.checksum,
                },
            )
            for word in migrations.words(migration, dialect=self._dialect, schema=self._schema):
                self._execute(word, None)
        return [migration.number for migration in missing]

    def empty(self) -> None:
        """Delete all jobs, and all else that users and workers wrote. The tables stay."""
        for name in migrations.emptied(dialect=self._dialect, schema=self._schema):
            self._execute(f"DELETE FROM {name}", None)  # noqa: S608  # the schema is checked

    def drop(self) -> None:
        """Drop every table, and with them all jobs."""
        # Only our own, one by one: on SQLite anyone's table may begin with the same letters, and on
        # PostgreSQL all tables of a user with the schema's name are created in it by default.
        found = migrations.created(dialect=self._dialect, schema=self._schema)
        for sort, name in reversed(found):
            self._execute(f"DROP {sort} IF EXISTS {name}", None)
        self._execute(f"DROP TABLE IF EXISTS {self._records}", None)
        if self._dialect is Dialect.POSTGRES and self._is_empty():
            self._execute(f"DROP SCHEMA IF EXISTS {self._schema}", None)

    def _is_empty(self) -> bool:
        inside = "SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s)"
        return not self._execute(f"{inside} LIMIT 1", {"schema": self._schema})

    def _has_schema(self) -> bool:
        if self._dialect is Dialect.SQLITE:
            return True
        asked = {"schema": self._schema}
        rows = self._execute("SELECT to_regnamespace(%(schema)s) IS NOT NULL", asked)
        return bool(rows[0][0])

    def _run_script(self, script: str) -> None:
        for statement in migrations.statements(script):
            self._execute(statement, None)
