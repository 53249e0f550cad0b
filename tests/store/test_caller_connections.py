"""Which connections are taken for an enqueue, and what is asked of them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy import event

from rowlock.errors import OptionInvalid
from rowlock.store import Store, open_store
from tests.store.callers import (
    POSTGRES_LIBRARIES,
    SQLITE_LIBRARIES,
    Library,
    alchemy_url,
    path_of,
)
from tests.store.jobs import claim, kept_for, made


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    """A migrated store on SQLite."""
    store = open_store(sqlite_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def postgres_store(emptied_postgres_url: str) -> Iterator[Store]:
    """A store on PostgreSQL."""
    store = open_store(emptied_postgres_url)
    yield store
    store.close()


@pytest.mark.parametrize("conn", [object(), "postgresql://", 1], ids=["object", "url", "number"])
def test_what_is_no_connection_is_refused(sqlite_store: Store, conn: object):
    """Anything unknown is refused with a list of what is taken, in both colours."""
    accepted = "sqlite3.*psycopg.*asyncpg.*Django.*SQLAlchemy"

    with pytest.raises(OptionInvalid, match=accepted):
        sqlite_store.enqueue([made()], conn=conn)
    with pytest.raises(OptionInvalid, match=accepted):
        asyncio.run(sqlite_store.aenqueue([made()], conn=conn))


@pytest.mark.parametrize("library", [*SQLITE_LIBRARIES, *POSTGRES_LIBRARIES], ids=str)
def test_the_colours_are_not_mixed(
    library: Library, sqlite_store: Store, emptied_postgres_url: str, sqlite_url: str
):
    """A blocking connection is refused by `aenqueue`, an async one by `enqueue`."""
    url = sqlite_url if library in SQLITE_LIBRARIES else emptied_postgres_url
    with library.connect(url, sqlite_store) as client:
        if client.run is not None:
            with pytest.raises(OptionInvalid, match="use aenqueue"):
                sqlite_store.enqueue([made()], conn=client.conn)
        else:
            with pytest.raises(OptionInvalid, match="use enqueue"):
                asyncio.run(sqlite_store.aenqueue([made()], conn=client.conn))


def test_another_kind_of_database_is_refused(
    sqlite_store: Store, postgres_store: Store, emptied_postgres_url: str
):
    """A connection to PostgreSQL is no use to an app on SQLite, nor the other way round."""
    with (
        psycopg.connect(emptied_postgres_url) as conn,
        pytest.raises(OptionInvalid, match="SQLite"),
    ):
        sqlite_store.enqueue([made()], conn=conn)
    with closing(sqlite3.connect(":memory:")) as conn, pytest.raises(OptionInvalid, match="SQLite"):
        postgres_store.enqueue([made()], conn=conn)


def test_a_driver_we_do_not_know_is_refused(sqlite_store: Store):
    """An engine of SQLAlchemy with a driver whose placeholders we can't write is refused."""
    engine = sqlalchemy.create_mock_engine("mysql+pymysql://", lambda *_: None)
    conn = sqlalchemy.engine.Connection.__new__(sqlalchemy.engine.Connection)
    conn.dialect = engine.dialect

    with pytest.raises(OptionInvalid, match="pymysql"):
        sqlite_store.enqueue([made()], conn=conn)


def test_pipeline_mode_is_refused(postgres_store: Store, emptied_postgres_url: str):
    """In pipeline mode answers come later than we need them."""
    with (
        psycopg.connect(emptied_postgres_url) as conn,
        conn.pipeline(),
        pytest.raises(OptionInvalid, match="pipeline"),
    ):
        postgres_store.enqueue([made()], conn=conn)


