"""Services of ours beside a test: started, watched and cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any


@contextlib.asynccontextmanager
async def running(service: Callable[[], Awaitable[None]]) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(service())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for half a minute at most: it is done by a service on its own."""
    async with asyncio.timeout(30):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.01)
