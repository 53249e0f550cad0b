"""Verbs on the user's own connection: they are committed or undone with the user's transaction.

1. A transaction that the user opened, or that the connection opens by itself, is the user's: it
   is never begun in a way that ends here, and never committed or rolled back.
2. Where each statement would be committed by itself, the verb gets a transaction of its own.
3. Nothing is written before the connection is known to lead to the app's own database. On
   PostgreSQL no statement is sent that would fail on another database, and so end the user's
   transaction.
4. Nothing is written on our own connections: on SQLite the user may hold the only write lock.
5. Errors of the driver reach the user as they are. They concern the user's transaction, and the
   user's code around it already handles them (a serialization failure is retried from its
   beginning, which we can't do), by the classes that this driver raises everywhere else.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, TypeVar

from rowlock.errors import OptionInvalid
from rowlock.store.borrowed.libraries import aborrow, borrow
from rowlock.store.borrowed.visit import Known, Visit, avisit, visit
from rowlock.store.ops.health import instance
from rowlock.store.statements import Dialect

if TYPE_CHECKING:
    from rowlock.store.borrowed.connection import Borrowed
    from rowlock.store.engine import Engine
    from rowlock.store.steps import Op

T = TypeVar("T")

_NAMES = {Dialect.SQLITE: "SQLite", Dialect.POSTGRES: "PostgreSQL"}


class Callers:
    """Runs verbs on connections that belong to callers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._instance: str | None = None
        # Connections that were found to lead to our database. PostgreSQL only.
        self._known: Known = weakref.WeakSet()

    def run(self, op: Op[T], conn: object, *, notify_in_transaction: bool) -> T:
        """Run a verb on a blocking connection."""
        borrowed = borrow(conn)
        self._check_dialect(borrowed)
        if self._instance is None:
            self._instance = self._engine.run(instance())
        return visit(borrowed, self._visit(borrowed, self._instance, notify_in_transaction), op)

    async def arun(self, op: Op[T], conn: object, *, notify_in_transaction: bool) -> T:
        """Run a verb on an async connection."""
        borrowed = await aborrow(conn)
        self._check_dialect(borrowed)
        if self._instance is None:
            self._instance = await self._ask_instance()
        plan = self._visit(borrowed, self._instance, notify_in_transaction)
        return await avisit(borrowed, plan, op)

    async def _ask_instance(self) -> str:
        if self._engine.dialect is Dialect.POSTGRES:
            return await self._engine.arun(instance())
        # Not in the group of async callers: a write there may be waiting for this very caller.
        return await asyncio.to_thread(self._engine.run, instance())

    def _check_dialect(self, borrowed: Borrowed[object]) -> None:
        ours = self._engine.dialect
        if borrowed.dialect is not ours:
            raise OptionInvalid(
                "conn",
                f"is a connection to {_NAMES[borrowed.dialect]}, "
                f"but the app's database is {_NAMES[ours]}",
            )

    def _visit(self, borrowed: Borrowed[object], id: str, notify_in_transaction: bool) -> Visit:
        return Visit(
            self._engine,
            borrowed,
            known=self._known,
            instance=id,
            notify_in_transaction=notify_in_transaction,
        )


__all__ = ["Callers"]
