"""Fixtures of several modules' tests of workers."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

import rowlock
from tests.support.databases import create_login, with_user


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url)
    app.migrate()
    yield app
    app.close()


@pytest.fixture(params=["plain", "coroutine"])
def colour(request: pytest.FixtureRequest) -> str:
    """Run the test with both kinds of functions."""
    return request.param


@pytest.fixture
def port() -> int:
    """One that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found: int = listening.getsockname()[1]
        return found


@pytest.fixture
def role_url(postgres_url: str, table: str) -> Iterator[str]:
    """Of somebody who may do all that a worker does, but for one table."""
    role = sql.Identifier(name := f"rowlock_test_{uuid.uuid4().hex[:12]}")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        create_login(connection, name)
        for statement in (
            "GRANT USAGE ON SCHEMA rowlock TO {}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rowlock TO {}",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA rowlock TO {}",
        ):
            connection.execute(sql.SQL(statement).format(role))
        revoked = sql.SQL("REVOKE ALL ON {} FROM {}")
        connection.execute(revoked.format(sql.Identifier("rowlock", table), role))
    yield with_user(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        connection.execute(sql.SQL("DROP ROLE {}").format(role))
