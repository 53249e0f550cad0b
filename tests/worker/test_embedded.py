"""The worker inside the caller's process: slots, cancellation, limits, the bell, its end."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import rowlock
from rowlock import JobState, config
from rowlock.job import WorkerVitals
from rowlock.worker import engine
from rowlock.worker.claims import Claimer, Leased
from rowlock.worker.engine import WorkerEngine
from rowlock.worker.progress import AsyncProgressWriter, Unwritten
from rowlock.worker.run import Run

pytestmark = pytest.mark.asyncio


@pytest.fixture
def app(any_url):
    app = rowlock.App(any_url)
    yield app
    app.close()


async def ended(app: rowlock.App, job: rowlock.Job) -> rowlock.Job:
    return await app.await_(job.id, timeout=20)


async def test_both_kinds_of_functions_run(app):
    """Coroutines run on the loop, plain functions in threads, beside each other."""
    here = threading.current_thread()

    @app.task
    async def soft() -> bool:
        return threading.current_thread() is here

    @app.task
    def hard() -> bool:
        return threading.current_thread() is here

    jobs = [await soft.aenqueue(), await hard.aenqueue()]
    async with app.worker():
        results = [(await ended(app, job)).result for job in jobs]

    assert results == [True, False]
    await app.aclose()


async def test_a_job_that_comes_back_while_its_lost_run_goes_on(app):
    """Two runs of a job in one worker do not disturb each other: the later one counts."""
    gates = [threading.Event(), threading.Event()]
    started: list[int] = []

    @app.task(max_attempts=2)
    def slow(ctx: rowlock.Context) -> int:
        number = len(started)
        started.append(ctx.token)
        gates[number].wait(20)
        return number

    job = await slow.aenqueue()
    async with app.worker(lease=1) as worker:
        await until(lambda: len(started) == 1)
        assert await app.store.arelease_worker(worker.id) == 1
        await until(lambda: len(started) == 2)
        gates[0].set()
        # Longer than the later run's lease would last without its beats.
        await asyncio.sleep(2)
        gates[1].set()
        found = await ended(app, job)

    assert (found.state, found.result) == (JobState.SUCCEEDED, 1)
    assert len(started) == 2
    await app.aclose()


async def test_a_job_whose_lease_is_lost_while_it_waits_is_not_begun(app):
    """One that must run alone waits for long; when a beat tells that it is another's, it goes."""
    gate = asyncio.Event()
    tokens: list[int] = []

    @app.task
    async def busy() -> None:
        await gate.wait()

    @app.task
    async def alone(ctx: rowlock.Context) -> None:
        tokens.append(ctx.token)

    suspect = await alone.aenqueue()
    await app.store.acrash(await app.store.aclaim(worker="dead", queues=None), "killed")
    await busy.aenqueue()
    async with app.worker(concurrency=2, lease=1) as worker:
        await until(lambda: len(worker._engine._buffer) == 1 and worker._engine.running == 1)
        lost = (await app.aget(suspect.id)).token
        app.store.release_worker(worker.id)
        await until(lambda: not worker._engine._buffer.of(suspect.id, lost))
        gate.set()
        await ended(app, suspect)

    assert lost not in tokens
    await app.aclose()


