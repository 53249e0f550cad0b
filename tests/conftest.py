"""Databases for tests: each test gets its own, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from rowlock.testing import ThrowAwayPostgres
from tests.house.proofs import numbers_by_test

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `pytest -k F13` run the tests of that row of docs/internals/faults.md."""
    for item in items:
        numbers = numbers_by_test().get(item.nodeid.partition("[")[0], ())
        item.extra_keyword_matches.update(numbers)


class FreshDatabase(Protocol):
    """Makes a database, from a template if one is named, and returns its URL."""

    def __call__(self, template: str | None = None) -> str: ...


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server on which databases may be made: ours, or ROWLOCK_TEST_DATABASE_URL.

    One per test process, not one for all: snapshots, and so sweeps, see the transactions that are
    open anywhere on a server, and a test that holds one must not slow down its neighbours.
    """
    given = os.environ.get("ROWLOCK_TEST_DATABASE_URL")
    if given:
        yield given
        return
    with ThrowAwayPostgres() as server:
        yield server.url


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
    yield name
    drop_database(postgres_server, name)


@pytest.fixture
def fresh_database(postgres_server: str) -> Iterator[FreshDatabase]:
    """Make databases that are dropped after the test, whoever is still connected to them."""
    names: list[str] = []

    def make(template: str | None = None) -> str:
        names.append(create_database(postgres_server, template))
        return pooled(with_database(postgres_server, names[-1]))

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


@pytest.fixture(params=["sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest) -> str:
    """Run the test once on each store."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def create_database(server_url: str, template: str | None = None) -> str:
    name = f"rowlock_test_{uuid.uuid4().hex[:12]}"
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
        sql.Identifier(name), sql.Identifier(template or "template0")
    )
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)
    return name


def drop_database(server_url: str, name: str) -> None:
    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(statement)


def with_database(server_url: str, name: str) -> str:
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


def pooled(url: str) -> str:
    """The same database by way of ROWLOCK_TEST_POOLER, if there is one: a host and a port."""
    pooler = os.environ.get("ROWLOCK_TEST_POOLER")
    return urlsplit(url)._replace(netloc=f"rowlock@{pooler}").geturl() if pooler else url
