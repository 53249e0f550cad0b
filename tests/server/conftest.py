"""A real server on loopback, on each store, for the tests of a module; each test finds it empty."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
import psycopg
import pytest

import rowlock
from tests.cell import CELL
from tests.conftest import create_database, drop_database, with_database
from tests.server.running import Running

EMPTIED = (
    "job",
    "finished",
    "key_hold",
    "queue",
    "worker",
    "log",
    "schedule",
    "audit",
    "bulk",
    "history",
    "depth",
    "event",
)


class Item(msgspec.Struct):
    """A part of an order."""

    name: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


def make_app(url: str) -> rowlock.App:
    """An app with a few tasks that are never run here."""
    app = rowlock.App(url)

    @app.task(queue="mail", max_attempts=5)
    def send_email(to: str, subject: str = "") -> None: ...

    @app.task(queue="shop", priority=3)
    def order(items: list[Item], note: str | None = None) -> None: ...

    return app


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


def empty(url: str, *, tables: Collection[str] = EMPTIED) -> None:
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
            for table in tables:
                connection.execute(f"DELETE FROM rowlock_{table}")
        return
    with psycopg.connect(url, autocommit=True) as connection:
        for table in tables:
            connection.execute(f"DELETE FROM rowlock.{table}".encode())
