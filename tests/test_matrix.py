"""The matrix: how a cell is read and chosen, and some tests in the cells that pip brings."""

from __future__ import annotations

import re

import pytest

from tests.cell import Cell
from tests.matrix import CELLS, environment, run, what_is_missing

URL = "postgresql://rowlock:secret@127.0.0.1:5432/jobs"
# Claims, leases and races are where isolation, rights and versions matter.
SOME = ("tests/store/test_claim.py", "tests/store/test_heartbeat.py")
# Plugins that take longer to import than these tests take to run.
WITHOUT = ("-pno:hypothesispytest", "-pno:randomly", "-pno:schemathesis", "-pno:xdist")


def test_a_cell_is_read_from_the_environment():
    """Nothing set is the default server, straight, as a superuser."""
    cell = Cell.of({"ROWLOCK_TEST_POSTGRES": "18", "ROWLOCK_TEST_ISOLATION": "serializable"})

    assert Cell.of({"ROWLOCK_TEST_ROLE": ""}) == Cell()
    assert cell == Cell(version=18, isolation="serializable")
    assert (Cell().lacking, set(cell.lacking)) == (frozenset(), {"read_committed"})


def test_an_app_is_given_the_cells_way_to_the_server():
    """Its role where there are tables of ours, its pooler everywhere."""
    cell = Cell(role="worker", pooler="pgbouncer")
    pooler = "127.0.0.1:6432"

    assert cell.lacking == {"direct", "owner"}
    assert Cell().client_url(URL, pooler=None, is_migrated=True) == URL
    assert (
        cell.client_url(URL, pooler=pooler, is_migrated=True)
        == "postgresql://rowlock_test_worker:secret@127.0.0.1:6432/jobs"
    )
    assert (
        cell.client_url(URL, pooler=pooler, is_migrated=False)
        == "postgresql://rowlock:secret@127.0.0.1:6432/jobs"
    )


def test_a_cell_that_can_not_be_run_says_what_is_missing(monkeypatch):
    """By name, before anything is started."""
    monkeypatch.setattr("rowlock.testing.postgres.SYSTEM_BINARIES", "/nowhere/{version}")
    monkeypatch.setattr("benchmarks.drills.pooler.DIRECTORIES", ("/nowhere",))

    assert "no PostgreSQL 15 in /nowhere/15" in (what_is_missing("postgres-15") or "")
    assert "pgbouncer is not installed" in (what_is_missing("pgbouncer") or "")
    assert [what_is_missing(cell) for cell in ("postgres-18", "serializable")] == [None] * 2


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("cell", ["postgres-18", "serializable", "worker-role"])
def test_some_tests_of_the_store_in_every_cell_that_pip_brings(cell, capfd):
    """The whole of it is `make matrix`."""
    done = run(cell, [*WITHOUT, *SOME])
    capfd.readouterr()

    assert done.code == 0, str(done)
    assert int(re.findall(r"(\d+) passed", done.said[-1])[0]) > 50


def test_a_cell_has_no_other_cells_variables(monkeypatch):
    """Whatever is set where `make matrix` is run."""
    monkeypatch.setenv("ROWLOCK_TEST_POOLER", "elsewhere:1")
    for cell, wanted in CELLS.items():
        found = {name for name in environment(cell) if name.startswith("ROWLOCK_TEST_")}

        assert {f"ROWLOCK_TEST_{name}" for name in wanted} == found
