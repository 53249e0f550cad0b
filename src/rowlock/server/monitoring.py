"""What monitors ask for: metrics of the database, and whether it is ready.

1. However many ask, the database is asked once per interval.
2. Every number is exact. Small counts come from a bounded query every ten seconds. If that query
   stops at its bound, the number comes from a count of all rows.
3. That count runs in the background, at most once a minute. Only a scrape that finds no count, or
   an old one, waits for it.
4. If the count failed, the number is unknown and left out: a gap is better than a guess.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric

from rowlock import config
from rowlock.errors import RowlockError
from rowlock.job import Count, JobState, QueueStats
from rowlock.observe.metrics import of_limits, of_queues, of_workflows
from rowlock.server.problems import AWAY, Complaints, Refusal, refusal_of
from rowlock.store import Store
from rowlock.store import migrate as migrations
from rowlock.store.ops.limit_info import list_limits
from rowlock.store.ops.look import live_workers
from rowlock.store.ops.stats import Exact, exact_counts, is_exact, stats
from rowlock.store.ops.workflow_info import open_workflows

logger: logging.Logger = logging.getLogger("rowlock.server")


class Gauges:
    """Metrics of the database, seconds old. Large counts are up to a minute old."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: list[Metric] = []
        self._until = 0.0
        self._look: asyncio.Task[list[Metric]] | None = None
        self._counts = _Counts(store)

    async def read(self) -> list[Metric]:
        """The metrics. One query runs at a time, however many callers there are."""
        if time.monotonic() < self._until:
            return self._known
        loop = asyncio.get_running_loop()
        look = self._look
        if look is None or look.done() or look.get_loop() is not loop:
            look = self._look = loop.create_task(self._ask())
        return await asyncio.shield(look)

    async def _ask(self) -> list[Metric]:
        queues = await self._store.arun(stats())
        if not is_exact(queues, JobState):
            queues = exactly(queues, await self._counts.read())
        live = await self._store.arun(live_workers())
        limits = await self._store.arun(list_limits())
        flows = (await self._store.arun(open_workflows()))[: config.WORKFLOW_OPEN_EXACT_MAX]
        self._known = [
            *of_queues(queues, workers=live),
            *of_limits(limits),
            *of_workflows(each.state for each in flows),
        ]
        self._until = time.monotonic() + config.METRICS_KNOWN_SECONDS
        return self._known


class _Counts:
    """The last count of all rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: Exact | None = None
        self._at = 0.0
        self._next_at = 0.0
        self._counting: asyncio.Task[None] | None = None

    async def read(self) -> Exact | None:
        """The last count, or None if there is none or it is too old."""
        now = time.monotonic()
        if now >= self._next_at:
            self._begin()
        if self._is_old(now) and self._counting is not None and not self._counting.done():
            await asyncio.shield(self._counting)
        return None if self._is_old(time.monotonic()) else self._known

    def _is_old(self, now: float) -> bool:
        return self._known is None or now - self._at > config.METRICS_COUNT_OLD_SECONDS

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        counting = self._counting
        if counting is None or counting.done() or counting.get_loop() is not loop:
            self._counting = loop.create_task(self._count())

    async def _count(self) -> None:
        begun = time.monotonic()
        try:
            self._known = await self._store.arun(exact_counts())
            self._at = begun
        except RowlockError as error:
            logger.warning(
                "the metrics omit counts above %s jobs, because counting them failed: %s",
                f"{config.COUNT_EXACT_MAX:,}",
                error,
            )
        finally:
            took = time.monotonic() - begun
            pause = max(config.METRICS_COUNT_SECONDS, took / config.METRICS_COUNT_SHARE)
            self._next_at = time.monotonic() + pause


_NOTHING: Final = dict.fromkeys(JobState, Count(0, exact=False))


def exactly(queues: Sequence[QueueStats], counts: Exact | None) -> list[QueueStats]:
    """The same queues with exact counts, and without the counts that are unknown."""
    names = {each.queue for each in queues}
    # A queue whose jobs have all succeeded long ago is seen only by this count.
    unseen = sorted({queue for queue, _ in counts or {}} - names)
    queues = [*queues, *(QueueStats(name, _NOTHING, None, False) for name in unseen)]
    return [
        QueueStats(
            queue=each.queue,
            counts=_exact_counts_of(each.queue, each.counts, counts),
            oldest_ready_seconds=each.oldest_ready_seconds,
            is_paused=each.is_paused,
        )
        for each in queues
    ]


def _exact_counts_of(
    queue: str, seen: Mapping[JobState, Count], counts: Exact | None
) -> dict[JobState, Count]:
    exact = {state: count for state, count in seen.items() if count.exact}
    if counts is None:
        return exact
    return {state: exact.get(state) or Count(counts.get((queue, state), 0)) for state in seen}


class Readiness:
    """Whether the database answers and has the schema of this version.

    One check runs at a time, however long it takes, and at most one per second.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._complaints = Complaints()
        self._look: asyncio.Task[RowlockError | None] | None = None
        self._good_until = 0.0

    async def check(self) -> None:
        """Raise `Refusal` unless the database is ready."""
        look, loop = self._look, asyncio.get_running_loop()
        is_over = look is not None and look.done() and time.monotonic() >= self._good_until
        if look is None or is_over or look.get_loop() is not loop:
            look = self._look = loop.create_task(self._examine())
        try:
            async with asyncio.timeout(config.HTTP_READY_SECONDS):
                error = await asyncio.shield(look)
        except TimeoutError:
            raise Refusal("store_unavailable", AWAY) from None
        if error is not None:
            self._complaints.note(error)
            raise refusal_of(error)

    async def _examine(self) -> RowlockError | None:
        engine = self._store.engine
        try:
            migrations.check(engine.dialect, await asyncio.to_thread(engine.applied))
        except RowlockError as error:
            return error
        finally:
            self._good_until = time.monotonic() + config.HTTP_READY_KNOWN_SECONDS
        return None
