"""One suite for all stores: every test here runs on SQLite and PostgreSQL, blocking and async."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from rowlock.clock import Clock, ManualClock
from rowlock.store import Store, open_store
from tests.cell import CELL
from tests.conftest import create_database, drop_database, with_database

TABLES = [
    *("job", "finished", "key_hold", "queue", "worker", "log", "schedule"),
    *("token", "audit", "bulk", "history", "depth", "event"),
]
EMPTY = "; ".join(f"DELETE FROM rowlock.{table}" for table in TABLES)


class AsyncTwins:
    """The `a…` methods of a store under the names of the blocking ones, on a loop of its own."""

    def __init__(self, store: Store, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        twin = getattr(self._store, f"a{name}")
        return lambda *args, **options: self._runner.run(twin(*args, **options))


@pytest.fixture
def clock() -> ManualClock:
    """Stands still until a test moves it."""
    return ManualClock()


@pytest.fixture(scope="module")
def module_postgres_url(
    postgres_server: str, migrated_template: str, pooler: str | None
) -> Iterator[str]:
    """One database a module: to empty it takes a twentieth of the time that a new one takes."""
    name = create_database(postgres_server, migrated_template)
    url = with_database(postgres_server, name)
    yield CELL.client_url(url, pooler=pooler, is_migrated=True)
    drop_database(postgres_server, name)


@pytest.fixture
def emptied_postgres_url(module_postgres_url: str) -> str:
    """The module's database, without a row of the tests before."""
    with psycopg.connect(module_postgres_url, autocommit=True) as connection:
        connection.execute(EMPTY)
    return module_postgres_url


@pytest.fixture
def scratch_sqlite_url() -> Iterator[str]:
    """A file in memory, where there is such a place: syncs would be half of the suite's time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield f"sqlite:///{place}/rowlock.db"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database of each kind."""
    name = {"sqlite": "scratch_sqlite_url", "postgres": "emptied_postgres_url"}[request.param]
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture(params=["blocking", "async"])
def store(request: pytest.FixtureRequest, store_url: str, clock: Clock) -> Iterator[Store]:
    """A store of each kind in each colour, under the names of the blocking methods."""
    opened = open_store(store_url, clock=clock)
    if request.param == "blocking":
        yield opened
        opened.close()
        return
    with asyncio.Runner() as runner:
        yield cast(Store, AsyncTwins(opened, runner))
        runner.run(opened.aclose())
