"""`ctx.transaction()`: what a handler writes, and its job's success, are committed as one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import rowlock
from rowlock import JobState, config
from rowlock.store.blocks import Conclusion
from rowlock.store.postgres.engine import AsyncConnection, Connection
from tests.support.bank import (
    TABLES,
    balances,
    execute,
    expected_balances,
    fail,
    make_task,
    note,
    plan,
    run,
    send,
    serve,
    transfers,
)
from tests.support.workers import worker
from tests.worker.waiting import wait_until


@pytest.fixture
def app(app: rowlock.App) -> rowlock.App:
    execute(app, *TABLES)
    return app


def test_committed_together(app, colour):
    """The block's writes, its result and the job's success are there; what is returned is not."""

    def inside(ctx, tx):
        tx.result = {"paid": 10}

    job = run(app, make_task(app, colour, inside=inside))

    assert (job.state, job.result) == (JobState.SUCCEEDED, {"paid": 10})
    assert transfers(app) == [1]


def test_result_is_none_unless_set(app, colour):
    """Without `tx.result` there is no result: what is returned comes too late."""
    assert None is run(app, make_task(app, colour)).result


def test_a_result_that_cannot_be_stored(app, colour):
    """It succeeds all the same, and the reason is noted."""

    def inside(ctx, tx):
        tx.result = object()

    job = run(app, make_task(app, colour, inside=inside))

    assert (job.state, job.result) == (JobState.SUCCEEDED, None)
    assert job.errors
    assert transfers(app) == [1]


def test_not_visible_before_the_end(app, colour):
    """Inside the block nobody else sees its writes, and the job runs."""
    seen = []

    def inside(ctx, tx):
        seen.append((transfers(app), app.get(ctx.job.id).state))

    run(app, make_task(app, colour, inside=inside))

    assert seen == [([], JobState.RUNNING)]


def test_an_exception_undoes_it(app, colour):
    """An exception in the block leaves neither writes nor success, and is the run's outcome."""
    job = run(app, make_task(app, colour, inside=fail))

    assert job.state == JobState.DEAD
    assert job.last_error == "ValueError: made up"
    assert transfers(app) == []


def test_another_block_after_one_that_was_undone(app):
    """A block that was rolled back may be tried again in the same run."""

    @app.task(max_attempts=1)
    def work(ctx: rowlock.Context) -> None:
        try:
            with ctx.transaction() as tx:
                tx.connection.execute(note(1))
                fail()
        except ValueError:
            pass
        with ctx.transaction() as tx:
            tx.connection.execute(note(2))

    assert run(app, work).state == JobState.SUCCEEDED
    assert transfers(app) == [2]


@pytest.mark.parametrize("inside", [None, fail], ids=["committed", "undone"])
def test_jobs_enqueued_in_the_block(app, colour, inside):
    """Jobs on the connection, and follow-ups of the run, exist if the block was committed."""

    @app.task
    def child(number: int) -> None: ...

    def on_connection(ctx, tx):
        if colour == "coroutine" and not app.url.startswith("sqlite"):
            call = child.using(conn=tx.connection).aenqueue(number=1)
            asyncio.run_coroutine_threadsafe(call, loops[0]).result()
        else:
            child.using(conn=tx.connection).enqueue(number=1)
        if inside:
            inside()

    loops: list[asyncio.AbstractEventLoop] = []

    def before(ctx):
        ctx.enqueue_on_success(child, number=2)
        if colour == "coroutine":
            loops.append(asyncio.get_running_loop())

    run(app, make_task(app, colour, before=before, inside=on_connection))

    expected = [] if inside else [1, 2]
    assert sorted(job.payload["number"] for job in app.list(kind="child", full=True)) == expected


def test_a_lost_lease_undoes_it(app, colour):
    """If the job was given to another meanwhile, nothing of the block stays."""
    errors = []

    @app.task(name="other")
    def other() -> None: ...

    # On SQLite nobody can take it while the block is open: so it is lost just before.
    def before(ctx):
        assert app.store.release_worker(ctx.job.worker) == 1

    task = make_task(app, colour, before=before, max_attempts=2)
    function = task.function

    if colour == "plain":

        def noted(ctx, number=1):
            try:
                return function(ctx, number)
            except rowlock.LeaseLost as error:
                errors.append(error)
                raise

    else:

        async def noted(ctx, number=1):
            try:
                return await function(ctx, number)
            except rowlock.LeaseLost as error:
                errors.append(error)
                raise

    object.__setattr__(task, "function", noted)
    job = run(app, task)

    assert [error.leases[0].id for error in errors] == [job.id]
    assert (job.state, job.attempt) == (JobState.READY, 0)
    assert transfers(app) == []


