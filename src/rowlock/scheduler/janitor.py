"""The janitor: gives back expired leases every few seconds, removes old jobs every minute.

It also keeps the history: it samples the queues once a minute, and folds what is old.
"""

from __future__ import annotations

import asyncio
from random import Random

from rowlock import config
from rowlock.scheduler.service import jittered, repeat
from rowlock.store import Store
from rowlock.store.ops.events import prune_events
from rowlock.store.ops.history import fold_history, sample_depth
from rowlock.store.ops.recover import Seen, sweep


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
        self._seen = await self._store.arun(sweep(self._seen))
        return jittered(config.SWEEP_SECONDS, self._chance)

    async def _prune(self) -> float:
        await self._store.aprune()
        return jittered(config.PRUNE_SECONDS, self._chance)
