"""What goes on beside the jobs of a worker.

At its start it waits until it can work on its database:

1. It waits forever for a database that is away, as it does later.
2. It waits quietly, but not forever, for a database that is not migrated or refuses the role: in a
   deployment the worker may start before the migration has run. Then the worker ends.
3. A database that a newer version has migrated, or that is not ours, ends the worker at once.

Then it listens for notifications, announces itself, counts, recovers and prunes jobs, and fires
schedules. Every child announces itself. Recovering, pruning and firing is the maintenance, which
one child of a supervisor at a time does for all. Any number of processes may do it on one database.
Polling never stops: notifications only make it faster.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from rowlock import config
from rowlock.errors import Forbidden, MigrationNeeded, RowlockError, StoreUnavailable
from rowlock.job import WorkerVitals
from rowlock.scheduler import Janitor, Scheduler, adeclare_schedules
from rowlock.store import Store
from rowlock.store.ops.health import check_schema
from rowlock.store.ops.hold import announce, cancel_requests
from rowlock.store.ops.limit_info import declared_text
from rowlock.store.steps import News
from rowlock.task import Tasks
from rowlock.worker.claims import Load
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.process import resident_bytes
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.trouble import (
    ServiceErrors,
    ServiceName,
    Trouble,
    jittered,
    logger,
    pause_for,
    persist,
    repeat,
)
from rowlock.worker.unserved import UnservedWatch

Service = Callable[[], Coroutine[Any, Any, None]]


class Services:
    """The services beside one engine."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        *,
        worker: str,
        settings: WorkerSettings,
        counts: ProcessCounts,
    ) -> None:
        self._store = store
        self._counts = counts
        self._tasks = tasks
        self._worker = worker
        self._settings = settings
        self._group: asyncio.TaskGroup | None = None
        # Whether it does the maintenance, and the tasks of that.
        self._is_maintainer = settings.is_first
        self._maintenance: list[asyncio.Task[None]] = []
        self._load: Callable[[], Load] | None = None
        self._announced: Load | None = None
        self._announce_at = 0.0
        # Called when a newer version has migrated: this one must leave.
        self.on_unfit: Callable[[RowlockError], None] = lambda _: None
        # Called with what somebody should know: jobs that wait for nobody.
        self.on_warning: Callable[[str], None] = lambda text: logger.warning("%s", text)
        self._scheduler = Scheduler(
            store,
            tell=lambda fired: counts.enqueued_by_name(fired.numbers),
            errors=counts.errors,
        )

    def watch(self, load: Callable[[], Load]) -> None:
        """Announce this load from now on."""
        self._load = load

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the services for as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            own = [group.create_task(service()) for service in self._services()]
            self._group = group
            self.maintain(self._is_maintainer)
            try:
                yield
            finally:
                self._group = None
                for service in (*own, *self._maintenance):
                    service.cancel()
        await self._depart()

    def maintain(self, is_ours: bool) -> None:
        """Begin or end the maintenance. The supervisor says which of its children does it."""
        self._is_maintainer = is_ours
        if self._group is None or is_ours == bool(self._maintenance):
            return
        for service in self._maintenance:
            service.cancel()
        services = self._maintenance_services() if is_ours else []
        self._maintenance = [self._group.create_task(service()) for service in services]

    def wake(self) -> None:
        """A notification came that names no queue: schedules may have changed."""
        self._scheduler.wake()

    def _services(self) -> list[Service]:
        services: list[Service] = [self._announce_on, self._count_on, self._tell_on]
        if self._tasks.declared_limits:
            services.append(self._declare_limits)
        if self._settings.is_first:
            services.append(self._adopt_orphans)
        return services

    def _maintenance_services(self) -> list[Service]:
        counts = self._counts
        janitor = Janitor(self._store, errors=counts.errors, on_refused=counts.refused)
        services: list[Service] = [janitor.run]
        if self._settings.warns:
            watch = UnservedWatch(
                self._store, self._tasks, settings=self._settings, warn=self.on_warning
            )
            services.append(watch.run)
        if self._settings.fires_schedules:
            services.append(self._fire_on)
        return services

    async def _announce_on(self) -> None:
        if not self._kinds:
            logger.warning("the app has no tasks to run: nothing will be claimed")
        what = "the worker can't announce itself"
        await repeat(self._announce, self._trouble(what, ServiceName.ANNOUNCE))

    def _trouble(self, what: str, service: ServiceName) -> Trouble:
        return Trouble(what, service, self._counts.errors)

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
            # A newer version has migrated, and this one can't work on it.
            self.on_unfit(error)
            return config.ANNOUNCE_SECONDS
        # A worker without tasks is not announced: one that names no kinds would seem to take all.
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
            lost=self._counts.lost_count,
            limits=self._limits,
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
    def _limits(self) -> dict[str, str]:
        """What this code declares, so that `rowlock doctor` can compare it with other workers."""
        declared = [limit.declared for limit in self._tasks.declared_limits]
        return {
            name: declared_text(numbers)
            for name, numbers in declared[: config.LIMITS_ANNOUNCED_MAX]
        }

    @property
    def _kinds(self) -> list[str]:
        return self._settings.kinds_of(self._tasks.kinds)

    async def _count_on(self) -> None:
        await repeat(
            lambda: self._counts.write_on(self._store),
            self._trouble("the history is not written", ServiceName.HISTORY),
        )

    async def _tell_on(self) -> None:
        await self._counts.tell_on(self._store)

    async def _depart(self) -> None:
        last: list[Callable[[], Coroutine[Any, Any, None]]] = [
            lambda: self._counts.atell(self._store),
            lambda: self._counts.awrite(self._store),
            lambda: self._store.adepart(self._worker),
        ]
        for leave in last:
            try:
                await leave()
            except StoreUnavailable as error:
                logger.info("the stop of this worker is not recorded: %s", error)
                return
            except Exception as error:  # noqa: BLE001  # its jobs have ended well anyway
                logger.warning("the stop of this worker is not recorded: %s", error)

    async def _adopt_orphans(self) -> None:
        """Adopt orphans at the start, if that was asked for, and only of the named queues."""
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

    async def _declare_limits(self) -> None:
        """Write the limits of this code to the database. Until then, nothing starts under them."""
        declared = [limit.declared for limit in self._tasks.declared_limits]
        changed = await persist(
            lambda: self._store.adeclare_limits(declared),
            self._trouble("limits can't be declared", ServiceName.LIMITS),
        )
        if changed:
            logger.info("limits declared: %s", ", ".join(changed))

    async def _fire_on(self) -> None:
        await persist(
            lambda: adeclare_schedules(self._store, self._tasks),
            self._trouble("schedules can't be declared", ServiceName.SCHEDULES),
        )
        await self._scheduler.run()