async def test_what_has_run_alone_and_failed_runs_beside_others_again(app):
    """A run that ended by itself crashed nothing: the next one waits for nobody."""
    together = asyncio.Barrier(3)

    @app.task(retry=rowlock.retry.fixed(0))
    async def bystander(ctx: rowlock.Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")
        await together.wait()

    ids = [(await bystander.aenqueue()).id for _ in range(3)]
    leases = await app.store.aclaim(worker="dead", queues=None, limit=3)
    await app.store.acrash(leases, "killed")
    async with app.worker():
        found = [await app.await_(id, timeout=20) for id in ids]

    assert [(job.state, job.attempt, job.crashes) for job in found] == [
        (JobState.SUCCEEDED, 2, 1)
    ] * 3
    await app.aclose()


async def test_what_must_run_alone_does_not_wait_for_one_process(app):
    """Who has claimed all of them keeps the one that is next; the others take the rest."""
    gate = asyncio.Event()
    started: set[str] = set()

    @app.task
    async def alone(ctx: rowlock.Context) -> None:
        started.add(ctx.job.id)
        await gate.wait()

    ids = {(await alone.aenqueue()).id for _ in range(3)}
    await app.store.acrash(await app.store.aclaim(worker="dead", queues=None, limit=3), "killed")
    async with app.worker(), app.worker(), app.worker():
        await until(lambda: started == ids)
        gate.set()
        found = [await app.await_(id, timeout=20) for id in ids]

    assert [(job.state, job.attempt) for job in found] == [(JobState.SUCCEEDED, 1)] * 3
    await app.aclose()


@pytest.mark.parametrize("told", ["cancel", "lose"])
@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_run_that_is_ended_before_its_first_line(app, monkeypatch, told, is_plain):
    """Its handler is not called, its slot is free again, and the job ends as it must."""
    tokens: list[int] = []
    start = WorkerEngine._start

    async def soft(ctx: rowlock.Context) -> None:
        tokens.append(ctx.token)

    def hard(ctx: rowlock.Context) -> None:
        tokens.append(ctx.token)

    def start_and_tell(engine: WorkerEngine, run: Run) -> None:
        start(engine, run)
        if run.lease.token == 1:
            engine.cancel(run.lease.id) if told == "cancel" else engine.lose(*run.key)

    monkeypatch.setattr(WorkerEngine, "_start", start_and_tell)
    task = app.task(hard if is_plain else soft)
    job = await task.aenqueue()
    async with app.worker(concurrency=1, lease=1):
        found = await ended(app, job)

    expected = (JobState.CANCELLED, []) if told == "cancel" else (JobState.SUCCEEDED, [2])
    assert (found.state, tokens) == expected
    await app.aclose()


async def test_it_tells_how_it_does(app):
    """How many slots it has, how much memory, and that it has lost no lease."""

    @app.task
    async def soft() -> None: ...

    async with app.worker(concurrency=7):
        await until(app.workers)
        (told,) = await app.aworkers()

    assert (told.vitals.slots, told.vitals.lost) == (7, 0)
    assert told.vitals.memory_bytes is None or told.vitals.memory_bytes > 2**20
    await app.aclose()


async def test_it_tells_which_slots_are_taken(app):
    """By runs that have begun, in all and per queue, soon after that has changed."""
    gate = asyncio.Event()

    @app.task(queue="media")
    async def convert() -> None:
        await gate.wait()

    jobs = [await convert.aenqueue() for _ in range(5)]

    def load() -> tuple[Any, ...]:
        (vitals,) = [worker.vitals for worker in app.workers()] or [WorkerVitals()]
        queues = {name: (each.busy, each.slots) for name, each in vitals.queue_slots.items()}
        return vitals.busy, vitals.ahead, queues

    async with app.worker({"media": 3, "other": 0}, concurrency=7):
        await until(lambda: load() == (3, 0, {"media": (3, 3)}))
        why = await app.awhy(jobs[3].id)
        gate.set()
        await until(lambda: load() == (0, 0, {"media": (0, 3)}))

    assert (why.code, why.slots, why.workers) == ("full", 3, 1)
    await app.aclose()


async def test_it_announces_the_numbers_of_its_limits(app):
    """So that those of other workers can be compared with them."""

    @app.task(limit=app.limit("stripe", concurrency=5, per="customer"))
    async def charge(customer: str) -> None: ...

    def limits() -> dict[str, str]:
        (vitals,) = [worker.vitals for worker in app.workers()] or [WorkerVitals()]
        return vitals.limits

    async with app.worker():
        await until(lambda: limits() == {"stripe": "concurrency 5, per customer"})

    await app.aclose()


async def test_concurrency_is_bounded(app):
    """Never more jobs run at once than there are slots, of the worker and of a queue."""
    running: dict[str, int] = {"a": 0, "b": 0}
    most: dict[str, int] = {"a": 0, "b": 0, "all": 0}

    @app.task
    async def work(name: str) -> None:
        running[name] += 1
        most[name] = max(most[name], running[name])
        most["all"] = max(most["all"], sum(running.values()))
        await asyncio.sleep(0.02)
        running[name] -= 1

    jobs = await app.aenqueue_many(
        [work.using(queue=name).job(name=name) for name in ("a", "b") for _ in range(20)]
    )
    async with app.worker({"a": 2, "b": 5}, concurrency=6):
        for job in jobs:
            await ended(app, job)

    assert most["a"] <= 2
    assert most["b"] <= 5
    assert most["all"] <= 6
    assert most["b"] > 1
    await app.aclose()


async def test_a_running_coroutine_is_cancelled(app):
    """A request to cancel reaches the coroutine as CancelledError; the job ends cancelled."""
    seen = asyncio.Event()

    @app.task
    async def endless() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.set()
            raise

    job = await endless.aenqueue()
    async with app.worker(lease=1):
        await until(lambda: app.get(job.id).state is JobState.RUNNING)
        assert (await app.acancel(job.id)).outcome == rowlock.CancelOutcome.PENDING_ON_WORKER
        found = await ended(app, job)

    assert found.state == JobState.CANCELLED
    assert seen.is_set()
    await app.aclose()


async def test_a_cancel_is_heard_by_the_bell(app):
    """It does not wait for a beat: with a lease of hours the job ends all the same."""

    @app.task
    async def endless() -> None:
        await asyncio.sleep(600)

    job = await endless.aenqueue()
    async with app.worker(lease=36_000):
        await until(lambda: app.get(job.id).state is JobState.RUNNING)
        await asyncio.to_thread(app.cancel, job.id)
        found = await ended(app, job)

    assert found.state == JobState.CANCELLED
    await app.aclose()


async def test_a_cancel_is_heard_before_its_job_is_known(app, monkeypatch):
    """It comes between the claim and its answer: nobody here runs that job when the bell rings."""
    claim = Claimer.claim

    async def cancelled(self: Claimer, *words: Any, **options: Any) -> Leased:
        leased = await claim(self, *words, **options)
        for lease in leased.one_by_one():
            await asyncio.to_thread(app.cancel, lease.id)
        # Until the bell was heard.
        await asyncio.sleep(1)
        return leased

    monkeypatch.setattr(Claimer, "claim", cancelled)

    @app.task
    async def endless() -> None:
        await asyncio.sleep(600)

    job = await endless.aenqueue()
    async with app.worker(lease=36_000, grace=0):
        found = await ended(app, job)

    assert found.state == JobState.CANCELLED
    await app.aclose()


async def until(condition, *, seconds: float = 20.0) -> None:
    """Wait for the store to say so, off the loop."""
    end = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.01)