def test_no_library_is_imported_for_it(tmp_path: Path):
    """Recognising a connection imports nothing that the user does not use."""
    script = """
import sqlite3, sys
from rowlock.store import open_store
from rowlock.store.options import new_job
store = open_store("sqlite:///app.db")
conn = sqlite3.connect("app.db")
store.enqueue([new_job(kind="task", payload="{}")], conn=conn)
conn.commit()
conn.close()
store.close()
libraries = {"psycopg", "psycopg2", "asyncpg", "aiosqlite", "sqlalchemy", "django"}
assert not libraries & set(sys.modules), libraries & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_users_row_and_text_factories_stay(sqlite_store: Store, sqlite_url: str):
    """Rows and texts are ours while we read them, and the user's again afterwards."""
    with closing(sqlite3.connect(path_of(sqlite_url))) as conn:
        conn.row_factory, conn.text_factory = sqlite3.Row, bytes
        (first,) = sqlite_store.enqueue([made(key="k")], conn=conn)
        (second,) = sqlite_store.enqueue([made(key="k")], conn=conn)
        kept = (conn.row_factory, conn.text_factory)
        conn.commit()

    assert first.id == second.id
    assert kept == (sqlite3.Row, bytes)


def test_a_cursor_with_other_placeholders_is_no_hindrance(
    postgres_store: Store, emptied_postgres_url: str
):
    """A connection of psycopg whose cursors take `$1` is used like any other."""
    with psycopg.connect(emptied_postgres_url, cursor_factory=psycopg.RawCursor) as conn:
        (job,) = postgres_store.enqueue([made(key="k")], conn=conn)

    assert postgres_store.get(job.id) is not None


def test_a_copy_of_the_file_is_refused(sqlite_store: Store, sqlite_url: str):
    """A copy has the same tables and the same id, and is still another database."""
    with closing(sqlite3.connect(path_of(sqlite_url))) as conn:
        conn.execute("VACUUM INTO ?", (path_of(sqlite_url) + "-copy",))
    with (
        closing(sqlite3.connect(path_of(sqlite_url) + "-copy")) as copy,
        pytest.raises(OptionInvalid, match="another database"),
    ):
        sqlite_store.enqueue([made()], conn=copy)


def test_an_attached_copy_is_not_written_to(sqlite_store: Store, sqlite_url: str, tmp_path: Path):
    """Where our names mean the tables of another file, having ours attached is not enough."""
    other = open_store(f"sqlite:///{tmp_path / 'other.db'}")
    other.migrate()
    other.close()
    with closing(sqlite3.connect(tmp_path / "other.db")) as conn:
        conn.execute("ATTACH ? AS app", (path_of(sqlite_url),))
        with pytest.raises(OptionInvalid, match="another database"):
            sqlite_store.enqueue([made()], conn=conn)

        assert not conn.in_transaction


def test_our_file_may_be_the_attached_one(sqlite_store: Store, sqlite_url: str, tmp_path: Path):
    """A connection to the user's own file that has ours attached will do."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as conn:
        conn.execute("ATTACH ? AS app", (path_of(sqlite_url),))
        (job,) = sqlite_store.enqueue([made()], conn=conn)
        conn.commit()

    assert sqlite_store.get(job.id) is not None


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_write_lock_that_is_held_is_no_hindrance(
    sqlite_store: Store, sqlite_url: str, colour: str
):
    """A store that was never used before enqueues on the connection that holds the write lock."""
    fresh = open_store(sqlite_url)
    library = SQLITE_LIBRARIES[0 if colour == "blocking" else 5]
    with library.connect(sqlite_url, fresh) as client:
        client.execute("CREATE TABLE own (id integer)")
        client.execute("INSERT INTO own VALUES (1)")
        (job,) = client.enqueue(fresh, made())
        client.commit()
    fresh.close()

    assert sqlite_store.get(job.id) is not None


def test_a_writer_in_between_does_no_harm(sqlite_store: Store, sqlite_url: str):
    """A transaction that has read nothing yet gets the write lock before we read anything."""
    with (
        closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None)) as conn,
        closing(sqlite3.connect(path_of(sqlite_url), isolation_level=None, timeout=0)) as other,
    ):
        other.execute("CREATE TABLE own (id integer)")

        def write_in_between(_: str) -> None:
            with suppress(sqlite3.OperationalError):
                other.execute("INSERT INTO own VALUES (1)")

        conn.execute("BEGIN")
        conn.set_trace_callback(write_in_between)
        (job,) = sqlite_store.enqueue([made()], conn=conn)
        conn.set_trace_callback(None)
        conn.execute("COMMIT")

        assert other.execute("SELECT count(*) FROM own").fetchone() > (0,)
    assert sqlite_store.get(job.id) is not None


def test_waiting_writers_do_not_block_their_blocker(sqlite_url: str):
    """An enqueue on the connection that holds the write lock never waits behind those it holds."""
    store = open_store(sqlite_url)
    store.migrate()

    async def enqueue_both() -> list[bool]:
        async with aiosqlite.connect(path_of(sqlite_url)) as conn:
            await conn.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(store.aenqueue([made()]))
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                (mine,) = await store.aenqueue([made()], conn=conn)
            await conn.commit()
            (theirs,) = await waiting
            return [mine.created, theirs.created]

    created = asyncio.run(enqueue_both())
    store.close()

    assert created == [True, True]


def test_a_hook_that_begins_is_respected(sqlite_store: Store, sqlite_url: str):
    """SQLAlchemy's recipe for real transactions on SQLite: a driver in autocommit, and a BEGIN."""
    engine = sqlalchemy.create_engine(
        alchemy_url(sqlite_url, "pysqlite"), poolclass=sqlalchemy.NullPool
    )
    event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    with engine.connect() as conn:
        (job,) = sqlite_store.enqueue([made(key="k")], conn=conn)
        conn.rollback()

    assert sqlite_store.get(job.id) is None


