"""Which PostgreSQL the tests run on, and as whom: one cell of the matrix, from the environment.

| variable | |
|---|---|
| `ROWLOCK_TEST_POSTGRES` | major version of the throw-away server; 16 |
| `ROWLOCK_TEST_ISOLATION` | its `default_transaction_isolation` |
| `ROWLOCK_TEST_ROLE=worker` | apps log in as somebody who is in that role of ours only |
| `ROWLOCK_TEST_POOLER` | `pgbouncer` starts one before the server; HOST:PORT is one that is there |
| `ROWLOCK_TEST_DATABASE_URL` | a server of yours instead; its user must be allowed all |

A test that can't be what it is in some cell says so by a marker, with the reason: `direct` needs a
connection that is one process of the server's, `owner` changes the schema, `read_committed` is
about what that level shows. Where that can't be had the test is left out, and counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from rowlock.store.migrate import roles
from rowlock.store.url import masked
from rowlock.testing import ThrowAwayPostgres
from rowlock.testing.postgres import VERSION_DEFAULT, PostgresNotAvailable, find_binaries
from tests.support.databases import create_login, with_user

# Each test's database has connections of its own at a pooler, for a while.
POOLED_CONNECTIONS = {"max_connections": "400"}
MARKERS = ("direct", "owner", "read_committed")


@dataclass(frozen=True, slots=True)
class Cell:
    """A server, and the way to it."""

    version: int | None = None
    isolation: str | None = None
    role: str | None = None
    pooler: str | None = None
    server_url: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        def given(name: str) -> str | None:
            return environment.get(f"ROWLOCK_TEST_{name}") or None

        version = given("POSTGRES")
        return cls(
            version=int(version) if version else None,
            isolation=given("ISOLATION"),
            role=given("ROLE"),
            pooler=given("POOLER"),
            server_url=given("DATABASE_URL"),
        )

    def server(self, **options: Any) -> ThrowAwayPostgres:
        """A server of this cell, not started; options as it takes them."""
        settings = dict(options.pop("settings", {}))
        if self.isolation is not None:
            settings["default_transaction_isolation"] = self.isolation
        if self.pooler is not None:
            settings = POOLED_CONNECTIONS | settings
        return ThrowAwayPostgres(version=self.version, settings=settings, **options)

    @property
    def lacking(self) -> frozenset[str]:
        """The markers of tests that can't be themselves here."""
        missing = (self.pooler, self.role, self.isolation)
        return frozenset(name for name, why in zip(MARKERS, missing, strict=True) if why)

    @property
    def login(self) -> str:
        """Who logs in as the role."""
        return f"rowlock_test_{self.role}"

    def grant(self, database_url: str) -> None:
        """Ship our roles into a migrated database, and let somebody log in as this cell's.

        What an app may have of its own, tables in `public`, it has here too.
        """
        if self.role is None:
            return
        with psycopg.connect(database_url) as connection:
            connection.execute(roles("rowlock").encode())
            create_login(connection, self.login, group=f"rowlock_{self.role}")
            granted = sql.SQL("GRANT CREATE ON SCHEMA public TO {}")
            connection.execute(granted.format(sql.Identifier(self.login)))

    def client_url(self, url: str, *, pooler: str | None, is_migrated: bool) -> str:
        """The URL that an app is given, of a superuser's.

        Without our tables there is nothing that a role could do: that is a migrator's business.
        """
        parts = urlsplit(with_user(url, self.login) if self.role and is_migrated else url)
        user, _, address = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}@{pooler or address}").geturl()


CELL = Cell.of(os.environ)


def main() -> None:
    """Say which server the tests will use; without one, say what is missing."""
    if CELL.server_url:
        said = f"yours, {masked(CELL.server_url)}"
    else:
        version = CELL.version or VERSION_DEFAULT
        try:
            binaries = find_binaries(version)
        except PostgresNotAvailable as error:
            sys.exit(str(error))
        said = f"version {version}, a throw-away server per test process, from {binaries}"
    sys.stdout.write(f"{said}\n")


if __name__ == "__main__":
    main()
