"""Workers that speak HTTP, announced on their behalf: so that others see who serves what."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence

from rowlock import config
from rowlock.store import Store
from rowlock.store.ops.hold import announce

_Served = tuple[tuple[str, ...], tuple[str, ...]]


class Roster:
    """Announces each worker once in a while, however often it asks for jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: OrderedDict[str, tuple[float, _Served]] = OrderedDict()

    async def note(
        self, worker: str, *, queues: Sequence[str], kinds: Sequence[str], host: str
    ) -> None:
        """This worker is there, and serves that."""
        served = tuple(queues), tuple(kinds)
        now = time.monotonic()
        due, before = self._noted.get(worker, (0.0, None))
        if now < due and served == before:
            return
        await self._store.arun(
            announce(worker=worker, queues=queues, kinds=kinds, host=host, pid=0)
        )
        self._noted.pop(worker, None)
        self._noted[worker] = now + config.ANNOUNCE_SECONDS, served
        if len(self._noted) > config.HTTP_WORKERS_NOTED_MAX:
            self._noted.popitem(last=False)
