"""A scratch is a place of its own in a user's database: there while it is needed, then gone."""

from __future__ import annotations

import psycopg
import pytest

from rowlock.errors import StoreUnavailable
from rowlock.store import open_store
from rowlock.store.ops import measure
from rowlock.store.options import new_job
from rowlock.store.scratch import left_behind, scratch

pytestmark = pytest.mark.owner("makes schemas, and drops them")


def test_it_is_apart_and_goes(any_url):
    """Jobs in it are not the user's, and when it ends nothing of it is there."""
    with scratch(any_url) as place:
        ours, theirs = open_store(place.url, schema=place.schema), open_store(any_url)
        ours.migrate()
        ours.enqueue([new_job(kind="mine", payload="{}", queue="apart")])

        assert [queue.queue for queue in ours.stats()] == ["apart"]
        assert theirs.stats() == []
        assert len(left_behind(any_url)) == 1
        ours.close()
        theirs.close()

    assert left_behind(any_url) == []


def test_it_goes_after_an_error(any_url):
    """However the block ends, what it made is removed."""

    def fail() -> None:
        with scratch(any_url) as place:
            store = open_store(place.url, schema=place.schema)
            store.migrate()
            store.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert left_behind(any_url) == []


def test_what_is_held(any_url):
    """A transaction is open while the block runs: on PostgreSQL one with an id of its own."""
    with scratch(any_url) as place:
        store = open_store(place.url, schema=place.schema)
        store.migrate()
        with place.hold():
            store.enqueue([new_job(kind="mine", payload="{}")])
            if place.directory is None:
                assert open_transactions(any_url) == 1
        store.close()

    if "sqlite" not in any_url:
        assert open_transactions(any_url) == 0


def open_transactions(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_xid IS NOT NULL AND state = 'idle in transaction'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_what_cant_be_removed_is_told(postgres_url):
    """The error names the schema, and the statement that removes it."""

    def block_it(holder: psycopg.Connection) -> None:
        with scratch(f"{postgres_url}?call_timeout=0.5") as place:
            holder.execute(f"CREATE SCHEMA {place.schema}".encode())
            holder.execute("BEGIN")
            holder.execute(f"CREATE TABLE {place.schema}.busy ()".encode())

    with (
        psycopg.connect(postgres_url, autocommit=True) as holder,
        pytest.raises(StoreUnavailable, match=r"DROP SCHEMA IF EXISTS rowlock_bench_\w+ CASCADE"),
    ):
        block_it(holder)


def test_finished_jobs_are_timed(any_url):
    """How many of a queue have ended, from the first start to the last end."""
    with scratch(any_url) as place:
        store = open_store(place.url, schema=place.schema)
        store.migrate()
        store.enqueue([new_job(kind="mine", payload="{}", queue="q") for _ in range(3)])
        before = store.run(measure.finished("q"))
        store.succeed(store.claim(worker="w", queues=["q"], limit=3))
        after = store.run(measure.finished("q"))
        store.close()

    assert (before.count, before.seconds) == (0, 0.0)
    assert after.count == 3
    assert after.seconds >= 0
