"""Every statement is written for both dialects, with the same parameters, and is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rowlock.store import statements
from rowlock.store.statements import TABLES, Dialect, ParameterStyle, compiled, source
from tests.house.source import PACKAGE

SQL = PACKAGE / "store" / "sql"
# The doorbell and the table of migrations are read in another way on SQLite; a file has no
# connections, processes, vacuum or other people's transactions to tell a doctor of, and no schemas,
# rights or common log to measure.
POSTGRES_ONLY = {
    "ring",
    "enqueue_one",
    "enqueue_one/limited",
    "migration_table",
    "applied",
    "health_backend",
    "health_connections",
    "health_dead_tuples",
    "health_oldest_transaction",
    "measure_durability",
    "measure_patience",
    "measure_wal",
    "scratch_hold",
    "scratch_rights",
    "scratch_schemas",
}
# SQLite notes no claims, and a writer needs no locks.
POSTGRES_VALUES = {"claim", "claims", "noted_min", "lock_class", "total_upto", "upto", "uptos"}
POSTGRES_VALUES |= {"old", "olds", "first_place", "asks"}
POSTGRES_VALUES |= {"floors_at", "floors_id", "floor_at", "floor_id"}
# How a caller's connection is recognised as one to our file; and only a file has a journal mode.
SQLITE_ONLY = {"attached", "recognise", "health_journal"}


def names_of(dialect: Dialect) -> set[str]:
    """All statements, those with variants under the name of each."""
    names: set[str] = set()
    for name, text in statements._texts(dialect).items():
        variants = {*TABLES} if "{table}" in text else {*re.findall(r"\{(\w+)\?", text)}
        names |= {f"{name}/{variant}" for variant in variants}
        if "{table}" not in text:
            names.add(name)
    return names


POSTGRES = names_of(Dialect.POSTGRES)
SQLITE = names_of(Dialect.SQLITE)
PAIRS = sorted(POSTGRES & SQLITE)


def parameters(name: str, dialect: Dialect) -> set[str]:
    """The values that a statement takes; the clock is given to each."""
    statement = compiled(name, dialect, "rowlock", ParameterStyle.NAMED)
    return {*statement.parameters, *(statement.columns or ())} - {"now", "rows"} - POSTGRES_VALUES


def used_names() -> set[str]:
    """Every string in the store's code: a statement is named by one."""
    return {
        node.value
        for path in (PACKAGE / "store").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_statement_has_both_dialects():
    """What one store can do the other can too."""
    assert POSTGRES_ONLY == POSTGRES - SQLITE
    assert SQLITE_ONLY == SQLITE - POSTGRES


def test_both_dialects_take_the_same_values():
    """A statement is called in one way, whatever runs it."""
    found = {dialect: {name: parameters(name, dialect) for name in PAIRS} for dialect in Dialect}

    assert found[Dialect.SQLITE] == found[Dialect.POSTGRES]


@pytest.mark.parametrize("path", sorted(SQL.iterdir()), ids=lambda path: path.name)
def test_a_statement_opens_with_its_promise(path: Path):
    """The first line says what the statement promises."""
    text = path.read_text("utf-8")

    assert re.fullmatch(r"\w+\.sql", path.name)
    assert re.match(r"-- (name|fragment): ", text)
    for section in re.split(r"^-- name: .*\n", text, flags=re.MULTILINE)[1:]:
        assert re.match(r"-- [A-Z].{10,}", section), section


def test_no_section_is_overlooked():
    """A heading that is misspelt would make its statement a part of the one above."""
    headings = re.compile(r"^-- (?:name|fragment) *[:;(].*$", re.MULTILINE)
    known = re.compile(r"-- (?:name|fragment): \w+(?: \((?:sqlite|postgres)\))?")

    found = [line for path in SQL.iterdir() for line in headings.findall(path.read_text("utf-8"))]

    assert [line for line in found if not known.fullmatch(line)] == []


def test_a_text_for_both_is_turned_into_the_dialect_of_sqlite():
    """The rules are few and mechanical."""
    text = "SELECT job.id::text FROM rowlock.job AS job WHERE job.id = ANY (:ids::uuid[])"
    text += " AND job.run_at <= (SELECT {now}) FOR UPDATE OF job SKIP LOCKED"

    assert statements._for_sqlite(text).rstrip() == (
        "SELECT job.id FROM rowlock_job AS job WHERE job.id IN (SELECT value FROM json_each(:ids))"
        " AND job.run_at <= {now}"
    )


def test_every_statement_is_used():
    """A statement that nothing names is removed."""
    used = {name.partition("/")[0] for name in used_names()}

    assert {name.partition("/")[0] for name in POSTGRES | SQLITE} - used == set()


def test_a_postgres_file_is_one_statement():
    """PostgreSQL is asked in one round trip a step."""
    parts = {
        name: compiled(name, Dialect.POSTGRES, "rowlock", ParameterStyle.NUMERIC).parts
        for name in POSTGRES
    }

    assert {name: len(found) for name, found in parts.items() if len(found) != 1} == {}


@pytest.mark.parametrize("dialect", list(Dialect))
def test_no_macro_is_left_over(dialect: Dialect):
    """Every macro of a file is known."""
    macro = re.compile(r"\{\w+\}")

    assert [name for name in PAIRS if macro.search(source(name, dialect, "rowlock"))] == []


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_statement_of_another_schema_names_no_table_of_ours(dialect: Dialect):
    """Two apps may share a database."""
    ours = re.compile(r"\browlock[._][a-z]")

    assert [name for name in PAIRS if ours.search(source(name, dialect, "other"))] == []