async def test_a_cancel_that_comes_with_the_last_words_is_too_late(app, monkeypatch):
    """A coroutine that has returned has succeeded, while its last lines are still being written."""
    is_writing, gate = threading.Event(), threading.Event()
    write = AsyncProgressWriter._write

    def write_slowly(notes: AsyncProgressWriter, held: Unwritten) -> None:
        is_writing.set()
        gate.wait(20)
        write(notes, held)

    monkeypatch.setattr(AsyncProgressWriter, "_write", write_slowly)

    @app.task
    async def speak(ctx: rowlock.Context) -> str:
        ctx.log("the last words")
        return "done"

    job = await speak.aenqueue()
    async with app.worker(lease=1) as worker:
        await until(is_writing.is_set)
        await app.acancel(job.id)
        runs = worker._engine._running
        await until(lambda: all(run.cancel_requested for run in list(runs.values())))
        gate.set()
        found = await ended(app, job)

    assert (found.state, found.result) == (JobState.SUCCEEDED, "done")
    await app.aclose()


async def test_a_plain_function_sees_the_request(app):
    """A thread sees the flag, and ends the job itself."""

    @app.task
    def endless(ctx: rowlock.Context) -> None:
        pause = threading.Event()
        while not ctx.cancel_requested:
            pause.wait(0.01)
        raise rowlock.Cancel("seen")

    job = await endless.aenqueue()
    async with app.worker(lease=1):
        await until(lambda: app.get(job.id).state is JobState.RUNNING)
        await app.acancel(job.id)
        found = await ended(app, job)

    assert (found.state, found.last_error) == (JobState.CANCELLED, "Cancelled: seen")
    await app.aclose()


