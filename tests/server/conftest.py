"""A real server on loopback, on each store, for the tests of a module; each test finds it empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cell import CELL
from tests.conftest import create_database, drop_database, with_database
from tests.support.server import Running, empty, make_app

MakeUrl = Callable[[str], str]


@pytest.fixture(scope="module")
def make_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeUrl]:
    """Makes migrated databases, on the store that is named, for the tests of one module."""
    with ExitStack() as stack:

        def make(store: str) -> str:
            if store == "sqlite":
                return f"sqlite:///{tmp_path_factory.mktemp('server') / 'rowlock.db'}"
            server = request.getfixturevalue("postgres_server")
            name = create_database(server, request.getfixturevalue("migrated_template"))
            stack.callback(drop_database, server, name)
            return CELL.client_url(
                with_database(server, name),
                pooler=request.getfixturevalue("pooler"),
                is_migrated=True,
            )

        yield make


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_store(request: pytest.FixtureRequest) -> str:
    """Run the tests of the module once on each store."""
    store: str = request.param
    return store


@pytest.fixture(scope="module")
def module_url(make_url: MakeUrl, module_store: str) -> str:
    """A database for the tests of one module."""
    return make_url(module_store)


@pytest.fixture(scope="module")
def running(module_url: str) -> Iterator[Running]:
    """A server with tokens of every sort."""
    with Running(make_app(module_url)) as running:
        running.make_tokens()
        yield running


@pytest.fixture
def api(running: Running, module_url: str) -> Running:
    """That server, without a row of the tests before."""
    empty(module_url)
    return running
