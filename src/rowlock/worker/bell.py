"""Listens to the store's bell, and says whether it works. Polling goes on beside it, always."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rowlock import config
from rowlock.scheduler.service import persist
from rowlock.store import Store
from rowlock.store.ops.hold import cancel_requests
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble


async def listen(
    store: Store,
    on_ring: Callable[[str], None],
    on_state: Callable[[bool], None],
    errors: ServiceErrors,
) -> None:
    """Call `on_ring` with a queue's name (empty: any) for every ring, forever.

    `on_state` hears whether the bell works; each time it does again, news may have been missed.
    """
    trouble = Trouble("the doorbell is not heard", ServiceName.LISTEN, errors)

    async def hear() -> None:
        try:
            async for queue in store.engine.notifications():
                trouble.over()
                if queue is None:
                    on_state(True)
                else:
                    on_ring(queue)
        finally:
            on_state(False)

    await persist(hear, trouble)
    # This store has no bell here.
    await asyncio.Event().wait()


async def look_for_cancels(
    store: Store,
    rung: asyncio.Event,
    ids: Callable[[], list[str]],
    cancel: Callable[[str], None],
    errors: ServiceErrors,
) -> None:
    """A cancel rings the bell of its job's queue: look at once, instead of at the next heartbeat.

    Args:
        ids: The jobs that may be cancelled.
    """
    what = "requests to cancel wait for the next heartbeat"
    trouble = Trouble(what, ServiceName.CANCEL, errors)

    async def look() -> None:
        if asked := ids():
            for id in await store.arun(cancel_requests(asked)):
                cancel(id)

    while True:
        await rung.wait()
        rung.clear()
        await persist(look, trouble)
        await asyncio.sleep(config.CANCEL_LOOK_SECONDS)
