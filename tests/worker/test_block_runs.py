"""Blocks in a worker: nothing that users see differs from jobs that run in tasks of their own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.errors import StoreUnavailable
from rowlock.store.steps import Op
from rowlock.tally import RunEnd
from rowlock.worker.embedded import EmbeddedWorker
from rowlock.worker.report import running_lease

pytestmark = pytest.mark.asyncio

SECONDS = 30


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url)
    yield app
    app.close()


@pytest.fixture
def short_turns(monkeypatch):
    """Everything else on the loop has its turn after each job of a block."""
    monkeypatch.setattr(config, "TURN_SECONDS", 0.0)


async def all_ended(app: rowlock.App, jobs: list[rowlock.Job]) -> list[rowlock.Job]:
    return [await app.await_(job.id, timeout=SECONDS) for job in jobs]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not is_so():  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)


def soon(act: Callable[..., Any], *words: Any) -> None:
    """Do something when the handler that calls this has ended, before the next one is called."""
    asyncio.get_running_loop().call_soon(act, *words)


def engine_of(workers: list[EmbeddedWorker]) -> Any:
    return workers[0]._engine


async def test_jobs_of_a_block_share_tasks_and_all_succeed(app):
    """Each is run once, and counted as any other."""
    tasks: list[object] = []

    @app.task
    async def work() -> None:
        tasks.append(asyncio.current_task())

    jobs = await app.aenqueue_many([work.job() for _ in range(300)])
    async with app.worker(concurrency=100) as worker:
        found = await all_ended(app, jobs)
        tally = worker._engine._counts.totals.tally["default", "work"]

    assert {(job.state, job.attempt, job.last_error) for job in found} == {
        (JobState.SUCCEEDED, 1, None)
    }
    assert len(tasks) == 300
    assert len(set(tasks)) < 100
    assert tally.ends[[*RunEnd].index(RunEnd.SUCCEEDED)] == 300
    assert (sum(tally.run.buckets.values()), sum(tally.wait.buckets.values())) == (300, 300)
    await app.aclose()


async def test_every_end_is_as_in_a_task(app):
    """Results, errors, releases and runs that wait, side by side in one block."""

    @app.task(max_attempts=3, retry=rowlock.retry.fixed(0))
    async def work(act: str) -> Any:
        lease = running_lease()
        assert lease is not None and lease.row is not None
        if act == "wait":
            await asyncio.sleep(0)
        if act == "fail":
            raise ValueError(act)
        if act == "fail once" and lease.row.attempt == 1:
            raise ValueError(act)
        if act == "for good":
            raise rowlock.Fail(act)
        if act == "cancel":
            raise rowlock.Cancel(act)
        return act if act == "result" else None

    acts = ["none", "wait", "fail", "result", "fail once", "for good", "cancel"] * 10
    jobs = await app.aenqueue_many([work.job(act=act) for act in acts])
    async with app.worker(concurrency=100):
        found = await all_ended(app, jobs)

    ends = {
        (act, job.state.value, job.attempt, job.result)
        for act, job in zip(acts, found, strict=True)
    }
    assert ends == {
        ("none", "succeeded", 1, None),
        ("wait", "succeeded", 1, None),
        ("fail", "dead", 3, None),
        ("result", "succeeded", 1, "result"),
        ("fail once", "succeeded", 2, None),
        ("for good", "dead", 1, None),
        ("cancel", "cancelled", 1, None),
    }
    await app.aclose()


async def test_jobs_with_more_than_a_payload_run_beside_a_block(app):
    """A tenant, a key, tags, one attempt: each is run with all that it has."""
    seen: list[dict[str, Any]] = []

    @app.task
    async def work() -> None:
        lease = running_lease()
        assert lease is not None
        job = lease.job
        seen.append({"tenant": job.tenant, "key": job.key, "tags": job.tags})

    plain = {"tenant": None, "key": None, "tags": []}
    others = [
        ({"tenant": "acme"}, {"tenant": "acme"}),
        ({"key": "k"}, {"key": "k"}),
        ({"tags": ["a", "b"]}, {"tags": ["a", "b"]}),
        ({"max_attempts": 1}, {}),
        ({"keep": 0}, {}),
    ]
    jobs = [work.job() for _ in range(20)] + [work.using(**given).job() for given, _ in others]
    ids = await app.aenqueue_many(jobs)
    async with app.worker(concurrency=100) as worker:
        await until(lambda: len(seen) == len(jobs) and not worker._engine.settler.backlog)
    found = [await app.aget(job.id) for job in ids]

    expected = Counter(repr(plain | shown) for _, shown in others)
    expected[repr(plain)] += 20
    assert Counter(map(repr, seen)) == expected
    assert found[-1] is None
    assert {job.state for job in found[:-1] if job is not None} == {JobState.SUCCEEDED}
    await app.aclose()


@pytest.mark.usefixtures("short_turns")
async def test_the_loop_has_its_turn_between(app):
    """Whatever else runs on it is not held up by a block."""
    turns = 0
    seen: list[int] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @app.task
    async def work() -> None:
        seen.append(turns)

    jobs = await app.aenqueue_many([work.job() for _ in range(30)])
    other = asyncio.create_task(others())
    async with app.worker(concurrency=40):
        await all_ended(app, jobs)
    other.cancel()

    assert len(set(seen)) == 30
    await app.aclose()


async def test_queues_take_turns(app):
    """A block of one queue does not keep another queue's jobs waiting."""
    order: list[str] = []

    @app.task
    async def work(queue: str) -> None:
        order.append(queue)

    queues = ["busy", "calm"]
    jobs = [work.using(queue=queue).job(queue=queue) for queue in queues for _ in range(20)]
    jobs = await app.aenqueue_many(jobs)
    async with app.worker(concurrency=100):
        await all_ended(app, jobs)

    assert Counter(order[:20]) == {"busy": 10, "calm": 10}
    await app.aclose()


