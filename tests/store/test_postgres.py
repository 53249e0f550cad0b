"""What only PostgreSQL can do to us: lost connections, lost races, poolers' rules, the bell."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import threading
import time
from urllib.parse import urlsplit

import psycopg
import pytest

from rowlock import config
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.job import JobState
from rowlock.store import JobFilter, Store, open_store
from rowlock.store.blocks import Blocks
from rowlock.store.ops.enqueue import enqueue as enqueue_op
from rowlock.store.options import new_job
from rowlock.store.postgres.bell import read_news
from rowlock.store.postgres.session import PREPARED
from rowlock.store.statements import Dialect, ParameterStyle, compiled
from rowlock.store.steps import Begin, Statement, writing
from rowlock.store.url import PostgresUrl, masked
from tests.store.jobs import enqueue
from tests.support.postgres import end_other_connections


@pytest.fixture
def store(postgres_url):
    store = open_store(postgres_url)
    yield store
    store.close()


@pytest.mark.direct("ends the process behind a connection")
def test_a_dead_connection_is_replaced(store, postgres_url):
    """After the server cut all connections, every verb goes on as if nothing had been."""
    job = enqueue(store)
    for action in (
        lambda: store.get(job.id),
        lambda: enqueue(store),
        lambda: store.heartbeat(store.claim(worker="w", queues=["default"])),
        lambda: store.claim(worker="w", queues=["default"]),
        lambda: store.release_worker("w"),
        store.stats,
    ):
        assert end_other_connections(postgres_url) >= 1

        action()


@pytest.mark.direct("ends the process behind a connection")
def test_a_dead_async_connection_is_replaced(store, postgres_url):
    """The same for coroutines."""

    async def scenario() -> int:
        await store.aenqueue([new_job(kind="task", payload="{}")])
        assert end_other_connections(postgres_url) >= 1
        await store.aenqueue([new_job(kind="task", payload="{}")])
        assert end_other_connections(postgres_url) >= 1
        leases = await store.aclaim(worker="w", queues=["default"], limit=5)
        await store.aclose()
        return len(leases)

    assert asyncio.run(scenario()) == 2


def test_cancelled_call_leaves_the_pool_sound(store):
    """A coroutine that is cancelled in the middle of a call loses only that call."""

    async def scenario() -> None:
        for _ in range(2 * config.POSTGRES_POOL_MAX):
            call = asyncio.create_task(store.astats())
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await store.aenqueue([new_job(kind="task", payload="{}")])
        await store.aclose()

    asyncio.run(scenario())

    assert len(store.list(JobFilter()).jobs) == 1


@pytest.mark.owner("changes the database")
def test_every_verb_works_under_serializable(store, postgres_url):
    """A database that is serializable by default changes nothing but the number of tries."""
    name = PostgresUrl.parse(postgres_url).conninfo.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"
        )
    end_other_connections(postgres_url)
    jobs = store.enqueue([new_job(kind="task", payload="{}") for _ in range(200)])
    got: list[str] = []

    def work(number: int) -> None:
        while leases := store.claim(worker=f"w{number}", queues=["default"], limit=10):
            store.succeed(leases)
            got.extend(lease.id for lease in leases)

    crew = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    # A claim that lost its race as often as it may be tried ends early; nothing is lost by that.
    work(9)

    assert sorted(job.id for job in jobs) == sorted(got)


def test_the_pool_is_bounded(postgres_url, monkeypatch):
    """More callers than connections wait their turn; who waits too long is told."""
    monkeypatch.setattr(config, "POSTGRES_POOL_MAX", 1)
    monkeypatch.setattr(config, "POSTGRES_POOL_WAIT_SECONDS", 0.05)
    store = open_store(postgres_url)
    connection = store.engine._pool.take()

    with pytest.raises(StoreUnavailable, match="busy"):
        store.stats()

    store.engine._pool.give(connection, is_sound=True)
    assert store.stats() == []
    store.close()


def test_fork_makes_connections_of_its_own(store):
    """A child of a fork uses none of its parent's connections, and both go on."""
    enqueue(store)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_enqueue_in_child, args=[store, os.getpid()])
    child.start()
    child.join(30)
    enqueue(store)

    assert child.exitcode == 0
    assert len(store.list(JobFilter()).jobs) == 3


def _enqueue_in_child(store: Store, parent: int) -> None:
    assert os.getpid() != parent
    enqueue(store)
    store.close()


