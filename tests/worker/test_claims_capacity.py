"""What a child leases: for free slots, and ahead of them only where its jobs are short."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.columns import JobRow
from rowlock.job import Lease
from rowlock.task import Tasks
from rowlock.worker.claims import Buffer, Capacity, Leased, QueueRoom, Room
from rowlock.worker.run import Run
from rowlock.worker.settings import worker_settings

CONCURRENCY = 20
LONG_SECONDS, SHORT_SECONDS = 60.0, 0.0001
BOUND_SECONDS = 60
TASKS = Tasks()


@TASKS.task
def step() -> None: ...


class Child:
    """The slots and the buffer of a child, without the child."""

    def __init__(self, **queues: int) -> None:
        self.running: dict[tuple[str, int], Run] = {}
        self.buffer = Buffer()
        settings = worker_settings(queues=queues, concurrency=CONCURRENCY)
        self.capacity = Capacity(settings, running=self.running, buffer=self.buffer)
        self._numbers = count()

    def lease(self, times: int, *, payload_bytes: int) -> None:
        """Lease jobs with payloads of this size."""
        rows = [self._run("mail").lease.row for _ in range(times)]
        large = [row._replace(payload="x" * payload_bytes) for row in rows if row is not None]
        self.capacity.lease(Leased([Lease.of_row(row, now=0) for row in large]))

    def _run(self, queue: str) -> Run:
        fields: dict[str, object] = dict.fromkeys(JobRow._fields)
        fields |= {"id": f"job-{next(self._numbers)}", "kind": "step", "queue": queue, "rank": 0}
        fields |= {"token": 1, "payload": "{}", "attempt": 1, "crashes": 0, "losses": 0}
        return Run(Lease.of_row(JobRow(**fields), now=0), step)  # type: ignore[arg-type]  # columns that nobody reads

    def run(self, queue: str, *, since_seconds: float = 0.0) -> Run:
        """Start a run that began this long ago."""
        run = self._run(queue)
        run.started_at = time.monotonic() - since_seconds
        self.running[run.key] = run
        self.capacity.start(run)
        return run

    def finish(self, queue: str, times: int = 1, *, seconds: float) -> None:
        for _ in range(times):
            run = self.run(queue)
            del self.running[run.key]
            self.capacity.end(run, seconds=seconds)

    def wait(self, queue: str, times: int) -> None:
        for _ in range(times):
            self.buffer.put(self._run(queue))

    def room(self) -> Room:
        return self.capacity.room(is_mixed=False, most=None)


def test_an_unknown_queue_gets_free_slots_only() -> None:
    """None of its jobs has ended, whatever is known of others."""
    child = Child(media=6, mail=0)
    child.finish("mail", 100, seconds=SHORT_SECONDS)

    room = child.room()

    assert room.of("media") == QueueRoom(free=6, total=6)
    assert room.of("mail") == QueueRoom(CONCURRENCY, CONCURRENCY + config.PREFETCH_MAX)


def test_large_payloads_are_leased_ahead_by_their_bytes() -> None:
    """Large ones count at once, and small ones make room again after a while."""
    child = Child(mail=0)
    child.finish("mail", 100, seconds=SHORT_SECONDS)
    child.lease(100, payload_bytes=config.PREFETCH_BYTES // 4)
    large = child.room().of("mail")
    child.lease(100, payload_bytes=10)
    soon = child.room().of("mail")
    for _ in range(30):
        child.lease(100, payload_bytes=10)

    assert large == QueueRoom(CONCURRENCY, CONCURRENCY + 4)
    assert soon == QueueRoom(CONCURRENCY, CONCURRENCY + 7)
    assert child.room().of("mail") == QueueRoom(CONCURRENCY, CONCURRENCY + config.PREFETCH_MAX)


def test_a_queue_of_long_jobs_gets_free_slots_only() -> None:
    """And none when all its slots are taken, though other slots are free."""
    child = Child(media=6, mail=0)
    child.finish("mail", 100, seconds=SHORT_SECONDS)
    child.finish("media", seconds=LONG_SECONDS)
    for _ in range(4):
        child.run("media")

    assert child.room().of("media") == QueueRoom(2, 2)
    for _ in range(2):
        child.run("media")
    assert child.room().of("media") == QueueRoom(0, 0)
    assert child.room().free == CONCURRENCY - 6


def test_slots_with_long_runs_are_not_leased_ahead_of() -> None:
    """Short jobs turned into long ones that have not ended yet: their slots may stay taken."""
    child = Child(media=6, mail=0)
    child.finish("media", 100, seconds=SHORT_SECONDS)
    for _ in range(6):
        child.run("media", since_seconds=2 * config.PREFETCH_SECONDS)

    assert child.room().of("media") == QueueRoom(0, 0)


def test_a_child_full_of_long_runs_leases_nothing_ahead() -> None:
    """Not even of queues whose own jobs are short: no slot can take them."""
    child = Child(media=0, mail=0)
    child.finish("mail", 100, seconds=SHORT_SECONDS)
    for _ in range(CONCURRENCY):
        child.run("media", since_seconds=2 * config.PREFETCH_SECONDS)

    room = child.room()

    assert (room.free, room.total, room.of("mail")) == (0, 0, QueueRoom(0, 0))


def test_one_free_slot_among_long_runs_is_used() -> None:
    """A claim for it is worth its price, though it is one of many."""
    child = Child(media=0, mail=0)
    child.finish("mail", 100, seconds=SHORT_SECONDS)
    for _ in range(CONCURRENCY - 1):
        child.run("media", since_seconds=2 * config.PREFETCH_SECONDS)

    assert child.room().free == 1
    assert child.room().of("mail").total > 1


def test_jobs_that_wait_for_their_queue_take_no_slots_from_others() -> None:
    """Two slots of mail are busy and many of its jobs are leased ahead: 18 slots are free."""
    child = Child(media=6, mail=2)
    child.finish("mail", 100, seconds=SHORT_SECONDS)
    child.run("mail")
    child.run("mail")
    child.wait("mail", config.PREFETCH_MAX // 2)

    assert child.room().free == CONCURRENCY - 2
    assert child.room().of("media") == QueueRoom(6, 6)


def test_what_was_given_back_makes_the_queue_careful_at_once() -> None:
    """It takes a number of short jobs until something is leased ahead again."""
    child = Child(media=6)
    child.finish("media", 100, seconds=SHORT_SECONDS)
    assert child.room().of("media").total > 6

    child.capacity.distrust("media")
    assert child.room().of("media").total == 6
    child.finish("media", 10, seconds=SHORT_SECONDS)
    assert child.room().of("media").total == 6
    child.finish("media", 100, seconds=SHORT_SECONDS)
    assert child.room().of("media").total > 6


def test_the_number_of_queues_that_are_remembered_is_bounded() -> None:
    """A worker may meet any number of queues in its life."""
    child = Child(media=6)
    for number in range(config.PREFETCH_QUEUES_MAX + 10):
        child.finish(f"queue-{number}", 20, seconds=SHORT_SECONDS)

    room = child.room()

    assert room.of("queue-0").total == CONCURRENCY
    assert room.of(f"queue-{config.PREFETCH_QUEUES_MAX}").total > CONCURRENCY


@pytest.fixture
def app(any_url: str):
    app = rowlock.App(any_url)
    yield app
    app.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("was_short", [False, True])
async def test_the_head_of_a_full_queue_is_left_alone(app: rowlock.App, was_short: bool) -> None:
    """It is not leased and given back again and again while the slots of its queue are taken and
    other queues are busy: its token stays the same, and it runs as soon as a slot is free.
    """
    gate, is_full = asyncio.Event(), asyncio.Event()
    started: list[int] = []

    @app.task(queue="media")
    async def convert(number: int) -> None:
        started.append(number)
        if len(started) == 6:
            is_full.set()
        await gate.wait()

    @app.task(queue="media")
    async def fail_early() -> None: ...

    @app.task(queue="quick")
    async def noop() -> None: ...

    async with app.worker({"media": 6, "quick": 0}, concurrency=20):
        if was_short:
            short = await app.aenqueue_many([fail_early.job() for _ in range(100)])
            for job in short:
                await app.await_(job.id, timeout=BOUND_SECONDS)
        jobs = [await convert.aenqueue(number) for number in range(6)]
        await asyncio.wait_for(is_full.wait(), BOUND_SECONDS)
        # Until then they might be as short as those before them.
        await asyncio.sleep(2 * config.PREFETCH_SECONDS)
        head = await convert.aenqueue(6)
        tokens = await tokens_while_busy(app, head, noop)
        gate.set()
        found = [await app.await_(job.id, timeout=BOUND_SECONDS) for job in (*jobs, head)]

    assert tokens == {0}
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}
    assert found[-1].token == 1
    await app.aclose()


async def tokens_while_busy(
    app: rowlock.App, head: rowlock.Job, noop: rowlock.Task[[], Any]
) -> set[int]:
    """Which tokens a waiting job has while quick jobs run, for longer than one may be held back."""
    tokens: set[int] = set()
    end = time.monotonic() + 2 * config.PREFETCH_STALE_SECONDS
    while time.monotonic() < end:
        quick = await app.aenqueue_many([noop.job() for _ in range(50)])
        await app.await_(quick[-1].id, timeout=BOUND_SECONDS)
        found = await app.aget(head.id)
        assert found is not None
        tokens.add(found.token)
    return tokens