async def test_urgent_jobs_come_first(app):
    """A block of a lower priority waits for one of a higher."""
    order: list[int] = []

    @app.task
    async def work(priority: int) -> None:
        order.append(priority)

    priorities = [priority for priority in (-1, 0, 5) for _ in range(10)]
    jobs = [work.using(priority=each).job(priority=each) for each in priorities]
    jobs = await app.aenqueue_many(jobs)
    async with app.worker(concurrency=100):
        await all_ended(app, jobs)

    assert order == sorted(priorities, reverse=True)
    await app.aclose()


async def test_a_queue_has_no_more_runs_than_its_slots(app):
    """A handler that suspends keeps its slot; the block goes on when one is free."""
    running = most = 0

    @app.task
    async def work(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if number % 3 == 0:
            await asyncio.sleep(0.001)
        running -= 1

    jobs = await app.aenqueue_many([work.job(number=number) for number in range(100)])
    async with app.worker(concurrency=50, queues={"default": 4}):
        found = await all_ended(app, jobs)

    assert {job.state for job in found} == {JobState.SUCCEEDED}
    assert most <= 4
    await app.aclose()


@pytest.mark.usefixtures("short_turns")
async def test_a_job_that_waits_in_a_block_can_be_cancelled(app):
    """It is not begun; those around it are."""
    workers: list[EmbeddedWorker] = []
    ran: list[int] = []
    jobs: list[rowlock.Job] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)
        if number == 0:
            app.cancel(jobs[5].id)
            soon(engine_of(workers).cancel, jobs[5].id)

    jobs += await app.aenqueue_many([work.job(number=number) for number in range(10)])
    async with app.worker(concurrency=20) as worker:
        workers.append(worker)
        found = await all_ended(app, jobs)

    assert sorted(ran) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [job.state for job in found].count(JobState.CANCELLED) == 1
    assert found[5].state == JobState.CANCELLED
    await app.aclose()


