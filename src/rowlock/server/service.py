"""What all requests of a server share: the app, its store, the gate, and background work.

A service is made without an event loop. Background work starts with the first request that needs
it, because a mounted application isn't told when its host starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from random import Random
from typing import Any

from rowlock import config
from rowlock.app import App
from rowlock.errors import RowlockError
from rowlock.scheduler import Janitor
from rowlock.server.background import Background
from rowlock.server.gate import Gate, Openness
from rowlock.server.live import Doorbell, Feed
from rowlock.server.monitoring import Gauges, Readiness
from rowlock.server.write_batcher import WriteBatcher
from rowlock.store import KnownPolicy, Store
from rowlock.store.ops.bulk import advance_bulk, fail_bulk, running_bulks
from rowlock.store.ops.hold import announce
from rowlock.tally import Ended
from rowlock.worker.claims import PayloadSize
from rowlock.worker.counts import ProcessCounts, names_of
from rowlock.worker.trouble import ServiceName, Trouble, jittered, repeat

logger: logging.Logger = logging.getLogger("rowlock.server")


class Service:
    """The shared state of one server."""

    def __init__(
        self,
        app: App,
        *,
        openness: Openness,
        hosts: frozenset[str] | None,
        has_dashboard: bool,
    ) -> None:
        self.app = app
        self.has_dashboard = has_dashboard
        self.gate: Gate = Gate(app.store, openness=openness, hosts=hosts)
        self.readiness: Readiness = Readiness(app.store)
        # Set once the server is to stop: calls that wait then answer at once.
        self.stopping: asyncio.Event = asyncio.Event()
        # Counts the runs settled here, and the errors of background work.
        self.ledger: ProcessCounts = ProcessCounts(names_of(app))
        self.background: Background = Background(self.ledger.errors)
        self.doorbell: Doorbell = Doorbell(app.store, self.background)
        self.write_batcher: WriteBatcher = WriteBatcher(app.store, self.background)
        self.bulk: BulkRunner = BulkRunner(app.store, self.background)
        self.roster: Roster = Roster(app.store)
        # The payload size of jobs leased here. The first guess is the largest possible.
        self.payload_size: PayloadSize = PayloadSize(config.PAYLOAD_BYTES_MAX)
        self.gauges: Gauges = Gauges(app.store)
        self.feed: Feed = Feed(app.store, self.background)
        # Open streams of events.
        self.streams: int = 0
        # For backoffs with jitter.
        self.chance: Random = Random()
        # Made now, so that a task whose types have no schema fails at the start.
        self.schemas: dict[str, dict[str, Any]] = {
            task.name: task.schema.json_schema() for task in app
        }
        self.policies: dict[str, KnownPolicy] = {task.name: task.known_policy() for task in app}

    @property
    def store(self) -> Store:
        return self.app.store

    def count(self, ended: Sequence[Ended]) -> None:
        """Count runs that workers settled over HTTP, for metrics, history and events."""
        self.ledger.ended(ended)
        self.background.ensure("history", self._write_history)
        self.background.ensure("telling", self._publish)

    async def _write_history(self) -> None:
        what = "the history is not written"
        trouble = Trouble(what, ServiceName.HISTORY, self.ledger.errors, chance=self.chance)
        await repeat(lambda: self.ledger.write_on(self.store), trouble)

    async def _publish(self) -> None:
        await self.ledger.tell_on(self.store)

    def start(self) -> None:
        """Start the background work of a standalone server.

        It gives back expired leases and removes finished jobs whose time is over: if all workers
        use HTTP, no other process would. And it continues bulk work that another server left.
        """
        janitor = Janitor(self.store, errors=self.ledger.errors, on_refused=self.ledger.refused)
        self.background.ensure("janitor", janitor.run)
        self.bulk.wake()

    def stop(self) -> None:
        """Let waiting calls answer now. Requests in progress are finished."""
        self.stopping.set()
        self.doorbell.wake_all()
        self.feed.wake_all()

    async def aclose(self) -> None:
        """End background work, and close the connections of this event loop."""
        self.stop()
        await self.background.aclose()
        try:
            await self.ledger.atell(self.store)
            await self.ledger.awrite(self.store)
        except Exception as error:  # noqa: BLE001  # the server ends in any case
            logger.info("could not write the last seconds of the history: %s", error)
        await self.store.engine.aclose_loop()


_Served = tuple[tuple[str, ...], tuple[str, ...]]


class Roster:
    """Announces workers that use HTTP, so that others see which queues and kinds they serve.

    Each is announced once per `config.ANNOUNCE_SECONDS`, however often it asks for jobs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: OrderedDict[str, tuple[float, _Served]] = OrderedDict()

    async def note(
        self, worker: str, *, queues: Sequence[str], kinds: Sequence[str], host: str
    ) -> None:
        """Announce this worker and what it serves, unless that was done lately."""
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


class BulkRunner:
    """Advances bulk work, whichever server accepted it, until there is none left.

    Any number of servers on one database take turns, step by step.
    """

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._woken = asyncio.Event()
        self._chance = Random()

    def wake(self) -> None:
        """Start if needed, and look for work at once."""
        self._woken.set()
        self._background.ensure("bulk", self._run)

    async def _run(self) -> None:
        # Belongs to this loop: tests may run a mounted application on another one each time.
        self._woken = asyncio.Event()
        errors = self._background.errors
        trouble = Trouble(
            "bulk work is not advancing", ServiceName.BULK, errors, chance=self._chance
        )
        await repeat(self._advance, trouble, woken=self._woken)

    async def _advance(self) -> float:
        """Take one step of each, and return in how many seconds to look again."""
        pauses: list[float] = []
        for id in await self._store.arun(running_bulks()):
            try:
                taken = await self._store.arun(advance_bulk(id))
                if taken.is_more:
                    pauses.append(taken.wait_seconds)
            except RowlockError:
                raise
            except Exception as error:
                # A step that fails with such an error would always fail: give up, and say so.
                logger.exception("gave up bulk work %s", id)
                await self._store.arun(fail_bulk(id, f"given up: {type(error).__name__}"))
        return min(pauses, default=jittered(config.BULK_LOOK_SECONDS, self._chance))
