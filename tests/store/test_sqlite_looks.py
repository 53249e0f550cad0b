"""Looks on SQLite: their price does not depend on how many jobs there are."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rowlock import Fail
from rowlock.store import Store, open_store
from rowlock.store.statements import Dialect, ParameterStyle, compiled
from tests.store.jobs import claim, enqueue_ids
from tests.store.sqlite_processes import url_of

VALUES = {
    "cursor_finished": 2**62,
    "scan": 50_000,
    "limit": 10,
    "queues": json.dumps(["default"]),
    "tenants": json.dumps(["acme"]),
    "kinds": json.dumps(["mine"]),
    "expired": 0,
    "now": 2**60,
}


# To pass over a row of an index.
STEPS_OF_A_COUNT = 5


def instructions(path: Path, name: str, **values: object) -> int:
    """How many instructions of SQLite's machine a statement takes."""
    statement = compiled(name, Dialect.SQLITE, "rowlock", ParameterStyle.NAMED)
    asked = {**dict.fromkeys(statement.parameters), **VALUES, **values}
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(sqlite3.connect(path)) as connection:
        connection.set_progress_handler(count, 1)
        connection.execute(statement.parts[0], asked).fetchall()
    return taken


def fill(store: Store, count: int) -> None:
    for kind in ("foreign", "other", "mine"):
        for priority in (0, 5):
            enqueue_ids(store, count, kind=kind, priority=priority, tenant="acme")


def succeed(store: Store, count: int) -> None:
    enqueue_ids(store, count, kind="mine", priority=9)
    store.succeed(claim(store, limit=count))


def bury(store: Store, count: int) -> None:
    """Jobs that wait, and as many that are dead."""
    enqueue_ids(store, count, kind="mine")
    for lease in claim(store, limit=count):
        store.fail(lease, Fail("no"))
    enqueue_ids(store, count, kind="mine")


@pytest.mark.parametrize("name", ["lanes", "all_lanes", "lanes_anywhere", "lanes/tenant"])
def test_a_look_probes_each_lane_once(tmp_path, name):
    """A comparison of rows would use the first column of the index only, and walk the lanes."""
    path = tmp_path / "jobs.db"
    with closing(open_store(url_of(path))) as store:
        fill(store, 2)
        few = instructions(path, name)
        fill(store, 300)

    assert instructions(path, name) <= few * 1.1


@pytest.mark.parametrize("name", ["list_live", "list_finished", "list_dead"])
def test_a_page_reads_what_it_shows(tmp_path, name):
    """Its bound on rows read is counted on the index alone; it stops when the page is full."""
    path = tmp_path / "jobs.db"
    with closing(open_store(url_of(path))) as store:
        bury(store, 20)
        few = instructions(path, name)
        bury(store, 300)
    bounded = 320 * STEPS_OF_A_COUNT

    assert instructions(path, name) <= few * 1.2 + bounded


@pytest.mark.parametrize("name", ["count_succeeded", "count_queues"])
def test_stats_read_a_bounded_part_of_the_history(tmp_path, name):
    """Successes are counted among the newest rows, and no walk goes over all."""
    path = tmp_path / "jobs.db"
    bounds = {"scan": 10, "cap": 10, "queue": "default"}
    with closing(open_store(url_of(path))) as store:
        bury(store, 50)
        succeed(store, 50)
        few = instructions(path, name, **bounds)
        bury(store, 300)
        succeed(store, 300)

    assert instructions(path, name, **bounds) <= few * 1.1