async def test_a_run_of_a_block_that_waits_can_be_cancelled(app):
    """Its handler is told where it waits, as any other."""
    waits = asyncio.Event()
    seen: list[str] = []

    @app.task
    async def work(number: int) -> None:
        if number == 3:
            waits.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                seen.append("told")
                raise

    jobs = await app.aenqueue_many([work.job(number=number) for number in range(8)])
    async with app.worker(concurrency=20, lease=600):
        await asyncio.wait_for(waits.wait(), SECONDS)
        await app.acancel(jobs[3].id)
        found = await all_ended(app, jobs)

    assert (found[3].state, seen) == (JobState.CANCELLED, ["told"])
    assert {job.state for job in found if job.id != jobs[3].id} == {JobState.SUCCEEDED}
    await app.aclose()


@pytest.mark.usefixtures("short_turns")
async def test_a_job_of_a_block_whose_lease_is_lost_is_not_begun(app):
    """Its next run has another token. One that nobody told of can settle nothing under its own."""
    workers: list[EmbeddedWorker] = []
    runs: list[tuple[int, int]] = []
    jobs: list[rowlock.Job] = []

    @app.task
    async def work(number: int) -> None:
        lease = running_lease()
        assert lease is not None
        runs.append((number, lease.token))
        if (number, lease.token) == (0, 1):
            app.store.release_worker(workers[0].id)
            soon(engine_of(workers).lose, jobs[3].id, 1)

    jobs += await app.aenqueue_many([work.job(number=number) for number in range(6)])
    async with app.worker(concurrency=20) as worker:
        workers.append(worker)
        found = await all_ended(app, jobs)
        await until(lambda: not worker._engine._known)
        lost = worker._engine._counts.lost_count

    assert [token for number, token in runs if number == 3] == [2]
    assert {(job.state, job.token) for job in found} == {(JobState.SUCCEEDED, 2)}
    assert lost == 6
    await app.aclose()


@pytest.mark.usefixtures("short_turns")
async def test_a_worker_that_stops_gives_the_rest_of_a_block_back(app):
    """What has begun is settled; nothing is counted for the others."""
    workers: list[EmbeddedWorker] = []
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)
        if number == 4:
            soon(engine_of(workers).stop)

    jobs = await app.aenqueue_many([work.job(number=number) for number in range(10)])
    async with app.worker(concurrency=20) as worker:
        workers.append(worker)
        await asyncio.wait_for(worker._engine.stopping.wait(), SECONDS)
    found = [await app.aget(job.id) for job in jobs]

    assert ran == [0, 1, 2, 3, 4]
    assert [(job.state, job.attempt, job.errors) for job in found if job is not None] == [
        (JobState.SUCCEEDED, 1, []) if number < 5 else (JobState.READY, 0, [])
        for number in range(10)
    ]
    await app.aclose()


async def test_a_settle_without_an_answer_is_sent_again(app, monkeypatch):
    """Whether it was done or not: every job succeeds once."""
    arun = app.store.arun
    lost: list[str] = []
    ran: Counter[int] = Counter()

    @app.task
    async def work(number: int) -> None:
        ran[number] += 1

    async def answer(op: Op[Any]) -> Any:
        if op.name != "settle" or len(lost) == 2:
            return await arun(op)
        lost.append(op.name)
        # The first is not done, the second is.
        if len(lost) == 2:
            await arun(op)
        raise StoreUnavailable("the answer is lost")

    jobs = await app.aenqueue_many([work.job(number=number) for number in range(50)])
    monkeypatch.setattr(app.store, "arun", answer)
    async with app.worker(concurrency=100) as worker:
        found = await all_ended(app, jobs)
        await until(lambda: not worker._engine._known)

    assert len(lost) == 2
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}
    assert set(ran.values()) == {1}
    await app.aclose()


async def test_each_success_is_logged_where_that_is_asked_for(app, caplog):
    """One line per job, with its fields."""
    caplog.set_level(logging.DEBUG, logger="rowlock.worker")

    @app.task
    async def work() -> None: ...

    jobs = await app.aenqueue_many([work.job() for _ in range(8)])
    async with app.worker(concurrency=20):
        await all_ended(app, jobs)

    lines = [record for record in caplog.records if "succeeded after" in record.getMessage()]
    assert sorted(record.job_id for record in lines) == sorted(job.id for job in jobs)
    assert {(record.kind, record.attempt) for record in lines} == {("work", 1)}
    await app.aclose()
