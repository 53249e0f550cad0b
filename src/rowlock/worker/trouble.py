"""Errors of our own services: logged when they begin and when they end, counted, met with pauses.

1. A service ends only when it is cancelled. Every error is logged when it begins and when it is
   over, counted, and followed by a growing pause.
2. It has no leader and needs none: what it does is safe to be done by many at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import TypeVar

from rowlock import config
from rowlock.errors import RowlockError

logger: logging.Logger = logging.getLogger("rowlock.worker")

T = TypeVar("T")
Act = Callable[[], Awaitable[float]]


def pause_after(tries: int, chance: random.Random | None = None) -> float:
    """How long to wait after so many tries in a row that went wrong."""
    longest = min(config.TROUBLE_SECONDS_MAX, config.TROUBLE_SECONDS * 2.0 ** min(tries, 16))
    return (chance or random).uniform(longest / 2, longest)


async def pause_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, or until the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class ServiceName(StrEnum):
    """What runs beside the jobs, as metrics name it."""

    START = "start"
    ENGINE = "engine"
    CLAIM = "claim"
    SETTLE = "settle"
    HEARTBEAT = "heartbeat"
    LISTEN = "listen"
    CANCEL = "cancel"
    BUFFER = "buffer"
    PROGRESS = "progress"
    ANNOUNCE = "announce"
    EVENTS = "events"
    HISTORY = "history"
    DEPTH = "depth"
    FOLD = "fold"
    PRUNE = "prune"
    PRUNE_EVENTS = "prune_events"
    RECOVER = "recover"
    ORPHANS = "orphans"
    SCHEDULES = "schedules"
    FEED = "feed"
    BULK = "bulk"
    BACKGROUND = "background"


class ServiceErrors:
    """How often each service of one process has failed. From any thread."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._guard = threading.Lock()

    def count(self, service: ServiceName) -> None:
        """Note one more error."""
        with self._guard:
            self._counts[service.value] += 1

    @property
    def counts(self) -> Counter[str]:
        """The errors of each service so far."""
        with self._guard:
            return Counter(self._counts)


class Trouble:
    """One kind of trouble of one service.

    Args:
        what: What does not work meanwhile, for the log: "jobs can't be claimed".
        errors: Where its errors are counted, if anywhere.
    """

    def __init__(
        self,
        what: str,
        service: ServiceName,
        errors: ServiceErrors | None = None,
        *,
        chance: random.Random | None = None,
    ) -> None:
        self._what = what
        self._service = service
        self._errors = errors
        self._chance = chance
        self._since: float | None = None
        self._tries = 0
        # The kinds of errors that were logged since it began.
        self._logged: set[type[Exception]] = set()

    @property
    def is_on(self) -> bool:
        """Whether the last try went wrong."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """How long it has lasted; 0 if the last try went well."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def pause(self, error: Exception) -> float:
        """Note that it went wrong (again); how long to wait before the next try."""
        if self._errors is not None:
            self._errors.count(self._service)
        if self._since is None:
            self._since = time.monotonic()
        if type(error) not in self._logged:
            self._logged.add(type(error))
            self._log(error)
        self._tries += 1
        return pause_after(self._tries, self._chance)

    def _log(self, error: Exception) -> None:
        # Of an error that nobody foresaw, the message alone may say nothing.
        if isinstance(error, RowlockError):
            logger.warning("%s, trying again until it works: %s", self._what, error)
        else:
            name = type(error).__name__
            what = "%s, trying again until it works: %s: %s"
            logger.error(what, self._what, name, error, exc_info=error)

    def attempt(self, act: Callable[[], None]) -> float:
        """Do something; after which pause to try again, 0 if it went well."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a service survives every error
            return self.pause(error)
        self.over()
        return 0.0

    async def wait(self, error: Exception) -> None:
        """Note that it went wrong, and wait."""
        await asyncio.sleep(self.pause(error))

    def over(self) -> None:
        """Note that it works."""
        if self._since is not None:
            logger.warning(
                "%s: over after %.1f s and %d errors", self._what, self.seconds, self._tries
            )
            self._since, self._tries = None, 0
            self._logged.clear()


async def persist(act: Callable[[], Awaitable[T]], trouble: Trouble) -> T:
    """Do something until it succeeds, with growing pauses between the tries."""
    while True:
        try:
            done = await act()
        except Exception as error:  # noqa: BLE001  # a service survives all but cancellation
            await trouble.wait(error)
        else:
            trouble.over()
            return done


async def repeat(
    act: Act, trouble: Trouble, *, woken: asyncio.Event | None = None, rest_seconds: float = 0.0
) -> None:
    """Do something forever; it returns in how many seconds it is to be done again.

    Args:
        woken: Once set, it is done at once.
        rest_seconds: The least time between two times, however often it is woken.
    """
    woken = woken or asyncio.Event()
    while True:
        woken.clear()
        pause = await persist(act, trouble)
        rest = min(pause, rest_seconds)
        await asyncio.sleep(rest)
        await pause_for(woken, pause - rest)


def jittered(seconds: float, chance: Random) -> float:
    """About this long: many that were started together must not stay together."""
    return seconds * chance.uniform(0.8, 1.2)
