"""How many jobs a child may lease now: one per free slot, and a few ahead where jobs are short.

1. A job is leased for a slot that is free, in the child and in its queue; nothing else is leased
   from a queue whose jobs are long, or not known to be short because none of them has ended yet.
2. Jobs of a short queue are leased ahead of its slots, as many as should last a moment. Slots
   whose run has already lasted longer than that moment don't count: they may be taken for hours.
3. A job that was leased ahead and had to be given back makes its queue a long one at once. It
   takes a number of short runs to make it short again, so that no queue leases and returns its
   first job over and over.
4. What is leased ahead is bounded by bytes too, by the size of the payloads that were leased last.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rowlock import config
from rowlock.job import Lease, QueueSlots
from rowlock.worker.buffer import Buffer
from rowlock.worker.run import Run
from rowlock.worker.settings import WorkerSettings

# As much as one run counts among all.
_LONG_SECONDS: Final = 2 * config.PREFETCH_SECONDS


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
    """What a worker does just now: runs that have begun, jobs that wait for a slot, full queues."""

    busy: int
    ahead: int
    queues: dict[str, QueueSlots]


class PayloadSize:
    """About how many bytes the payload of a job has, by the jobs that were leased last.

    Args:
        bytes: What it is before any was leased.
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
        # With so few jobs left, another claim is worth its price.
        self.hungry_below: int = 0
        self._payload_size = PayloadSize()

    def lease(self, leases: Sequence[Lease]) -> None:
        """These jobs were leased."""
        rows = [lease.row for lease in leases if lease.row is not None]
        self._payload_size.note([len(row.payload) for row in rows])

    def start(self, run: Run) -> None:
        """A run takes a slot."""
        if run.queue in self._used:
            self._used[run.queue] += 1

    def end(self, run: Run, *, seconds: float | None) -> None:
        """A run has left its slot, after this time; None if it had not begun."""
        queue = run.queue
        if queue in self._used:
            self._used[queue] -= 1
        if seconds is None:
            return
        average = self._seconds.get(queue)
        if average is None:
            if len(self._seconds) >= config.PREFETCH_QUEUES_MAX:
                del self._seconds[next(iter(self._seconds))]
            # A few short ones are no proof yet: the first that ends may be one that failed at once.
            average = _LONG_SECONDS
        self._seconds[queue] = average + 0.1 * (seconds - average)
        bounded = min(_LONG_SECONDS, seconds)
        self._mixed_seconds += 0.1 * (bounded - self._mixed_seconds)

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
        """How many jobs to lease now, `most` at the most.

        To be asked when all that can start has started: what then waits in the buffer while slots
        are free waits for a slot of its queue, and takes none from other queues.
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
        # With short jobs, a claim for a few free slots of many is not worth its price.
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
    """How many jobs of this length to lease ahead of so many slots: none unless they are short."""
    if seconds >= config.PREFETCH_SECONDS:
        return 0
    return max(0, min(most, int(slots * config.PREFETCH_SECONDS / max(seconds, 1e-5))))