def heard(url: str, action, *, seconds: float = 5.0) -> list[str]:
    """What a listener hears while something is done."""
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute("LISTEN rowlock")
        action()
        listener.execute("NOTIFY rowlock, 'end of test'")
        found: list[str] = []
        for note in listener.notifies(timeout=seconds):
            if note.payload == "end of test":
                return found
            found.append(read_news(note.payload).queue)
    raise AssertionError("the listener heard no end")


@pytest.mark.direct("counts the server's connections")
def test_loops_that_were_closed_leave_no_connections(store, postgres_url):
    """Even of one whose calls had to wait for each other: the next, or `close`, ends them."""

    async def crowd() -> None:
        jobs = [new_job(kind="task", payload="{}") for _ in range(3 * config.POSTGRES_POOL_MAX)]
        await asyncio.gather(*(store.aenqueue([job]) for job in jobs))

    for _ in range(4):
        asyncio.run(crowd())
    wait_for_connections(postgres_url, at_most=config.POSTGRES_POOL_MAX + 2)
    store.close()
    wait_for_connections(postgres_url, at_most=0)


def wait_for_connections(url: str, *, at_most: int) -> None:
    """Until a database has no more than so many, but for the one that looks."""
    count = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + 60
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(count).fetchone()[0] > at_most:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.direct("listens")
def test_enqueue_rings_the_bell(store, postgres_url):
    """A new job rings for its queue, once it is committed; a duplicate rings nothing."""

    def act() -> None:
        enqueue(store, queue="mail", key="k")
        store.engine._bell.close()

    assert heard(postgres_url, act) == ["mail"]
    assert heard(postgres_url, act) == []


@pytest.mark.direct("listens")
def test_the_bell_is_coalesced(store, postgres_url, monkeypatch):
    """A burst of enqueues rings far less often than it enqueues, and the last one is heard."""
    # A slow machine enqueues less than one job in the usual time.
    monkeypatch.setattr(config, "BELL_SECONDS", 0.2)

    def act() -> None:
        for _ in range(300):
            enqueue(store, queue="mail")
        store.engine._bell.close()

    rings = heard(postgres_url, act)

    assert set(rings) == {"mail"}
    assert len(rings) < 150


@pytest.mark.direct("listens")
@pytest.mark.parametrize(
    ("name", "rung"), [("a" * 200, "a" * 200), ("\N{ROWBOAT}" * 200, "")], ids=["ascii", "emoji"]
)
def test_long_queue_names_ring(store, postgres_url, name, rung):
    """A name too long for a small notification rings for any queue."""

    def act() -> None:
        enqueue(store, queue=name)
        store.engine._bell.close()

    assert heard(postgres_url, act) == [rung]


def lose_ring(store: Store) -> None:
    """The server forgets the prepared notification of the store's connection, and nothing else."""
    store.engine._bell.close()
    connection = store.engine._pool.take()
    known = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%pg_notify%'"
    (name,) = connection.execute(known).fetchone()
    connection.execute(f"DEALLOCATE {name}".encode())
    store.engine._pool.give(connection, is_sound=True)
    store.engine._bell._rung_at.clear()


@pytest.mark.direct("prepares on one process of the server")
def test_a_bell_that_cannot_ring_harms_nothing(store, postgres_url, caplog):
    """A failing NOTIFY is told in the log; the job is there all the same."""
    enqueue(store)
    lose_ring(store)

    def fail(queues: list[str]) -> None:
        raise StoreUnavailable("the notification queue is full")

    store.engine._bell._notify = fail
    job = enqueue(store)
    store.engine._bell.close()

    assert store.get(job.id).state == JobState.READY
    assert "could not notify workers" in caplog.text


@pytest.mark.direct("prepares on one process of the server")
def test_a_notification_that_failed_beside_its_enqueue_is_sent_again(store, postgres_url):
    """The bell's thread sends it once more."""
    enqueue(store)
    lose_ring(store)

    def act() -> None:
        enqueue(store, queue="mail")
        store.engine._bell.close()

    assert heard(postgres_url, act) == ["mail"]


@pytest.mark.direct("listens")
def test_one_enqueue_notifies_in_its_own_round_trip(store, postgres_url):
    """No thread is started for it, and no other connection."""

    def act() -> None:
        enqueue(store, queue="mail")

    rung = heard(postgres_url, act)

    assert (rung, store.engine._bell._thread) == (["mail"], None)


