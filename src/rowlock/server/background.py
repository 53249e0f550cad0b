"""Work beside requests: each sort once, kept until it ends, never lost without a word."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble, persist

logger: logging.Logger = logging.getLogger("rowlock.server")

Work = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """The tasks of one server."""

    def __init__(self, errors: ServiceErrors) -> None:
        # Of all that runs here; services count theirs themselves.
        self.errors: ServiceErrors = errors
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ensure(self, name: str, work: Work) -> None:
        """Start it on the running loop, unless it runs there."""
        task = self._tasks.get(name)
        loop = asyncio.get_running_loop()
        if task is None or task.done() or task.get_loop() is not loop:
            task = loop.create_task(self._keep_up(name, work), name=f"rowlock-{name}")
            task.add_done_callback(_complain)
            self._tasks[name] = task

    async def _keep_up(self, name: str, work: Work) -> None:
        """Begin anew after an error that the work itself has not survived."""
        await persist(work, Trouble(f"{name} has failed", ServiceName.BACKGROUND, self.errors))

    async def aclose(self) -> None:
        """End all of it."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s ended: %s", task.get_name(), error, exc_info=error)
