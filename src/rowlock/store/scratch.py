"""A place for throw-away jobs in a user's own database: beside what is there, gone at the end.

1. On PostgreSQL it is a schema with a name that nobody has, on SQLite a file in a directory of its
   own beside the user's, on the same file system. The user's jobs are never touched.
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
    """Where the jobs go: a URL and a schema to open a store with. `directory` is SQLite's."""

    url: str = field(repr=False)
    schema: str
    directory: Path | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep a transaction open while the block runs: one that has written, where that may be."""
        if self.directory is not None:
            with _hold_file(self.directory / _FILE):
                yield
        else:
            from rowlock.store.postgres.scratch import hold

            with hold(self.url):
                yield


@contextmanager
def scratch(url: str, *, prefix: str = PREFIX) -> Iterator[Scratch]:
    """A place of its own, whose name begins so, in the database of a URL while the block runs.

    Raises:
        Forbidden: The role may not create a schema, or nobody may write to the directory.
        StoreUnavailable: The database can't be reached, or the place could not be removed; the
            message says how to do so by hand.
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
    """The places of other runs: they go on, or were killed."""
    if scheme_of(url) == "sqlite":
        parent = SqliteFile(path_of(url)).path.parent
        return sorted(map(str, parent.glob(f".{prefix}*")))
    from rowlock.store.postgres.scratch import schemas

    return schemas(url, prefix)


@contextmanager
def _directory(url: str, prefix: str) -> Iterator[Path]:
    # Looked at as the store would look at it: a network file system is refused.
    beside = SqliteFile(path_of(url)).path
    # Named before it is made: an interrupt may come the moment after.
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
            f"nothing can be written beside {beside}: {error.strerror}; a file there, on the same "
            "file system, is what would be measured"
        ) from error


@contextmanager
def _hold_file(path: Path) -> Iterator[None]:
    """A reader: while a writer is in the middle of a transaction, nobody else can write at all."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield
        connection.execute("ROLLBACK")