async def test_a_time_limit_is_a_failure(app):
    """A coroutine past its limit is ended, and has failed."""

    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(600)

    async with app.worker():
        found = await ended(app, await slow.aenqueue())

    assert found.state == JobState.DEAD
    assert "longer than its limit" in found.last_error
    await app.aclose()


async def test_the_end_lets_running_jobs_finish(app):
    """Within the grace a running job ends by itself, and sees that the worker stops."""
    started = asyncio.Event()

    @app.task
    async def work(ctx: rowlock.Context) -> bool:
        started.set()
        while not ctx.stopping:  # noqa: ASYNC110  # as handlers do
            await asyncio.sleep(0.01)
        return True

    job = await work.aenqueue()
    async with app.worker(grace=20):
        await started.wait()
    found = await app.aget(job.id)

    assert (found.state, found.result) == (JobState.SUCCEEDED, True)
    await app.aclose()


async def test_the_end_gives_back_what_does_not_finish(app):
    """After the grace, and for what had not started: back into the queue, uncounted."""
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.sleep(600)

    jobs = await app.aenqueue_many([endless.job() for _ in range(5)])
    async with app.worker(grace=0, concurrency=2):
        await started.wait()
    found = [await app.aget(job.id) for job in jobs]

    assert [(job.state, job.attempt) for job in found] == [(JobState.READY, 0)] * 5
    await app.aclose()


async def test_the_bell_wakes_an_idle_worker(app, monkeypatch):
    """A worker that hardly polls runs a new job all the same: it heard the bell."""
    monkeypatch.setattr(config, "POLL_SECONDS", 600)
    monkeypatch.setattr(config, "POLL_SECONDS_WITH_BELL", 600)

    @app.task
    async def work() -> None: ...

    async with app.worker():
        for _ in range(5):
            job = await asyncio.to_thread(work.enqueue)
            assert (await ended(app, job)).state == JobState.SUCCEEDED
    await app.aclose()


async def test_polls_do_not_stay_in_step(app, monkeypatch):
    """Workers that were started together ask at different times after a while."""
    monkeypatch.setattr(config, "POLL_SECONDS", 1000)
    monkeypatch.setattr(config, "POLL_SECONDS_WITH_BELL", 1000)
    polls, enough, real = set(), asyncio.Event(), engine.pause_for

    async def wait(event, seconds):
        if seconds < 100 or enough.is_set():
            return await real(event, seconds)
        polls.add(seconds)
        if len(polls) == 20:
            enough.set()
        return await real(event, 0.001)

    monkeypatch.setattr(engine, "pause_for", wait)

    @app.task
    async def work() -> None: ...

    async with app.worker():
        await asyncio.wait_for(enough.wait(), 30)

    assert 800 <= min(polls) < max(polls) <= 1200
    await app.aclose()


async def test_delayed_jobs_start_without_polling(app, monkeypatch):
    """A worker knows when the next job is due, and wakes for it."""
    monkeypatch.setattr(config, "POLL_SECONDS", 600)
    monkeypatch.setattr(config, "POLL_SECONDS_WITH_BELL", 600)

    @app.task
    async def work() -> None: ...

    job = await work.using(delay=0.5).aenqueue()
    async with app.worker():
        found = await ended(app, job)

    assert found.state == JobState.SUCCEEDED
    assert found.started_at >= found.run_at
    await app.aclose()