def test_a_lease_lost_inside_the_block(postgres_url, colour):
    """As before, with another worker running the job by then."""
    with rowlock.App(postgres_url) as app:
        execute(app, *TABLES)

        def inside(ctx, tx):
            app.store.release_worker(ctx.job.worker)
            assert len(app.store.claim(worker="another", queues=None)) == 1

        job = run(app, make_task(app, colour, inside=inside, max_attempts=2))

        assert (job.state, job.worker) == (JobState.RUNNING, "another")
        assert transfers(app) == []


def test_an_expired_lease_that_was_recovered(any_url):
    """A clock that ran on, a sweep by another, and the block has lost."""
    clock = rowlock.ManualClock()
    with rowlock.App(any_url, clock=clock) as app:
        app.migrate()
        execute(app, *TABLES)

        def before(ctx):
            clock.advance(60)
            assert app.store.recover() == 1

        job = run(app, make_task(app, "plain", before=before, max_attempts=2))

        assert job.state == JobState.READY
        assert transfers(app) == []


def test_an_exception_after_the_block(app, colour, caplog):
    """The job stays succeeded, and the error is in the log."""
    job = run(app, make_task(app, colour, after=fail, max_attempts=5))

    assert (job.state, job.attempt, job.last_error) == (JobState.SUCCEEDED, 1, None)
    assert transfers(app) == [1]
    assert "stays succeeded: ValueError: made up" in caplog.text


def test_the_wrong_colour(app):
    """`with` in a coroutine and `async with` in a plain function say what to write instead."""

    @app.task(max_attempts=1)
    async def coroutine(ctx: rowlock.Context) -> None:
        with ctx.transaction():
            pass

    @app.task(max_attempts=1)
    def plain(ctx: rowlock.Context) -> None:
        async def wrong() -> None:
            async with ctx.transaction():
                pass

        asyncio.run(wrong())

    jobs = [coroutine.enqueue(), plain.enqueue()]
    asyncio.run(adrain(app))
    first, second = (app.get(job.id).last_error for job in jobs)

    assert "TypeError: coroutine is a coroutine: write `async with`" in first
    assert "TypeError: plain is a plain function: write `with`" in second


async def adrain(app: rowlock.App) -> None:
    await app.adrain()
    await app.aclose()


def test_a_second_block(app, colour):
    """After a committed block, and inside an open one, another is refused."""
    problems = []

    def again(ctx, tx=None):
        block = ctx.transaction()
        try:
            if colour == "plain":
                block.__enter__()
            else:
                block.__aenter__().send(None)
        except rowlock.InvalidTransition as error:
            problems.append(str(error).partition(": ")[2])

    job = run(app, make_task(app, colour, inside=again, after=again))

    assert job.state == JobState.SUCCEEDED
    assert "is open already" in problems[0]
    assert "a run has one" in problems[1]


def test_a_transaction_ended_inside(app):
    """A handler that commits by itself is told so, and its job has not succeeded."""
    job = run(app, make_task(app, "plain", inside=lambda ctx, tx: tx.connection.commit()))

    assert job.state == JobState.DEAD
    assert "was ended inside the block" in job.last_error


def test_a_statement_that_failed(postgres_url):
    """On PostgreSQL a failed statement undoes all: a handler that hides it does not succeed."""
    with rowlock.App(postgres_url) as app:
        execute(app, *TABLES)

        def inside(ctx, tx):
            with pytest.raises(psycopg.Error):
                tx.connection.execute("SELECT 1 / 0")

        job = run(app, make_task(app, "plain", inside=inside))

        assert job.state == JobState.DEAD
        assert "let its error leave the block" in job.last_error


def test_what_it_says_of_itself(app, colour):
    """Progress and log lines of the block are kept; what is said after it is not, and no error."""

    def inside(ctx, tx):
        for number in range(3):
            ctx.log(f"line {number}")
            ctx.progress(0.1 * number, f"at {number}")

    def after(ctx):
        ctx.log("too late")
        ctx.progress(1.0, "too late")

    job = run(app, make_task(app, colour, inside=inside, after=after))

    assert (job.state, job.progress.text) == (JobState.SUCCEEDED, "at 2")
    lines = [line.text for line in app.store.read_log(job.id)]
    assert lines == ["line 0", "line 1", "line 2"]


