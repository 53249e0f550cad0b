"""The users' libraries, each behind the same few calls, so that one test covers them all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import sqlalchemy
from django.apps import apps
from django.conf import UserSettingsHolder, global_settings
from django.conf import settings as django_settings
from django.db import transaction
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy_async

from rowlock.job import Job
from rowlock.store import NewJob, Store

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def nothing() -> None:
    """What a connection does to begin that begins by itself."""


@dataclass(frozen=True, slots=True)
class Client:
    """A connection of a user's, `run` drives an async one."""

    conn: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any] = nothing
    rollback: Callable[[], Any] = nothing
    begin: Callable[[], Any] = nothing
    run: Run | None = None

    def enqueue(self, store: Store, *jobs: NewJob, **options: Any) -> list[Job]:
        if self.run is None:
            return store.enqueue(jobs, conn=self.conn, **options)
        listed: list[Job] = self.run(store.aenqueue(jobs, conn=self.conn, **options))
        return listed


@dataclass(frozen=True, slots=True)
class Library:
    """How to connect with it: `open(url, autocommit)` gives a `Client` in a `with` block."""

    name: str
    open: Callable[[str, bool], Any]

    @contextmanager
    def connect(self, url: str, store: Store, *, autocommit: bool = False) -> Iterator[Client]:
        """A client for one test; what the store opened on its loop is closed too."""
        with self.open(url, autocommit) as client:
            yield client
            if client.run is not None:
                client.run(store.aclose())

    def __str__(self) -> str:
        return self.name


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


@contextmanager
def on_sqlite3(url: str, autocommit: bool) -> Iterator[Client]:
    conn = sqlite3.connect(path_of(url), isolation_level=None if autocommit else "")
    yield Client(conn, conn.execute, conn.commit, conn.rollback)
    conn.close()


@contextmanager
def on_sqlite3_by_hand(url: str, autocommit: bool) -> Iterator[Client]:
    conn = sqlite3.connect(path_of(url), isolation_level=None)
    begin = nothing if autocommit else lambda: conn.execute("BEGIN")
    yield Client(conn, conn.execute, conn.commit, conn.rollback, begin)
    conn.close()


@contextmanager
def on_psycopg(url: str, autocommit: bool) -> Iterator[Client]:
    conn = psycopg.connect(url, autocommit=autocommit, row_factory=psycopg.rows.dict_row)
    yield Client(conn, conn.execute, conn.commit, conn.rollback)
    conn.close()


@contextmanager
def on_psycopg2(url: str, autocommit: bool) -> Iterator[Client]:
    conn = psycopg2.connect(url)
    conn.autocommit = autocommit

    def execute(sql: str) -> None:
        with conn.cursor() as cursor:
            cursor.execute(sql)

    yield Client(conn, execute, conn.commit, conn.rollback)
    conn.close()


def alchemy_url(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


def engine_options(autocommit: bool) -> dict[str, Any]:
    isolation = {"isolation_level": "AUTOCOMMIT"} if autocommit else {}
    return {"poolclass": sqlalchemy.NullPool, **isolation}


def on_alchemy(driver: str) -> Callable[[str, bool], Any]:
    @contextmanager
    def connect(url: str, autocommit: bool) -> Iterator[Client]:
        engine = sqlalchemy.create_engine(alchemy_url(url, driver), **engine_options(autocommit))
        with engine.connect() as conn:
            yield Client(conn, conn.exec_driver_sql, conn.commit, conn.rollback)

    return connect


def on_session(driver: str, *, scoped: bool = False) -> Callable[[str, bool], Any]:
    @contextmanager
    def connect(url: str, autocommit: bool) -> Iterator[Client]:
        engine = sqlalchemy.create_engine(alchemy_url(url, driver), **engine_options(autocommit))
        make = orm.sessionmaker(engine)
        session: Any = orm.scoped_session(make) if scoped else make()

        def execute(sql: str) -> None:
            session.execute(sqlalchemy.text(sql))

        yield Client(session, execute, session.commit, session.rollback)
        session.close()

    return connect


@contextmanager
def on_django(url: str, autocommit: bool) -> Iterator[Client]:
    """Django's own proxy, handler and `atomic`, without settings that outlive the test."""
    parts = urlsplit(url)
    database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    if parts.scheme != "sqlite":
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "HOST": parts.hostname,
            "PORT": parts.port,
            "USER": parts.username,
            "PASSWORD": parts.password or "",
        }
    handler = ConnectionHandler({"default": database})
    proxy = ConnectionProxy(handler, "default")
    blocks: list[Any] = []

    def begin() -> None:
        if not autocommit:
            blocks.append(transaction.atomic())
            blocks[-1].__enter__()

    def rollback() -> None:
        blocks.pop().__exit__(InterruptedError, InterruptedError(), None)

    def execute(sql: str) -> None:
        with proxy.cursor() as cursor:
            cursor.execute(sql)

    def commit() -> None:
        blocks.pop().__exit__(None, None, None)

    with django_at(handler):
        yield Client(proxy, execute, commit, rollback, begin)
        handler["default"].close()


@contextmanager
def django_at(handler: ConnectionHandler) -> Iterator[None]:
    """Settings and connections of Django for the time of a block."""
    before = django_settings._wrapped, transaction.connections, apps.ready
    holder = UserSettingsHolder(global_settings)
    holder.USE_TZ = True
    django_settings._wrapped, transaction.connections, apps.ready = holder, handler, True
    try:
        yield
    finally:
        django_settings._wrapped, transaction.connections, apps.ready = before