async def test_progress_is_visible_while_it_runs(app):
    """What a coroutine says of its progress is stored before it has ended."""
    go_on = asyncio.Event()

    @app.task
    async def work(ctx: rowlock.Context) -> None:
        ctx.progress(0.5, "half")
        ctx.log("here")
        await go_on.wait()

    job = await work.aenqueue()
    async with app.worker():
        await until(lambda: app.get(job.id).progress is not None)
        await until(lambda: app.store.read_log(job.id))
        go_on.set()
        await ended(app, job)

    assert (await app.aget(job.id)).progress.text == "half"
    await app.aclose()


async def test_failures_and_follow_ups(app):
    """A failure is retried, a success brings its follow-up jobs."""

    @app.task
    async def child() -> str:
        return "child"

    @app.task(retry=rowlock.retry.fixed(0.05))
    async def parent(ctx: rowlock.Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        ctx.enqueue_on_success(child)
        return ctx.attempt

    job = await parent.aenqueue()
    async with app.worker():
        assert (await ended(app, job)).result == 2
        await until(lambda: app.list(kind="child", state="succeeded").jobs)
    await app.aclose()


async def test_a_handler_that_is_cancelled_by_itself_has_failed(app):
    """A CancelledError that nobody asked for is an error like any other."""

    @app.task(max_attempts=1)
    async def odd() -> None:
        raise asyncio.CancelledError

    async with app.worker():
        found = await ended(app, await odd.aenqueue())

    assert found.state == JobState.DEAD
    await app.aclose()


async def test_what_waited_while_the_process_stood_still_is_not_begun(app):
    """After longer than a lease it may be another's: it goes back, and is claimed anew."""

    @app.task
    async def noop() -> None: ...

    @app.task
    async def stand_still() -> None:
        # Not a good thing for a coroutine to do: nothing else happens on the loop meanwhile.
        threading.Event().wait(1.5)

    async with app.worker(concurrency=1, lease=1):
        # Short jobs, after which it claims ahead.
        for job in await app.aenqueue_many([noop.job() for _ in range(100)]):
            await ended(app, job)
        still, *behind = await app.aenqueue_many(
            [stand_still.job(), *(noop.job() for _ in range(5))]
        )
        found = [await ended(app, job) for job in (still, *behind)]

    assert [job.token for job in found] == [1, 2, 2, 2, 2, 2]
    assert {(job.state, job.attempt) for job in found} == {(JobState.SUCCEEDED, 1)}
    await app.aclose()


async def test_a_claim_that_is_answered_after_its_leases_are_over(app, monkeypatch):
    """What others have taken by then is not begun under the old lease."""
    ran: list[int] = []
    arun = app.store.arun

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    def are_given_back() -> bool:
        app.store.recover()
        return not app.list(state="running").jobs

    async def answer_late(op):
        answer = await arun(op)
        if op.name == "claim" and (answer.leases or answer.blocks):
            monkeypatch.setattr(app.store, "arun", arun)
            await until(are_given_back)
            (first,) = await app.store.aclaim(worker="other", queues=None, limit=1)
            await app.store.asucceed([first])
        return answer

    jobs = await app.aenqueue_many([work.job(number=number) for number in range(2)])
    monkeypatch.setattr(app.store, "arun", answer_late)
    async with app.worker(lease=1):
        found = [await ended(app, job) for job in jobs]

    assert ran == [1]
    assert [(found[0].worker, found[0].attempt), (found[1].attempt,)] == [("other", 1), (1,)]
    await app.aclose()


async def test_a_worker_waits_for_its_tables(empty_postgres_url, caplog):
    """Beside a server nobody would start it again: it says once what to do, and begins then."""
    app = rowlock.App(empty_postgres_url)
    app.task(name="work")(lambda: None)
    told = "the worker in this process waits: the database has no rowlock tables yet"
    async with app.worker():
        await until(lambda: told in caplog.text)
        await app.amigrate()
        found = await app.await_((await app.aenqueue("work")).id, timeout=60)

    assert found.state == "succeeded"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    await app.aclose()


@pytest.mark.parametrize("queues", [[], {}])
async def test_a_worker_serves_something(app, queues):
    """No queues at all is a mistake, and not all queues."""
    with pytest.raises(rowlock.OptionInvalid, match="names none"):
        async with app.worker(queues):
            pass
    await app.aclose()