def test_what_an_undone_block_said(app, colour):
    """The log lines of a block that was undone are kept: they tell why."""

    def inside(ctx, tx):
        ctx.log("going to fail")
        fail()

    job = run(app, make_task(app, colour, inside=inside))

    assert [line.text for line in app.store.read_log(job.id)] == ["going to fail"]


def test_the_connection_is_given_back_clean(postgres_url):
    """What a handler sets on its connection does not reach the next one."""
    from psycopg.rows import dict_row

    with rowlock.App(postgres_url) as app:
        execute(app, *TABLES)
        pids, settings = [], []

        def inside(ctx, tx):
            show = "SELECT pg_backend_pid(), current_setting('work_mem')"
            pid, setting = tx.connection.execute(show).fetchone()
            pids.append(pid)
            settings.append(setting)
            tx.connection.execute("SET work_mem = '77MB'")
            tx.connection.execute("CREATE TEMP TABLE mine (x int)")
            tx.connection.row_factory = dict_row

        task = make_task(app, "plain", inside=inside)
        states = {run(app, task).state for _ in range(6)}

        assert states == {JobState.SUCCEEDED}
        assert len(set(pids)) < 6, "no connection was used again"
        assert len(set(settings)) == 1


@pytest.mark.direct("ends the process behind a connection")
def test_a_lost_connection_leaves_nothing(postgres_url, colour):
    """A connection that is cut inside the block: nothing stays, and the attempt has failed."""
    with rowlock.App(postgres_url) as app:
        execute(app, *TABLES)

        def inside(ctx, tx):
            execute(app, f"SELECT pg_terminate_backend({tx.connection.info.backend_pid})")

        job = run(app, make_task(app, colour, inside=inside))

        assert job.state == JobState.DEAD
        assert "StoreUnavailable" in job.last_error
        assert transfers(app) == []
        # A dead connection is not kept.
        assert run(app, make_other(app)).state == JobState.SUCCEEDED


def make_other(app: rowlock.App) -> rowlock.Task:
    @app.task(name="other")
    def other(ctx: rowlock.Context) -> None:
        with ctx.transaction() as tx:
            tx.connection.execute(note(7))

    return other


@pytest.mark.parametrize("is_done", [True, False], ids=["committed", "not committed"])
def test_an_unknown_commit_is_looked_up(postgres_url, monkeypatch, is_done, colour):
    """When the answer to the COMMIT is lost, the token tells whether it was done."""
    commit, acommit = Connection.commit, AsyncConnection.commit
    cuts = [psycopg.OperationalError("the connection is lost")]

    def cut(self):
        if is_done or not cuts:
            commit(self)
        if cuts:
            self.close()
            raise cuts.pop()

    async def acut(self):
        if is_done or not cuts:
            await acommit(self)
        if cuts:
            await self.close()
            raise cuts.pop()

    with rowlock.App(postgres_url) as app:
        execute(app, *TABLES)
        task = make_task(app, colour, max_attempts=2, retry=rowlock.retry.fixed(0))
        job = task.enqueue(number=1)
        monkeypatch.setattr(Connection, "commit", cut)
        monkeypatch.setattr(AsyncConnection, "commit", acut)
        app.drain(limit=1)
        found = app.get(job.id)

        if is_done:
            assert (found.state, transfers(app)) == (JobState.SUCCEEDED, [1])
        else:
            assert "StoreUnavailable" in found.last_error
            app.drain()
            assert (
                app.get(job.id).state,
                app.get(job.id).attempt,
                transfers(app),
            ) == (JobState.SUCCEEDED, 2, [1])


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
def test_an_overdue_block_on_sqlite(sqlite_url, is_async):
    """After a third of the lease it is undone, others can write, and the run is told why."""
    with rowlock.App(sqlite_url) as app:
        app.migrate()
        execute(app, *TABLES)
        written = []

        def wait_and_write(ctx, tx):
            # Somebody else's write comes through only once the block was undone.
            written.append(app.enqueue("another").id)
            if is_async:
                with pytest.raises(sqlite3.Error):
                    tx.connection.execute(note(2))
            else:
                tx.connection.execute(note(2))

        make_task(app, "coroutine" if is_async else "plain", inside=wait_and_write)
        job = app.enqueue("work")
        asyncio.run(serve(app, job, lease=1.5))
        found = app.get(job.id)

        assert found.state == JobState.DEAD
        assert "undone after 0.5 s, a third of the lease" in found.last_error
        assert transfers(app) == []
        assert len(written) == 1


