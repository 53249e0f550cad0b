"""The owner thread of async callers: answers after the commit, to everyone, whatever happens."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.store import Store, open_store
from rowlock.store.sqlite.engine import SqliteEngine
from rowlock.store.sqlite.group import CommitGroup
from rowlock.store.sqlite.session import SqliteSession
from rowlock.store.steps import Commit, Statement, Steps, writing
from tests.store.sqlite_processes import count_jobs, impatient_store, job, look, url_of

BOUND_SECONDS = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(open_store(url_of(path))) as opened:
        yield opened


def engine_of(store: Store) -> SqliteEngine:
    assert isinstance(store.engine, SqliteEngine)
    return store.engine


def failing(error: BaseException):
    """A verb that writes, and then fails."""

    def steps() -> Steps[None]:
        yield Statement("set_pause", {"queue": "default", "is_paused": 1})
        raise error

    return writing("failing", steps)


def count_commits(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes longer by one with each commit of the owner thread."""
    commits: list[str] = []
    engine = engine_of(store)
    make = engine.new_session

    def new_session():
        session = make()
        end = session.end

        def counted(*, writes: bool, is_good: bool) -> None:
            end(writes=writes, is_good=is_good)
            commits.append(threading.current_thread().name)

        monkeypatch.setattr(session, "end", counted)
        return session

    engine._group = CommitGroup(new_session, run_apart=engine.run)
    return commits


def test_many_requests_share_one_commit(store, path, monkeypatch):
    """Under load the number of commits is far smaller than that of requests."""
    commits = count_commits(store, monkeypatch)

    async def main():
        await asyncio.gather(*[store.aenqueue([job()]) for _ in range(500)])

    asyncio.run(main())

    assert count_jobs(path) == 500
    assert set(commits) == {"rowlock-sqlite"}
    assert len(commits) <= 50


def test_an_answer_comes_after_the_commit(store, path):
    """What a coroutine was told is there for everyone else."""

    async def enqueue_and_look():
        [done] = await store.aenqueue([job()])
        with closing(sqlite3.connect(path)) as other:
            sql = "SELECT count(*) FROM rowlock_job WHERE id = ?"
            return other.execute(sql, (done.id,)).fetchone()[0]

    async def main():
        return await asyncio.gather(*[enqueue_and_look() for _ in range(50)])

    assert asyncio.run(main()) == [1] * 50


def test_one_failure_is_only_one_failure(store, path):
    """A request that fails loses its own work, and none of the others'."""

    async def main():
        good = [store.aenqueue([job()]) for _ in range(10)]
        bad = store.arun(failing(ZeroDivisionError("mine")))
        return await asyncio.gather(*good[:5], bad, *good[5:], return_exceptions=True)

    answers = asyncio.run(main())

    assert isinstance(answers[5], ZeroDivisionError)
    assert count_jobs(path) == 10
    assert look(path, "SELECT name FROM rowlock_queue") == []


def test_an_error_of_the_driver_is_mapped(store):
    """A statement that SQLite refuses is a `StoreUnavailable` for its caller."""

    def steps() -> Steps[None]:
        yield Statement("log_write", {})

    async def main():
        await store.aenqueue([job()])
        with pytest.raises(StoreUnavailable):
            await store.arun(writing("bad", steps))

    asyncio.run(main())


def test_a_lost_transaction_is_everybodys_error(store, path):
    """When the transaction as a whole fails, each request gets an error of its own."""

    async def main():
        await store.aenqueue([job()])
        asked = [store.aenqueue([job()]) for _ in range(5)]
        asked.append(store.arun(failing(KeyboardInterrupt())))
        # While another writes, all of them gather into the next transaction.
        with engine_of(store)._session().transaction(writes=True):
            tasks = [asyncio.ensure_future(each) for each in asked]
            await taken_up(store)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        await store.aenqueue([job()])
        return answers

    answers = asyncio.run(main())

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 6
    assert len({id(answer) for answer in answers}) == 6
    assert count_jobs(path) == 2


def test_a_connection_that_cannot_be_opened_is_an_answer(path):
    """Callers get the error while the file can't be opened, and answers once it can."""
    path.mkdir()
    store = open_store(url_of(path))

    async def main():
        for _ in range(2):
            answers = await asyncio.gather(
                *[store.aenqueue([job()]) for _ in range(3)], return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
        path.rmdir()
        await store.aenqueue([job()])
        await store.aclose()

    asyncio.run(main())

    assert count_jobs(path) == 1


async def taken_up(store: Store) -> None:
    """Wait until the owner thread has taken all requests; here it then waits for its turn."""

    async def look_again():
        while (owner := engine_of(store)._group._owner) is None or not owner.requests.empty():  # noqa: ASYNC110
            await asyncio.sleep(0)

    await asyncio.sleep(0)
    await asyncio.wait_for(look_again(), timeout=30)


def test_a_cancelled_request_is_not_run(store, path):
    """Who does not wait any more gets nothing done that had not begun."""

    async def main():
        await store.aenqueue([job()])
        with engine_of(store)._session().transaction(writes=True):
            first = asyncio.create_task(store.aenqueue([job()]))
            await taken_up(store)
            second = asyncio.create_task(store.aenqueue([job()]))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)
        await first
        await store.aenqueue([job()])

    asyncio.run(main())

    assert count_jobs(path) == 3


