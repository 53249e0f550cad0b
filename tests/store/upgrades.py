"""Migrations of releases to come, for tests: what they say of themselves, and who applies them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rowlock.store import Store, open_store
from rowlock.store import migrate as migrations
from rowlock.store.migrate import Migration
from rowlock.store.statements import Dialect

NEWEST = len(migrations.migrations(Dialect.SQLITE))
ADDS = "ALTER TABLE rowlock.job ADD COLUMN later text;"
# Nothing of ours fails on it: only what it says of itself can tell.
APART = "CREATE TABLE rowlock.apart (number integer);"
DROPS = "ALTER TABLE rowlock.worker DROP COLUMN vitals;"


def compatible(sql: str, *, with_code_of: int = NEWEST) -> str:
    """A migration that code works on which knows no more than this one."""
    return f"-- What the next release adds.\n-- needs {with_code_of:04}\n{sql}"


@contextmanager
def release(*later: str) -> Iterator[None]:
    """The release after this one: in the block, its migrations are known here."""
    known = {dialect: migrations.migrations(dialect) for dialect in Dialect}

    def all_of(dialect: Dialect) -> tuple[Migration, ...]:
        made = [
            _made(sql, number=NEWEST + 1 + place, dialect=dialect)
            for place, sql in enumerate(later)
        ]
        return (*known[dialect], *made)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rowlock.store.migrate.migrations", all_of)
        yield


def _made(sql: str, *, number: int, dialect: Dialect) -> Migration:
    text = sql.replace("rowlock.", "rowlock_") if dialect is Dialect.SQLITE else sql
    return Migration(number, "later", text, hashlib.sha256(text.encode()).hexdigest())


def migrate_by(url: str, *later: str) -> list[int]:
    """Have a release with these migrations migrate a database; what it applied."""
    with release(*later):
        store = open_store(url)
        try:
            return store.migrate()
        finally:
            store.close()


def opened(url: str) -> Store:
    """A store of this release, which has looked at the database."""
    store = open_store(url)
    store.stats()
    return store
