"""The janitor: gives back expired leases every few seconds, removes old jobs every minute.

It also keeps the history: it samples the queues once a minute, and folds what is old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.scheduler.service import jittered, repeat
from rowlock.store import Store
from rowlock.store.ops.events import prune_events
from rowlock.store.ops.history import fold_history, sample_depth
from rowlock.store.ops.manage import prune
from rowlock.store.ops.recover import Seen, sweep
from rowlock.store.steps import Op

T = TypeVar("T")


class Janitor:
    """Recovery and retention, in bounded batches. Any number may run on one database.

    Args:
        has_retention: Whether finished jobs are removed when their time is over; without, they
            stay until somebody calls `prune`.
    """

    def __init__(
        self, store: Store, *, has_retention: bool = True, chance: Random | None = None
    ) -> None:
        self._store = store
        self._has_retention = has_retention
        self._chance = chance or Random()
        self._seen: Seen = {}
        self._sweeps = Batches()
        self._prunes = Batches()

    async def run(self) -> None:
        """Keep house until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recover_on())
            group.create_task(self._record_on())
            if self._has_retention:
                group.create_task(self._prune_on())

    async def _recover_on(self) -> None:
        await repeat(
            self._recover,
            what="lost jobs are not given back",
            woken=asyncio.Event(),
            chance=self._chance,
        )

    async def _record_on(self) -> None:
        await repeat(
            self._record,
            what="the history is not kept",
            woken=asyncio.Event(),
            chance=self._chance,
        )

    async def _record(self) -> float:
        await self._store.arun(sample_depth())
        await self._store.arun(fold_history())
        await self._store.arun(prune_events())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _prune_on(self) -> None:
        await repeat(
            self._prune,
            what="old jobs are not removed",
            woken=asyncio.Event(),
            chance=self._chance,
        )

    async def _recover(self) -> float:
        self._seen = await self._sweeps.run(
            self._store,
            lambda rows: sweep(self._seen, batch_rows=rows, watch=self._store.clock_watch),
        )
        return jittered(config.SWEEP_SECONDS, self._chance)

    async def _prune(self) -> float:
        await self._prunes.run(self._store, lambda rows: prune(batch_rows=rows))
        return jittered(config.PRUNE_SECONDS, self._chance)


class Batches:
    """How many rows to take at a time: fewer after each failure, more again when it went well.

    A server may end a statement that takes too long; with as many rows it would end it for ever.
    """

    def __init__(self) -> None:
        self._rows = config.MAINTENANCE_BATCH_ROWS

    async def run(self, store: Store, op: Callable[[int], Op[T]]) -> T:
        try:
            done = await store.arun(op(self._rows))
        except StoreUnavailable:
            self._rows = max(1, self._rows // 2)
            raise
        self._rows = min(config.MAINTENANCE_BATCH_ROWS, self._rows * 2)
        return done
