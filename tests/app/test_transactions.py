"""`using(conn=...)` through the app: the job lives and dies with the caller's transaction."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pytest

import rowlock


def connect(url: str):
    """A plain connection of the caller's own to the same database."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


@pytest.fixture
def task(app):
    app.migrate()

    @app.task
    def work(number: int) -> None: ...

    return work


def test_the_job_commits_with_the_caller(app, any_url, task):
    """Before the commit nobody sees the job, afterwards it is ready."""
    connection = connect(any_url)
    job = task.using(conn=connection).enqueue(number=1)
    before = app.get(job.id)
    connection.commit()
    connection.close()

    assert before is None
    assert app.get(job.id).state == rowlock.JobState.READY


def test_the_job_rolls_back_with_the_caller(app, any_url, task):
    """After a rollback there is nothing, and the key is free."""
    connection = connect(any_url)
    job = task.using(conn=connection, key="k").enqueue(number=1)
    connection.rollback()
    connection.close()

    assert app.get(job.id) is None
    assert task.using(key="k").enqueue(number=2).created


def test_the_first_use_inside_a_transaction_says_what_to_do(sqlite_url):
    """SQLite's tables can't be made while the caller writes. Made before, all is well."""
    with rowlock.App(sqlite_url) as app, closing(connect(sqlite_url)) as own:

        @app.task
        def work(number: int) -> None: ...

        own.execute("CREATE TABLE t (x)")
        own.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(rowlock.StoreUnavailable, match=r"Call app\.migrate\(\) before"):
            work.using(conn=own).enqueue(1)
        own.rollback()

        app.migrate()
        own.execute("INSERT INTO t VALUES (1)")
        job = work.using(conn=own).enqueue(1)
        own.commit()
        assert app.get(job.id).state == "ready"


def test_by_name_and_many(app, any_url, task):
    """`enqueue` by name and `enqueue_many` take the caller's connection as well."""
    connection = connect(any_url)
    app.enqueue("work", {"number": 1}, conn=connection)
    app.enqueue_many([task.job(number=number) for number in (2, 3)], conn=connection)
    connection.commit()
    connection.close()

    assert app.drain() == 3


def test_a_refused_payload_leaves_the_transaction_usable(app, any_url, task):
    """Bad input is refused before the connection is touched."""
    connection = connect(any_url)
    with pytest.raises(rowlock.PayloadInvalid):
        task.using(conn=connection).enqueue(number="one")
    task.using(conn=connection).enqueue(number=1)
    connection.commit()
    connection.close()

    assert app.drain() == 1


@pytest.mark.parametrize("nonsense", [object(), "postgresql://", 3])
def test_what_is_no_connection_is_refused(task, nonsense):
    """Anything that is not a known connection says which ones are."""
    with pytest.raises(rowlock.OptionInvalid, match="psycopg"):
        task.using(conn=nonsense).enqueue(number=1)
