"""The store's bell, heard once for all calls that wait for jobs.

A ring wakes a few of those who wait, not all: each looks with a query of its own, and on SQLite
every write of anybody rings. Who finds a job wakes the next one; the others look again by
themselves within a second. So a job is found soon, and a ring costs the same however many wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress

from rowlock import config
from rowlock.server.background import Background
from rowlock.store import Store
from rowlock.worker.services import listen


class Doorbell:
    """Wakes those who wait for jobs of a queue. It only saves time: they look again anyway."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        # In the order in which they came.
        self._waiting: dict[asyncio.Event, Collection[str] | None] = {}
        self._is_working = False
        self._rung: set[str] = set()
        self._next_at = 0.0

    @property
    def waiting(self) -> int:
        """How many wait just now."""
        return len(self._waiting)

    async def wait(self, queues: Collection[str] | None, seconds: float) -> None:
        """Until one of these queues (None: any) rings, it is time to look, or the time is over."""
        self._background.ensure("doorbell", self._listen)
        poll = config.POLL_SECONDS_WITH_BELL if self._is_working else config.POLL_SECONDS
        rung = asyncio.Event()
        self._waiting[rung] = queues
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, poll)):
                    await rung.wait()
        finally:
            del self._waiting[rung]

    def pass_on(self) -> None:
        """Whoever was woken has found a job: there may be one for another."""
        self._wake("", most=1)

    def wake_all(self) -> None:
        """Let all look, or answer."""
        for rung in self._waiting:
            rung.set()

    async def _listen(self) -> None:
        await listen(self._store, self._ring, self._on_state, self._background.errors)

    def _ring(self, queue: str) -> None:
        """At once, but not more often than looking is worth."""
        if not self._rung:
            wait = max(0.0, self._next_at - time.monotonic())
            asyncio.get_running_loop().call_later(wait, self._ring_now)
        self._rung.add(queue)

    def _ring_now(self) -> None:
        rung, self._rung = self._rung, set()
        self._next_at = time.monotonic() + config.HTTP_RING_SECONDS
        for queue in rung:
            self._wake(queue, most=config.HTTP_RING_WAKES)

    def _wake(self, queue: str, *, most: int) -> None:
        fitting = [
            rung
            for rung, queues in self._waiting.items()
            if not rung.is_set() and (not queue or queues is None or queue in queues)
        ]
        for rung in fitting[:most]:
            rung.set()

    def _on_state(self, is_working: bool) -> None:
        self._is_working = is_working
        # What happened while nobody listened is found by looking.
        self.wake_all()