@contextmanager
def on_async(make: Callable[[Run], Any]) -> Iterator[Client]:
    """Drive an async client from a test that is not."""
    with asyncio.Runner() as runner:
        client, close = make(runner.run)
        yield client
        runner.run(close())


def blocking(run: Run, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    return lambda *args: run(function(*args))


def on_async_psycopg(url: str, autocommit: bool) -> Any:
    def make(run: Run) -> Any:
        conn = run(psycopg.AsyncConnection.connect(url, autocommit=autocommit))
        calls = (blocking(run, call) for call in (conn.execute, conn.commit, conn.rollback))
        return Client(conn, *calls, run=run), conn.close

    return on_async(make)


def asyncpg_client(conn: Any, run: Run, autocommit: bool) -> Client:
    transactions: list[Any] = []

    def begin() -> None:
        if not autocommit:
            transactions.append(conn.transaction())
            run(transactions[-1].start())

    def commit() -> None:
        run(transactions.pop().commit())

    def rollback() -> None:
        run(transactions.pop().rollback())

    return Client(conn, blocking(run, conn.execute), commit, rollback, begin, run)


def on_asyncpg(url: str, autocommit: bool) -> Any:
    def make(run: Run) -> Any:
        conn = run(asyncpg.connect(url))
        return asyncpg_client(conn, run, autocommit), conn.close

    return on_async(make)


def on_asyncpg_pool(url: str, autocommit: bool) -> Any:
    def make(run: Run) -> Any:
        async def connect() -> Any:
            pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
            return pool, await pool.acquire()

        async def close() -> None:
            await pool.release(conn)
            await pool.close()

        pool, conn = run(connect())
        return asyncpg_client(conn, run, autocommit), close

    return on_async(make)


def on_aiosqlite(url: str, autocommit: bool) -> Any:
    def make(run: Run) -> Any:
        async def connect() -> aiosqlite.Connection:
            return await aiosqlite.connect(
                path_of(url), isolation_level=None if autocommit else "DEFERRED"
            )

        async def execute(sql: str) -> None:
            async with conn.execute(sql):
                pass

        conn = run(connect())
        conn.row_factory = sqlite3.Row
        calls = (blocking(run, call) for call in (execute, conn.commit, conn.rollback))
        return Client(conn, *calls, run=run), conn.close

    return on_async(make)


def on_async_alchemy(driver: str) -> Callable[[str, bool], Any]:
    def connect(url: str, autocommit: bool) -> Any:
        def make(run: Run) -> Any:
            engine = alchemy_async.create_async_engine(
                alchemy_url(url, driver), **engine_options(autocommit)
            )

            async def start() -> alchemy_async.AsyncConnection:
                return await engine.connect()

            conn = run(start())
            calls = (conn.exec_driver_sql, conn.commit, conn.rollback)
            return Client(conn, *(blocking(run, call) for call in calls), run=run), conn.close

        return on_async(make)

    return connect


def on_async_session(driver: str, *, scoped: bool = False) -> Callable[[str, bool], Any]:
    def connect(url: str, autocommit: bool) -> Any:
        def make(run: Run) -> Any:
            engine = alchemy_async.create_async_engine(
                alchemy_url(url, driver), **engine_options(autocommit)
            )
            maker = alchemy_async.async_sessionmaker(engine)
            session: Any = maker()
            if scoped:
                session = alchemy_async.async_scoped_session(maker, scopefunc=lambda: 1)

            async def execute(sql: str) -> None:
                await session.execute(sqlalchemy.text(sql))

            calls = (blocking(run, call) for call in (execute, session.commit, session.rollback))
            return Client(session, *calls, run=run), session.close

        return on_async(make)

    return connect


SQLITE_LIBRARIES = [
    Library("sqlite3", on_sqlite3),
    Library("sqlite3-by-hand", on_sqlite3_by_hand),
    Library("alchemy-pysqlite", on_alchemy("pysqlite")),
    Library("session-pysqlite", on_session("pysqlite")),
    Library("django-sqlite", on_django),
    Library("aiosqlite", on_aiosqlite),
    Library("alchemy-aiosqlite", on_async_alchemy("aiosqlite")),
    Library("session-aiosqlite", on_async_session("aiosqlite")),
]
POSTGRES_LIBRARIES = [
    Library("psycopg", on_psycopg),
    Library("psycopg2", on_psycopg2),
    Library("alchemy-psycopg", on_alchemy("psycopg")),
    Library("alchemy-psycopg2", on_alchemy("psycopg2")),
    Library("session-psycopg", on_session("psycopg")),
    Library("scoped-session-psycopg2", on_session("psycopg2", scoped=True)),
    Library("django-psycopg", on_django),
    Library("async-psycopg", on_async_psycopg),
    Library("asyncpg", on_asyncpg),
    Library("asyncpg-pool", on_asyncpg_pool),
    Library("alchemy-asyncpg", on_async_alchemy("asyncpg")),
    Library("alchemy-async-psycopg", on_async_alchemy("psycopg")),
    Library("session-asyncpg", on_async_session("asyncpg")),
    Library("scoped-session-asyncpg", on_async_session("asyncpg", scoped=True)),
]
