"""Services: what is done again and again for as long as a process lives, whatever goes wrong.

1. A service ends only when it is cancelled. Every error is logged when it begins and when it is
   over, counted, and followed by a growing pause.
2. It has no leader and needs none: what it does is safe to be done by many at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from rowlock.worker.trouble import Trouble, pause_for

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("rowlock.scheduler")

Act = Callable[[], Awaitable[float]]


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
