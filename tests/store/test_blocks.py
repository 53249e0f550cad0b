"""Blocks: a COMMIT whose answer was lost is looked up by the lease's token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest

from rowlock.lifecycle import Succeeded
from rowlock.store import Settlement, Store, open_store
from rowlock.store.blocks import Blocks, Conclusion
from rowlock.store.ops.settle import Settled
from rowlock.store.options import new_job
from tests.support.postgres import is_any_waiting
from tests.worker.waiting import wait_until


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[Store]:
    store = open_store(postgres_url)
    yield store
    store.close()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_under_way_is_waited_for(
    postgres_store: Store, postgres_url: str, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server may be slow: the look-up waits for what becomes of it, and then knows."""
    store = postgres_store
    store.enqueue([new_job(kind="task", payload="{}")])
    (lease,) = store.claim(worker="w", queues=None)
    conclusion = Conclusion(Settlement(lease, Succeeded()))
    found: list[Settled] = []
    looking = threading.Thread(target=lambda: found.append(store.run(conclusion.lookup())))

    def commit_slowly(connection: psycopg.Connection) -> None:
        looking.start()
        wait_until(lambda: is_any_waiting(postgres_url))
        end(connection)

    end = psycopg.Connection.commit if is_committed else psycopg.Connection.rollback
    monkeypatch.setattr("rowlock.store.postgres.engine.Connection.commit", commit_slowly)
    block = Blocks(store, lease_seconds=30).block()
    block.begin()
    block.conclude(conclusion)
    looking.join()

    assert list(found[0].lost) == ([] if is_committed else [lease])


_ASK = "SELECT %s::integer AS mine"
_PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%mine%'"


@pytest.mark.direct("looks at a session")
@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_statements_of_a_handler_are_not_prepared(postgres_store: Store, colour: str) -> None:
    """However often it makes them: their plans would stay with a connection that is not its own."""

    def ask() -> int:
        block = Blocks(postgres_store, lease_seconds=30).block()
        connection = block.begin()
        for number in range(10):
            connection.execute(_ASK, (number,))
        (count,) = connection.execute(_PREPARED.encode(), prepare=False).fetchone()
        block.undo()
        return count

    async def aask() -> int:
        block = Blocks(postgres_store, lease_seconds=30).ablock()
        connection = await block.begin()
        for number in range(10):
            await connection.execute(_ASK, (number,))
        (count,) = await (await connection.execute(_PREPARED.encode(), prepare=False)).fetchone()
        await block.undo()
        await postgres_store.aclose()
        return count

    assert (ask() if colour == "blocking" else asyncio.run(aask())) == 0
