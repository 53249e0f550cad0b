"""Calls whose reader stays on the loop: it is gone before anyone else uses the socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

from rowlock.errors import StoreUnavailable
from rowlock.store import Store, open_store
from rowlock.store.postgres.connections import BoundedAsyncConnection
from tests.store.jobs import made

pytestmark = pytest.mark.direct("prepares on one process of the server")
BOUND_SECONDS = 20.0


@pytest_asyncio.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    opened = open_store(postgres_url)
    await opened.aenqueue([made()])
    yield opened
    await opened.aclose()


def connection_of(store: Store) -> BoundedAsyncConnection:
    """The store's idle connection, which has a reader."""
    (connection,) = store.engine.async_pool().idle
    return connection


def is_read(descriptor: int) -> bool:
    """Whether the running loop has a reader for it. Removes it."""
    return asyncio.get_running_loop().remove_reader(descriptor)


@pytest.mark.asyncio
async def test_a_reader_stays_between_calls(store):
    """That is what it is for."""
    descriptor = connection_of(store).pgconn.socket

    assert is_read(descriptor)


@pytest.mark.asyncio
async def test_a_reader_is_gone_when_its_connection_is_closed(store):
    """Another socket may get the same number."""
    descriptor = connection_of(store).pgconn.socket
    await store.engine.aclose_loop()

    assert not is_read(descriptor)


@pytest.mark.asyncio
async def test_other_calls_of_the_connection_wait_as_ever(store):
    """A reader of psycopg's own takes the place of ours, and the next call gets ours again."""
    connection = connection_of(store)
    await connection.execute("SELECT 1")
    was_read = is_read(connection.pgconn.socket)
    await store.aenqueue([made()])

    assert (was_read, is_read(connection.pgconn.socket)) == (False, True)


@pytest.mark.asyncio
async def test_a_connection_that_ends_while_idle_is_not_read_for_ever(store, postgres_url):
    """Its end can be read at every turn of the loop."""
    connection = connection_of(store)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
    async with asyncio.timeout(BOUND_SECONDS):
        while connection._calls._is_reading:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0)
    job, *_ = await store.aenqueue([made()])

    assert job.created


@pytest.mark.asyncio
async def test_a_cancelled_call_is_cancelled_on_the_server(store, postgres_url):
    """It would go on otherwise, and be committed though nobody waits for it."""
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE rowlock.job IN EXCLUSIVE MODE")
        sending = asyncio.create_task(store.aenqueue([made()]))
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(BOUND_SECONDS):
            while not other.execute(waits).fetchone()[0]:  # noqa: ASYNC110  # the server's state
                await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        other.rollback()
        (found,) = other.execute("SELECT count(*) FROM rowlock.job").fetchone()

    assert (found, store.engine.async_pool().idle) == (1, [])


@pytest.mark.asyncio
async def test_a_call_without_an_answer_ends(store, postgres_url):
    """At its deadline, as all calls do."""
    connection_of(store).call_seconds = 0.2
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE rowlock.job IN EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.2 s"):
            await store.aenqueue([made()])


@pytest.mark.asyncio
async def test_a_large_call_is_sent_to_its_end(store):
    """The socket takes it in parts, and only psycopg's own wait waits for that."""
    text = "x" * 900_000
    job, *_ = await store.aenqueue([made(payload=f'{{"text":"{text}"}}')])

    assert (await store.aget(job.id)).payload == {"text": text}
