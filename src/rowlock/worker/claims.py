"""What a child leases: how many jobs, of which queues, and which of them runs next.

Looking and claiming (`Claimer`), at a price that does not grow with the jobs already done:

1. A look finds the lanes with due jobs. Claims then start where the look saw them, without looking
   again: only a look has to walk over dead index entries, once, from the very beginning.
2. The pause until the next look depends on the cost of the last one. At most a tenth of the time
   goes into looks while there is work, a quarter while there is none, and two seconds pass at most.
   Jobs that came back, were committed late, or have a higher priority are found by then.
3. After trouble with the database, the last look does not count.
4. While nothing was left to claim, and a look would be due, a lane that a notification named is
   claimed first. A look at all lanes follows, so that no other has to wait for its own.
5. No job of a queue with at-most-once jobs is leased ahead of its slot.

How many (`Capacity`): one per free slot, and a few ahead where jobs are short:

6. A job is leased for a slot that is free, in the child and in its queue; nothing else is leased
   from a queue whose jobs are long, or not known to be short because none of them has ended yet.
7. Jobs of a short queue are leased ahead of its slots, as many as should last a moment. Slots
   whose run has already lasted longer than that moment don't count: they may be taken for hours.
8. A job that was leased ahead and had to be given back makes its queue a long one at once. It
   takes a number of short runs to make it short again, so that no queue leases and returns its
   first job over and over.
9. What is leased ahead is bounded by bytes too, by the size of the payloads that were leased last.

Which is next (`Buffer`), of the jobs that are leased and not started:

10. Within a queue by rank, then in the order of the claim.
11. Between queues in turns, so that a burst on one does not hold up another; or, if the order is
    strict, as the queues were named.
12. One that must run alone (its process died before) waits apart, until nothing else runs.
13. A block stands where its jobs would. It stays there until its last job has begun.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rowlock import config
from rowlock.columns import JobRow
from rowlock.job import Lease, QueueSlots
from rowlock.store import Store
from rowlock.store.ops.claim import (
    BOTTOM,
    PAYLOAD,
    ClaimedBlock,
    ClaimRequest,
    KnownPolicy,
    Lane,
    LimitOf,
    View,
    claim_seen,
    look,
)
from rowlock.store.ops.recover import release_unknown
from rowlock.store.options import LimitPlace
from rowlock.store.rotation import Rotation
from rowlock.store.steps import News
from rowlock.task import Task, Tasks
from rowlock.worker.job_blocks import JobBlock
from rowlock.worker.run import Run
from rowlock.worker.settings import WorkerSettings

logger: logging.Logger = logging.getLogger("rowlock.worker")

Sleep = Callable[[float], Awaitable[None]]
Known = set[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Leased:
    """What a claim has leased: jobs one by one, and blocks of plain ones."""

    leases: list[Lease]
    blocks: Sequence[ClaimedBlock] = ()

    def __len__(self) -> int:
        """How many jobs."""
        return len(self.leases) + sum(len(block.rows) for block in self.blocks)

    def one_by_one(self) -> list[Lease]:
        """A lease per job."""
        of_blocks = [block.lease_of(row) for block in self.blocks for row in block.rows]
        return [*self.leases, *of_blocks]


# As much as one run counts among all.
_LONG_SECONDS: Final = 2 * config.PREFETCH_SECONDS


class Claimer:
    """Leases jobs for one worker."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        *,
        worker: str,
        settings: WorkerSettings,
        block_kinds: Container[str] = (),
    ) -> None:
        self._store = store
        self._block_kinds = block_kinds
        self._worker = worker
        self._settings = settings
        self._kinds = settings.kinds_of(tasks.kinds)
        self._policies: dict[str, KnownPolicy] = {task.name: task.known_policy() for task in tasks}
        # Kinds with jobs that run at most once: none of those is leased ahead of its slot.
        self._once = {kind for kind, known in self._policies.items() if known.max_attempts == 1}
        self._limit_of: dict[str, LimitOf] = {
            task.name: limit_of(task) for task in tasks if task.settings.limit is not None
        }
        self._rotation = Rotation()
        self._lease_us = round(settings.lease_seconds * config.SECOND_US)
        self._view = View()
        # The lane that a notification named last.
        self._hint: Lane | None = None
        # When the last look ended; never, at first and after trouble.
        self._looked_at = -math.inf
        self._mixed_until = -math.inf
        self._chance = random.Random()
        self._is_unsure = False

    @property
    def due_in(self) -> float | None:
        """How many seconds after the last look the next job is due. None: none was waiting."""
        return self._view.due_in

    @property
    def is_mixed(self) -> bool:
        """Whether jobs of several queues or priorities were waiting a moment ago."""
        return time.monotonic() < self._mixed_until

    async def claim(self, room: Room, *, known: Known, sleep: Sleep) -> Leased:
        """Lease jobs for this room.

        Args:
            known: The leases that this worker knows of. After a claim without an answer, all
                others under its name are given back.
            sleep: How to wait for the next look. It may return early.
        """
        was_unsure, self._is_unsure = self._is_unsure, True
        if was_unsure:
            # The answer to the last claim was lost, so no process knows what it has leased.
            self._view, self._looked_at = View(), -math.inf
            await self._store.arun(release_unknown(self._worker, known=known))
        leased = await self._claim(room, sleep)
        self._is_unsure = False
        return leased

    def hint(self, news: News) -> None:
        """A notification came, which may name the lane of a new job."""
        if news.kind is None or (self._kinds is not None and news.kind not in self._kinds):
            return
        # In strict order, jobs of the queues before it come first.
        strict = self._settings.strict_queues
        if strict is None or news.queue == strict[0]:
            self._hint = Lane(news.queue, news.rank, news.kind, BOTTOM, is_hinted=True)

    def doubt(self) -> None:
        """Have the next claim first give back leases that no process knows of."""
        self._is_unsure = True

    def lease_for_slots_only(self, kind: str) -> None:
        """Jobs of this kind run at most once, though its task does not say so."""
        self._once.add(kind)

    async def _claim(self, room: Room, sleep: Sleep) -> Leased:
        hint, self._hint = self._hint, None
        if self._view and self._next_look() > time.monotonic():
            leased = await self._claim_seen(room)
            if leased:
                return leased
        wait = self._next_look() - time.monotonic()
        if wait > 0:
            await sleep(wait)
        elif hint is not None:
            self._view = View([hint], spent=self._view.spent)
            if leases := await self._claim_seen(room):
                return leases
        await self._look()
        return await self._claim_seen(room)

    def _next_look(self) -> float:
        """When to look again. Sooner if nothing is left to claim.

        The price is the database's own time. Rejected: the time until the answer is here. In a
        burst that is mostly the wait for this process, and looks became so rare that a job of
        another queue waited 380 ms (p99).
        """
        spent = self._view.spent
        least = config.LOOK_MIXED_SECONDS if self.is_mixed else config.LOOK_SECONDS
        pause = max(least, 9 * spent) if self._view else 3 * spent
        return self._looked_at + min(pause, config.LOOK_SECONDS_MAX)

    async def _look(self) -> None:
        queues = self._settings.queues
        self._rotation.look_again()
        self._view = await self._store.arun(
            look(queues=None if queues is None else list(queues), kinds=self._kinds)
        )
        self._looked_at = time.monotonic()
        if len({place[:2] for place in self._view.places}) > 1:
            self._mixed_until = self._looked_at + config.MIXED_SECONDS

    async def _claim_seen(self, room: Room) -> Leased:
        total, limits = self._limits(room)
        if not limits:
            return Leased([])
        request = ClaimRequest(
            worker=self._worker,
            queues=limits,
            kinds=self._kinds,
            tenants=None,
            limit=min(total, config.CLAIM_LIMIT_MAX),
            lease=self._lease_us,
            policies=self._policies,
            block_kinds=self._block_kinds,
            limits=self._limit_of,
            free=room.free,
            queue_free={queue: room.of(queue).free for queue in limits},
            rotation=self._rotation,
        )
        claimed = await self._store.arun(claim_seen(request, self._view))
        self._view = claimed.view
        return Leased(claimed.leases, claimed.blocks)

    def _limits(self, room: Room) -> tuple[int, dict[str, int]]:
        """How many jobs to take in all, and at most of each queue, in the order of preference.

        Only for free slots, if a queue must not lease ahead: jobs that others lease ahead must not
        take the place of its jobs.
        """
        seen = dict.fromkeys(place[0] for place in self._view.places)
        seen |= dict.fromkeys(self._view.overdue)
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


