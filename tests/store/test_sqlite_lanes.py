"""Looks for lanes on SQLite: their price does not depend on how many jobs wait in a lane."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rowlock.store import Store, open_store
from rowlock.store.text import Dialect, ParameterStyle, compiled
from tests.store.jobs import enqueue_ids
from tests.store.sqlite_processes import url_of

VALUES = {
    "queues": json.dumps(["default"]),
    "tenants": json.dumps(["acme"]),
    "kinds": json.dumps(["mine"]),
    "expired": 0,
    "now": 2**60,
}


def instructions(path: Path, name: str) -> int:
    """How many instructions of SQLite's machine a statement takes."""
    statement = compiled(name, Dialect.SQLITE, "rowlock", ParameterStyle.NAMED)
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(sqlite3.connect(path)) as connection:
        connection.set_progress_handler(count, 1)
        connection.execute(statement.parts[0], VALUES).fetchall()
    return taken


def fill(store: Store, count: int) -> None:
    for kind in ("foreign", "other", "mine"):
        for priority in (0, 5):
            enqueue_ids(store, count, kind=kind, priority=priority, tenant="acme")


@pytest.mark.parametrize("name", ["lanes", "all_lanes", "lanes_anywhere", "tenant_lanes"])
def test_a_look_probes_each_lane_once(tmp_path, name):
    """A comparison of rows would use the first column of the index only, and walk the lanes."""
    path = tmp_path / "jobs.db"
    with closing(open_store(url_of(path))) as store:
        fill(store, 2)
        few = instructions(path, name)
        fill(store, 300)

    assert instructions(path, name) <= few * 1.1
