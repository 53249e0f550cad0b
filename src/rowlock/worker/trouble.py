"""Trouble with the database: said once when it begins and once when it is over, met with pauses."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress

from rowlock import config

logger: logging.Logger = logging.getLogger("rowlock.worker")


def pause_after(tries: int) -> float:
    """How long to wait after so many tries in a row that went wrong."""
    longest = min(config.TROUBLE_SECONDS_MAX, config.TROUBLE_SECONDS * 2.0 ** min(tries, 16))
    return random.uniform(longest / 2, longest)


async def pause_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, or until the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Trouble:
    """One kind of trouble of one service."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None
        self._tries = 0

    @property
    def is_on(self) -> bool:
        """Whether the last try went wrong."""
        return self._since is not None

    def pause(self, error: Exception) -> float:
        """Note that it went wrong (again); how long to wait before the next try."""
        if self._since is None:
            self._since = time.monotonic()
            logger.warning("%s, trying again until it works: %s", self._what, error)
        self._tries += 1
        return pause_after(self._tries)

    async def wait(self, error: Exception) -> None:
        """Note that it went wrong, and wait."""
        await asyncio.sleep(self.pause(error))

    def over(self) -> None:
        """Note that it works."""
        if self._since is not None:
            seconds = time.monotonic() - self._since
            logger.warning("%s: over after %.1f s", self._what, seconds)
            self._since, self._tries = None, 0
