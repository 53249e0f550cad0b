"""Services beside the jobs: lost leases are given back, old jobs removed, schedules fired.

The janitor gives back expired leases every few seconds and removes old jobs every minute. It also
keeps the history: it samples the queues once a minute, and folds what is old. The scheduler fires
what is due, then sleeps until the next tick.

Schedules that stand in the code (`@app.task(cron=...)`) are written to the database. A worker does
it at its start. What is gone from the code is removed by this rule: a schedule that came from code
goes if its task is among those given and has no `cron` any more. One whose task is not among them
may belong to another program on the same database, and stays, unless `owns_all`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from rowlock import config
from rowlock.schedule import Fired
from rowlock.store import Store
from rowlock.store.ops.events import prune_events
from rowlock.store.ops.history import fold_history, sample_depth
from rowlock.store.ops.manage import prune
from rowlock.store.ops.recover import Seen, sweep
from rowlock.store.ops.schedule import NewSchedule, new_schedule
from rowlock.store.ops.workflow_manage import needs_tending, tend_workflows
from rowlock.task import Tasks
from rowlock.worker.trouble import (
    Act,
    ServiceErrors,
    ServiceName,
    Trouble,
    jittered,
    repeat,
)

__all__ = ["Janitor", "Scheduler", "adeclare_schedules", "declare_schedules"]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("rowlock.scheduler")


class Janitor:
    """Recovery and retention, in bounded batches. Any number may run on one database.

    Args:
        has_retention: Whether finished jobs are removed when their time is over; without, they
            stay until somebody calls `prune`.
        on_refused: Called for each lost job whose end the database refuses to store.
    """

    def __init__(
        self,
        store: Store,
        *,
        has_retention: bool = True,
        chance: Random | None = None,
        errors: ServiceErrors | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self._errors = errors
        self._store = store
        self._has_retention = has_retention
        self._chance = chance or Random()
        self._seen: Seen = {}
        self._on_refused = on_refused
        self._sweeps = Batches()
        self._prunes = Batches()
        self._workflows_from: str | None = None

    async def run(self) -> None:
        """Do the maintenance until cancelled."""
        # Each in its own task: one that fails for long must not hold up the others.
        async with asyncio.TaskGroup() as group:
            for act, service, what in self._services():
                trouble = Trouble(what, service, self._errors, chance=self._chance)
                group.create_task(repeat(act, trouble))

    def _services(self) -> list[tuple[Act, ServiceName, str]]:
        services: list[tuple[Act, ServiceName, str]] = [
            (self._recover, ServiceName.RECOVER, "lost jobs are not given back"),
            (self._sample, ServiceName.DEPTH, "the depths of queues are not recorded"),
            (self._fold, ServiceName.FOLD, "the history is not folded"),
            (self._tend, ServiceName.WORKFLOWS, "ends and deadlines of workflows are not noticed"),
            (self._prune_events, ServiceName.PRUNE_EVENTS, "old events are not removed"),
        ]
        if self._has_retention:
            services.append((self._prune, ServiceName.PRUNE, "old jobs are not removed"))
        return services

    async def _sample(self) -> float:
        await self._store.arun(sample_depth())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _fold(self) -> float:
        await self._store.arun(fold_history())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _tend(self) -> float:
        if await self._store.arun(needs_tending(self._workflows_from)):
            tended = await self._store.arun(tend_workflows(self._workflows_from))
            self._workflows_from = tended.next
            for workflow in tended.to_cancel:
                await self._store.acancel_workflow(workflow)
        else:
            self._workflows_from = None
        return jittered(config.WORKFLOW_SWEEP_SECONDS, self._chance)

    async def _prune_events(self) -> float:
        await self._store.arun(prune_events())
        return jittered(config.HISTORY_FOLD_SECONDS, self._chance)

    async def _recover(self) -> float:
        self._seen = await self._sweeps.run(self._sweep)
        return jittered(config.SWEEP_SECONDS, self._chance)

    async def _sweep(self, rows: int) -> Seen:
        store = self._store
        return await store.arun(
            sweep(store.local, self._seen, rows=rows, on_refused=self._on_refused)
        )

    async def _prune(self) -> float:
        await self._prunes.run(lambda rows: self._store.arun(prune(batch_rows=rows)))
        return jittered(config.PRUNE_SECONDS, self._chance)


class Batches:
    """How many rows to take at a time: fewer after each failure, more again when it went well.

    A server may end a statement that takes too long. With the same number of rows, it always would.
    """

    def __init__(self) -> None:
        self._rows = config.MAINTENANCE_BATCH_ROWS

    async def run(self, act: Callable[[int], Awaitable[T]]) -> T:
        """Call it with the number of rows to take."""
        try:
            done = await act(self._rows)
        except Exception:
            self._rows = max(1, self._rows // 2)
            raise
        self._rows = min(config.MAINTENANCE_BATCH_ROWS, self._rows * 2)
        return done


class Scheduler:
    """Enqueues the jobs of schedules when they are due. Any number may run on one database.

    The database says how long it is until the next tick. The scheduler sleeps for that long, by
    this machine's monotonic clock, but at most 30 seconds. So it notices a clock that was set, and
    schedules that other processes wrote where notifications do not work.
    """

    def __init__(
        self,
        store: Store,
        *,
        chance: Random | None = None,
        tell: Callable[[Fired], object] | None = None,
        errors: ServiceErrors | None = None,
    ) -> None:
        self._store = store
        self._tell = tell
        self._trouble = Trouble(
            "schedules are not fired", ServiceName.SCHEDULES, errors, chance=chance
        )
        self._woken = asyncio.Event()
        self._complained: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Fire until cancelled."""
        await repeat(
            self._fire,
            self._trouble,
            woken=self._woken,
            rest_seconds=config.SCHEDULER_REST_SECONDS,
        )

    def wake(self) -> None:
        """Look soon: a schedule may have been written. From the loop that it runs on."""
        self._woken.set()

    async def _fire(self) -> float:
        fired = await self._store.afire_due()
        self._complain(fired)
        if self._tell is not None:
            self._tell(fired)
        longest = config.SCHEDULER_SLEEP_SECONDS_MAX
        return longest if fired.wait_seconds is None else min(fired.wait_seconds, longest)

    def _complain(self, fired: Fired) -> None:
        unreadable = frozenset(fired.unreadable)
        for name in sorted(unreadable - self._complained):
            logger.error(
                "schedule %r is not fired from here: its time zone or expression is not known "
                "to this installation",
                name,
            )
        self._complained = unreadable


def declare_schedules(store: Store, tasks: Tasks, *, owns_all: bool = False) -> list[str]:
    """Write the schedules of tasks, and return the names of those removed.

    Args:
        owns_all: No other program has schedules in its code on this database: remove those of
            unknown tasks too.
    """
    declared = _declared(tasks)
    return _logged(store.declare_schedules(declared, kinds=tasks.kinds, owns_all=owns_all))


async def adeclare_schedules(store: Store, tasks: Tasks, *, owns_all: bool = False) -> list[str]:
    """As `declare_schedules`."""
    declared = _declared(tasks)
    return _logged(await store.adeclare_schedules(declared, kinds=tasks.kinds, owns_all=owns_all))


def _declared(tasks: Tasks) -> list[NewSchedule]:
    return [
        new_schedule(name, job, cron=cron.text, timezone=cron.timezone)
        for name, job, cron in tasks.scheduled()
    ]


def _logged(removed: list[str]) -> list[str]:
    for name in removed:
        logger.info("schedule %r is gone from the code and was removed", name)
    return removed
