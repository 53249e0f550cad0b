"""A real server on loopback, on each store, for the tests of a module; each test finds it empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cell import CELL
from tests.conftest import create_database, drop_database, with_database
from tests.support.server import Running, empty, make_app


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A migrated database of each kind, for the tests of one module."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('server') / 'rowlock.db'}"
        return
    server = request.getfixturevalue("postgres_server")
    name = create_database(server, request.getfixturevalue("migrated_template"))
    yield CELL.client_url(
        with_database(server, name),
        pooler=request.getfixturevalue("pooler"),
        is_migrated=True,
    )
    drop_database(server, name)


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
