"""Blocks: a handler's own writes and its job's success, in one transaction on a connection of ours.

1. The fenced settle is the last statement before COMMIT: no row of ours is locked while the
   handler works.
2. A block that was not concluded leaves nothing behind: it is rolled back, whatever happened.
3. If the answer to a COMMIT is lost, the lease's token shows whether it happened. Nothing is sent
   twice.
4. A block concludes nothing if its lease was lost, or its transaction was ended inside it.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from rowlock import config
from rowlock.job import Lease
from rowlock.store.borrowed import Callers
from rowlock.store.ops.settle import Settled, Settlement, explain_missed, settle
from rowlock.store.statements import Dialect
from rowlock.store.steps import Op, Ring, Steps, reading, writing

if TYPE_CHECKING:
    from rowlock.store.postgres.engine import PostgresEngine
    from rowlock.store.sqlite.engine import SqliteEngine
    from rowlock.store.store import Store


class Conclusion(msgspec.Struct, frozen=True):
    """What a block writes last: the run's progress and log lines, then its success."""

    settlement: Settlement
    notes: Sequence[Op[Settled]] = msgspec.field(default_factory=list[Op[Settled]])
    rung: set[str] = msgspec.field(default_factory=set[str])

    @property
    def lease(self) -> Lease:
        return self.settlement.lease

    @property
    def queues(self) -> frozenset[str]:
        """The queues that have got a job from it."""
        return frozenset(self.rung)

    def _noting(self, steps: Steps[Settled]) -> Steps[Settled]:
        """The same steps. The queues that are to be rung for are noted."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Ring):
                    self.rung.update(step.queues)
                step = steps.send((yield step))
        except StopIteration as end:
            settled: Settled = end.value
            return settled

    def op(self) -> Op[Settled]:
        """The steps on the block's connection. The settle decides whether the lease still holds."""

        def steps() -> Steps[Settled]:
            for note in self.notes:
                yield from note.start()
            # A success needs no backoff, and so no chance.
            ended = settle([self.settlement], chance=random.Random(0)).start()
            return (yield from self._noting(ended))

        return writing("conclude", steps)

    def lookup(self) -> Op[Settled]:
        """For a COMMIT whose answer was lost: the leases that it did not settle are missed."""
        return reading("lookup", lambda: explain_missed([self.lease], is_resend=True))


class Block(Protocol):
    """One transaction. It is over after `conclude` or `undo`, even if these raise."""

    @property
    def overdue(self) -> Exception | None:
        """Why it was undone early, if it was."""
        ...

    def begin(self) -> Any:
        """Open it and return the connection."""
        ...

    def conclude(self, conclusion: Conclusion) -> None: ...
    def undo(self) -> None: ...


class AsyncBlock(Protocol):
    """As `Block`, for coroutines. `conclude` and `undo` must not be cancelled."""

    @property
    def overdue(self) -> Exception | None: ...

    async def begin(self) -> Any: ...
    async def conclude(self, conclusion: Conclusion) -> None: ...
    async def undo(self) -> None: ...


class Blocks:
    """Makes the blocks of one worker."""

    def __init__(self, store: Store, *, lease_seconds: float) -> None:
        self._engine = store.engine
        self._callers = Callers(store.engine)
        # Heartbeats wait for SQLite's only writer too: two of three may fail, and no lease is lost.
        self._seconds = lease_seconds / 3
        self._places = threading.BoundedSemaphore(config.POSTGRES_BLOCKS_MAX)
        # Not the loop's own threads: all of them may be busy with writes that wait for the lock of
        # the very block that is to be committed. One is enough, because one block holds that lock.
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="rowlock-commit")
        self._loops: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[asyncio.Lock, asyncio.BoundedSemaphore]
        ] = weakref.WeakKeyDictionary()

    @property
    def is_only_writer(self) -> bool:
        """Whether nothing else, not even the run itself, can write while a block is open."""
        return self._engine.dialect is Dialect.SQLITE

    def block(self) -> Block:
        """A block for a plain function."""
        if self.is_only_writer:
            from rowlock.store.sqlite.block import SqliteBlock

            return SqliteBlock(self._sqlite, self._callers, seconds=self._seconds)
        from rowlock.store.postgres.block import PostgresBlock

        return PostgresBlock(self._postgres, places=self._places)

    def ablock(self) -> AsyncBlock:
        """A block for a coroutine, on its loop."""
        line, places = self._of_loop()
        if self.is_only_writer:
            from rowlock.store.sqlite.block import AsyncSqliteBlock

            return AsyncSqliteBlock(
                self._sqlite,
                self._callers,
                seconds=self._seconds,
                line=line,
                committer=self._committer,
            )
        from rowlock.store.postgres.block import AsyncPostgresBlock

        return AsyncPostgresBlock(self._postgres, places=places)

    def _of_loop(self) -> tuple[asyncio.Lock, asyncio.BoundedSemaphore]:
        """The running loop's queue for SQLite's write lock, and its places on PostgreSQL."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            places = asyncio.BoundedSemaphore(config.POSTGRES_BLOCKS_MAX)
            self._loops[loop] = (asyncio.Lock(), places)
        return self._loops[loop]

    @property
    def _sqlite(self) -> SqliteEngine:
        return cast("SqliteEngine", self._engine)

    @property
    def _postgres(self) -> PostgresEngine:
        return cast("PostgresEngine", self._engine)


__all__ = ["AsyncBlock", "Block", "Blocks", "Conclusion"]
