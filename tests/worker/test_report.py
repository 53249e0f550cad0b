"""What a worker logs of its jobs: a record for each that is worth one, with the job's fields."""

from __future__ import annotations

import asyncio
import contextvars
import logging

import pytest

import rowlock
from rowlock import config
from rowlock.lifecycle import CancelSeen, Crashed, Failed, Interrupted, NotBegun, Outcome, Released
from rowlock.store import Settlement
from rowlock.tally import Ended, RunEnd
from rowlock.worker.report import report, report_lost, running_fields

CANARY = "canary-in-the-payload"
CRASHED = Crashed("killed by SIGKILL")
FAILED = Failed("OSError", "no")


@pytest.fixture
def app(sqlite_url):
    app = rowlock.App(sqlite_url)
    yield app
    app.close()


@pytest.fixture
def records(caplog):
    """The records of the worker's logger, from debug on."""
    caplog.set_level(logging.DEBUG, logger="rowlock.worker")
    return lambda: [record for record in caplog.records if hasattr(record, "job_id")]


def make_tasks(app: rowlock.App) -> dict[str, rowlock.Task]:
    @app.task
    def fine(secret: str) -> str:
        return secret

    @app.task(max_attempts=2, retry=rowlock.retry.fixed(0))
    async def failing(secret: str) -> None:
        raise ValueError(f"first line\x1b[31m{'x' * 500}\nsecond line")

    @app.task
    def hopeless(secret: str) -> None:
        raise rowlock.Fail("no way")

    @app.task
    def waiting(secret: str) -> None:
        raise rowlock.Release(delay=100, reason="not yet")

    @app.task
    async def unwanted(secret: str) -> None:
        raise rowlock.Cancel("not any more")

    return {task.name: task for task in (fine, failing, hopeless, waiting, unwanted)}


EXPECTED = {
    ("fine", "INFO", "succeeded"),
    ("failing", "WARNING", "failed"),
    ("failing", "ERROR", "is dead"),
    ("hopeless", "ERROR", "is dead"),
    ("waiting", "INFO", "was released"),
    ("unwanted", "INFO", "was cancelled"),
}


def check(found: list[logging.LogRecord], jobs: dict[str, rowlock.Job]) -> None:
    """Each outcome was told once, with its fields, and without a payload."""
    told = {
        (record.kind, record.levelname, text)
        for record in found
        for *_, text in EXPECTED
        if f") {text}" in record.getMessage()
    }

    assert told == EXPECTED
    assert len(EXPECTED) == len(found)
    for record in found:
        message = record.getMessage()
        assert jobs[record.kind].id == record.job_id and record.job_id in message
        assert (record.queue, type(record.duration_seconds)) == ("default", float)
        assert record.attempt in (1, 2) and record.worker
        assert CANARY not in str(vars(record))
        assert message.isprintable() and "second" not in message
        assert len(message) < config.LOGGED_ERROR_CHARACTERS_MAX + 200
        # Where it failed, in full: for the formatters of the standard library as well.
        traceback = record.exc_text or ""
        assert traceback.replace("\n", "").isprintable()
        assert (record.levelno >= logging.WARNING) is (f"in {record.kind}\n" in traceback)
        assert "src/rowlock/" not in traceback, "it begins with the function of the user"


def enqueue_all(app: rowlock.App) -> dict[str, rowlock.Job]:
    return {name: task.enqueue(secret=CANARY) for name, task in make_tasks(app).items()}


def test_a_drain_tells_how_its_jobs_ended(app, records):
    """Succeeded, failed, dead, released, cancelled: each with its level."""
    jobs = enqueue_all(app)
    app.drain()

    check(records(), jobs)
    assert {getattr(record, "error", None) for record in records()} == {
        "ValueError",
        "rowlock.Fail",
        None,
    }


@pytest.mark.asyncio
async def test_a_worker_tells_how_its_jobs_ended(app, records):
    """The same from the engine, once the outcomes are written."""
    jobs = await asyncio.to_thread(enqueue_all, app)
    async with app.worker():
        for job in jobs.values():
            if job.kind != "waiting":
                await app.await_(job.id, timeout=20)

    check(records(), jobs)
    await app.aclose()


def test_successes_can_be_left_out(app, caplog):
    """Their logger has a level of its own."""
    caplog.set_level(logging.DEBUG, logger="rowlock.worker")
    caplog.set_level(logging.WARNING, logger="rowlock.worker.jobs")
    make_tasks(app)["fine"].enqueue(secret=CANARY)
    app.drain()

    assert caplog.records == []


