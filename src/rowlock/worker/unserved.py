"""Warns of jobs that would wait forever: ready ones that no live worker serves.

It also warns of a queue that a worker was told to serve, and that no task and no job has: most
likely it is misspelt. Everything is logged once, and not all of it: names may come from anyone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from rowlock import codec, config
from rowlock.clock import SystemClock, from_us
from rowlock.job import WorkerInfo
from rowlock.store import Store
from rowlock.store.ops.health import DueLane, due_lanes, queue_names
from rowlock.suggest import nearest
from rowlock.task import Tasks
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.trouble import jittered

logger: logging.Logger = logging.getLogger("rowlock.worker")


class UnservedWatch:
    """Looks from time to time, for one worker.

    Args:
        warn: Called with each warning.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        *,
        settings: WorkerSettings,
        warn: Callable[[str], None],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._warn = warn
        self._has_checked_queues = False
        # What was logged already: queues and kinds.
        self._warned: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001  # a service survives all but cancellation
                # The services that jobs need log a database that is away.
                logger.debug("unserved jobs are not looked for: %s", error)
            await asyncio.sleep(jittered(config.UNSERVED_LOOK_SECONDS))

    async def look(self) -> None:
        """Look once, and log what was not logged before."""
        if not self._has_checked_queues:
            await self._check_queues()
            self._has_checked_queues = True
        lanes = await self._store.arun(due_lanes())
        if not lanes:
            return
        now = from_us(SystemClock().now_us())
        workers = [worker for worker in await self._store.aworkers() if worker.is_live_at(now)]
        for lane in unserved(lanes, [*workers, *self._own()]):
            self._warn_of(lane)

    async def _check_queues(self) -> None:
        if not self._settings.queues:
            return
        declared = {task.settings.queue for task in self._tasks}
        known = declared | {*await self._store.arun(queue_names())}
        for queue in unknown_queues(self._settings.queues, known):
            self._warn(f"no task and no job has the queue {_shown(queue)}{_hint(queue, known)}")

    def _own(self) -> list[WorkerInfo]:
        """This worker, which may not have announced itself yet."""
        kinds = self._settings.kinds_of(self._tasks.kinds)
        queues = list(self._settings.queues or {})
        return [WorkerInfo(id="", queues=queues, kinds=kinds)] if kinds else []

    def _warn_of(self, lane: DueLane) -> None:
        place = lane.queue, lane.kind
        if place in self._warned or len(self._warned) > config.LOGGED_NAMES_MAX:
            return
        self._warned.add(place)
        if len(self._warned) > config.LOGGED_NAMES_MAX:
            self._warn("more ready jobs have no worker: `rowlock doctor` lists them")
            return
        served = self._settings.queues
        self._warn(warning_of(lane, kinds=self._tasks.kinds, queues=served or ()))


# Pure.


def unserved(lanes: Iterable[DueLane], workers: Sequence[WorkerInfo]) -> list[DueLane]:
    """Of lanes with ready jobs, those that none of the workers serves."""
    return [
        lane
        for lane in lanes
        if lane.seconds >= config.UNSERVED_SECONDS_MIN and not any(map(lane.is_served_by, workers))
    ]


def unknown_queues(served: Iterable[str], known: Collection[str]) -> list[str]:
    """Of the queues that a worker serves, those that nothing else names."""
    return [queue for queue in served if queue not in known][: config.LOGGED_NAMES_MAX]


def warning_of(lane: DueLane, *, kinds: Collection[str], queues: Collection[str]) -> str:
    """Say why the jobs of a lane wait, and what may be meant instead."""
    kind, queue = _shown(lane.kind), _shown(lane.queue)
    waiting = f"ready jobs of kind {kind} in queue {queue} have no worker"
    if lane.kind in kinds:
        return f"{waiting}: none that knows it serves the queue{_hint(lane.queue, queues)}"
    return f"{waiting}: none has a task {kind}{_hint(lane.kind, kinds)}"


def _hint(name: str, known: Collection[str]) -> str:
    close = nearest(name, known)
    return f"; did you mean {_shown(close[0])}?" if close else ""


def _shown(name: str) -> str:
    return f"'{codec.escaped(name)}'"
