"""Where a soak takes place: a durable server of its own, or a file; and who holds it open."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

import rowlock
from benchmarks.soak.usage import private_mib
from rowlock.testing import ThrowAwayPostgres

MIB = 2**20
# What took long goes into its log, which is kept beside the samples.
TELLING = {
    "log_min_duration_statement": "2000",
    "log_autovacuum_min_duration": "0",
    "log_checkpoints": "on",
    "log_lock_waits": "on",
}

_SIZES = """
SELECT
    (SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = 'rowlock'),
    pg_total_relation_size('rowlock.job') / 1048576.0,
    pg_total_relation_size('rowlock.finished') / 1048576.0,
    (SELECT sum(size) / 1048576.0 FROM pg_ls_waldir())
"""


class Stage(Protocol):
    """A store under load."""

    @property
    def url(self) -> str: ...
    @property
    def version(self) -> str: ...
    def look(self) -> dict[str, float]:
        """What it takes now, by the names of the verdict's measures."""
        ...

    def left(self) -> int:
        """How many jobs are not finished."""
        ...

    def hold(self) -> Any:
        """Open a transaction that sees the database as it is now; closing it ends that."""
        ...


class PostgresStage:
    """A server with PostgreSQL's own settings, fsync and autovacuum on."""

    def __init__(self, server: ThrowAwayPostgres) -> None:
        self.url: str = server.url
        status = server.directory / "data" / "postmaster.pid"
        self._process = int(status.read_text().splitlines()[0])
        self._connection: psycopg.Connection[Any] = psycopg.connect(self.url, autocommit=True)
        version = self._connection.info.parameter_status("server_version") or ""
        self.version: str = f"PostgreSQL {version.split()[0]}"

    def look(self) -> dict[str, float]:
        dead, job, finished, wal = self._ask(_SIZES)
        return {
            "dead_rows": float(dead),
            "job_mib": float(job),
            "finished_mib": float(finished),
            "wal_mib": float(wal),
            "server_mib": private_mib(self._process),
        }

    def left(self) -> int:
        (left,) = self._ask("SELECT count(*) FROM rowlock.job")
        return int(left)

    def _ask(self, sql: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] | None = self._connection.execute(sql.encode()).fetchone()
        assert row is not None
        return row

    def hold(self) -> psycopg.Connection[Any]:
        holder = psycopg.connect(self.url)
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        # It has written, as the worst ones have.
        holder.execute("SELECT pg_current_xact_id(), count(*) FROM pg_class")
        return holder

    def close(self) -> None:
        self._connection.close()


class SqliteStage:
    """A file on the disk, synced as always."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url: str = f"sqlite:///{path}"
        self.version: str = f"SQLite {sqlite3.sqlite_version}"

    def look(self) -> dict[str, float]:
        wal = Path(f"{self._path}-wal")
        return {
            "file_mib": self._path.stat().st_size / MIB,
            "wal_mib": wal.stat().st_size / MIB if wal.exists() else 0.0,
        }

    def left(self) -> int:
        with closing(self._connect()) as connection:
            (left,) = connection.execute("SELECT count(*) FROM rowlock_job").fetchone()
        return int(left)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        # Folding the log beside a writer is what old libraries of SQLite do not survive.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def hold(self) -> sqlite3.Connection:
        holder = self._connect()
        holder.execute("BEGIN")
        holder.execute("SELECT count(*) FROM rowlock_queue").fetchone()
        return holder


@contextmanager
def stage(store: str, directory: Path, *, version: int | None, log: Path) -> Iterator[Stage]:
    """A migrated, empty store in a directory that anybody may enter; a server's log is kept."""
    if store == "sqlite":
        made = SqliteStage(directory / "jobs.db")
        with rowlock.App(made.url) as app:
            app.stats()
        yield made
        return
    place = directory / "postgres"
    with ThrowAwayPostgres(
        version=version, durable=True, directory=place, settings=TELLING
    ) as server:
        with rowlock.App(server.url) as app:
            app.migrate()
        try:
            with closing(PostgresStage(server)) as served:
                yield served
        finally:
            shutil.copyfile(place / "log", log)