def test_a_closed_loop_harms_nobody(store, path):
    """Requests of a loop that was closed meanwhile don't stop the thread."""

    async def ask_and_leave():
        task = asyncio.create_task(store.aenqueue([job()]))
        await asyncio.sleep(0)
        return task

    asyncio.run(store.aenqueue([job()]))
    with engine_of(store)._session().transaction(writes=True):
        asyncio.run(ask_and_leave())
    asyncio.run(store.aenqueue([job()]))

    assert 2 <= count_jobs(path) <= 3


def test_closing_answers_what_was_asked(store, path):
    """`close` while requests wait answers all of them; later ones start anew."""

    async def main():
        await store.aenqueue([job()])
        asked = [asyncio.create_task(store.aenqueue([job()])) for _ in range(300)]
        await asyncio.sleep(0)
        await store.aclose()
        await asyncio.wait_for(asyncio.gather(*asked), timeout=30)
        await store.aenqueue([job()])

    asyncio.run(main())

    assert count_jobs(path) == 302


def test_many_loops_share_the_thread(store, path):
    """Loops of many threads get their own answers."""

    async def main():
        done = await asyncio.gather(*[store.aenqueue([job()]) for _ in range(20)])
        assert len({answer[0].id for answer in done}) == 20

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert count_jobs(path) == 200


def test_a_verb_that_commits_halfway_is_run_apart(store, path):
    """Long maintenance is whole, and the coroutines beside it are served."""

    def steps() -> Steps[str]:
        yield Statement("set_pause", {"queue": "default", "is_paused": 1})
        yield Commit()
        yield Statement("set_pause", {"queue": "other", "is_paused": 1})
        return threading.current_thread().name

    async def main():
        asked = [store.aenqueue([job()]) for _ in range(5)]
        answers = await asyncio.gather(store.arun(writing("long", steps)), *asked)
        return answers[0]

    assert asyncio.run(main()) != "rowlock-sqlite"
    assert count_jobs(path) == 5


def test_a_busy_file_is_an_error_for_all_waiting(path):
    """Nobody is acknowledged while another transaction holds the file, and all are told."""
    with closing(impatient_store(path)) as store:
        store.enqueue([job()])
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answers = asyncio.run(_ask_five(store))

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 5
    assert "using(conn=...)" in str(answers[0])
    assert count_jobs(path) == 1


async def _ask_five(store):
    asked = [store.aenqueue([job()]) for _ in range(5)]
    return await asyncio.gather(*asked, return_exceptions=True)


@pytest.fixture
def idle_folds(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Gets a permit whenever an idle thread has folded the log."""
    monkeypatch.setattr(config, "SQLITE_IDLE_WAL_FRAMES", 5)
    folds = threading.Semaphore(0)
    fold = SqliteSession.fold_idle

    def counted(session: SqliteSession) -> None:
        fold(session)
        folds.release()

    monkeypatch.setattr(SqliteSession, "fold_idle", counted)
    return folds


def test_the_log_is_folded_by_an_idle_thread(store, path, idle_folds):
    """Long before a caller would have to wait for that."""
    asyncio.run(store.aenqueue([job() for _ in range(50)]))
    is_folded = idle_folds.acquire(timeout=BOUND_SECONDS)
    with closing(sqlite3.connect(path)) as other:
        # Of a log that is folded, nothing is left to be copied, and it is begun anew.
        (found,) = other.execute("SELECT count(*) FROM rowlock_job").fetchone()
        asyncio.run(store.aenqueue([job()]))
        frames = other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]

    assert (is_folded, found) == (True, 50)
    assert frames < 50


def test_trouble_of_an_idle_thread_with_folding_is_logged(store, monkeypatch, caplog, idle_folds):
    """The next request is served as ever."""
    monkeypatch.setattr(config, "SQLITE_CHECKPOINT_BUSY_MILLISECONDS", "no number; DROP")
    asyncio.run(store.aenqueue([job() for _ in range(50)]))
    assert idle_folds.acquire(timeout=BOUND_SECONDS)
    (added,) = asyncio.run(store.aenqueue([job()]))

    assert added.created
    assert "could not be folded" in caplog.text