async def listen(
    store: Store,
    on_notification: Callable[[News], None],
    on_listening: Callable[[bool], None],
    errors: ServiceErrors,
) -> None:
    """Call `on_notification` for every notification, forever.

    `on_listening` is called when listening begins and ends. Each time it begins, notifications may
    have been missed.
    """
    trouble = Trouble("notifications are not received", ServiceName.LISTEN, errors)

    async def hear() -> None:
        try:
            async for news in store.engine.notifications():
                trouble.over()
                if news is None:
                    on_listening(True)
                else:
                    on_notification(news)
        finally:
            on_listening(False)

    await persist(hear, trouble)
    # This store has no notifications here.
    await asyncio.Event().wait()


class Notifications:
    """What an engine hears from its store: jobs may be due, or asked to cancel.

    Args:
        queues: Those that it serves. None: all.
        wake: Called when there may be something to claim.
        hint: Called before that, with what is known of it.
        on_news: Called for a notification that names no queue: schedules may have changed.
    """

    def __init__(
        self,
        store: Store,
        *,
        queues: Collection[str] | None,
        wake: Callable[[], None],
        hint: Callable[[News], None],
        on_news: Callable[[], None],
        errors: ServiceErrors,
    ) -> None:
        self._store = store
        self._queues = queues
        self._wake = wake
        self._hint = hint
        self._on_news = on_news
        self._errors = errors
        # The last one for its queues: set until somebody has looked, and when it came.
        self.came: asyncio.Event = asyncio.Event()
        self.came_at: float = 0.0
        self.is_listening: bool = False

    async def listen(self) -> None:
        """Listen until cancelled."""
        await listen(self._store, self._on_notification, self._on_listening, self._errors)

    def _on_notification(self, news: News) -> None:
        if not news.queue:
            self._on_news()
        if not news.queue or self._queues is None or news.queue in self._queues:
            self._hint(news)
            self._wake()
            self.came.set()
            self.came_at = time.monotonic()

    def _on_listening(self, is_listening: bool) -> None:
        self.is_listening = is_listening
        # A notification may have been missed, so look.
        self._on_notification(News(""))

    async def look_for_cancels(
        self, ids: Callable[[], list[str]], cancel: Callable[[str], None]
    ) -> None:
        """Look for requests to cancel after each notification, instead of at the next heartbeat.

        A request to cancel sends one for its job's queue.

        Args:
            ids: The jobs that may be cancelled.
        """
        what = "requests to cancel wait for the next heartbeat"
        trouble = Trouble(what, ServiceName.CANCEL, self._errors)

        async def look() -> None:
            if asked := ids():
                for id in await self._store.arun(cancel_requests(asked)):
                    cancel(id)

        while True:
            await self.came.wait()
            self.came.clear()
            await persist(look, trouble)
            await asyncio.sleep(config.CANCEL_LOOK_SECONDS)


