"""Where jobs are stored while they are measured: a fresh, empty queue for each measurement.

PostgreSQL is a durable throw-away server of the run's own, SQLite a file, Redis a server that is
started anew. All of them stand in one directory, on one disk.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from benchmarks.contestants import AdapterFailed, Contestant
from benchmarks.processes import used_seconds
from rowlock.testing import ThrowAwayPostgres
from rowlock.testing.postgres import find_free_port

# Room for what a small server has; checkpoints come when the benchmark asks for them, so that no
# contestant's run is decided by when one came by.
POSTGRES_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "max_connections": "200",
}
REDIS_START_SECONDS = 10.0


class Database(Protocol):
    """A queue's own database while it is measured."""

    @property
    def url(self) -> str: ...
    @property
    def environment(self) -> Mapping[str, str]: ...
    def ask(self, sql: str) -> int:
        """The answer to a question with one number."""
        ...

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        """Change something, and commit it."""
        ...

    def settle(self) -> None:
        """The same footing for all: statistics fresh, dirty pages on the disk."""
        ...

    def server_cpu_seconds(self) -> float: ...


class Place(Protocol):
    """Makes databases for one store."""

    def fresh(self, contestant: Contestant) -> AbstractContextManager[Database]:
        """An empty queue, removed at the end of the block."""
        ...


class PostgresDatabase:
    """A database on the run's server, with a connection to look at it."""

    def __init__(self, server: ThrowAwayPostgres, name: str) -> None:
        self._server = server
        self.base: str = server.url.rpartition("/")[0]
        self.url: str = f"{self.base}/{name}"
        self.environment: dict[str, str] = {"BENCH_PG": self.base, "BENCH_DB": name}
        self.name = name
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self.url, autocommit=True, prepare_threshold=None, application_name="look"
            )
        return self._connection

    def ask(self, sql: str) -> int:
        row = self.connection.execute(sql.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        self.connection.execute(sql.encode(), values)

    def settle(self) -> None:
        self.execute("VACUUM ANALYZE")
        self.execute("CHECKPOINT")

    def server_cpu_seconds(self) -> float:
        status = self._server.directory / "data" / "postmaster.pid"
        return used_seconds(int(status.read_text().splitlines()[0]))

    def wal_bytes(self) -> int:
        return self.ask("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class PostgresPlace:
    """The run's server; the tables of each contestant are made once, in a template."""

    def __init__(self, server: ThrowAwayPostgres) -> None:
        self._server = server
        self._templates: dict[str, str] = {}
        self._numbers = itertools.count(1)

    @property
    def version(self) -> str:
        with psycopg.connect(self._server.url) as connection:
            return connection.info.parameter_status("server_version") or ""

    @contextmanager
    def fresh(self, contestant: Contestant) -> Iterator[PostgresDatabase]:
        name = f"bench_{contestant.name}_{next(self._numbers)}"
        template = self._template(contestant)
        self._admin(f"CREATE DATABASE {name} TEMPLATE {template}")
        database = PostgresDatabase(self._server, name)
        try:
            yield database
        finally:
            database.close()
            self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def _template(self, contestant: Contestant) -> str:
        name = self._templates.get(contestant.name)
        if name is None:
            name = f"template_{contestant.name}"
            self._admin(f"CREATE DATABASE {name}")
            contestant.call(PostgresDatabase(self._server, name), "setup")
            self._admin(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            self._templates[contestant.name] = name
        return name

    def _admin(self, sql: str) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(sql.encode())


@contextmanager
def postgres_place(directory: Path, *, version: int | None) -> Iterator[PostgresPlace]:
    """A durable server in a directory below this one."""
    # Below a directory of its own: as root the server runs as another user, who must get there.
    server = ThrowAwayPostgres(
        version=version,
        durable=True,
        settings=POSTGRES_SETTINGS,
        directory=directory / "postgres",
    )
    with server:
        yield PostgresPlace(server)


class SqliteDatabase:
    """A file; its server's work is done by the workers themselves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url: str = f"sqlite:///{path}"
        self.environment: dict[str, str] = {"BENCH_DB": str(path)}

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def ask(self, sql: str) -> int:
        with closing(self.connect()) as connection:
            (number,) = connection.execute(sql).fetchone()
        return int(number)

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        with closing(self.connect()) as connection:
            connection.execute(sql, values or {})

    def settle(self) -> None:
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # What was written to fill it must not be on its way to the disk any more.
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def server_cpu_seconds(self) -> float:
        return 0.0


class SqlitePlace:
    """A directory of files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)

    @contextmanager
    def fresh(self, contestant: Contestant) -> Iterator[SqliteDatabase]:
        room = self._directory / f"{contestant.name}-{next(self._numbers)}"
        room.mkdir()
        database = SqliteDatabase(room / "bench.db")
        try:
            contestant.call(database, "setup")
            yield database
        finally:
            shutil.rmtree(room)


class RedisDatabase:
    """A server with an append-only file, synchronised every second, as Redis advises."""

    url = ""

    def __init__(self, port: int, pid: int) -> None:
        self.environment: dict[str, str] = {
            "BENCH_REDIS_HOST": "127.0.0.1",
            "BENCH_REDIS_PORT": str(port),
        }
        self._pid = pid

    def ask(self, sql: str) -> int:
        raise AdapterFailed("Redis can not be asked how far it is")

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        raise AdapterFailed("Redis can not be asked how far it is")

    def settle(self) -> None:
        """Nothing to be done."""

    def server_cpu_seconds(self) -> float:
        return used_seconds(self._pid)


class RedisPlace:
    """A new server for each measurement."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self._directory = directory

    @contextmanager
    def fresh(self, contestant: Contestant) -> Iterator[RedisDatabase]:
        port = find_free_port()
        room = self._directory / f"redis-{port}"
        room.mkdir()
        command = [self._program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(room)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            _wait_for_port(port)
            database = RedisDatabase(port, process.pid)
            contestant.call(database, "setup")
            yield database
        finally:
            process.terminate()
            process.wait()
            shutil.rmtree(room)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + REDIS_START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
