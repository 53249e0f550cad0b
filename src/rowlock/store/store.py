"""The store of a database: its engine, its verbs, and what this process remembers about it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TypeVar

from rowlock.chance import CHANCE
from rowlock.errors import StoreRefused
from rowlock.job import Job
from rowlock.store.borrowed import Callers
from rowlock.store.engine import Engine
from rowlock.store.local_state import ClockWatch, LocalState, SetAside
from rowlock.store.methods import StoreVerbs
from rowlock.store.ops.enqueue import enqueue
from rowlock.store.ops.workflows import Draft, Written, enqueue_workflow
from rowlock.store.options import NewJob
from rowlock.store.steps import Op

T = TypeVar("T")


class Store(StoreVerbs):
    """A queue's database: every verb, blocking and async, on any number of threads and loops."""

    def __init__(self, engine: Engine, *, chance: random.Random = CHANCE) -> None:
        self.engine = engine
        self.local: LocalState = LocalState(ClockWatch(engine.clock), SetAside(), chance)
        self._callers = Callers(engine)

    def run(self, op: Op[T]) -> T:
        """Run a verb and wait for it."""
        while True:
            try:
                return self.engine.run(op)
            except StoreRefused as error:
                if op.on_refused is None:
                    raise
                op.on_refused(error)

    async def arun(self, op: Op[T]) -> T:
        """As `run`."""
        while True:
            try:
                return await self.engine.arun(op)
            except StoreRefused as error:
                if op.on_refused is None:
                    raise
                op.on_refused(error)

    _run, _arun = run, arun

    def apart(self) -> Store:
        """A store on the same database with connections of its own, for work that may take long."""
        return Store(self.engine.apart())

    def migrate(self) -> list[int]:
        """Apply missing migrations and return their numbers. Many processes may call it at once."""
        return self.engine.migrate()

    async def amigrate(self) -> list[int]:
        """As `migrate`."""
        return await asyncio.to_thread(self.engine.migrate)

    def close(self) -> None:
        """Close this process's connections. A later call opens new ones."""
        self.engine.close()

    async def aclose(self) -> None:
        """As `close`, from a coroutine: this loop's connections too."""
        await self.engine.aclose()

    def enqueue(
        self, jobs: Sequence[NewJob], *, conn: object = None, notify_in_transaction: bool = True
    ) -> Sequence[Job]:
        """Insert jobs, all or none. The `created` of each returned job says whether it is new.

        Args:
            conn: A connection of the caller's own to this database: the jobs exist if, and only
                if, its transaction is committed. Errors of its driver are raised as they are.
            notify_in_transaction: Wake workers by a NOTIFY in that transaction, where the library
                has no hook for after the commit. If False, they find the jobs at their next poll.
        """
        if conn is None or not jobs:
            return self.run(enqueue(jobs)) if jobs else []
        return self._callers.run(enqueue(jobs), conn, notify_in_transaction=notify_in_transaction)

    def enqueue_workflow(
        self, draft: Draft, *, conn: object = None, notify_in_transaction: bool = True
    ) -> Written:
        """Write a workflow, all of it or nothing. The arguments are those of `enqueue`."""
        op = enqueue_workflow(draft)
        if conn is None:
            return self.run(op)
        return self._callers.run(op, conn, notify_in_transaction=notify_in_transaction)

    async def aenqueue_workflow(
        self, draft: Draft, *, conn: object = None, notify_in_transaction: bool = True
    ) -> Written:
        """As `enqueue_workflow`, on an async connection."""
        op = enqueue_workflow(draft)
        if conn is None:
            return await self.arun(op)
        return await self._callers.arun(op, conn, notify_in_transaction=notify_in_transaction)

    async def aenqueue(
        self, jobs: Sequence[NewJob], *, conn: object = None, notify_in_transaction: bool = True
    ) -> Sequence[Job]:
        """As `enqueue`, on an async connection."""
        if conn is None or not jobs:
            return await self.arun(enqueue(jobs)) if jobs else []
        return await self._callers.arun(
            enqueue(jobs), conn, notify_in_transaction=notify_in_transaction
        )