def test_coroutines_stand_in_line_for_sqlite(sqlite_url):
    """While one holds the write lock across an await, the loop and the others go on."""
    with rowlock.App(sqlite_url) as app:
        app.migrate()
        execute(app, *TABLES)
        order: list[str] = []

        @app.task
        async def work(ctx: rowlock.Context, number: int) -> None:
            async with ctx.transaction() as tx:
                order.append("in")
                tx.connection.execute(note(number))
                await asyncio.sleep(0.01)
                order.append("out")

        jobs = app.enqueue_many([work.job(number=number) for number in range(20)])
        asyncio.run(serve(app, *jobs))

        assert order == ["in", "out"] * 20
        assert transfers(app) == list(range(20))


def test_a_time_limit_inside_the_block(app):
    """A coroutine that is ended inside its block leaves nothing of it."""

    @app.task(timeout=0.1, max_attempts=1)
    async def slow(ctx: rowlock.Context) -> None:
        async with ctx.transaction() as tx:
            await send(tx.connection, note(1))
            await asyncio.sleep(600)

    job = slow.enqueue()
    asyncio.run(serve(app, job))

    assert (app.get(job.id).state, transfers(app)) == (JobState.DEAD, [])


def test_a_coroutine_cancelled_at_the_commit(app, monkeypatch):
    """A time limit that comes while the block is being committed does not undo it halfway."""
    conclude = Conclusion.op

    def slowly(self):
        # On the loop: the limit is over by the time that it goes on.
        threading.Event().wait(1.3)
        return conclude(self)

    monkeypatch.setattr(Conclusion, "op", slowly)

    @app.task(timeout=1, max_attempts=1)
    async def work(ctx: rowlock.Context) -> None:
        async with ctx.transaction() as tx:
            await send(tx.connection, note(1))

    job = work.enqueue()
    asyncio.run(serve(app, job))

    assert (app.get(job.id).state, transfers(app)) == (JobState.SUCCEEDED, [1])


def test_a_worker_counts_and_drops_what_settled_itself(app, colour):
    """In a worker too, an error after the block changes nothing, and no lease is left."""
    task = make_task(app, colour, after=fail)
    jobs = app.enqueue_many([task.job(number=number) for number in range(5)])
    asyncio.run(serve(app, *jobs, lease=1))

    assert {(found.state, found.attempt) for found in (app.get(job.id) for job in jobs)} == {
        (JobState.SUCCEEDED, 1)
    }
    assert transfers(app) == list(range(5))


def move(first: int, second: int, amount: int) -> tuple[str, str]:
    return (
        f"UPDATE account SET balance = balance - {amount} WHERE id = {first}",
        f"UPDATE account SET balance = balance + {amount} WHERE id = {second}",
    )


def test_bank_transfers(app, colour):
    """Handlers that fail before, inside and after the block apply each transfer exactly once."""
    moves = plan(60)

    @app.task(name="pay", retry=rowlock.retry.fixed(0))
    def plain(ctx: rowlock.Context, number: int, first: int, second: int, amount: int) -> None:
        place = (number + ctx.attempt) % 4
        if place == 0:
            fail()
        with ctx.transaction() as tx:
            tx.connection.execute(note(number))
            for sql in move(first, second, amount):
                tx.connection.execute(sql)
            if place == 1:
                fail()
        if place == 2:
            fail()

    if colour == "coroutine":
        app2 = rowlock.App(app.url)

        @app2.task(name="pay", retry=rowlock.retry.fixed(0))
        async def coroutine(
            ctx: rowlock.Context, number: int, first: int, second: int, amount: int
        ) -> None:
            place = (number + ctx.attempt) % 4
            if place == 0:
                fail()
            async with ctx.transaction() as tx:
                await send(tx.connection, note(number))
                for sql in move(first, second, amount):
                    await send(tx.connection, sql)
                if place == 1:
                    fail()
            if place == 2:
                fail()

    else:
        app2 = app
    jobs = app.enqueue_many([{"kind": "pay", "payload": each} for each in moves])
    asyncio.run(serve(app2, *jobs))
    app2.close()

    assert transfers(app) == list(range(60))
    assert expected_balances(moves) == balances(app)


