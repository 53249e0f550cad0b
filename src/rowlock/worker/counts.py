"""Counts in memory what a process settles, a batch at a time. Its sums go to the history.

1. Nothing is written per job: one row per queue and kind, every ten seconds and at the end. A
   process that is killed loses the sums of its last seconds.
2. Events go to their listeners at most twice a second: a few one by one, more of them as numbers.
   Events that can't be written are dropped.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rowlock import config
from rowlock.events import Event, EventBox, EventType, event_of
from rowlock.ids import new_id
from rowlock.job import Job, Lease
from rowlock.lifecycle import INTERRUPTED, Succeeded
from rowlock.store import NewJob, Settlement, Store
from rowlock.store.ops.claim import ATTEMPT, ID, NOW, RUN_AT
from rowlock.store.ops.enqueue import Copied
from rowlock.store.ops.events import write_events
from rowlock.store.ops.history import write_history
from rowlock.store.ops.settle import Settled
from rowlock.store.steps import Op
from rowlock.tally import OTHER, Ended, Name, RunEnd, Sums, Tally, bounded, counted, merged
from rowlock.task import Task
from rowlock.worker.job_blocks import BareSuccesses
from rowlock.worker.report import RunSettlement
from rowlock.worker.shared_memory import Totals
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble, jittered

_NONE = Settled()


def names_of(
    tasks: Iterable[Task[..., Any]], queues: Collection[str] | None = None
) -> Iterator[Name]:
    """The queue and kind of each task. Only of these queues, if some are named."""
    for task in tasks:
        if queues is None or task.settings.queue in queues:
            yield task.settings.queue, task.name


@dataclass(frozen=True, slots=True)
class _Part:
    """Sums on their way to the history, with the id by which a second try is recognised."""

    id: str
    tally: Tally


class ProcessCounts:
    """The sums of one process. Not for several threads at once.

    Names that are known from the start have zeros: a counter that begins with its first event hides
    that event from Prometheus's `increase()`.
    """

    def __init__(self, known: Iterable[Name] = ()) -> None:
        self._known = tuple(islice(dict.fromkeys(known), config.TALLY_NAMES_MAX))
        self._names = frozenset(self._known)
        self._fresh: Tally = {}
        self._written: Tally = {}
        self._part: _Part | None = None
        self._box = EventBox()
        self._news = asyncio.Event()
        self._turn = 0
        self._lost: Counter[str] = Counter({queue: 0 for queue, _ in self._known})
        self._interrupted: Counter[str] = Counter(self._lost)
        self._refused = 0
        self._enqueued: Counter[Name] = Counter(dict.fromkeys(self._known, 0))
        self._guard = threading.Lock()
        self._chance = random.Random()
        # Of the services of this process.
        self.errors: ServiceErrors = ServiceErrors()

    def settled(self, settlements: Sequence[Settlement], settled: Settled = _NONE) -> None:
        """Count a batch that was written, without the leases that were lost or repeated."""
        # If an earlier try has written another outcome than a success, what became of its job is
        # not known, and it is not counted.
        swift = [each for each in settlements if isinstance(each.outcome, Succeeded)]
        if settled.lost or settled.repeated or settled.ended:
            others = {lease.id for lease in (*settled.lost, *settled.repeated)}
            others.update(run.id for run in settled.ended)
            swift = [each for each in swift if each.lease.id not in others]
        if swift:
            self._count_swift(swift)
        if settled.ended:
            self._count_slow(settlements, settled.ended)

    def succeeded(self, done: BareSuccesses) -> None:
        """Count plain successes of a block that were written."""
        lane, rows, seconds = done.block.claimed.lane, done.rows, done.seconds
        name = (lane.queue, lane.kind)
        sums = self._sums(name)
        sums.add(RunEnd.SUCCEEDED, len(rows))
        if len(rows) <= self._box.room:
            for row, took in zip(rows, seconds, strict=True):
                event = Event(EventType.SUCCEEDED, *name, None, row[ID], row[ATTEMPT], took)
                self._box.put(event)
        else:
            self._box.add(EventType.SUCCEEDED, {(*name, None): len(rows)})
        self._news.set()
        for number, weight in self._timed(len(rows)):
            row = rows[number]
            sums.run.add(round(seconds[number] * config.SECOND_US), weight)
            sums.wait.add(row[NOW] - row[RUN_AT], weight)

    def ended(self, runs: Iterable[Ended]) -> None:
        """Count runs whose ends the store has decided one by one."""
        for run in runs:
            self._box.put(event_of(run))
            sums = self._sums((run.queue, run.kind))
            sums.add(run.end)
            if run.error is not None and (run.end is RunEnd.RELEASED or run.error == INTERRUPTED):
                self._interrupted[self._label(self._interrupted, run.queue)] += 1
            if run.run_us is not None:
                sums.run.add(run.run_us)
                sums.wait.add(run.wait_us)
        self._news.set()

    def lost(self, leases: Sequence[Lease]) -> None:
        """Count leases that other workers have taken."""
        for lease in leases:
            if (row := lease.row) is not None:
                self._lost[self._label(self._lost, row.queue)] += 1
                lost = Event(EventType.LOST, row.queue, row.kind, row.tenant, lease.id, row.attempt)
                self._box.put(lost)
        self._news.set()

    def refused(self) -> None:
        """Count an outcome that the database refused to store as it was. From any thread."""
        with self._guard:
            self._refused += 1

    @property
    def lost_count(self) -> int:
        """How many leases other workers have taken since the start."""
        return self._lost.total()

    def enqueued(self, jobs: Iterable[NewJob | Job]) -> None:
        """Count jobs that this process has enqueued. From any thread."""
        self.enqueued_by_name(Counter((job.queue, job.kind) for job in jobs))

    def enqueued_by_name(self, numbers: Mapping[Name, int]) -> None:
        """As `enqueued`, by the numbers of each queue and kind."""
        with self._guard:
            for name, number in numbers.items():
                is_known = name in self._enqueued or len(self._enqueued) < config.TALLY_NAMES_MAX
                self._enqueued[name if is_known else (OTHER, OTHER)] += number

    def sent(self, jobs: Sequence[NewJob], answers: Sequence[Job]) -> None:
        """As `enqueued`, for the jobs that are new."""
        # The answers of a copy are made when they are looked at, and all of its jobs are new.
        if isinstance(answers, Copied):
            self.enqueued(jobs)
        else:
            self.enqueued(answer for answer in answers if answer.created)

    def followed(self, settlements: Sequence[Settlement], ended: Sequence[Ended]) -> None:
        """Count the follow-ups of the runs that succeeded."""
        done = {run.id for run in ended if run.end is RunEnd.SUCCEEDED}
        parents = (each for each in settlements if each.lease.id in done)
        self.enqueued(job for each in parents for job in added_by(each))

    def _sums(self, name: Name) -> Sums:
        return counted(self._fresh, name, self._names)

    @staticmethod
    def _label(counts: Counter[str], queue: str) -> str:
        """The queue's name, or the one name for all queues beyond the bound."""
        return queue if queue in counts or len(counts) < config.TALLY_NAMES_MAX else OTHER

    def _count_swift(self, swift: Sequence[Settlement]) -> None:
        """Count plain successes. They are the many, so this does as little as possible for each.

        Only some of a large batch are timed. It took 0.4 µs per job, of 35 in all.
        """
        names = Counter(
            [
                (row.queue, row.kind, row.tenant)
                for each in swift
                if (row := each.lease.row) is not None
            ]
        )
        if parents := [each for each in swift if each.follow_ups]:
            self.enqueued(job for each in parents for job in added_by(each))
        for (queue, kind, _), number in names.items():
            self._sums((queue, kind)).add(RunEnd.SUCCEEDED, number)
        if len(swift) <= self._box.room:
            for each in swift:
                self._box.put(_success_of(each))
        else:
            self._box.add(EventType.SUCCEEDED, names)
        self._news.set()
        for number, weight in self._timed(len(swift)):
            each = swift[number]
            row, seconds = each.lease.row, _seconds_of(each)
            assert row is not None
            if seconds is not None:
                sums = self._sums((row.queue, row.kind))
                sums.run.add(round(seconds * config.SECOND_US), weight)
                sums.wait.add((row.started_at or row.run_at) - row.run_at, weight)

    def _timed(self, runs: int) -> Iterator[tuple[int, int]]:
        """The numbers of the runs to time, and how many runs each of them stands for."""
        stride = (runs - 1) // config.TALLY_TIMED_MAX + 1
        self._turn += 1
        timed = range(self._turn % stride, runs, stride)
        # The first also stands for the remainder, so that together they stand for all.
        weight = runs - stride * (len(timed) - 1)
        for number in timed:
            yield number, weight
            weight = stride

    def _count_slow(self, settlements: Sequence[Settlement], ended: Sequence[Ended]) -> None:
        """Count runs by the times of this process, which are better than the database's."""
        self.followed(settlements, ended)
        seconds = {each.lease.id: _seconds_of(each) for each in settlements}
        self.ended(
            run._replace(run_us=None if (took := seconds[run.id]) is None else round(took * 10**6))
            for run in ended
        )

    @property
    def totals(self) -> Totals:
        """Everything that was counted since the start."""
        parts = [self._fresh] if self._part is None else [self._part.tally, self._fresh]
        totals = merged({name: Sums() for name in self._known}, self._written)
        for part in parts:
            merged(totals, part)
        with self._guard:
            enqueued = Counter(self._enqueued)
        return Totals(
            bounded(totals, known=self._names),
            self._lost,
            enqueued,
            self._interrupted,
            self._refused,
            self.errors.counts,
        )

    # Writing

    async def write_on(self, store: Store) -> float:
        """Write the sums, and return in how many seconds to do it again."""
        await self.awrite(store)
        return jittered(config.HISTORY_WRITE_SECONDS, self._chance)

    async def tell_on(self, store: Store) -> None:
        """Send events until cancelled."""
        trouble = Trouble("events are not written", ServiceName.EVENTS, self.errors)
        # An event belongs to one loop, and a mounted server may be run by a new one each time.
        self._news = asyncio.Event()
        if self._box:
            self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.atell(store)
            except Exception as error:  # noqa: BLE001  # a service survives all but cancellation
                await trouble.wait(error)
            else:
                trouble.over()
            await asyncio.sleep(config.EVENTS_SECONDS)

    @property
    def has_events(self) -> bool:
        """Whether there are events to send."""
        return bool(self._box)

    async def atell(self, store: Store) -> None:
        """Send the events since the last call. If that fails, they are dropped."""
        if events := self._box.take():
            await store.arun(write_events(events))

    def tell(self, store: Store) -> None:
        """As `atell`."""
        if events := self._box.take():
            store.run(write_events(events))

    async def awrite(self, store: Store) -> None:
        """Write the sums. If that fails, they stay for the next try."""
        if (op := self._next()) is not None:
            await store.arun(op)
            self._done()

    def write(self, store: Store) -> None:
        """As `awrite`."""
        if (op := self._next()) is not None:
            store.run(op)
            self._done()

    def _next(self) -> Op[None] | None:
        if self._part is None and self._fresh:
            self._part, self._fresh = _Part(new_id(), self._fresh), {}
        return None if self._part is None else write_history(self._part.tally, part=self._part.id)

    def _done(self) -> None:
        assert self._part is not None
        self._written = bounded(merged(self._written, self._part.tally), known=self._names)
        self._part = None


def added_by(settlement: Settlement) -> Iterator[NewJob]:
    """The jobs that a success has enqueued, or added to its workflow."""
    yield from settlement.follow_ups
    if settlement.growth is not None:
        yield from settlement.growth.nodes


def _success_of(settlement: Settlement) -> Event:
    row = settlement.lease.row
    assert row is not None
    return Event(
        EventType.SUCCEEDED,
        row.queue,
        row.kind,
        row.tenant,
        row.id,
        row.attempt,
        _seconds_of(settlement),
    )


def _seconds_of(settlement: Settlement) -> float | None:
    return settlement.seconds if isinstance(settlement, RunSettlement) else None
