"""Faults of a PostgreSQL server and its machine: clocks, numbers, disks, backends, standbys."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from rowlock import config, ids
from rowlock.clock import ManualClock
from rowlock.errors import StoreUnavailable
from rowlock.events import Event, EventType
from rowlock.job import JobState, Lease
from rowlock.lifecycle import Succeeded
from rowlock.store import JobFilter, Settlement, open_store
from rowlock.store.blocks import Blocks, Conclusion
from rowlock.store.ops import bulk, manage, recover, schedule
from rowlock.store.ops.events import read_events, write_events
from rowlock.store.options import new_job
from rowlock.store.postgres.connections import BoundedConnection
from rowlock.store.postgres.errors import mapped, meaning_of
from rowlock.store.steps import Commit, Op, Steps
from rowlock.testing import ThrowAwayPostgres
from tests.store.jobs import enqueue
from tests.support.postgres import end_other_connections


@pytest.fixture
def store(postgres_url):
    store = open_store(postgres_url)
    yield store
    store.close()


def tell(url: str, statements: str) -> None:
    may_write = "-c default_transaction_read_only=off"
    with psycopg.connect(url, autocommit=True, options=may_write) as connection:
        connection.execute(statements)


@pytest.fixture
def ids_of_its_own() -> Iterator[None]:
    """Ids never go back: those of the tests that follow would be as far ahead as this one's."""
    yield
    ids._ids._start_afresh()


@pytest.mark.usefixtures("ids_of_its_own")
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wrong_clock_here_decides_nothing(store, monkeypatch, hours):
    """The server's clock says what is due and whose lease is over; ours is an hour off."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + hours * 3_600_000_000_000)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
    due, later = enqueue(store), enqueue(store, delay=60)
    (lease,) = store.claim(worker="w", queues=["default"], limit=10, lease=30)
    stolen = store.claim(worker="other", queues=["default"], limit=10)

    assert (lease.id, stolen, store.recover()) == (due.id, [], 0)
    assert JobState.SCHEDULED is store.get(later.id).state
    assert abs(store.get(due.id).started_at.timestamp() - real() / 1e9) < 60
    assert (later.run_at - later.created_at).total_seconds() == 60


@pytest.mark.owner("sets a sequence")
def test_numbers_grow_beyond_32_bits(store, postgres_url):
    """The one sequence there is, that of events, counts on beyond two thousand millions."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT setval('rowlock.event_number', 2147483645)")
        narrow = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'rowlock' AND data_type IN ('integer', 'smallint') "
            "AND column_name ~ '^(id|.*_id|.*_at|token|until)$'"
        ).fetchall()
    for _ in range(5):
        store.run(write_events([Event(EventType.ENQUEUED, "default", "task")]))
    told = store.run(read_events(0))

    assert [2**31 - 2 + number for number in range(5)] == [each.id for each in told]
    assert narrow == []


@pytest.mark.parametrize(
    "error",
    [
        *(psycopg.errors.DiskFull, psycopg.errors.TooManyConnections, psycopg.errors.OutOfMemory),
        *(psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable),
        *(psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.CrashShutdown),
    ],
)
def test_a_server_in_trouble_is_unavailable(error):
    """A full disk, no memory, a timeout, a standby: worth another try later, and never a mistake
    of ours.
    """
    meaning = meaning_of(error("no"), is_closed=False)

    assert isinstance(mapped(error("no"), meaning, shown_url="u"), StoreUnavailable)