async def is_ready(
    store: Store,
    *,
    start_seconds: float,
    stopping: asyncio.Event,
    errors: ServiceErrors,
    tell: Callable[[RowlockError], None],
) -> bool:
    """Wait until the worker can start. False if it was stopped before.

    Args:
        start_seconds: How many seconds to wait for a person to do something.
        tell: Called once, with the reason, if it has to wait for a person to do something.

    Raises:
        RowlockError: It can't start, and waiting can't help, or has taken long enough.
    """
    trouble = Trouble("the worker can't start", ServiceName.START, errors)
    waiting_since: float | None = None
    while not stopping.is_set():
        try:
            await store.arun(check_schema(store.engine.dialect))
        except RowlockError as error:
            if _is_for_a_person(error):
                errors.count(ServiceName.START)
                if waiting_since is None:
                    waiting_since = time.monotonic()
                    tell(error)
                if time.monotonic() - waiting_since >= start_seconds:
                    raise
                pause = jittered(config.START_LOOK_SECONDS)
            elif isinstance(error, StoreUnavailable):
                pause = trouble.pause(error)
            else:
                raise
        except Exception as error:  # noqa: BLE001  # a service survives all but cancellation
            pause = trouble.pause(error)
        else:
            trouble.over()
            return True
        await pause_for(stopping, pause)
    return False


def _is_for_a_person(error: Exception) -> bool:
    """Whether a person has to do something about it, and may be about to."""
    match error:
        case MigrationNeeded():
            return error.is_behind
        case StoreUnavailable():
            return error.refused_login
        case _:
            return isinstance(error, Forbidden)


def advice(error: RowlockError, *, migrate_command: str) -> str:
    """What is wrong, and which command fixes it, in one line."""
    match error:
        case MigrationNeeded(is_behind=True):
            return f"{error.problem}: run `{migrate_command}` with a role that may create tables"
        case Forbidden():
            return f"{error}; `rowlock migrate --sql --roles` prints the rights that a worker needs"
        case StoreUnavailable(refused_login=True):
            return f"{error}; check both in the database URL, or create the role"
        case _:
            return str(error)