@pytest.mark.direct("listens")
@pytest.mark.parametrize("suffix", ["?prepare=always", "?prepare=never"])
def test_a_thread_notifies_where_a_pooler_may_be_in_between(postgres_url, suffix):
    """Two calls are sent at once only on connections that lead to the server itself."""
    store = open_store(postgres_url + suffix)
    has_thread: list[bool] = []

    def act() -> None:
        enqueue(store, queue="mail")
        has_thread.append(store.engine._bell._thread is not None)
        store.close()

    assert (heard(postgres_url, act), has_thread) == (["mail"], [True])


@pytest.mark.direct("prepares on one process of the server")
def test_a_connection_that_is_lost_beside_its_notification(store, postgres_url):
    """Whether the job was committed or not: it is there once, and rung for."""
    enqueue(store)
    store.engine._bell.close()
    store.engine._bell._rung_at.clear()
    connection = store.engine._pool.take()
    pid = connection.info.backend_pid
    store.engine._pool.give(connection, is_sound=True)
    # The server ends the session at the commit of the insert.
    trap = (
        "CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF pg_backend_pid() = {pid} THEN PERFORM pg_terminate_backend({pid}); END IF;"
        " RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER trap AFTER INSERT ON rowlock.job DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION trap()"
    )
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(trap)

    def act() -> None:
        enqueue(store, queue="mail")
        store.engine._bell.close()

    rung = heard(postgres_url, act)
    with psycopg.connect(postgres_url) as other:
        (found,) = other.execute("SELECT count(*) FROM rowlock.job").fetchone()

    assert (rung, found) == (["mail"], 2)


@pytest.mark.owner("changes the database")
@pytest.mark.direct("sets something for a session")
def test_the_default_of_a_database_does_not_decide(postgres_url: str):
    """Its transactions may be serializable; a claim that stands alone is not."""
    name = urlsplit(postgres_url).path.removeprefix("/")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        strict = "SET default_transaction_isolation = 'serializable'"
        connection.execute(f"ALTER DATABASE {name} {strict}".encode())
    store = open_store(postgres_url)
    connection = store.engine._pool.take()
    level = connection.execute("SHOW transaction_isolation").fetchone()[0]
    store.engine._pool.give(connection, is_sound=True)
    store.close()

    assert level == "read committed"


def session_of(store: Store) -> tuple[int, str]:
    """Of the store's connection: how many statements are prepared, and whether it scans tables."""
    connection = store.engine._pool.take()
    made = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0]
    scans = connection.execute("SHOW enable_seqscan").fetchone()[0]
    store.engine._pool.give(connection, is_sound=True)
    return made, scans


@pytest.mark.direct("prepares on one process of the server")
@pytest.mark.parametrize(
    ("suffix", "is_prepared", "scans"),
    [
        ("", True, "off"),
        ("?prepare=always", True, "on"),
        ("?prepare=never", False, "on"),
    ],
)
def test_prepared_statements(postgres_url, suffix, is_prepared, scans):
    """On a connection of our own statements are prepared; the URL has the last word."""
    store = open_store(postgres_url + suffix)
    for _ in range(6):
        enqueue(store)
    made, found = session_of(store)
    store.close()

    assert (made > 0, found) == (is_prepared, scans)


@pytest.mark.direct("reads a session's setting")
def test_our_statements_are_not_compiled(postgres_url):
    """A plan that must scan a table looks expensive enough to compile, which takes far longer."""
    store = open_store(postgres_url)
    enqueue(store)
    connection = store.engine._pool.take()
    (jit,) = connection.execute("SHOW jit").fetchone()
    store.engine._pool.give(connection, is_sound=True)
    store.close()

    assert jit == "off"


@pytest.mark.direct("prepares on one process of the server")
def test_a_prepared_statement_is_called_by_a_name_of_ours(postgres_url):
    """It is prepared once, at its first call, and not again by the driver."""
    store = open_store(postgres_url)
    jobs = [enqueue(store, payload=text) for text in ('{"a":"\u00e4 \\\\ \\" {}"}', "{}", "{}")]
    connection = store.engine._pool.take()
    query = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%INSERT%'"
    names = [name for (name,) in connection.execute(query)]
    store.engine._pool.give(connection, is_sound=True)
    payload = store.get(jobs[0].id).payload
    store.close()

    assert ([name.rpartition("_")[0] for name in names], payload) == (
        ["rowlock"],
        {"a": 'ä \\ " {}'},
    )


@pytest.mark.direct("reads a session's setting")
def test_a_handlers_transaction_is_planned_as_usual(postgres_url):
    """What we set for ourselves is not for the statements of others, and is there again after."""
    store = open_store(postgres_url)
    enqueue(store)
    block = Blocks(store, lease_seconds=30).block()
    inside = block.begin().execute("SHOW enable_seqscan").fetchone()[0]
    block.undo()
    _, after = session_of(store)
    store.close()

    assert (inside, after) == ("on", "off")


