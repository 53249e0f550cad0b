"""What goes on beside the jobs of a worker: it announces itself, recovers, prunes, fires schedules.

Every child announces itself; one child of a supervisor at a time does the rest. Any number of them
may do it on one database, and none is needed in particular.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rowlock import config
from rowlock.errors import MigrationNeeded, RowlockError, StoreUnavailable
from rowlock.job import WorkerVitals
from rowlock.scheduler import Janitor, Scheduler, adeclare_schedules
from rowlock.scheduler.service import persist, repeat
from rowlock.store import Store
from rowlock.store.ops.fitness import check_schema
from rowlock.store.ops.hold import announce
from rowlock.task import Tasks
from rowlock.worker.capacity import Load
from rowlock.worker.ledger import Ledger
from rowlock.worker.resident import resident_bytes
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.trouble import ServiceName, Trouble, logger

Service = Callable[[], Coroutine[Any, Any, None]]


class Household:
    """The services beside one engine."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        *,
        worker: str,
        settings: WorkerSettings,
        ledger: Ledger,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._tasks = tasks
        self._worker = worker
        self._settings = settings
        self._group: asyncio.TaskGroup | None = None
        # Whether it keeps house, once it has begun; and what it does then.
        self._is_keeper = settings.is_first
        self._house: list[asyncio.Task[None]] = []
        self._load: Callable[[], Load] | None = None
        self._announced: Load | None = None
        self._announce_at = 0.0
        # Called when a newer version has migrated: this one must leave.
        self.on_unfit: Callable[[RowlockError], None] = lambda _: None
        self._scheduler = Scheduler(
            store,
            tell=lambda fired: ledger.enqueued_by_name(fired.numbers),
            errors=ledger.errors,
        )

    def watch(self, load: Callable[[], Load]) -> None:
        """Announce this load from now on."""
        self._load = load

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep house for as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            own = [group.create_task(service()) for service in self._services()]
            self._group = group
            self.keep_house(self._is_keeper)
            try:
                yield
            finally:
                self._group = None
                for service in (*own, *self._house):
                    service.cancel()
        await self._depart()

    def keep_house(self, is_ours: bool) -> None:
        """Begin or end what one child at a time does for all: the supervisor says which."""
        self._is_keeper = is_ours
        if self._group is None or is_ours == bool(self._house):
            return
        for service in self._house:
            service.cancel()
        services = self._house_services() if is_ours else []
        self._house = [self._group.create_task(service()) for service in services]

    def hear(self) -> None:
        """The bell rang for nobody in particular: schedules may have changed."""
        self._scheduler.wake()

    def _services(self) -> list[Service]:
        services: list[Service] = [self._announce_on, self._count_on, self._tell_on]
        if self._settings.is_first:
            services.append(self._adopt_orphans)
        return services

    def _house_services(self) -> list[Service]:
        ledger = self._ledger
        janitor = Janitor(self._store, errors=ledger.errors, on_refused=ledger.refused)
        services: list[Service] = [janitor.run]
        if self._settings.has_cron:
            services.append(self._fire_on)
        return services

    async def _announce_on(self) -> None:
        if not self._kinds:
            logger.warning("there is no task to run: nothing will be claimed")
        what = "the worker can't announce itself"
        await repeat(self._announce, self._trouble(what, ServiceName.ANNOUNCE))

    def _trouble(self, what: str, service: ServiceName) -> Trouble:
        return Trouble(what, service, self._ledger.errors)

    async def _announce(self) -> float:
        """Announce the worker if it is time, or if the slots that are taken have changed."""
        now = time.monotonic()
        has_changed = self._load is not None and self._load() != self._announced
        if now < self._announce_at and not has_changed:
            return min(config.ANNOUNCE_CHANGED_SECONDS, self._announce_at - now)
        try:
            await self._store.arun(check_schema(self._store.engine.dialect))
        except MigrationNeeded as error:
            if error.is_behind:
                raise
            # A newer version has migrated; what this one can't work on, it must leave.
            self.on_unfit(error)
            return config.ANNOUNCE_SECONDS
        # Nobody is to count on one without tasks; and who names no kinds takes all.
        if self._kinds:
            await self._announce_now()
        self._announce_at = time.monotonic() + config.ANNOUNCE_SECONDS
        return min(config.ANNOUNCE_CHANGED_SECONDS, config.ANNOUNCE_SECONDS)

    async def _announce_now(self) -> None:
        load = self._announced = None if self._load is None else self._load()
        vitals = WorkerVitals(
            slots=self._settings.concurrency,
            busy=None if load is None else load.busy,
            ahead=None if load is None else load.ahead,
            queue_slots={} if load is None else load.queues,
            memory_bytes=resident_bytes(os.getpid()),
            lost=self._ledger.lost_count,
        )
        await self._store.arun(
            announce(
                worker=self._worker,
                queues=list(self._settings.queues or []),
                kinds=self._kinds,
                host=socket.gethostname(),
                pid=os.getpid(),
                vitals=vitals,
            )
        )

    @property
    def _kinds(self) -> list[str]:
        return self._settings.kinds_of(self._tasks.kinds)

    async def _count_on(self) -> None:
        await repeat(
            lambda: self._ledger.write_on(self._store),
            self._trouble("the history is not written", ServiceName.HISTORY),
        )

    async def _tell_on(self) -> None:
        await self._ledger.tell_on(self._store)

    async def _depart(self) -> None:
        last: list[Callable[[], Coroutine[Any, Any, None]]] = [
            lambda: self._ledger.atell(self._store),
            lambda: self._ledger.awrite(self._store),
            lambda: self._store.adepart(self._worker),
        ]
        for leave in last:
            try:
                await leave()
            except StoreUnavailable as error:
                logger.info("the worker leaves without signing off: %s", error)
                return
            except Exception as error:  # noqa: BLE001  # its jobs have ended well all the same
                logger.warning("the worker leaves without signing off: %s", error)

    async def _adopt_orphans(self) -> None:
        """At the start, by choice, and only for the queues that were named."""
        action = self._settings.orphans
        if action == "leave" or not self._settings.queues:
            return
        adopted = await persist(
            lambda: self._store.aadopt_orphans(
                list(self._settings.queues or []),
                action=action,
                older_than=self._settings.orphans_older_than,
            ),
            self._trouble("orphans can't be adopted", ServiceName.ORPHANS),
        )
        logger.info("%d orphaned jobs: %s", adopted, action)

    async def _fire_on(self) -> None:
        await persist(
            lambda: adeclare_schedules(self._store, self._tasks),
            self._trouble("schedules can't be declared", ServiceName.SCHEDULES),
        )
        await self._scheduler.run()
