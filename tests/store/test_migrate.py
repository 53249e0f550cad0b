"""The schema is the one in the snapshots, made once by whoever comes first, or refused."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from rowlock.columns import POSTGRES_COLUMNS
from rowlock.errors import MigrationNeeded, OptionInvalid
from rowlock.store import open_store
from rowlock.store.migrate import migrations, pending
from rowlock.store.statements import Dialect
from tests.store.jobs import UNKNOWN_ID, claim_one, enqueue, state_of
from tests.store.migrating import migrate_in_a_process
from tests.store.schema import SNAPSHOTS, dump_postgres, dump_sqlite
from tests.support.processes import FRESH

PROCESSES = 8
Change = Callable[[str], None]


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def dump(url: str, *, schema: str = "rowlock") -> str:
    if url.startswith("sqlite"):
        return dump_sqlite(path_of(url), schema=schema)
    return dump_postgres(url, schema=schema)


def snapshot(url: str) -> str:
    name = "sqlite" if url.startswith("sqlite") else "postgres"
    return (SNAPSHOTS / f"schema.{name}.sql").read_text("utf-8")


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database that nobody has migrated."""
    name = {"sqlite": "sqlite_url", "postgres": "empty_postgres_url"}[request.param]
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def change(any_url: str) -> Change:
    """Change the migrated database behind our back, by SQL for the table `migration`."""
    opened = open_store(any_url)
    opened.get(UNKNOWN_ID)
    opened.close()

    def run(sql: str) -> None:
        if any_url.startswith("sqlite"):
            with closing(sqlite3.connect(path_of(any_url))) as connection, connection:
                connection.execute(sql.format("rowlock_migration"))
            return
        with psycopg.connect(any_url, autocommit=True) as connection:
            connection.execute(sql.format("rowlock.migration").encode())

    return run


def test_a_fresh_schema_is_the_snapshot(empty_url: str):
    """What the migrations make is what the snapshot shows; migrating again changes nothing.

    After a new migration: `python -m tests.store.schema`, and look at the difference.
    """
    store = open_store(empty_url)
    first = store.migrate()
    again = store.migrate()
    store.close()

    assert (first, again) == (list(range(1, len(first) + 1)), [])
    assert snapshot(empty_url) == dump(empty_url)


def test_step_by_step_is_the_snapshot(empty_url: str, monkeypatch: pytest.MonkeyPatch):
    """A schema that grew with every release is the same as a fresh one."""
    dialect = Dialect.SQLITE if empty_url.startswith("sqlite") else Dialect.POSTGRES
    known = migrations(dialect)
    for newest in range(1, len(known) + 1):
        monkeypatch.setattr(
            "rowlock.store.migrate.migrations", lambda _, newest=newest: known[:newest]
        )
        store = open_store(empty_url)
        assert store.migrate() == [newest]
        store.close()

    assert snapshot(empty_url) == dump(empty_url)


def test_both_dialects_have_the_same_migrations():
    """Migrations with the same number have the same name, so that both stores keep pace."""
    sqlite, postgres = (
        [(migration.number, migration.name) for migration in migrations(dialect)]
        for dialect in Dialect
    )

    assert sqlite == postgres


def test_both_snapshots_have_the_same_tables():
    """A table or column of one store is one of the other, in the same order.

    But for the notes of claims and what PostgreSQL's indexes need.
    """

    def columns(dialect: Dialect) -> list[str]:
        text = (SNAPSHOTS / f"schema.{dialect}.sql").read_text("utf-8")
        text = re.sub(r"^TABLE claim .*?^\)", "", text, flags=re.MULTILINE | re.DOTALL)
        prefix = "rowlock_" if dialect is Dialect.SQLITE else ""
        return [
            line.split()[0] if line.startswith(" ") else line.split()[1].removeprefix(prefix)
            for line in text.splitlines()
            if line.startswith((" ", "TABLE")) and line.split()[0] not in POSTGRES_COLUMNS
        ]

    assert columns(Dialect.POSTGRES) == columns(Dialect.SQLITE)


def test_another_schema(empty_url: str):
    """Two schemas in one database are two queues, each with all its tables and indexes."""
    ours, other = open_store(empty_url), open_store(empty_url, schema="other")
    for store in (ours, other):
        store.migrate()
    job = enqueue(other, key="k")

    assert None is state_of(ours, job.id)
    assert enqueue(ours, key="k").created
    other.succeed([claim_one(other)])
    assert state_of(other, job.id) == "succeeded"
    for store in (ours, other):
        store.close()
    expected = snapshot(empty_url).replace("rowlock.", "other.").replace("rowlock_", "other_")
    assert dump(empty_url, schema="other") == expected


@pytest.mark.parametrize("schema", ["", "Rowlock", "a b", "a;b", "1a", "a" * 41, 'x"y', "ü"])
def test_a_schema_needs_a_plain_name(sqlite_url: str, schema: str):
    """A schema's name is part of the SQL, so only harmless ones are taken."""
    with pytest.raises(OptionInvalid, match="schema"):
        open_store(sqlite_url, schema=schema)


def test_many_processes_at_once(empty_url: str):
    """Of processes that migrate the same database at once one does it, and all can work."""
    gate, done = FRESH.Barrier(PROCESSES), FRESH.Queue()
    processes = [
        FRESH.Process(target=migrate_in_a_process, args=(empty_url, gate, done))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    applied = [done.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(30)

    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert sum(numbers != [] for numbers in applied) == 1
    assert snapshot(empty_url) == dump(empty_url)


def test_postgres_is_migrated_only_when_told_to(empty_postgres_url: str):
    """A verb on a database without our tables names the command that makes them."""
    store = open_store(empty_postgres_url)
    with pytest.raises(MigrationNeeded, match="rowlock migrate") as caught:
        store.get(UNKNOWN_ID)
    store.migrate()

    assert caught.value.code == "migration_needed"
    assert None is store.get(UNKNOWN_ID)
    store.close()


def test_a_sqlite_file_is_migrated_when_opened(sqlite_url: str):
    """The first verb on a new file makes the tables."""
    store = open_store(sqlite_url)

    assert None is store.get(UNKNOWN_ID)
    assert store.migrate() == []
    store.close()


@pytest.mark.owner("changes what was migrated")
@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("INSERT INTO {} (number, name, checksum) VALUES (9999, 'later', 'x')", "newer version"),
        ("UPDATE {} SET checksum = 'other' WHERE number = 1", "different content"),
    ],
)
def test_a_schema_of_another_making_is_refused(
    any_url: str, change: Change, sql: str, problem: str
):
    """A schema that this version does not know is neither used nor changed."""
    change(sql)
    before = dump(any_url)
    for act in (lambda store: store.get(UNKNOWN_ID), lambda store: store.migrate()):
        store = open_store(any_url)
        with pytest.raises(MigrationNeeded, match=problem):
            act(store)
        store.close()

    assert before == dump(any_url)


@pytest.mark.owner("changes what was migrated")
def test_a_schema_that_is_behind_is_refused(postgres_url: str):
    """A database at an older migration names where it is and what is needed."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DELETE FROM rowlock.migration")
    store = open_store(postgres_url)
    with pytest.raises(MigrationNeeded, match="rowlock migrate"):
        store.get(UNKNOWN_ID)
    store.close()


def test_what_is_pending():
    """All migrations are missing from nothing, none from a schema that is up to date."""
    known = migrations(Dialect.SQLITE)
    applied = {migration.number: migration.checksum for migration in known}

    assert known == pending(Dialect.SQLITE, {})
    assert pending(Dialect.SQLITE, applied) == ()