def lose_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver finds the socket dead, once, and libpq takes the connection to be well."""
    real, due = BoundedConnection.wait, [True]

    def wait(self: BoundedConnection, *given: Any, **named: Any) -> Any:
        answer = real(self, *given, **named)
        if due:
            due.clear()
            raise psycopg.OperationalError("connection socket closed")
        return answer

    monkeypatch.setattr(BoundedConnection, "wait", wait)


def test_a_socket_that_only_the_driver_knows_to_be_dead(store, monkeypatch):
    """What was asked is asked again in the way that is safe, on another connection."""
    enqueue(store)
    lose_the_next_answer(monkeypatch)
    job = enqueue(store)
    jobs = store.list(JobFilter()).jobs

    assert job.created
    assert len(jobs) == 2 and job.id in [each.id for each in jobs]


def test_a_block_whose_commit_only_the_driver_lost(store, monkeypatch):
    """It was committed: that is looked up, and nothing is said to have failed."""
    enqueue(store)
    (lease,) = store.claim(worker="w", queues=["default"])
    block = Blocks(store, lease_seconds=30).block()
    block.begin()
    commit = BoundedConnection.commit

    def commit_unheard(connection: BoundedConnection) -> None:
        lose_the_next_answer(monkeypatch)
        commit(connection)

    monkeypatch.setattr(BoundedConnection, "commit", commit_unheard)
    block.conclude(Conclusion(Settlement(lease, Succeeded())))

    assert JobState.SUCCEEDED is store.get(lease.id).state


@pytest.mark.direct("sets a session")
def test_connections_to_an_old_primary_are_left(store):
    """After a failover what is pooled leads to a server that only reads: another is opened."""
    enqueue(store)
    connection = store.engine.pool.take()
    connection.execute("SET default_transaction_read_only = on")
    store.engine.pool.give(connection, is_sound=True)

    assert enqueue(store).created
    assert connection.closed


@pytest.mark.owner("changes the database")
@pytest.mark.direct("logs in with settings of its own")
def test_a_server_that_became_read_only(store, postgres_url):
    """As an old primary after a failover: refused as unavailable, and taken up again later."""
    enqueue(store)
    name = urlsplit(postgres_url).path.removeprefix("/")
    tell(postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    end_other_connections(postgres_url)
    with pytest.raises(StoreUnavailable, match="read-only"):
        enqueue(store)
    tell(postgres_url, f"ALTER DATABASE {name} RESET default_transaction_read_only")
    enqueue(store)

    assert len(store.list(JobFilter()).jobs) == 2


def test_a_killed_backend(crashed_server):
    """SIGKILL of one backend has the whole server recover: refused meanwhile, then as before."""
    store = open_store(f"{crashed_server.url}?call_timeout=10")
    store.migrate()
    acknowledged = [enqueue(store).id]
    with psycopg.connect(crashed_server.url) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while len(acknowledged) < 20:
            assert time.monotonic() < deadline
            try:
                acknowledged += [enqueue(store).id]
            except StoreUnavailable:
                time.sleep(0.05)

    assert set(acknowledged) <= {each.id for each in store.list(JobFilter()).jobs}
    store.close()


def broken_after_a_batch(op: Op[Any], fault: Callable[[], None]) -> Op[Any]:
    """The same op, which meets a fault once, behind its first batch that is committed."""
    faults = [fault]

    def steps() -> Steps[Any]:
        inner = op.start()
        step = next(inner)
        try:
            while True:
                rows = yield step
                is_behind = isinstance(step, Commit)
                step = inner.send(rows)
                if is_behind and faults:
                    faults.pop()()
        except StopIteration as end:
            assert not faults, "all of it was one batch"
            return end.value

    return Op(op.name, op.writes, steps, op.repeat)


def lose_a_race() -> None:
    raise psycopg.errors.SerializationFailure("injected")


@pytest.mark.parametrize("colour", ["blocking", "async"])
@pytest.mark.parametrize(
    "is_cut",
    [
        pytest.param(True, marks=pytest.mark.direct("ends the process behind a connection")),
        False,
    ],
    ids=["connection", "race"],
)
def test_what_stands_is_counted_when_the_rest_is_begun_anew(
    postgres_url, monkeypatch, is_cut, colour
):
    """Work in batches that loses its connection, or a race, goes on behind the last batch."""
    monkeypatch.setattr(config, "MAINTENANCE_BATCH_ROWS", 3)
    monkeypatch.setattr(config, "SCHEDULE_BATCH_ROWS", 3)
    clock = ManualClock()
    store = open_store(postgres_url, clock=clock)
    fault = partial(end_other_connections, postgres_url) if is_cut else lose_a_race

    async def arun(op: Op[Any]) -> Any:
        try:
            return await store.arun(op)
        finally:
            await store.aclose()

    def run(op: Op[Any]) -> Any:
        broken = broken_after_a_batch(op, fault)
        return store.run(broken) if colour == "blocking" else asyncio.run(arun(broken))

    def leases() -> list[Lease]:
        return store.claim(worker="w", queues=["default"], limit=10, lease=30)

    store.enqueue([new_job(kind="k", payload="{}", key=f"{n}", max_attempts=9) for n in range(8)])
    leases()
    clock.advance(60)
    assert run(recover.recover()) == 8
    leases()
    assert run(recover.release_unknown("w", known=())) == 8
    for lease in leases():
        store.fail(lease, "boom", permanent=True)
    taken = [store.enqueue([new_job(kind="k", payload="{}", key=f"{n}")])[0].key for n in (0, 7)]
    retried = run(bulk.retry_dead(JobFilter()))
    blocked = [store.get(id).key for id in retried.skipped]
    assert (retried.retried, blocked) == (6, taken)
    for lease in leases():
        store.succeed([lease])
    clock.advance(2 * config.KEEP_SECONDS_DEFAULT)
    assert run(manage.prune(batch_rows=3)) == 8
    for number in range(8):
        job = new_job(kind="k", payload="{}")
        cron = {"cron": "@hourly", "timezone": "UTC", "missed": "once"}
        store.put_schedule(schedule.new_schedule(f"s{number}", job, **cron))
    clock.advance(3600)
    fired = run(schedule.fire_due())
    assert 8 == len(set(fired.job_ids)) == len(store.list(JobFilter(), state="ready").jobs)
    store.close()


@pytest.fixture
def crashed_server() -> Iterator[ThrowAwayPostgres]:
    """One to be crashed: what it has acknowledged must be on disk."""
    with ThrowAwayPostgres(durable=True) as server:
        yield server
