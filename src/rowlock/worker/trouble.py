"""Errors of our own services, and the one way to wait and try again while the database is away.

1. A service ends only when it is cancelled. `Trouble` logs when its errors begin and when they are
   over, counts each, and makes every pause longer than the one before, up to a bound.
2. A service has no leader and needs none: any number of processes may do the same at once.

`persist` and `repeat` are the loops of services on an event loop. `insist` is for a blocking caller
that gives up in the end. A loop with its own rhythm asks `Trouble.pause` how long to wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import StrEnum
from random import Random
from typing import TypeVar

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.errors import RowlockError, StoreUnavailable

logger: logging.Logger = logging.getLogger("rowlock.worker")

T = TypeVar("T")
Act = Callable[[], Awaitable[float]]


def pause_after(tries: int, chance: Random = CHANCE) -> float:
    """How many seconds to wait after this many failed tries in a row."""
    longest = min(config.TROUBLE_SECONDS_MAX, config.TROUBLE_SECONDS * 2.0 ** min(tries, 16))
    return chance.uniform(longest / 2, longest)


async def pause_for(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, or until the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class ServiceName(StrEnum):
    """The services beside the jobs, as metrics name them."""

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
    LIMITS = "limits"
    WORKFLOWS = "workflows"
    FEED = "feed"
    BULK = "bulk"
    ALERTS = "alerts"
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
        service: Under which name its errors are counted. None: they are not counted.
        errors: Where they are counted, if anywhere.
        log: Where its beginning and its end are logged.
    """

    def __init__(
        self,
        what: str,
        service: ServiceName | None = None,
        errors: ServiceErrors | None = None,
        *,
        chance: Random | None = None,
        log: logging.Logger = logger,
    ) -> None:
        self._what = what
        self._service = service
        self._errors = errors
        self._chance = chance or CHANCE
        self._logger = log
        self._since: float | None = None
        self._tries = 0
        # The kinds of errors that were logged since it began.
        self._logged: set[type[Exception]] = set()

    @property
    def is_on(self) -> bool:
        """Whether the last try failed."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """How many seconds it has lasted. 0 if the last try succeeded."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def pause(self, error: Exception) -> float:
        """Note a failure. Returns how many seconds to wait before the next try."""
        if self._errors is not None and self._service is not None:
            self._errors.count(self._service)
        if self._since is None:
            self._since = time.monotonic()
        if type(error) not in self._logged:
            self._logged.add(type(error))
            self._log(error)
        self._tries += 1
        return pause_after(self._tries, self._chance)

    def _log(self, error: Exception) -> None:
        # The message of an unexpected error may not be enough.
        if isinstance(error, RowlockError):
            self._logger.warning("%s, trying again until it works: %s", self._what, error)
        else:
            name = type(error).__name__
            what = "%s, trying again until it works: %s: %s"
            self._logger.error(what, self._what, name, error, exc_info=error)

    def attempt(self, act: Callable[[], None]) -> float:
        """Do something. Returns after how many seconds to try again, 0 if it succeeded."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # a service survives every error
            return self.pause(error)
        self.over()
        return 0.0

    async def wait(self, error: Exception) -> None:
        """Note a failure, and wait."""
        await asyncio.sleep(self.pause(error))

    def over(self) -> None:
        """Note that it works."""
        if self._since is not None:
            self._logger.warning(
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


def insist(
    act: Callable[[], T],
    trouble: Trouble,
    *,
    patience_seconds: float,
    rest: Callable[[float], object],
) -> T:
    """Do something until it succeeds, as a blocking call.

    Args:
        patience_seconds: How long a database that is away is waited for.
        rest: How to wait between two tries; may raise to end it.

    Raises:
        StoreUnavailable: The database was away for longer than that.
    """
    while True:
        try:
            done = act()
        except StoreUnavailable as error:
            pause = trouble.pause(error)
            if trouble.seconds > patience_seconds:
                raise
            rest(pause)
        else:
            trouble.over()
            return done


async def repeat(
    act: Act, trouble: Trouble, *, woken: asyncio.Event | None = None, rest_seconds: float = 0.0
) -> None:
    """Do something forever. It returns in how many seconds to do it again.

    Args:
        woken: When set, do it at once.
        rest_seconds: The least pause, however often it is woken.
    """
    woken = woken or asyncio.Event()
    while True:
        woken.clear()
        pause = await persist(act, trouble)
        rest = min(pause, rest_seconds)
        await asyncio.sleep(rest)
        await pause_for(woken, pause - rest)


def jittered(seconds: float, chance: Random = CHANCE) -> float:
    """About this many seconds: processes that were started together must not stay in step."""
    return seconds * chance.uniform(0.8, 1.2)
