"""`ctx.transaction()` and what comes after it: too late for the block, or unknown to the worker."""

from __future__ import annotations

import asyncio
import logging

import pytest

import rowlock
from rowlock import JobState
from rowlock.context import Context
from rowlock.store.blocks import Blocks
from rowlock.worker.progress import AsyncProgressWriter
from rowlock.worker.run import Run
from rowlock.worker.transaction import RunBlock
from tests.support.bank import TABLES, execute, fail, make_task, run, serve, transfers


@pytest.fixture
def app(app: rowlock.App) -> rowlock.App:
    execute(app, *TABLES)
    return app


def test_a_follow_up_that_comes_too_late(app, colour, caplog):
    """A job that can't go with the success any more is refused, not dropped in silence."""

    @app.task
    def child() -> None: ...

    job = run(app, make_task(app, colour, after=lambda ctx: ctx.enqueue_on_success(child)))

    assert job.state == JobState.SUCCEEDED
    assert "its success is already committed" in caplog.text
    assert not app.list(kind="child").jobs


def test_the_transaction_is_not_for_later(app, colour):
    """Its connection may be another's by then, and its result is stored."""
    held, problems = [], []

    def after(ctx):
        (tx,) = held
        for act in (lambda: tx.connection, lambda: setattr(tx, "result", 2)):
            with pytest.raises(rowlock.InvalidTransition, match="has ended") as caught:
                act()
            problems.append(caught.value.job_id)

    def inside(ctx, tx):
        held.append(tx)
        tx.result = 1

    job = run(app, make_task(app, colour, inside=inside, after=after))

    assert problems == [job.id] * 2
    assert 1 == job.result == held[0].result


def test_a_result_that_is_not_stored_is_in_the_log(app, colour, caplog):
    """As of any success: the reason is said."""
    caplog.set_level(logging.WARNING, "rowlock.worker")
    task = make_task(app, colour, inside=lambda ctx, tx: setattr(tx, "result", object()))
    asyncio.run(serve(app, task.enqueue()))

    (record,) = [record for record in caplog.records if "succeeded" in record.getMessage()]
    assert "object" in record.getMessage()


def test_a_commit_of_which_nobody_could_tell(app, colour, caplog, monkeypatch):
    """The settle finds it by the token: the job stays succeeded, and the log says so."""
    monkeypatch.setattr(RunBlock, "_on_committed", fail)
    task = make_task(app, colour, retry=rowlock.retry.fixed(0), max_attempts=5)
    job = task.enqueue()
    asyncio.run(serve(app, job))
    found = app.get(job.id)

    assert (found.state, found.attempt, transfers(app)) == (JobState.SUCCEEDED, 1, [1])
    (record,) = [record for record in caplog.records if job.id in record.getMessage()]
    assert "stays succeeded: ValueError: made up" in record.getMessage()


@pytest.mark.asyncio
async def test_a_coroutine_cancelled_before_its_block(sqlite_url):
    """What it says after that is written, although the block was about to hold it back."""
    app = rowlock.App(sqlite_url)

    @app.task
    async def work(ctx: rowlock.Context) -> None: ...

    work.enqueue()
    (lease,) = app.store.claim(worker="w", queues=None)
    this, notes = Run(lease, work), AsyncProgressWriter(app.store, lease)
    context = Context(lease.job, state=None, notes=notes, signals=this, prepare=fail)
    blocks = Blocks(app.store, lease_seconds=30)
    async with notes._writing:
        opening = asyncio.create_task(
            RunBlock(this, context, notes=notes, blocks=blocks).__aenter__()
        )
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})
    context.log("cleaned up")
    await notes.aflush()

    assert opening.cancelled()
    assert [line.text for line in app.store.read_log(lease.id)] == ["cleaned up"]
    await app.aclose()
