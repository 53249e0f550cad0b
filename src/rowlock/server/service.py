"""What all requests of a server share: the app and its store, the gate, and work in the background.

Made without a loop; what runs beside requests starts with the first that needs it, because below a
prefix of another application nobody tells us when that one starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from rowlock.app import App
from rowlock.server.gate import Gate, Openness
from rowlock.server.readiness import Readiness
from rowlock.store import Store
from rowlock.store.ops.claim import KnownPolicy

logger: logging.Logger = logging.getLogger("rowlock.server")

Work = Callable[[], Coroutine[Any, Any, None]]


class Service:
    """One server's shared state."""

    def __init__(
        self,
        app: App,
        *,
        openness: Openness,
        hosts: frozenset[str] | None,
        has_dashboard: bool,
    ) -> None:
        self.app = app
        self.has_dashboard = has_dashboard
        self.gate: Gate = Gate(app.store, openness=openness, hosts=hosts)
        # Set once the server is told to stop: what waits for news answers at once.
        self.stopping: asyncio.Event = asyncio.Event()
        self.background: Background = Background()
        self.readiness: Readiness = Readiness(app.store)
        # Resolved now, so that a task that can't be described is known at the start.
        self.schemas: dict[str, dict[str, Any]] = {
            task.name: task.schema.json_schema() for task in app
        }
        self.policies: dict[str, KnownPolicy] = {task.name: task.known_policy() for task in app}

    @property
    def store(self) -> Store:
        return self.app.store

    def stop(self) -> None:
        """Let those who wait for news answer; the others are finished as they are."""
        self.stopping.set()

    async def aclose(self) -> None:
        """End what runs beside requests, and close this loop's connections."""
        self.stop()
        await self.background.aclose()
        await self.store.engine.aclose_loop()


class Background:
    """Work beside requests: each sort once, kept until it ends, never lost without a word."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ensure(self, name: str, work: Work) -> None:
        """Start it on the running loop, unless it runs."""
        task = self._tasks.get(name)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(work(), name=f"rowlock-{name}")
            task.add_done_callback(_complain)
            self._tasks[name] = task

    async def aclose(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s ended: %s", task.get_name(), error, exc_info=error)