def limit_of(task: Task[..., Any]) -> LimitOf:
    """How to find the limit of a job of this task that was enqueued without it.

    A job whose key can't be found waits with all others that have none: it is not for the limit to
    judge the payload, which the run does, but what is limited in total is limited for it, too.
    """
    limit = task.settings.limit
    assert limit is not None

    def place(row: JobRow) -> LimitPlace:
        try:
            return limit.place(row, task.fields)
        except Exception as error:  # noqa: BLE001  # functions and types of users raise anything
            logger.warning(
                "%s %s has no key at limit %r, and waits with others that have none: %s",
                row.kind,
                row.id,
                limit.name,
                error,
            )
            return limit.place_at()

    return place


# How many


class QueueRoom(NamedTuple):
    """How many more jobs of a queue to lease: for free slots, and with those ahead of them."""

    free: int
    total: int


class Room(NamedTuple):
    """How many more jobs to lease: for free slots, and with those ahead of them."""

    free: int
    total: int
    of: Callable[[str], QueueRoom]


class Load(NamedTuple):
    """What a worker is doing: runs that have begun, jobs that wait for a slot, slots by queue."""

    busy: int
    ahead: int
    queues: dict[str, QueueSlots]


class PayloadSize:
    """The approximate payload size of a job, in bytes, by the jobs that were leased last.

    Args:
        bytes: The size to assume before any job was leased.
    """

    def __init__(self, bytes: float = 0.0) -> None:
        self._bytes = bytes

    def note(self, sizes: Sequence[int]) -> None:
        """Jobs were leased: large payloads count at once, small ones after a while."""
        if sizes:
            average = sum(sizes) / len(sizes)
            self._bytes = max(average, (self._bytes + average) / 2)

    def jobs_within(self, bytes: int) -> int:
        """About how many jobs fit into this many bytes of payloads."""
        return int(bytes / max(1.0, self._bytes))


