"""Something done again and again for as long as a worker lives, whatever happens to the database.

A service is cancelled to stop it. It has no leader and needs none: what it does is safe to be done
by many at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from random import Random

from rowlock import config
from rowlock.errors import StoreUnavailable

logger: logging.Logger = logging.getLogger("rowlock.scheduler")

Act = Callable[[], Awaitable[float]]


async def repeat(
    act: Act, *, what: str, woken: asyncio.Event, chance: Random, rest_seconds: float = 0.0
) -> None:
    """Do something for ever; it returns in how many seconds it is to be done again.

    While the database is away it is tried less and less often, and said once.

    Args:
        what: For the log: "schedules are not fired".
        woken: Once set, it is done at once.
        rest_seconds: But so long after the last time, however often it is woken.
    """
    failures = 0
    while True:
        woken.clear()
        try:
            pause = await act()
        except StoreUnavailable as error:
            failures += 1
            if failures == 1:
                logger.warning("%s while the database is away: %s", what, error)
            pause = _backoff(failures, chance)
        else:
            if failures:
                logger.info("the database is back after %d tries", failures)
            failures = 0
        rest = min(pause, rest_seconds)
        await asyncio.sleep(rest)
        await _sleep(pause - rest, woken)


def jittered(seconds: float, chance: Random) -> float:
    """About so long: many that were started together must not stay together."""
    return seconds * chance.uniform(0.8, 1.2)


def _backoff(failures: int, chance: Random) -> float:
    longest = min(
        config.SERVICE_RETRY_SECONDS * 2.0 ** min(failures, 16), config.SERVICE_RETRY_SECONDS_MAX
    )
    return chance.uniform(longest / 2, longest)


async def _sleep(seconds: float, woken: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()
