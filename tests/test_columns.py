"""The columns of a job are declared once: the schemas and the records agree with that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rowlock.columns import (
    COLUMNS,
    GIVEN,
    POSTGRES_COLUMNS,
    JobRow,
    JobTable,
    columns_of,
    macros,
)
from rowlock.job import Job, job_of
from rowlock.store.options import NEW_JOB_COLUMNS, new_job

SNAPSHOTS = Path(__file__).parent / "snapshots"
# SQLite's names for PostgreSQL's types.
IN_SQLITE = {"uuid": "text", "smallint": "integer", "bigint": "integer", "boolean": "integer"}


def stored(dialect: str, table: str) -> dict[str, str]:
    """The columns of a table in a snapshot of a schema, and their types."""
    text = (SNAPSHOTS / f"schema.{dialect}.sql").read_text("utf-8")
    prefix = "rowlock_" if dialect == "sqlite" else ""
    found = re.search(
        rf"^TABLE {prefix}{table}\b[^\n]*\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    lines = [line.split() for line in found.group(1).splitlines()]
    return {name: type.rstrip(",").lower() for name, type, *_ in lines}


@pytest.mark.parametrize(
    ("table", "name"), [(JobTable.LIVE, "job"), (JobTable.FINISHED, "finished")]
)
def test_postgres_has_the_declared_columns(table, name):
    """Each with its type, and no others."""
    own = {each: it.type for each, it in POSTGRES_COLUMNS.items() if it.table is table}

    assert stored("postgres", name) == own | {
        each: COLUMNS[each].type for each in columns_of(table)
    }


@pytest.mark.parametrize(
    ("table", "name"), [(JobTable.LIVE, "job"), (JobTable.FINISHED, "finished")]
)
def test_sqlite_has_the_declared_columns(table, name):
    """Each with SQLite's word for its type, and no others."""
    declared = {each: COLUMNS[each].type for each in columns_of(table)}

    assert stored("sqlite", name) == {
        each: IN_SQLITE.get(type, type) for each, type in declared.items()
    }


def test_a_new_job_gives_what_is_declared_as_given():
    """And its time, which the database makes of two values."""
    assert set(NEW_JOB_COLUMNS) == {*GIVEN, "run_at", "delay"}


def test_every_list_of_a_row_has_all_its_columns():
    """A row is read by the place of its columns."""
    for is_postgres in (True, False):
        lists = macros(is_postgres=is_postgres)
        for name in ("job", "row", "finished", "held", "ended", "listed_job", "listed_finished"):
            parts = re.sub(r"\([^()]*\)", "", lists[name]).split(", ")
            assert len(parts) == len(JobRow._fields), name


def test_large_columns_are_not_read_for_a_list():
    """But for the beginning of a payload, and the last error, which a list shows."""
    listed = macros(is_postgres=True)["listed_finished"]

    assert listed.count("finished.payload") == listed.count("left(finished.payload, 200)") == 1
    assert "finished.meta" not in listed
    assert "finished.result" not in listed
    assert "right(finished.errors, " in listed


def test_a_users_job_shows_every_column_of_its_row():
    """Those that only we decide by are named here."""
    job = new_job(kind="k", payload='{"a":1}')
    row = JobRow(*(getattr(job, name) for name in GIVEN), run_at=1, created_at=1)
    shown = job_of(row, now=2)
    ours = {"rank", "key_hold", "policy", "begun", "losses", "interruptions", "quarantined"}
    # Shown as `limit` and `waits_for`; inputs are shown as the payload of a run.
    ours |= {"limit_name", "place", "pending", "inputs"}

    assert set(JobRow._fields) - set(Job.__struct_fields__) == ours
    assert shown.payload == {"a": 1}