def test_a_connection_is_asked_once(postgres_store: Store, emptied_postgres_url: str):
    """That a connection leads to our database is remembered as long as it lives."""
    asked: list[str] = []

    class Watching(psycopg.Connection[tuple[object, ...]]):
        def wait(self, *args: object, **options: object) -> object:  # type: ignore[override]  # any
            asked.append("")
            return super().wait(*args, **options)  # type: ignore[arg-type]  # passed on

    with Watching.connect(emptied_postgres_url, autocommit=True) as conn:
        counts = []
        for _ in range(3):
            asked.clear()
            postgres_store.enqueue([made()], conn=conn)
            counts.append(len(asked))

    # The table, its id, the insert; then the insert alone.
    assert counts == [3, 1, 1]


@pytest.mark.owner("makes a schema")
def test_another_schema_is_another_queue(postgres_store: Store, emptied_postgres_url: str):
    """A store in a schema of its own takes the same connection and writes only there."""
    second = open_store(emptied_postgres_url, schema="second")
    second.migrate()
    with psycopg.connect(emptied_postgres_url) as conn:
        (job,) = second.enqueue([made(key="k")], conn=conn)
    found = second.get(job.id)
    second.close()
    with psycopg.connect(emptied_postgres_url) as conn:
        conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier("second")))

    assert found is not None
    assert postgres_store.get(job.id) is None


@pytest.mark.parametrize("library", [*SQLITE_LIBRARIES, *POSTGRES_LIBRARIES], ids=str)
def test_a_lost_answer_can_be_asked_for_again(library: Library, request: pytest.FixtureRequest):
    """A commit of unknown outcome is repeated with the same id: no second run, not even later."""
    kind = "sqlite" if library in SQLITE_LIBRARIES else "postgres"
    store: Store = request.getfixturevalue(f"{kind}_store")
    url = request.getfixturevalue("sqlite_url" if kind == "sqlite" else "emptied_postgres_url")
    job = made(policy=kept_for(0))
    again = made(id=job.id, policy=kept_for(0))
    with library.connect(url, store) as client:
        client.begin()
        client.enqueue(store, job)
        client.commit()
    store.succeed(claim(store))
    with library.connect(url, store) as client:
        client.begin()
        (answer,) = client.enqueue(store, again)
        client.commit()

    assert (answer.id, answer.created, answer.state) == (job.id, False, "succeeded")
    assert claim(store) == []


def test_none_needs_no_connection(sqlite_store: Store):
    """To enqueue nothing is nothing, whatever the connection."""
    assert sqlite_store.enqueue([], conn=object()) == []
    assert asyncio.run(sqlite_store.aenqueue([], conn=object())) == []
