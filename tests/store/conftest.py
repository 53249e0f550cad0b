"""One suite for all stores: every test here runs on SQLite and PostgreSQL, blocking and async."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from rowlock.clock import Clock, ManualClock
from rowlock.store import Store, open_store
from tests.cell import CELL
from tests.support.databases import create_database, drop_database, with_database
from tests.support.pairs import Combination, pairs

TABLES = [
    *("job", "finished", "key_hold", "queue", "worker", "log", "schedule"),
    *("token", "session", "first_answer", "audit", "bulk", "history", "depth", "event"),
]
UNMOVED = ["claim", "job_limit", "limit_key"]
EMPTY = "; ".join(f"DELETE FROM rowlock.{table}" for table in [*TABLES, *UNMOVED])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of tests with many values, leave out half of the combinations; see tests/support/pairs.py."""
    if config.getoption("--every-combination"):
        return
    tests: dict[str, dict[Combination, pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            numbers = dict(item.callspec.indices)
            if {"store", "store_url"} <= numbers.keys():
                store, colour = numbers.pop("store_url"), numbers.pop("store")
                combination = Combination(store, colour, tuple(numbers.values()))
                tests.setdefault(item.nodeid.partition("[")[0], {})[combination] = item
    left_out = {
        item
        for variants in tests.values()
        for combination, item in variants.items()
        if combination not in {*pairs([*variants])}
    }
    items[:] = [item for item in items if item not in left_out]


class AsyncTwins:
    """The `a…` methods of a store under the names of the blocking ones, on a loop of its own."""

    def __init__(self, store: Store, runner: asyncio.Runner) -> None:
        self._store = store
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        twin = getattr(self._store, f"a{name}")
        return lambda *args, **options: self._runner.run(twin(*args, **options))


@pytest.fixture(scope="module")
def module_clock() -> ManualClock:
    """The clock of the stores that a module's tests share."""
    return ManualClock()


@pytest.fixture
def clock(module_clock: ManualClock) -> ManualClock:
    """Stands still until a test moves it; each test finds it at the same time."""
    module_clock.__init__()  # type: ignore[misc]  # as new, for those who know it already
    return module_clock


@pytest.fixture(scope="module")
def module_postgres_url(
    postgres_server: str, migrated_template: str, pooler: str | None
) -> Iterator[str]:
    """One database a module: to empty it takes a twentieth of the time that a new one takes."""
    name = create_database(postgres_server, migrated_template)
    url = with_database(postgres_server, name)
    yield CELL.client_url(url, pooler=pooler, is_migrated=True)
    drop_database(postgres_server, name)


@pytest.fixture(scope="module")
def module_connection(module_postgres_url: str) -> Iterator[psycopg.Connection]:
    """The connection that empties the module's database."""
    with psycopg.connect(module_postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def emptied_postgres_url(module_postgres_url: str, module_connection: psycopg.Connection) -> str:
    """The module's database, without a row of the tests before."""
    module_connection.execute(EMPTY)
    return module_postgres_url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our schema in it: a copy takes a third of the time of a migration."""
    path = tmp_path_factory.mktemp("migrated") / "rowlock.db"
    store = open_store(f"sqlite:///{path}")
    store.migrate()
    store.close()
    return path


@pytest.fixture
def scratch_sqlite_url(migrated_file: Path) -> Iterator[str]:
    """A file in memory, where there is such a place: syncs would be half of the suite's time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        shutil.copyfile(migrated_file, f"{place}/rowlock.db")
        yield f"sqlite:///{place}/rowlock.db"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database of each kind."""
    name = {"sqlite": "scratch_sqlite_url", "postgres": "emptied_postgres_url"}[request.param]
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture(scope="module")
def module_loop() -> Iterator[asyncio.Runner]:
    """The loop of the stores that a module's coroutines share."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def module_postgres_stores(
    module_postgres_url: str, module_clock: ManualClock, module_loop: asyncio.Runner
) -> Iterator[dict[str, Store]]:
    """One store of each colour a module, with its connections: the server needs longer to start a
    process for a new one, and to read the catalogue there, than for most tests.
    """
    stores = {
        colour: open_store(module_postgres_url, clock=module_clock)
        for colour in ("blocking", "async")
    }
    yield stores
    stores["blocking"].close()
    module_loop.run(stores["async"].aclose())


@pytest.fixture(params=["blocking", "async"])
def store(
    request: pytest.FixtureRequest, store_url: str, clock: Clock, module_loop: asyncio.Runner
) -> Iterator[Store]:
    """A store of each kind in each colour, under the names of the blocking methods.

    That of PostgreSQL is the module's: a test that breaks its store opens one of its own.
    """
    is_async = request.param == "async"
    if store_url.startswith("sqlite"):
        opened = open_store(store_url, clock=clock)
    else:
        opened = request.getfixturevalue("module_postgres_stores")[request.param]
    yield cast(Store, AsyncTwins(opened, module_loop)) if is_async else opened
    if store_url.startswith("sqlite"):
        module_loop.run(opened.aclose()) if is_async else opened.close()
