"""Claimer: finds due jobs and leases them, at a price that does not grow with what was done before.

1. A look tells which lanes have due jobs; claims then start where it saw them, without looking
   again: it is the look that has to walk over dead index entries, once, from the very beginning.
2. So a look is taken again after a while that depends on its cost: a tenth of the time at most goes
   into looks while there is work, a quarter while there is none, and two seconds pass at most.
   What came back, was committed late, or has a higher priority is found by then.
3. After trouble with the database nothing that was seen counts.
4. Of a queue with jobs that run at most once, no job is leased ahead of its slot.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from rowlock import config
from rowlock.job import Lease
from rowlock.store import Store
from rowlock.store.ops.claim import ClaimRequest, KnownPolicy, View, claim_seen, look
from rowlock.store.ops.recover import release_unknown
from rowlock.task import Tasks
from rowlock.worker.capacity import QueueRoom, Room
from rowlock.worker.order import shares, weighted
from rowlock.worker.settings import WorkerSettings

Sleep = Callable[[float], Awaitable[None]]
Known = set[tuple[str, int]]


class Claimer:
    """Leases jobs for one worker."""

    def __init__(
        self, store: Store, tasks: Tasks, *, worker: str, settings: WorkerSettings
    ) -> None:
        self._store = store
        self._worker = worker
        self._settings = settings
        self._kinds = settings.kinds_of(tasks.kinds)
        self._policies: dict[str, KnownPolicy] = {task.name: task.known_policy() for task in tasks}
        # Kinds with jobs that run at most once: none of those is leased ahead of its slot.
        self._once = {kind for kind, known in self._policies.items() if known.max_attempts == 1}
        self._lease_us = round(settings.lease_seconds * config.SECOND_US)
        self._view = View()
        # When the last look ended; never, at first and after trouble.
        self._looked_at = -math.inf
        self._mixed_until = -math.inf
        self._chance = random.Random()
        self._is_unsure = False

    @property
    def due_in(self) -> float | None:
        """In how many seconds of the last look another job was due; None: none was waiting."""
        return self._view.due_in

    @property
    def is_mixed(self) -> bool:
        """Whether jobs of several queues or priorities were waiting, not long ago."""
        return time.monotonic() < self._mixed_until

    async def claim(self, room: Room, *, known: Known, sleep: Sleep) -> list[Lease]:
        """Lease jobs for this room.

        Args:
            known: The leases that this worker knows of; after a claim without an answer, all
                others under its name are given back.
            sleep: How to wait for the next look; may return early.
        """
        was_unsure, self._is_unsure = self._is_unsure, True
        if was_unsure:
            # The answer to the last claim was lost: what it leased is known to nobody.
            self._view, self._looked_at = View(), -math.inf
            await self._store.arun(release_unknown(self._worker, known=known))
        leases = await self._claim(room, sleep)
        self._is_unsure = False
        return leases

    def doubt(self) -> None:
        """What was claimed last may be known to nobody: the next claim gives it back first."""
        self._is_unsure = True

    def lease_for_slots_only(self, kind: str) -> None:
        """Jobs of this kind run at most once, though its task does not say so."""
        self._once.add(kind)

    async def _claim(self, room: Room, sleep: Sleep) -> list[Lease]:
        if self._view.lanes and self._next_look() > time.monotonic():
            leases = await self._claim_seen(room)
            if leases:
                return leases
        wait = self._next_look() - time.monotonic()
        if wait > 0:
            await sleep(wait)
        await self._look()
        return await self._claim_seen(room)

    def _next_look(self) -> float:
        """When to look again; with nothing left to claim, sooner.

        The price is the database's own time. Taken as the time until the answer was there, which
        in a burst is mostly the wait for this process, looks became so rare that a job of another
        queue waited 380 ms (p99).
        """
        spent = self._view.spent
        least = config.LOOK_MIXED_SECONDS if self.is_mixed else config.LOOK_SECONDS
        pause = max(least, 9 * spent) if self._view.lanes else 3 * spent
        return self._looked_at + min(pause, config.LOOK_SECONDS_MAX)

    async def _look(self) -> None:
        queues = self._settings.queues
        self._view = await self._store.arun(
            look(queues=None if queues is None else list(queues), kinds=self._kinds)
        )
        self._looked_at = time.monotonic()
        if len({(lane.queue, lane.rank) for lane in self._view.lanes}) > 1:
            self._mixed_until = self._looked_at + config.MIXED_SECONDS

    async def _claim_seen(self, room: Room) -> list[Lease]:
        total, limits = self._limits(room)
        if not limits:
            return []
        request = ClaimRequest(
            worker=self._worker,
            queues=limits,
            kinds=self._kinds,
            tenants=None,
            limit=min(total, config.CLAIM_LIMIT_MAX),
            lease=self._lease_us,
            policies=self._policies,
        )
        claimed = await self._store.arun(claim_seen(request, self._view))
        self._view = claimed.view
        return claimed.leases

    def _limits(self, room: Room) -> tuple[int, dict[str, int]]:
        """How many jobs to take, and of each queue that has some, in the order of preference.

        Only for free slots, if one of the queues has none to lease ahead: what is leased ahead of
        others must not take the place of its jobs.
        """
        seen = dict.fromkeys(lane.queue for lane in self._view.lanes)
        rooms = {queue: room.of(queue) for queue in seen}
        for lane in self._view.lanes:
            if lane.kind in self._once:
                free = rooms[lane.queue].free
                rooms[lane.queue] = QueueRoom(free, free)
        total, bounds = room.total, {queue: each.total for queue, each in rooms.items()}
        if any(each.free and each.total == each.free for each in rooms.values()):
            total, bounds = room.free, {queue: each.free for queue, each in rooms.items()}
        wanted = self._wanted([queue for queue, bound in bounds.items() if bound], total)
        return total, {queue: min(most, bounds[queue]) for queue, most in wanted.items()}

    def _wanted(self, queues: Sequence[str], room: int) -> dict[str, int]:
        if len(queues) < 2:
            return dict.fromkeys(queues, room)
        named = self._settings.queues or {}
        if self._settings.order == "strict" and named:
            return dict.fromkeys((queue for queue in named if queue in set(queues)), room)
        weights = {queue: named.get(queue, 0) for queue in queues}
        return shares(weighted(weights, chance=self._chance), weights, room)
