"""Listens to the store's bell, and says whether it works. Polling goes on beside it, always."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rowlock.errors import RowlockError
from rowlock.store import Store
from rowlock.worker.trouble import Trouble


async def listen(
    store: Store, on_ring: Callable[[str], None], on_state: Callable[[bool], None]
) -> None:
    """Call `on_ring` with a queue's name (empty: any) for every ring, for ever.

    `on_state` hears whether the bell works; each time it does again, news may have been missed.
    """
    trouble = Trouble("the doorbell is not heard")
    while True:
        try:
            async for queue in store.engine.notifications():
                trouble.over()
                if queue is None:
                    on_state(True)
                else:
                    on_ring(queue)
        except RowlockError as error:
            on_state(False)
            await trouble.wait(error)
            continue
        # This store has no bell here.
        on_state(False)
        await asyncio.Event().wait()