def test_lost_prepared_statements_are_done_without(postgres_url):
    """Somebody in between who was not recognised costs a try, no call, and it stays that way."""
    store = open_store(postgres_url)
    for _ in range(6):
        enqueue(store)
    # The bell's thread uses connections of the same pool.
    store.engine._bell.close()
    first, second = store.engine._pool.take(), store.engine._pool.take()
    query = "SELECT 1 FROM pg_prepared_statements WHERE statement LIKE '%INSERT%'"
    used, other = (first, second) if first.execute(query).fetchall() else (second, first)
    # Not by `execute`: the driver would notice.
    used.pgconn.exec_(b"DEALLOCATE ALL")
    store.engine._pool.give(other, is_sound=False)
    store.engine._pool.give(used, is_sound=True)
    job = enqueue(store)
    for _ in range(6):
        enqueue(store)
    found, (_, scans) = store.get(job.id), session_of(store)
    store.close()

    assert (found.state, scans) == (JobState.READY, "on")


@pytest.mark.direct("prepares on one process of the server")
@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_prepared_statements_outlive_a_rollback(postgres_url, colour):
    """psycopg drops every statement of a session after a rollback if it prepared one itself."""
    store = open_store(postgres_url)
    taken = enqueue(store)
    theirs = enqueue_op([new_job(kind="a", payload="{}", id=taken.id, tenant="b")], tenant="b")

    async def run_all() -> None:
        for _ in range(8):
            with pytest.raises(OptionInvalid):
                await store.arun(theirs)
            await store.aenqueue([new_job(kind="a", payload="{}", key="k")])
        await store.engine.aclose_loop()

    if colour == "async":
        asyncio.run(run_all())
    else:
        for _ in range(8):
            with pytest.raises(OptionInvalid):
                store.run(theirs)
            enqueue(store, key="k")
    # A connection that is made now shows whether the engine has given up on preparing.
    store.engine._bell.close()
    store.engine._pool.close()
    enqueue(store)
    made, _ = session_of(store)
    store.close()

    assert made > 0


@pytest.mark.direct("prepares on one process of the server")
def test_a_handler_that_drops_prepared_statements_costs_one_connection(postgres_url):
    """The engine goes on preparing: nothing stands between it and the server."""
    store = open_store(postgres_url)
    enqueue(store, key="k")
    store.engine._bell.close()
    block = Blocks(store, lease_seconds=30).block()
    block.begin().execute("DEALLOCATE ALL")
    block.undo()
    enqueue(store, key="k")
    made, scans = session_of(store)
    store.close()

    assert (made > 0, scans) == (True, "off")


INDEXES = {
    "claim": {"job_lane"},
    "claim/hinted": {"job_lane", "queue_pkey"},
    "claim_block": {"job_lane"},
    "claim_block/hinted": {"job_lane", "queue_pkey"},
    "enqueue": set(),
    "enqueue/limited": set(),
    "enqueue_one": set(),
    "enqueue_one/limited": set(),
    "find_settled": {"finished_pkey", "finished_key", "key_hold_pkey", "key_hold_key"},
    "finish_bare": {"job_pkey", "claim_pkey"},
    "finish_nodes": {"job_pkey", "edge_pkey", "job_limit_pkey", "claim_pkey"},
    "lanes": {"job_lane", "job_lease", "claim_until", "queue_pkey", "job_limit_pkey"},
    "lanes_anywhere": {"job_lane", "queue_pkey", "job_limit_pkey"},
    "look_expired": {"job_lease", "job_lane", "claim_pkey", "claim_until"},
    "ring": set(),
    "rooms": {"job_outside", "job_room", "queue_pkey"},
    "spend_key": {"limit_key_pkey"},
    "spend_limit": {"job_limit_pkey"},
    "take_room": {"job_limit_pkey", "job_room", "job_turn", "limit_key_pkey"},
    "take_room/ordered": {
        "job_limit_pkey",
        "job_order",
        "job_room",
        "job_turn",
        "limit_key_pkey",
    },
    "walk_room": {"job_limit_pkey", "job_room", "job_turn", "limit_key_pkey"},
    "walk_room/known": {"job_limit_pkey", "job_room", "job_turn", "limit_key_pkey"},
}


