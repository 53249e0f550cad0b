"""What is in the database, as metrics: asked for once in a while, for all who ask."""

from __future__ import annotations

import asyncio
import time

from prometheus_client.metrics_core import Metric

from rowlock import config
from rowlock.clock import to_us
from rowlock.observe.metrics import of_queues
from rowlock.store import Store
from rowlock.store.ops.health import server
from rowlock.store.ops.look import workers
from rowlock.store.ops.stats import stats


class Gauges:
    """What is in the database, as it was seconds ago at most."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: list[Metric] = []
        self._until = 0.0
        self._look: asyncio.Task[list[Metric]] | None = None

    async def read(self) -> list[Metric]:
        """One look at a time, however many ask."""
        if time.monotonic() < self._until:
            return self._known
        loop = asyncio.get_running_loop()
        look = self._look
        if look is None or look.done() or look.get_loop() is not loop:
            look = self._look = loop.create_task(self._ask())
        return await asyncio.shield(look)

    async def _ask(self) -> list[Metric]:
        queues = await self._store.arun(stats())
        found = await self._store.arun(workers())
        now = (await self._store.arun(server())).now
        silent = now - int(config.WORKER_SILENT_SECONDS) * config.SECOND_US
        live = sum(
            each.last_beat_at is not None and to_us(each.last_beat_at, option="now") >= silent
            for each in found
        )
        self._known = of_queues(queues, workers=live)
        self._until = time.monotonic() + config.METRICS_KNOWN_SECONDS
        return self._known