@pytest.mark.one_store("of each colour one store; test_bank_transfers has both")
@pytest.mark.long
@pytest.mark.parametrize("kind", ["pay", "apay"])
def test_bank_transfers_with_killed_processes(app, kind):
    """Processes that die before, inside and after the block: each transfer is applied once."""
    # Every tenth is deadly, each of the four in another order of places.
    moves = plan(40)
    jobs = app.enqueue_many(
        [{"kind": kind, "payload": {**each, "deadly": each["number"] % 10 == 3}} for each in moves]
    )
    with worker(app, "-p", "2", "-c", "8"):
        wait_until(
            lambda: all(app.get(job.id).state.is_terminal for job in jobs),
            seconds=240,
        )

    ended = [app.get(job.id) for job in jobs]
    assert [job for job in ended if job.state is not JobState.SUCCEEDED] == []
    assert transfers(app) == list(range(40))
    assert expected_balances(moves) == balances(app)
    assert [job for job in ended if job.crashes > 0], "nothing was put to the test"


def test_a_commit_does_not_wait_for_those_who_wait_for_it(sqlite_url):
    """Others may fill the loop's threads with writes that wait for the block's lock."""
    with rowlock.App(sqlite_url) as app:
        app.migrate()
        execute(app, *TABLES)
        ended: list[int] = []
        opened = asyncio.Event()

        @app.task
        async def hold(ctx: rowlock.Context) -> None:
            async with ctx.transaction() as tx:
                opened.set()
                tx.connection.execute(note(1))
                while len(ended) < 4:  # noqa: ASYNC110  # it is all on one loop
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)

        @app.task
        async def talk(ctx: rowlock.Context, number: int) -> None:
            await opened.wait()
            # Written in a thread when it ends, once the lock is free.
            ctx.log("a line")
            ended.append(number)

        async def serve_with_few_threads() -> rowlock.Job:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
            jobs = [await talk.aenqueue(number=number) for number in range(4)]
            job = await hold.aenqueue()
            async with app.worker():
                for each in [job, *jobs]:
                    await app.await_(each.id, timeout=30)
            await app.aclose()
            return job

        started = time.monotonic()
        job = asyncio.run(serve_with_few_threads())

        assert (app.get(job.id).state, transfers(app)) == (JobState.SUCCEEDED, [1])
        # None has given up to wait for the lock.
        assert time.monotonic() - started < config.SQLITE_BUSY_SECONDS


def test_a_block_does_not_wait_for_threads_that_wait_for_it(postgres_url):
    """What its run said is written, however many handlers wait in threads for the block's rows."""
    update = "UPDATE account SET balance = balance + 1 WHERE id = 1"
    with rowlock.App(postgres_url) as app:
        execute(app, *TABLES)
        opened = asyncio.Event()

        @app.task
        async def hold(ctx: rowlock.Context) -> None:
            async with ctx.transaction() as tx:
                await tx.connection.execute(update)
                opened.set()
                while not await is_waited_for(tx.connection):  # noqa: ASYNC110  # by a server
                    await asyncio.sleep(0.01)
                ctx.log("a line")
                # So that it is being written when the block ends.
                await asyncio.sleep(2 * config.PROGRESS_SECONDS)

        @app.task
        async def wait() -> None:
            await opened.wait()
            await asyncio.to_thread(execute, app, update)

        async def serve_with_one_thread() -> list[rowlock.Job]:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            jobs = [await hold.aenqueue(), await wait.aenqueue()]
            await serve(app, *jobs)
            return jobs

        jobs = asyncio.run(serve_with_one_thread())

        assert {app.get(job.id).state for job in jobs} == {JobState.SUCCEEDED}
        assert [line.text for line in app.store.read_log(jobs[0].id)] == ["a line"]
        assert balances(app)[0] == 1002


async def is_waited_for(connection: psycopg.AsyncConnection) -> bool:
    # Not pg_stat_activity, of which a transaction sees one moment only.
    ask = "SELECT 1 FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    return await (await connection.execute(ask)).fetchone() is not None
