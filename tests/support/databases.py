"""Databases on the server of the tests."""

from __future__ import annotations

import uuid
from functools import cache
from urllib.parse import urlsplit

import psycopg
from psycopg import sql


def create_database(server_url: str, template: str | None = None) -> str:
    name = f"rowlock_test_{uuid.uuid4().hex[:12]}"
    # Copied, not logged block by block: half of the time, where nothing is synced.
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
        sql.Identifier(name), sql.Identifier(template or "template0")
    )
    admin(server_url).execute(statement)
    return name


def drop_database(server_url: str, name: str) -> None:
    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    admin(server_url).execute(statement)


@cache
def admin(server_url: str) -> psycopg.Connection:
    """The one connection that makes and drops databases: a new one for each takes as long."""
    return psycopg.connect(server_url, autocommit=True)


def create_login(connection: psycopg.Connection, name: str, *, group: str | None = None) -> None:
    """A role that may log in, in a group if one is named, with the password of who makes it."""
    login = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
        sql.Identifier(name), sql.Literal(connection.info.password or None)
    )
    member = sql.SQL(" IN ROLE {}").format(sql.Identifier(group)) if group else sql.SQL("")
    connection.execute(login + member)


def with_user(url: str, name: str) -> str:
    """The URL of another role, with the same password if there is one."""
    parts = urlsplit(url)
    user, _, address = parts.netloc.rpartition("@")
    _, colon, password = user.partition(":")
    return parts._replace(netloc=f"{name}{colon}{password}@{address}").geturl()


def with_database(server_url: str, name: str) -> str:
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()
