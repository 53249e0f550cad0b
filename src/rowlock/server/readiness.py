"""Whether the database answers and its schema fits: asked once a second at most, for all."""

from __future__ import annotations

import asyncio
import time

from rowlock import config
from rowlock.errors import RowlockError
from rowlock.server.problems import AWAY, Complaints, Refusal, refusal_of
from rowlock.store import Store
from rowlock.store import migrate as migrations


class Readiness:
    """Looks at the database for whoever asks; one look at a time, however long it takes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._complaints = Complaints()
        self._look: asyncio.Task[RowlockError | None] | None = None
        self._good_until = 0.0

    async def check(self) -> None:
        """Raise `Refusal` unless all is well."""
        look, loop = self._look, asyncio.get_running_loop()
        is_over = look is not None and look.done() and time.monotonic() >= self._good_until
        if look is None or is_over or look.get_loop() is not loop:
            look = self._look = loop.create_task(self._examine())
        try:
            async with asyncio.timeout(config.HTTP_READY_SECONDS):
                error = await asyncio.shield(look)
        except TimeoutError:
            raise Refusal("store_unavailable", AWAY) from None
        if error is not None:
            self._complaints.note(error)
            raise refusal_of(error)

    async def _examine(self) -> RowlockError | None:
        engine = self._store.engine
        try:
            migrations.check(engine.dialect, await asyncio.to_thread(engine.applied))
        except RowlockError as error:
            return error
        finally:
            self._good_until = time.monotonic() + config.HTTP_READY_KNOWN_SECONDS
        return None
