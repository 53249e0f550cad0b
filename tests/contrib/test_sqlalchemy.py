"""Jobs of a queue elsewhere follow a session's commit, and only that."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import rowlock
from rowlock.contrib.sqlalchemy import after_commit


@pytest.fixture
def queue(any_url: str):
    """A queue that is not in the session's database."""
    with rowlock.App(any_url) as queue:
        yield queue


@pytest.fixture
def engine(tmp_path):
    """The session's own database."""
    engine = create_engine(f"sqlite:///{tmp_path / 'own.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE purchase (number INTEGER PRIMARY KEY)"))
    yield engine
    engine.dispose()


def job(number: int):
    tasks = rowlock.Tasks()

    @tasks.task
    def confirm(number: int) -> None: ...

    rowlock.App("sqlite:///unused.db").include(tasks)
    return confirm.job(number=number)


def numbers(queue: rowlock.App) -> list[int]:
    return sorted(each.payload["number"] for each in queue.list(full=True))


def buy(session: Session, number: int) -> None:
    session.execute(text("INSERT INTO purchase VALUES (:number)"), {"number": number})


def test_after_the_commit(queue, engine):
    """Not before it, and together; the next transaction of the session starts afresh."""
    with Session(engine) as session:
        buy(session, 1)
        after_commit(session, queue, job(1), job(2))
        before = numbers(queue)
        session.commit()
        after = numbers(queue)
        buy(session, 3)
        session.commit()

    assert (before, after, numbers(queue)) == ([], [1, 2], [1, 2])


def refused_purchase(session: Session, queue: rowlock.App) -> None:
    with session.begin():
        after_commit(session, queue, job(2))
        raise RuntimeError("the card was refused")


def test_a_rollback_forgets(queue, engine):
    """Explicit, by an error inside the block, or by closing the session."""
    with Session(engine) as session:
        after_commit(session, queue, job(1))
        session.rollback()
        session.commit()
        with pytest.raises(RuntimeError):
            refused_purchase(session, queue)
        after_commit(session, queue, job(3))
    with Session(engine) as session, session.begin():
        after_commit(session, queue, job(4))

    assert numbers(queue) == [4]


def test_savepoints(queue, engine):
    """What was noted in one goes with it, and what was released stays for the commit."""
    with Session(engine) as session, session.begin():
        after_commit(session, queue, job(1))
        with session.begin_nested():
            after_commit(session, queue, job(2))
            with session.begin_nested() as inner:
                after_commit(session, queue, job(3))
                inner.rollback()
        outer = session.begin_nested()
        with session.begin_nested():
            after_commit(session, queue, job(4))
        outer.rollback()
        early = numbers(queue)

    assert (early, numbers(queue)) == ([], [1, 2])


def test_a_failed_flush_forgets(queue, engine):
    """The commit that failed has not happened."""
    with Session(engine) as session:
        buy(session, 1)
        session.commit()
        after_commit(session, queue, job(1))
        with pytest.raises(Exception, match="UNIQUE"):
            buy(session, 1)
        session.rollback()
        session.commit()

    assert numbers(queue) == []


def test_a_queue_that_is_away(tmp_path, engine):
    """The caller is told; the session's own writes are there, and the session goes on."""
    away = rowlock.App("postgresql://rowlock@127.0.0.1:1/nowhere?connect_timeout=1")
    with Session(engine) as session:
        buy(session, 1)
        after_commit(session, away, job(1))
        with pytest.raises(rowlock.StoreUnavailable):
            session.commit()
        count = session.scalar(text("SELECT count(*) FROM purchase"))
        session.commit()

    assert count == 1


def test_a_scoped_session(queue, engine):
    """Is the session of its scope."""
    scoped = scoped_session(sessionmaker(engine))
    after_commit(scoped, queue, job(1))
    scoped.commit()
    scoped.remove()

    assert numbers(queue) == [1]


@pytest.mark.asyncio
async def test_async_sessions(queue, engine, tmp_path):
    """On their loop, which is not blocked by it."""
    async_engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'own.db'}")
    sessions = async_sessionmaker(async_engine)
    async with sessions.begin() as session:
        after_commit(session, queue, job(1))
    async with AsyncSession(async_engine) as session:
        after_commit(session, queue, job(2))
        await session.rollback()
        await session.commit()
    scoped = async_scoped_session(sessions, scopefunc=lambda: 1)
    after_commit(scoped, queue, job(3))
    await scoped.commit()
    await scoped.remove()
    await async_engine.dispose()
    found = sorted(each.payload["number"] for each in await queue.alist(full=True))
    await queue.aclose()

    assert found == [1, 3]


def test_what_is_no_session_or_no_job(queue, engine):
    """Is refused at once."""
    with pytest.raises(rowlock.OptionInvalid, match="session of SQLAlchemy, not Engine"):
        after_commit(engine, queue, job(1))
    with Session(engine) as session, pytest.raises(rowlock.OptionInvalid, match=r"task\.job"):
        after_commit(session, queue, "confirm")


def test_of_two_queues_one_is_away(queue, engine):
    """The jobs of the other are sent all the same."""
    away = rowlock.App("postgresql://rowlock@127.0.0.1:1/nowhere?connect_timeout=1")
    with Session(engine) as session:
        buy(session, 1)
        after_commit(session, away, job(1))
        after_commit(session, queue, job(2))
        with pytest.raises(rowlock.StoreUnavailable):
            session.commit()

    assert numbers(queue) == [2]
