"""The interface of an engine: one implementation for SQLite, one for PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from rowlock.clock import Clock
from rowlock.store.drive import Binder
from rowlock.store.statements import Dialect
from rowlock.store.steps import News, Op

T = TypeVar("T")


class Engine(Protocol):
    """Runs verbs on one kind of database."""

    dialect: Dialect
    schema: str
    binder: Binder

    @property
    def address(self) -> str:
        """The URL by which other processes reach this database from anywhere. Not for logs."""
        ...

    @property
    def clock(self) -> Clock | None:
        """The clock, or None for the database's own."""
        ...

    def run(self, op: Op[T]) -> T: ...
    async def arun(self, op: Op[T]) -> T: ...
    def migrate(self) -> list[int]: ...
    def applied(self) -> dict[int, str]: ...
    def notifications(self) -> AsyncIterator[News | None]:
        """Yield None once it listens, then news of jobs that may be due."""
        ...

    def apart(self) -> Engine:
        """An engine on the same database, with connections of its own."""
        ...

    def close(self) -> None: ...
    async def aclose(self) -> None: ...
    async def aclose_loop(self) -> None:
        """Close the connections of the running loop, which is about to end."""
        ...