def test_a_lost_lease_is_told(app, caplog):
    """Of a run whose job was taken, and of one whose process died, as much as is known."""
    app.enqueue("fine", {"secret": CANARY})
    (lease,) = app.store.claim(worker="w", queues=["default"])
    report_lost([lease])
    report([Settlement(rowlock.Lease(id=lease.id, token=1, worker="w"), CRASHED)])
    lost, crashed = caplog.records

    assert (lost.job_id, lost.kind, lost.attempt, lost.worker) == (lease.id, "fine", 1, "w")
    assert "lost its lease" in lost.getMessage() and lost.levelname == "WARNING"
    assert (crashed.job_id, crashed.worker, crashed.levelname) == (lease.id, "w", "ERROR")
    assert "killed by SIGKILL" in crashed.getMessage()


@pytest.mark.parametrize(
    ("outcome", "end", "text"),
    [
        (
            FAILED,
            RunEnd.RETRYING,
            "WARNING failed, attempt 1 of 20, and will be retried: OSError: no",
        ),
        (FAILED, RunEnd.DEAD, "ERROR is dead: it failed, attempt 1 of 20: OSError: no"),
        (FAILED, RunEnd.CANCELLED, "INFO was cancelled: OSError: no"),
        (FAILED, None, "WARNING failed, attempt 1 of 20: OSError: no"),
        (CRASHED, RunEnd.RETRYING, "ERROR crashed: killed by SIGKILL"),
        (CRASHED, RunEnd.DEAD, "ERROR is dead: it crashed: killed by SIGKILL"),
        (CRASHED, RunEnd.CANCELLED, "INFO was cancelled"),
        (Interrupted("stopped"), RunEnd.RELEASED, "WARNING was interrupted: stopped"),
        (Interrupted("stopped"), RunEnd.DEAD, "ERROR is dead: it was interrupted: stopped"),
        (Released(reason="later"), RunEnd.RELEASED, "INFO was released: later"),
        (Released(), RunEnd.CANCELLED, "INFO was cancelled"),
        (NotBegun(), RunEnd.RELEASED, "DEBUG was given back before its run began"),
        (CancelSeen("gone"), RunEnd.CANCELLED, "INFO was cancelled: gone"),
    ],
)
def test_the_record_says_what_the_store_decided(
    app, records, outcome: Outcome, end: RunEnd | None, text: str
):
    """Not what the outcome alone suggests: a request to cancel may have come before the settle."""
    app.enqueue("fine", {"secret": CANARY})
    (lease,) = app.store.claim(worker="w", queues=["default"])
    ended = [] if end is None else [Ended(lease.id, "fine", "default", None, end, 1, 0, 0, None)]
    report([Settlement(lease, outcome)], ended)
    (record,) = records()

    level, _, rest = text.partition(" ")
    assert record.levelname == level
    assert record.getMessage() == f"job {lease.id} (fine) {rest}"


def test_a_late_cancel_is_told_as_such(app, records):
    """A handler that fails after somebody asked to cancel it: its job is cancelled, not retried."""

    @app.task
    def cancelled_meanwhile() -> None:
        app.cancel(running_fields()["job_id"])
        raise ValueError("too late")

    job = cancelled_meanwhile.enqueue()
    app.drain()
    (record,) = records()

    assert app.get(job.id).state is rowlock.JobState.CANCELLED
    assert (record.levelname, "was cancelled" in record.getMessage()) == ("INFO", True)


@pytest.mark.asyncio
async def test_handlers_know_whose_they_are(app):
    """A coroutine, its tasks and a thread see their own job, in a worker as in a drain."""

    @app.task
    async def soft() -> list[str]:
        await asyncio.sleep(0.01)
        inner = asyncio.create_task(asyncio.to_thread(running_fields))
        return [running_fields()["job_id"], (await inner)["job_id"]]

    @app.task
    def hard() -> list[str]:
        return [running_fields()["job_id"], running_fields()["job_id"]]

    jobs = [await task.aenqueue() for _ in range(5) for task in (soft, hard)]
    async with app.worker():
        results = {job.id: (await app.await_(job.id, timeout=20)).result for job in jobs}
    drained = [await soft.aenqueue(), await hard.aenqueue()]
    await app.adrain()
    results |= {job.id: (await app.aget(job.id)).result for job in drained}

    assert {id: [id, id] for id in results} == results
    assert running_fields() == {}
    await app.aclose()


@pytest.mark.asyncio
async def test_a_jobs_context_is_its_own(app):
    """What a handler sets in its context is not there for the next job, on the loop or a thread."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    @app.task
    async def soft() -> str:
        before = tenant.get()
        tenant.set("somebody")
        return before

    @app.task
    def hard() -> str:
        before = tenant.get()
        tenant.set("somebody")
        return before

    jobs = [await task.aenqueue() for _ in range(5) for task in (soft, hard)]
    async with app.worker(concurrency=1):
        results = {(await app.await_(job.id, timeout=20)).result for job in jobs}

    assert results == {"nobody"}
    await app.aclose()