class Capacity:
    """The slots of a child and of its queues, and what it knows of how long jobs take."""

    def __init__(
        self, settings: WorkerSettings, *, running: Mapping[tuple[str, int], Run], buffer: Buffer
    ) -> None:
        """`running` are the runs in their slots, in the order in which they started."""
        self._concurrency = settings.concurrency
        self._slots = settings.queues or {}
        self._buffer = buffer
        self._running = running
        # Of queues with slots of their own, how many are taken.
        self._used = {queue: 0 for queue, slots in self._slots.items() if slots}
        self.is_per_queue: bool = bool(self._used)
        # Moving averages: of each queue of which a job has ended, and of all jobs, for which long
        # ones count as if they were just not short.
        self._seconds: dict[str, float] = {}
        self._mixed_seconds = config.PREFETCH_SECONDS
        # How many slots have runs that are not short any more, by queue, and when that was counted.
        self._stuck: Counter[str] = Counter()
        self._counted_at = 0.0
        # With this many jobs left or fewer, another claim is worth its price.
        self.hungry_below: int = 0
        self._payload_size = PayloadSize()

    def lease(self, leased: Leased) -> None:
        """These jobs were leased."""
        rows = [lease.row for lease in leased.leases if lease.row is not None]
        sizes = [len(row.payload) for row in rows]
        for block in leased.blocks:
            sizes += [len(row[PAYLOAD]) for row in block.rows]
        self._payload_size.note(sizes)

    def start(self, run: Run) -> None:
        """A run takes a slot."""
        if run.queue in self._used:
            self._used[run.queue] += 1

    def end(self, run: Run, *, seconds: float | None) -> None:
        """A run has left its slot after this many seconds. None if it had not begun."""
        queue = run.queue
        if queue in self._used:
            self._used[queue] -= 1
        if seconds is not None:
            self.note(queue, seconds)

    def note(self, queue: str, seconds: float, runs: int = 1) -> None:
        """Runs of a queue have taken this many seconds each."""
        average = self._seconds.get(queue)
        if average is None:
            if len(self._seconds) >= config.PREFETCH_QUEUES_MAX:
                del self._seconds[next(iter(self._seconds))]
            # A few short runs prove nothing yet: the first may have failed immediately.
            average = _LONG_SECONDS
        weight = 0.1 if runs == 1 else 1 - 0.9**runs
        self._seconds[queue] = average + weight * (seconds - average)
        bounded = min(_LONG_SECONDS, seconds)
        self._mixed_seconds += weight * (bounded - self._mixed_seconds)

    def distrust(self, queue: str) -> None:
        """A job of this queue was leased ahead and waited too long for a slot."""
        known = self._seconds.get(queue, 0.0)
        self._seconds[queue] = max(known, config.PREFETCH_STALE_SECONDS)

    def has_slot(self, queue: str) -> bool:
        """Whether a job of this queue may start, if the child itself has a slot free."""
        used = self._used.get(queue)
        return used is None or used < self._slots[queue]

    @property
    def free(self) -> int:
        """How many slots of the child are free."""
        return max(0, self._concurrency - len(self._running))

    def load(self) -> Load:
        """Which slots are taken, and how many jobs wait for one here."""
        queues = {
            queue: QueueSlots(slots=self._slots[queue], busy=used)
            for queue, used in self._used.items()
        }
        return Load(len(self._running), len(self._buffer), queues)

    def room(self, *, is_mixed: bool, most: int | None) -> Room:
        """How many jobs to lease now, at most `most`.

        Call it when every run that can start has started. A run that still waits in the buffer
        while slots are free then waits for a slot of its queue, and takes none from other queues.
        """
        self._count_stuck()
        ahead_max = config.PREFETCH_MIXED_MAX if is_mixed else config.PREFETCH_MAX
        ahead_max = min(ahead_max, self._payload_size.jobs_within(config.PREFETCH_BYTES))
        turning = self._concurrency - self._stuck.total()
        ahead = _ahead(self._mixed_seconds, turning, ahead_max)
        wanted = self._concurrency + ahead
        held = len(self._running) + len(self._buffer)
        total = wanted - held
        if most is not None:
            total = min(total, most)
        # With short jobs, a claim for only a few free slots is not worth its price.
        is_short = self._mixed_seconds < config.SHORT_JOB_SECONDS
        worth = max(1, (turning + ahead) // 4) if is_short else 1
        self.hungry_below = wanted - worth
        if held and total < worth:
            total = 0
        free = max(0, min(self.free, total))

        def of(queue: str) -> QueueRoom:
            waiting = self._buffer.waiting(queue)
            own_free, own_turning = free, turning
            if slots := self._slots.get(queue, 0):
                own_free = min(free, slots - self._used[queue])
                own_turning = min(turning, slots - self._stuck[queue])
            seconds = self._seconds.get(queue, config.PREFETCH_SECONDS)
            kept = own_free + _ahead(seconds, own_turning, ahead_max)
            return QueueRoom(max(0, own_free - waiting), max(0, kept - waiting))

        return Room(free, total, of)

    def _count_stuck(self) -> None:
        now = time.monotonic()
        # Counting all of a thousand long runs again for every claim would cost more than it saves.
        if now - self._counted_at > config.PREFETCH_SECONDS / 2:
            self._counted_at = now
            self._stuck = Counter(_started_before(self._running, now - config.PREFETCH_SECONDS))


def _started_before(running: Mapping[tuple[str, int], Run], moment: float) -> Iterable[str]:
    for run in running.values():
        if run.started_at > moment:
            return
        yield run.queue


def _ahead(seconds: float, slots: int, most: int) -> int:
    """How many jobs of this length to lease ahead of these slots. None unless they are short."""
    if seconds >= config.PREFETCH_SECONDS:
        return 0
    return max(0, min(most, int(slots * config.PREFETCH_SECONDS / max(seconds, 1e-5))))


# Which is next


class Buffer:
    """Runs that wait for a slot, and blocks of jobs that do."""

    def __init__(self, *, strict: Sequence[str] | None = None) -> None:
        # Of each queue its ranks, of each rank what waits; the queue whose turn is next comes
        # first.
        self._queues: dict[str, dict[int, deque[Run | JobBlock]]] = {}
        self._counts: dict[str, int] = {}
        self._alone: deque[Run] = deque()
        self._strict = None if strict is None else {name: at for at, name in enumerate(strict)}
        self._length = 0

    def __len__(self) -> int:
        """How many jobs wait."""
        return self._length

    def __iter__(self) -> Iterator[Run]:
        """The runs that wait, without those of blocks."""
        yield from self._alone
        yield from (each for each in self._entries() if isinstance(each, Run))

    def _entries(self) -> Iterator[Run | JobBlock]:
        return (
            each for ranks in self._queues.values() for those in ranks.values() for each in those
        )

    def ids(self) -> Iterator[str]:
        """The jobs that wait and were not asked to stop."""
        yield from (run.lease.id for run in self if run.cause is None)
        for each in self._entries():
            if isinstance(each, JobBlock):
                yield from each.waiting_ids()

    def waiting(self, queue: str) -> int:
        """How many jobs of a queue wait."""
        return self._counts.get(queue, 0)

    @property
    def is_mixed(self) -> bool:
        """Whether jobs of several queues wait."""
        return len(self._queues) > 1

    def of(self, id: str, token: int | None = None) -> list[Run]:
        """The waiting runs of a job, each with its own lease, or only the one with this token.

        A block that has such a job is taken apart.
        """
        self.take_apart(lambda block: id in block.waiting_ids())
        return [run for run in self if run.lease.id == id and token in (None, run.lease.token)]

    def put(self, waiting: Run | JobBlock) -> None:
        """Have a run, or the runs of a block, wait for their turn."""
        queue, count = waiting.queue, 1 if isinstance(waiting, Run) else len(waiting)
        self._length += count
        self._counts[queue] = self._counts.get(queue, 0) + count
        if isinstance(waiting, Run) and waiting.is_quarantined:
            self._alone.append(waiting)
            return
        ranks = self._queues.get(queue)
        if ranks is None:
            ranks = self._queues[queue] = {}
            self._sort()
        those = ranks.get(waiting.rank)
        if those is None:
            ranks[waiting.rank] = those = deque()
            if len(ranks) > 1:
                self._queues[queue] = dict(sorted(ranks.items()))
        those.append(waiting)

    def _sort(self) -> None:
        if self._strict is not None:
            places = self._strict
            self._queues = dict(sorted(self._queues.items(), key=lambda item: places[item[0]]))

    def pop(self, has_slot: Callable[[str], bool] | None = None) -> Run | JobBlock | None:
        """Take the next run of a queue that has a free slot. None if there is none.

        If a job of a block is next, the block is returned and stays. Call `began` then.
        """
        queues = self._queues if has_slot is None else filter(has_slot, self._queues)
        queue = next(iter(queues), None)
        if queue is None:
            return None
        those = next(iter(self._queues[queue].values()))
        first = those[0]
        if isinstance(first, Run):
            self._pass_turn(queue, is_first_gone=True)
            self._forget(queue, 1)
        return first

    def began(self, block: JobBlock, jobs: int) -> None:
        """This many jobs of a block that is next have begun or left it."""
        self._pass_turn(block.queue, is_first_gone=not len(block))
        self._forget(block.queue, jobs)

    def _pass_turn(self, queue: str, *, is_first_gone: bool) -> None:
        """Let the next turn of a queue come after those of all others."""
        ranks = self._queues[queue]
        if is_first_gone:
            rank, those = next(iter(ranks.items()))
            those.popleft()
            if not those:
                del ranks[rank]
        if not ranks:
            del self._queues[queue]
        elif self._strict is None and len(self._queues) > 1:
            self._queues[queue] = self._queues.pop(queue)

    def take_apart(self, is_wanted: Callable[[JobBlock], bool]) -> list[Run]:
        """Replace blocks by the runs of their jobs, and return these."""
        found: list[Run] = []
        for ranks in self._queues.values():
            for those in ranks.values():
                blocks = [each for each in those if isinstance(each, JobBlock) and is_wanted(each)]
                for block in blocks:
                    place = those.index(block)
                    del those[place]
                    runs = block.waiting_runs()
                    for run in reversed(runs):
                        those.insert(place, run)
                    found += runs
        return found

    @property
    def alone(self) -> list[Run]:
        """The runs that must run alone, the next one first."""
        return list(self._alone)

    def remove(self, run: Run) -> None:
        """Take a run out, wherever it stands."""
        if run.is_quarantined:
            self._alone.remove(run)
        else:
            ranks = self._queues[run.queue]
            ranks[run.rank].remove(run)
            if not ranks[run.rank]:
                del ranks[run.rank]
            if not ranks:
                del self._queues[run.queue]
        self._forget(run.queue, 1)

    def _forget(self, queue: str, jobs: int) -> None:
        self._length -= jobs
        left = self._counts[queue] - jobs
        if left:
            self._counts[queue] = left
        else:
            del self._counts[queue]


# Of which queues: pure


def weighted(queues: Mapping[str, int], *, chance: random.Random) -> list[str]:
    """The queues in a random order: each comes first as often as its weight says.

    A queue's weight is its number of slots, 1 without one. (Each draws a time until its first
    event, at a rate of its weight.)
    """
    drawn = {queue: chance.expovariate(max(1, weight)) for queue, weight in queues.items()}
    return sorted(drawn, key=drawn.__getitem__)


def shares(order: Sequence[str], weights: Mapping[str, int], room: int) -> dict[str, int]:
    """How many jobs a claim of `room` may take of each queue, so that none starves.

    The first queue may take nearly all, and a little is left for each of the others. So every claim
    takes some jobs of each queue that has any, and most from the queue whose turn it is.
    """
    total = sum(max(1, weights.get(queue, 0)) for queue in order)
    reserved = {
        queue: max(1, room * max(1, weights.get(queue, 0)) // (4 * total)) for queue in order
    }
    later = sum(reserved.values())
    taken: dict[str, int] = {}
    for queue in order:
        later -= reserved[queue]
        taken[queue] = max(1, room - later)
    return taken
