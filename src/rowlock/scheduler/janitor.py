"""The janitor: gives back expired leases every few seconds, removes old jobs every minute.

It also keeps the history: it samples the queues once a minute, and folds what is old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from rowlock import config
from rowlock.scheduler.service import Act, jittered, repeat
from rowlock.store import Store
from rowlock.store.ops.events import prune_events
from rowlock.store.ops.history import fold_history, sample_depth
from rowlock.store.ops.manage import prune
from rowlock.store.ops.recover import Seen, sweep
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble

T = TypeVar("T")


class Janitor:
    """Recovery and retention, in bounded batches. Any number may run on one database.

    Args:
        has_retention: Whether finished jobs are removed when their time is over; without, they
            stay until somebody calls `prune`.
        on_refused: Called for each lost job whose end the database refuses to store.
    """

    def __init__(
        self,
        store: Store,
        *,
        has_retention: bool = True,
        chance: Random | None = None,
        errors: ServiceErrors | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self._errors = errors
        self._store = store
        self._has_retention = has_retention
        self._chance = chance or Random()
        self._seen: Seen = {}
        self._on_refused = on_refused
        self._sweeps = Batches()
        self._prunes = Batches()

    async def run(self) -> None:
        """Keep house until cancelled."""
        # Each by itself: one that fails for long must not keep the others from their work.
        async with asyncio.TaskGroup() as group:
            for act, service, what in self._services():
                trouble = Trouble(what, service, self._errors, chance=self._chance)
                group.create_task(repeat(act, trouble))

    def _services(self) -> list[tuple[Act, ServiceName, str]]:
        services: list[tuple[Act, ServiceName, str]] = [
            (self._recover, ServiceName.RECOVER, "lost jobs are not given back"),
            (self._sample, ServiceName.DEPTH, "the depths of queues are not recorded"),
            (self._fold, ServiceName.FOLD, "the history is not folded"),
            (self._prune_events, ServiceName.PRUNE_EVENTS, "old events are not removed"),
        ]
        if self._has_retention:
            services.append((self._prune, ServiceName.PRUNE, "old jobs are not removed"))
        return services

    async def _sample(self) -> float:
        await self._store.arun(sample_depth())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _fold(self) -> float:
        await self._store.arun(fold_history())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _prune_events(self) -> float:
        await self._store.arun(prune_events())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _recover(self) -> float:
        self._seen = await self._sweeps.run(self._sweep)
        return jittered(config.SWEEP_SECONDS, self._chance)

    async def _sweep(self, rows: int) -> Seen:
        store = self._store
        return await store.arun(
            sweep(store.local, self._seen, rows=rows, on_refused=self._on_refused)
        )

    async def _prune(self) -> float:
        await self._prunes.run(lambda rows: self._store.arun(prune(batch_rows=rows)))
        return jittered(config.PRUNE_SECONDS, self._chance)


class Batches:
    """How many rows to take at a time: fewer after each failure, more again when it went well.

    A server may end a statement that takes too long; with as many rows it would end it for ever.
    """

    def __init__(self) -> None:
        self._rows = config.MAINTENANCE_BATCH_ROWS

    async def run(self, act: Callable[[int], Awaitable[T]]) -> T:
        """Call it with the number of rows to take."""
        try:
            done = await act(self._rows)
        except Exception:
            self._rows = max(1, self._rows // 2)
            raise
        self._rows = min(config.MAINTENANCE_BATCH_ROWS, self._rows * 2)
        return done