@pytest.mark.direct("reads a session's setting")
@pytest.mark.parametrize("name", sorted(PREPARED))
def test_plans_of_an_empty_table_use_its_indexes(postgres_url, name):
    """They are kept when it is full: no table or index is read from end to end."""
    store = open_store(postgres_url)
    connection = store.engine._pool.take()
    connection.execute("VACUUM ANALYZE", prepare=False)
    connection.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
    statement = compiled(name, Dialect.POSTGRES, "rowlock", ParameterStyle.NUMERIC)
    connection.execute(f"PREPARE asked AS {statement.parts[0]}".encode())
    nothing = ", ".join(["NULL"] * len(statement.parameters))
    rows = connection.execute(f"EXPLAIN EXECUTE asked ({nothing})".encode()).fetchall()
    connection.close()
    store.close()

    plan = "\n".join(row[0] for row in rows)
    assert None is re.search("Seq Scan|Bitmap", plan)
    assert INDEXES[name] == set(re.findall(r"Index (?:Only )?Scan using (\w+)", plan))
    # The table of queues is small, the very first lane and room are found without a condition, and
    # a sweep reads all claims.
    bounded = [line for line in plan.splitlines() if "Scan using" in line and "_pkey" not in line]
    unbounded = {"lanes_anywhere": 1, "look_expired": 1, "rooms": 2}.get(name, 0)
    assert len(bounded) - unbounded <= plan.count("Index Cond")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db?password=secret", "postgresql://me@host/db?password=***"),
        ("postgresql://host/db?sslpassword=secret", "postgresql://host/db?sslpassword=***"),
        ("postgresql://h/db?ssl%70assword=secret", "postgresql://h/db?sslpassword=***"),
        ("postgresql://h/d?oauth_client_secret=secret", "postgresql://h/d?oauth_client_secret=***"),
        ("postgresql://h/db?scram_client_key=secret", "postgresql://h/db?scram_client_key=***"),
        ("postgresql://h/db?scram_server_key=secret", "postgresql://h/db?scram_server_key=***"),
        ("postgresql://host/db?passfile=x", "postgresql://host/db?passfile=x"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://me:se%40cret@a:1,b:2/db", "postgresql://me:***@a:1,b:2/db"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_passwords_are_masked(url, shown):
    """A URL is shown without its password, wherever that stands."""
    assert masked(url) == shown
    assert "=secret" not in repr(PostgresUrl.parse(url))
    assert "secret@" not in repr(PostgresUrl.parse(url))


def test_every_secret_of_a_url_is_masked_in_other_texts():
    """A library may include any of them in an error. An empty one masks nothing."""
    url = PostgresUrl.parse(
        "postgresql://me:one@h/db?password=two&sslpassword=thr%65e&scram_client_key=&passfile=p"
    )

    assert url.mask("one, two and three of p") == "***, *** and *** of p"


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_deadlock_is_run_again(postgres_url, colour):
    """Of two that wait for each other one is undone and run again, on a connection that is fit."""
    stores = [open_store(postgres_url) for _ in range(2)]
    ids = sorted(enqueue(stores[0]).id for _ in range(2))
    gate, done = threading.Barrier(2, timeout=30), []

    def serve(store, order):
        is_first_try = True

        def steps():
            nonlocal is_first_try
            yield Begin()
            yield Statement("lock_leases", {"ids": [order[0]]})
            if is_first_try:
                is_first_try = False
                gate.wait()
            rows = yield Statement("lock_leases", {"ids": [order[1]]})
            return rows[0][0]

        async def run():
            answer = await store.arun(writing("cross", steps))
            await store.aget(order[0])
            await store.aclose()
            return answer

        op = writing("cross", steps)
        done.append(store.run(op) if colour == "blocking" else asyncio.run(run()))
        store.get(order[0])
        store.close()

    threads = [
        threading.Thread(target=serve, args=[store, order])
        for store, order in zip(stores, (ids, ids[::-1]), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert ids == sorted(done)


@pytest.mark.parametrize("table", ["job", "finished"])
def test_where_a_page_stopped_is_read_from_the_index(postgres_url, table):
    """Sorted by the text that is shown instead of by the id, it took 8 s with ten million rows."""
    statement = compiled("floor", Dialect.POSTGRES, "rowlock", ParameterStyle.PYFORMAT)
    values = {"cursor": None, "cursor_finished": 0, "scan": 10}
    asked = {name: name == table for name in ("finished", "dead")} | {"live": table == "job"}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        sql = f"EXPLAIN {statement.parts[0]}".encode()
        rows = connection.execute(sql, {**values, **asked}).fetchall()
    plan = "\n".join(row[0] for row in rows)

    assert f"Scan Backward using {table}_pkey" in plan
