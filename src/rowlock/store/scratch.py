"""A place for temporary jobs in a user's own database, beside the user's jobs, removed at the end.

1. On PostgreSQL it is a schema with an unused name. On SQLite it is a file in a directory of its
   own, beside the user's file, on the same file system. The user's jobs are never touched.
2. It is removed however the block ends, also by Ctrl-C. Only a process that is killed leaves it.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rowlock.errors import Forbidden, StoreUnavailable
from rowlock.ids import new_id
from rowlock.store.sqlite.file import SqliteFile, path_of
from rowlock.store.url import scheme_of

PREFIX: Final = "rowlock_bench_"
_FILE: Final = "bench.db"


@dataclass(frozen=True, slots=True)
class Scratch:
    """The URL and the schema to open a store with. `directory` is for SQLite."""

    url: str = field(repr=False)
    schema: str
    directory: Path | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep a transaction open while the block runs. It has written, where that is possible."""
        if self.directory is not None:
            with _hold_file(self.directory / _FILE):
                yield
        else:
            from rowlock.store.postgres.scratch import hold

            with hold(self.url):
                yield


@contextmanager
def scratch(url: str, *, prefix: str = PREFIX) -> Iterator[Scratch]:
    """Make a place in the database of a URL while the block runs. Its name begins with `prefix`.

    Raises:
        Forbidden: The role may not create a schema, or the directory is not writable.
        StoreUnavailable: The database can't be reached, or the place could not be removed. The
            message says how to remove it by hand.
    """
    if scheme_of(url) == "sqlite":
        with _directory(url, prefix) as directory:
            yield Scratch(f"sqlite:///{directory / _FILE}", "rowlock", directory)
        return
    from rowlock.store.postgres.scratch import check_rights, drop

    check_rights(url)
    schema = f"{prefix}{new_id()[-12:]}"
    try:
        yield Scratch(url, schema)
    finally:
        drop(url, schema)


def left_behind(url: str, *, prefix: str = PREFIX) -> list[str]:
    """The places of other runs, which still run or were killed."""
    if scheme_of(url) == "sqlite":
        parent = SqliteFile(path_of(url)).path.parent
        return sorted(map(str, parent.glob(f".{prefix}*")))
    from rowlock.store.postgres.scratch import schemas

    return schemas(url, prefix)


@contextmanager
def _directory(url: str, prefix: str) -> Iterator[Path]:
    # Checked like a store's own file: a network file system is refused.
    beside = SqliteFile(path_of(url)).path
    # Named before it is made: an interrupt may come right afterwards.
    directory = beside.parent / f".{prefix}{new_id()[-12:]}"
    try:
        _make(directory, beside)
        yield directory
    finally:
        try:
            if directory.exists():
                shutil.rmtree(directory)
        except OSError as error:
            raise StoreUnavailable(
                f"{directory} could not be removed: {error.strerror}; remove it by hand"
            ) from error


def _make(directory: Path, beside: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise Forbidden(
            f"can't write beside {beside}: {error.strerror}; the measurement needs a file there, "
            "on the same file system"
        ) from error


@contextmanager
def _hold_file(path: Path) -> Iterator[None]:
    """Hold a reader: during a writer's transaction no other process could write at all."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
        connection.execute("ROLLBACK")
