"""Databases for tests: each test gets its own, on SQLite and on PostgreSQL."""

from __future__ import annotations

import gc
import tempfile
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import hypothesis
import pytest

from benchmarks.drills.pooler import pgbouncer
from rowlock.testing.postgres import VERSION_DEFAULT
from tests.cell import CELL, MARKERS
from tests.house.proofs import numbers_by_test
from tests.support.databases import admin, create_database, drop_database, with_database
from tests.support.order import long_ones_first
from tests.support.pairs import STORES, by_turns, variants_on_stores
from tests.support.places import keep_bytecode, use_memory
from tests.support.signals import keep_ignored_signals_here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Its files may be in memory, and each new database is much to log. All buffers are looked through
# whenever a database is dropped.
SMALL = {"max_wal_size": "128MB", "shared_buffers": "16MB"}


class FreshDatabase(Protocol):
    """Makes a database, from a template if one is named, and returns its URL."""

    def __call__(self, template: str | None = None) -> str: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres-only", action="store_true", help="leave out what needs no PostgreSQL"
    )
    parser.addoption(
        "--every-combination",
        action="store_true",
        help="run each test with each value on each store, blocking and async",
    )


def pytest_configure(config: pytest.Config) -> None:
    # No test may depend on how fast the machine is.
    hypothesis.settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("any machine")
    use_memory()
    keep_bytecode()
    # Nothing that is collected is garbage: a tenth of the time of collecting.
    gc.disable()
    # One that only hands out the tests leaves it to the others: they must inherit what it ignores.
    if not config.getoption("numprocesses", None):
        keep_ignored_signals_here()
    for marker in MARKERS:
        config.addinivalue_line("markers", f"{marker}(why): see tests/cell.py")
    config.addinivalue_line(
        "markers",
        "one_store(why): what it is about is the same on both; see tests/support/pairs.py",
    )
    config.addinivalue_line("markers", "long: takes many seconds, and is begun before the others")


def pytest_report_header() -> list[str]:
    own = f"a throw-away one, version {CELL.version or VERSION_DEFAULT}"
    server = "that of ROWLOCK_TEST_DATABASE_URL" if CELL.server_url else own
    return [f"PostgreSQL: {server}", f"temporary files: {tempfile.gettempdir()}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what can't be what it is in this cell, and what was not asked for; let
    `pytest -k F13` run the tests of that row of docs/internals/faults.md; begin with long ones.
    """
    is_postgres_only = config.getoption("--postgres-only")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    if not is_postgres_only and not config.getoption("--every-combination"):
        variants = variants_on_stores(items)
        on_the_other_store = {variants[each] for each in by_turns(variants)}
        items[:] = [item for item in items if item not in on_the_other_store]
    for item in items:
        numbers = numbers_by_test().get(item.nodeid.partition("[")[0], ())
        item.extra_keyword_matches.update(numbers)
        lacks = any(item.get_closest_marker(name) for name in CELL.lacking)
        is_kept = not lacks and (not is_postgres_only or _uses_postgres(item))
        (kept if is_kept else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = long_ones_first(
        kept, lambda item: item.get_closest_marker("long") is not None, processes
    )


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out the tests themselves, a million objects."""
    gc.collect()
    gc.freeze()
    gc.enable()


def _uses_postgres(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "postgres" in parameters or "postgres_server" in item.fixturenames


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server on which databases may be made: ours, or ROWLOCK_TEST_DATABASE_URL.

    One per test process, not one for all: snapshots, and so sweeps, see the transactions that are
    open anywhere on a server, and a test that holds one must not slow down its neighbours.
    """
    if CELL.server_url:
        yield CELL.server_url
        admin(CELL.server_url).close()
        return
    with CELL.server(settings=SMALL) as server:
        yield server.url
        admin(server.url).close()


@pytest.fixture(scope="session")
def pooler(postgres_server: str) -> Iterator[str | None]:
    """The host and port of what stands before the server, if anything does."""
    if CELL.pooler != "pgbouncer":
        yield CELL.pooler
        return
    with pgbouncer(postgres_server) as url:
        yield urlsplit(url).netloc.rpartition("@")[2]


@pytest.fixture(scope="session")
def migrated_template(postgres_server: str) -> Iterator[str]:
    """The name of a database with our schema in it, to make others from."""
    from rowlock.store import open_store

    name = create_database(postgres_server)
    store = open_store(with_database(postgres_server, name))
    try:
        store.migrate()
    finally:
        store.close()
    CELL.grant(with_database(postgres_server, name))
    yield name
    drop_database(postgres_server, name)


@pytest.fixture
def fresh_database(postgres_server: str, pooler: str | None) -> Iterator[FreshDatabase]:
    """Make databases that are dropped after the test, whoever is still connected to them."""
    names: list[str] = []

    def make(template: str | None = None) -> str:
        names.append(create_database(postgres_server, template))
        url = with_database(postgres_server, names[-1])
        return CELL.client_url(url, pooler=pooler, is_migrated=template is not None)

    yield make
    for name in names:
        drop_database(postgres_server, name)


@pytest.fixture
def empty_postgres_url(fresh_database: FreshDatabase) -> str:
    """A PostgreSQL database of this test's own, without our schema."""
    return fresh_database()


@pytest.fixture
def postgres_url(fresh_database: FreshDatabase, migrated_template: str) -> str:
    """A PostgreSQL database of this test's own, migrated."""
    return fresh_database(migrated_template)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file of this test's own; it is migrated when opened."""
    return f"sqlite:///{tmp_path / 'rowlock.db'}"


@pytest.fixture(params=STORES)
def any_url(request: pytest.FixtureRequest) -> str:
    """Run the test once on each store."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
