"""Takes the steps of bulk work, whoever began it, for as long as there is any."""

from __future__ import annotations

import asyncio
import logging
from random import Random

from rowlock import config
from rowlock.errors import RowlockError
from rowlock.server.background import Background
from rowlock.store import Store
from rowlock.store.ops.bulk_work import advance_bulk, fail_bulk, running_bulks
from rowlock.worker.trouble import ServiceName, Trouble, jittered, repeat

logger: logging.Logger = logging.getLogger("rowlock.server")


class BulkRunner:
    """One of a server; any number on one database take turns, step by step."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._woken = asyncio.Event()
        self._chance = Random()

    def wake(self) -> None:
        """There is work: start, or look at once."""
        self._woken.set()
        self._background.ensure("bulk", self._run)

    async def _run(self) -> None:
        # Of this loop: a mounted application may be run by another one each time, in tests.
        self._woken = asyncio.Event()
        errors = self._background.errors
        trouble = Trouble("bulk work stands still", ServiceName.BULK, errors, chance=self._chance)
        await repeat(self._advance, trouble, woken=self._woken)

    async def _advance(self) -> float:
        """One step of each; in how many seconds to look again."""
        pauses: list[float] = []
        for id in await self._store.arun(running_bulks()):
            try:
                taken = await self._store.arun(advance_bulk(id))
                if taken.is_more:
                    pauses.append(taken.wait_seconds)
            except RowlockError:
                raise
            except Exception as error:
                # A step that fails once fails for ever: it is given up, and says so.
                logger.exception("bulk work %s is given up", id)
                await self._store.arun(fail_bulk(id, f"given up: {type(error).__name__}"))
        return min(pauses, default=jittered(config.BULK_LOOK_SECONDS, self._chance))
