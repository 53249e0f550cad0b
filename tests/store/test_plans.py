"""What PostgreSQL plans when its statistics are wrong: a queue is empty, and then it is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rowlock.ids import new_id
from rowlock.store.statements import Dialect, ParameterStyle, compiled

pytestmark = [
    pytest.mark.owner("writes statistics"),
    pytest.mark.direct("sets what our own connections set"),
]
BATCH = 500
BACKLOG = 5_000


@pytest.fixture(scope="module")
def backlog(postgres_server: str, migrated_template: str) -> Iterator[psycopg.Connection[Any]]:
    """A table that was swept while it was empty, after much had passed through it."""
    from tests.support.databases import create_database, drop_database, with_database

    name = create_database(postgres_server, migrated_template)
    with psycopg.connect(with_database(postgres_server, name), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO rowlock.job (id, kind, queue, rank, payload, run_at, created_at) "
            "SELECT gen_random_uuid(), 'task', 'default', 0, '{}', 0, 0 "
            "FROM generate_series(1, %s)",
            [BACKLOG],
        )
        connection.execute("ANALYZE rowlock.job")
        connection.execute("UPDATE pg_class SET reltuples = 0 WHERE oid = 'rowlock.job'::regclass")
        connection.execute("SET enable_seqscan = off")
        yield connection
    drop_database(postgres_server, name)


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "name",
    ["finish", "finish_bare", "finish_held", "finish_nodes", "give_back", "heartbeat", "resolve"],
)
def test_many_jobs_are_found_by_their_ids(backlog: psycopg.Connection[Any], name: str, plans: str):
    """And never by reading all that waits, for each of them or at all."""
    statement = compiled(name, Dialect.POSTGRES, "rowlock", ParameterStyle.NUMERIC)
    text = statement.parts[0]
    values = [
        _array(number, text=text, parameter=parameter)
        for number, parameter in enumerate(statement.parameters, 1)
    ]
    backlog.execute(f"SET plan_cache_mode = {plans}".encode())
    backlog.execute(f"PREPARE asked AS {text}".encode())
    rows = backlog.execute(f"EXPLAIN EXECUTE asked ({', '.join(values)})".encode()).fetchall()
    backlog.execute("DEALLOCATE asked")

    plan = re.sub(r"'\{[^}]*\}'", "'{…}'", "\n".join(row[0] for row in rows))
    scans = re.findall(r"Scan (?:using job_\w+ on job|on job_\w+|on job)\b.*\n(.*\n?.*)", plan)
    assert scans, plan
    for below in scans:
        assert re.search(r"Cond: \(?\(?id = ", below), plan


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "name",
    [
        *("look_expired", "lock_expired", "lock_orphans", "lock_worker"),
        *("running", "leased", "health_leases", "count_queues"),
    ],
)
def test_running_jobs_are_found_by_their_leases(
    backlog: psycopg.Connection[Any], name: str, plans: str
):
    """In the index of leases, or in the stretches of lanes that claims have noted."""
    statement = compiled(name, Dialect.POSTGRES, "rowlock", ParameterStyle.NUMERIC)
    text = statement.parts[0]
    values = [
        "ARRAY['default']" if re.search(rf"\${number}::text\[\]", text) else "'1'"
        for number in range(1, len(statement.parameters) + 1)
    ]
    backlog.execute(f"SET plan_cache_mode = {plans}".encode())
    backlog.execute(f"PREPARE asked AS {text}".encode())
    rows = backlog.execute(f"EXPLAIN EXECUTE asked ({', '.join(values)})".encode()).fetchall()
    backlog.execute("DEALLOCATE asked")

    plan = "\n".join(row[0] for row in rows)
    lanes = re.findall(r"Scan (?:using|on) job_lane\b.*\n(.*)", plan)
    assert "Seq Scan on job" not in plan, plan
    assert lanes, plan
    for below in lanes:
        assert re.search(r"Index Cond: .*queue = .*ROW\(run_at, id\) >= ", below), plan


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", ["find_live", "find_rival", "replace"])
def test_jobs_are_found_by_their_keys(backlog: psycopg.Connection[Any], name: str, plans: str):
    """One probe per key, whatever the planner thinks of the table."""
    statement = compiled(name, Dialect.POSTGRES, "rowlock", ParameterStyle.NUMERIC)
    text = statement.parts[0]
    values = [
        _array(number, text=text, parameter=parameter)
        for number, parameter in enumerate(statement.parameters, 1)
    ]
    backlog.execute(f"SET plan_cache_mode = {plans}".encode())
    backlog.execute(f"PREPARE asked AS {text}".encode())
    rows = backlog.execute(f"EXPLAIN EXECUTE asked ({', '.join(values)})".encode()).fetchall()
    backlog.execute("DEALLOCATE asked")

    plan = re.sub(r"'\{[^}]*\}'", "'{…}'", "\n".join(row[0] for row in rows))
    scans = re.findall(r"Scan (?:using job_\w+ on job|on job_\w+|on job)\b.*\n(.*\n?.*)", plan)
    assert "job_key" in plan, plan
    for below in scans:
        assert re.search(r"Index Cond: \(?\(?(id = |.*kind = .*key = )", below), plan


def _array(number: int, *, text: str, parameter: str) -> str:
    """A value for a parameter: many ids, as many of everything else; NULL for what is single."""
    if not re.search(rf"\${number}::\w+\[\]", text):
        # A token that is NULL is equal to none, and then nothing is scanned.
        return "1" if parameter == "token" else "NULL"
    if parameter in ("id", "ids"):
        return f"ARRAY[{', '.join(repr(new_id()) for _ in range(BATCH))}]::uuid[]"
    return f"array_fill(NULL::text, ARRAY[{BATCH}])::{_type(number, text)}"


def _type(number: int, text: str) -> str:
    found = re.search(rf"\${number}::(\w+\[\])", text)
    assert found is not None
    return found.group(1)
