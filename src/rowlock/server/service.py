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
from rowlock.server.write_batcher import Gatherer
from rowlock.store import KnownPolicy, Store
from rowlock.store.ops.bulk_work import advance_bulk, fail_bulk, running_bulks
from rowlock.store.ops.hold import announce
from rowlock.tally import Ended
from rowlock.worker.claims import PayloadSize
from rowlock.worker.counts import ProcessCounts, names_of
from rowlock.worker.trouble import ServiceName, Trouble, jittered, repeat

logger: logging.Logger = logging.getLogger("rowlock.server")


class Service:
    """One server's shared state."""

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
        # Set once the server is told to stop: what waits for news answers at once.
        self.stopping: asyncio.Event = asyncio.Event()
        # Of runs that were settled here, and of the errors of what runs beside requests.
        self.ledger: ProcessCounts = ProcessCounts(names_of(app))
        self.background: Background = Background(self.ledger.errors)
        self.doorbell: Doorbell = Doorbell(app.store, self.background)
        self.gatherer: Gatherer = Gatherer(app.store, self.background)
        self.bulk: BulkRunner = BulkRunner(app.store, self.background)
        self.roster: Roster = Roster(app.store)
        # Of what is leased here. At first the largest that there can be.
        self.payload_size: PayloadSize = PayloadSize(config.PAYLOAD_BYTES_MAX)
        self.gauges: Gauges = Gauges(app.store)
        self.feed: Feed = Feed(app.store, self.background)
        # How many streams of events are open.
        self.streams: int = 0
        # Of backoffs with jitter.
        self.chance: Random = Random()
        # Resolved now, so that a task that can't be described is known at the start.
        self.schemas: dict[str, dict[str, Any]] = {
            task.name: task.schema.json_schema() for task in app
        }
        self.policies: dict[str, KnownPolicy] = {task.name: task.known_policy() for task in app}

    @property
    def store(self) -> Store:
        return self.app.store

    def count(self, ended: Sequence[Ended]) -> None:
        """Runs of workers that speak HTTP were settled: they go to the history."""
        self.ledger.ended(ended)
        self.background.ensure("history", self._write_history)
        self.background.ensure("telling", self._tell)

    async def _write_history(self) -> None:
        what = "the history is not written"
        trouble = Trouble(what, ServiceName.HISTORY, self.ledger.errors, chance=self.chance)
        await repeat(lambda: self.ledger.write_on(self.store), trouble)

    async def _tell(self) -> None:
        await self.ledger.tell_on(self.store)

    def start(self) -> None:
        """Do what a server of its own does beside requests.

        It gives back expired leases and removes what is over: where all workers speak HTTP, nobody
        else would. And it goes on with bulk work that another server has left.
        """
        janitor = Janitor(self.store, errors=self.ledger.errors, on_refused=self.ledger.refused)
        self.background.ensure("janitor", janitor.run)
        self.bulk.wake()

    def stop(self) -> None:
        """Let those who wait for news answer; the others are finished as they are."""
        self.stopping.set()
        self.doorbell.wake_all()
        self.feed.wake_all()

    async def aclose(self) -> None:
        """End what runs beside requests, and close this loop's connections."""
        self.stop()
        await self.background.aclose()
        try:
            await self.ledger.atell(self.store)
            await self.ledger.awrite(self.store)
        except Exception as error:  # noqa: BLE001  # it ends in any case
            logger.info("the last seconds of the history are not written: %s", error)
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
        """There is work: start, or look at once."""
        self._woken.set()
        self._background.ensure("bulk", self._run)

    async def _run(self) -> None:
        # Of this loop: a mounted application may be run by another one each time, in tests.
        self._woken = asyncio.Event()
        errors = self._background.errors
        trouble = Trouble("bulk work stands still", ServiceName.BULK, errors, chance=self._chance)
        await repeat(self._advance, trouble, woken=self._woken)

    async def _advance(self) -> float:
        """One step of each; in how many seconds to look again."""
        pauses: list[float] = []
        for id in await self._store.arun(running_bulks()):
            try:
                taken = await self._store.arun(advance_bulk(id))
                if taken.is_more:
                    pauses.append(taken.wait_seconds)
            except RowlockError:
                raise
            except Exception as error:
                # A step that fails once fails for ever: it is given up, and says so.
                logger.exception("bulk work %s is given up", id)
                await self._store.arun(fail_bulk(id, f"given up: {type(error).__name__}"))
        return min(pauses, default=jittered(config.BULK_LOOK_SECONDS, self._chance))
