"""Work beside requests: each sort once, kept until it ends, never lost without a word."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rowlock import config
from rowlock.errors import RowlockError

logger: logging.Logger = logging.getLogger("rowlock.server")

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """The tasks of one server."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ensure(self, name: str, work: Work) -> None:
        """Start it on the running loop, unless it runs there."""
        task = self._tasks.get(name)
        loop = asyncio.get_running_loop()
        if task is None or task.done() or task.get_loop() is not loop:
            task = loop.create_task(_kept_up(name, work), name=f"rowlock-{name}")
            task.add_done_callback(_complain)
            self._tasks[name] = task

    async def aclose(self) -> None:
        """End all of it."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _kept_up(name: str, work: Work) -> None:
    """Begin anew after trouble that may pass: a database that is being migrated, say."""
    while True:
        try:
            await work()
            return
        except* RowlockError as group:
            logger.warning("%s begins anew in a while: %s", name, group.exceptions[0])
        await asyncio.sleep(config.TROUBLE_SECONDS_MAX)


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s ended: %s", task.get_name(), error, exc_info=error)
