"""What the model's tests share: migrated databases, and a summary of how much was compared."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest

from rowlock import config
from rowlock.clock import ManualClock
from rowlock.store import Store, open_store
from tests.cell import CELL
from tests.support.databases import create_database, drop_database, with_database

TABLES = ("job", "finished", "key_hold", "queue", "worker", "log", "job_limit", "limit_key")
# Leases that neither job_lease nor a claim finds, or that job_lease has at another time.
HIDDEN = """
SELECT job.id
FROM rowlock.job AS job
WHERE job.indexed_lease <> job.lease_expires_at
    OR (job.lease_expires_at IS NULL AND job.indexed_lease IS NOT NULL)
    OR (job.indexed_lease IS NULL AND job.lease_expires_at IS NOT NULL AND NOT EXISTS (
        SELECT
        FROM rowlock.claim AS claim
        WHERE (claim.queue, claim.rank, claim.kind) = (job.queue, job.rank, job.kind)
            AND (job.run_at, job.id) >= (claim.first_at, claim.first_id)
            AND (job.run_at, job.id) <= (claim.last_at, claim.last_id)
            AND (claim.until, claim.worker) = (job.lease_expires_at, job.worker)
    ))
"""


class Bench:
    """Both stores on one clock, emptied between programs."""

    def __init__(self, sqlite_path: Path, postgres_url: str, *, admin_url: str) -> None:
        self.clock = ManualClock()
        self.loop = asyncio.Runner()
        self.sqlite = open_store(f"sqlite:///{sqlite_path}", clock=self.clock)
        self.postgres = open_store(postgres_url, clock=self.clock)
        self.sqlite.migrate()
        self._file = sqlite3.connect(sqlite_path, isolation_level=None)
        self._server = psycopg.connect(admin_url, autocommit=True)

    @property
    def stores(self) -> dict[str, Store]:
        return {"sqlite": self.sqlite, "postgres": self.postgres}

    def clear(self) -> None:
        """Empty every table. Rows are deleted: for a few of them that is faster than TRUNCATE."""
        self._file.execute("BEGIN IMMEDIATE")
        for table in TABLES:
            self._file.execute(f"DELETE FROM rowlock_{table}")
        self._file.execute("COMMIT")
        tables = (*TABLES, "claim")
        self._server.execute(";".join(f"DELETE FROM rowlock.{table}" for table in tables).encode())

    def is_any_waiting(self) -> bool:
        """Whether somebody waits for a lock of somebody else, on PostgreSQL."""
        waiting = self._server.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock')"
        ).fetchone()
        return waiting is not None and bool(waiting[0])

    def tokens(self, store: Store) -> dict[str, int]:
        """Every job's token."""
        rows = self._rows(
            store, "SELECT id, token FROM job UNION ALL SELECT id, token FROM finished"
        )
        return {str(id): token for id, token in rows}

    def problems(self, store: Store, tokens_before: dict[str, int]) -> list[str]:
        """What no moment may ever show, in words."""
        doubled = self._rows(store, "SELECT id FROM job WHERE id IN (SELECT id FROM finished)")
        keys = self._rows(
            store,
            "SELECT tenant, kind, key FROM job WHERE key IS NOT NULL "
            "AND (key_hold IS NULL OR key_hold <> -2 OR lease_expires_at IS NULL) "
            "GROUP BY tenant, kind, key HAVING count(*) > 1",
        )
        tokens = self.tokens(store)
        hidden = [] if store is self.sqlite else self._server.execute(HIDDEN).fetchall()
        return [
            *(f"the lease of job {id} is hidden from recovery" for (id,) in hidden),
            *(f"job {id} is live and finished" for (id,) in doubled),
            *(f"two live jobs hold the key {key}" for key in keys),
            *(
                f"the token of job {id} went down"
                for id, token in tokens_before.items()
                if tokens.get(id, token) < token
            ),
        ]

    def _rows(self, store: Store, sql: str) -> list[Any]:
        """Rows of a statement with plain table names, on either store."""
        prefix = "rowlock_" if store is self.sqlite else "rowlock."
        named = re.sub(r"\b(FROM) (job|finished)\b", rf"\1 {prefix}\2", sql)
        if store is self.sqlite:
            return self._file.execute(named).fetchall()
        return self._server.execute(named.encode()).fetchall()

    def close(self) -> None:
        for store in self.stores.values():
            self.loop.run(store.aclose())
        self.loop.close()
        self._file.close()
        self._server.close()


@pytest.fixture(scope="session")
def bench(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: str,
    migrated_template: str,
    pooler: str | None,
) -> Iterator[Bench]:
    """Both stores, migrated once."""
    name = create_database(postgres_server, migrated_template)
    path = tmp_path_factory.mktemp("model") / "rowlock.db"
    admin_url = with_database(postgres_server, name)
    url = CELL.client_url(admin_url, pooler=pooler, is_migrated=True)
    made = Bench(path, url, admin_url=admin_url)
    yield made
    made.close()
    drop_database(postgres_server, name)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was compared; with several test processes, the controller says it."""
    for kind in ("passed", "failed"):
        for report in terminalreporter.getreports(kind):
            for name, value in report.user_properties:
                if name == "model" and report.when == "call":
                    terminalreporter.write_line(f"model: {value}")


@pytest.fixture(autouse=True)
def note_every_claim() -> Iterator[None]:
    """Programs claim few jobs, and the leases that claims note are the subtle ones."""
    with mock.patch.object(config, "CLAIM_NOTED_MIN", 1):
        yield
