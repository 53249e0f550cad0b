"""A network that loses answers or falls silent: every call ends, and nothing is done twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from rowlock import config
from rowlock.chaos.proxy import FaultyProxy, Mode
from rowlock.errors import OptionInvalid, StoreUnavailable, UnsupportedStore
from rowlock.job import Job, JobState
from rowlock.lifecycle import Released, Succeeded
from rowlock.store import JobFilter, Settlement, Store, open_store
from rowlock.store.ops.recover import release_unknown
from rowlock.store.options import new_job
from rowlock.store.steps import News
from rowlock.store.url import PostgresUrl, hurried, masked

# Above what a new connection takes on a busy machine.
CALL_SECONDS = 0.8
# Far below what a call without a deadline would take, far above what a busy machine adds.
BOUND_SECONDS = 5.0
MISSING = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def proxy(postgres_url) -> Iterator[FaultyProxy]:
    with FaultyProxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
def store(proxy) -> Iterator[Store]:
    """With time enough for a call on a busy machine."""
    store = open_store(f"{proxy.url}?call_timeout=20")
    yield store
    store.close()


@pytest.fixture
def hasty(proxy) -> Iterator[Store]:
    """A store whose calls end soon."""
    store = open_store(f"{proxy.url}?call_timeout={CALL_SECONDS}")
    yield store
    store.close()


def job(**options: Any):
    return new_job(kind="task", payload="{}", **options)


CALLS: dict[str, Callable[[Store], Any]] = {
    "enqueue": lambda store: store.aenqueue([job()]),
    "claim": lambda store: store.aclaim(worker="w", queues=["default"]),
    "recover": lambda store: store.arecover(),
    "get": lambda store: store.aget(MISSING),
    "list": lambda store: store.alist(JobFilter()),
    "stats": lambda store: store.astats(),
    "release_worker": lambda store: store.arelease_worker("w"),
    "prune": lambda store: store.aprune(),
    "announce": lambda store: store.aannounce(worker="w", queues=[], kinds=[], host="h", pid=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_silent_server_ends_every_async_call(hasty, proxy, name):
    """Within the call's time it is `StoreUnavailable`; afterwards the store works again."""

    async def scenario() -> float:
        await hasty.astats()
        proxy.mode = Mode.BLACKHOLE
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer within"):
            await CALLS[name](hasty)
        took = time.monotonic() - start
        proxy.mode = Mode.PASS
        await CALLS[name](hasty)
        await hasty.aclose()
        return took

    assert asyncio.run(scenario()) < BOUND_SECONDS


BLOCKING: dict[str, Callable[[Store], Any]] = {
    "enqueue": lambda store: store.enqueue([job()]),
    "claim": lambda store: store.claim(worker="w", queues=["default"]),
    "get": lambda store: store.get(MISSING),
    "stats": lambda store: store.stats(),
    "release_worker": lambda store: store.release_worker("w"),
}


@pytest.mark.parametrize("name", BLOCKING)
def test_a_silent_server_ends_every_blocking_call(hasty, proxy, name):
    """As for coroutines."""
    hasty.stats()
    proxy.mode = Mode.BLACKHOLE
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer within"):
        BLOCKING[name](hasty)
    took = time.monotonic() - start
    proxy.mode = Mode.PASS
    BLOCKING[name](hasty)

    assert took < BOUND_SECONDS


def test_a_silent_server_ends_connecting(hasty, proxy):
    """Also who has no connection yet does not wait for ever, in either colour."""
    proxy.mode = Mode.BLACKHOLE
    # By our own deadline: libpq takes two seconds at least.
    told = rf"can't be reached: no answer within {CALL_SECONDS} s"

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=told):
            await hasty.astats()

    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match=told):
        hasty.stats()
    asyncio.run(scenario())

    assert time.monotonic() - start < 2 * BOUND_SECONDS


def test_a_silent_host_leaves_time_for_the_next(proxy, postgres_url):
    """Several hosts share the time of a call: the second one is reached, in either colour."""
    silent, port = urlsplit(proxy.url), urlsplit(postgres_url).port
    host, *_ = silent.netloc.rpartition("@")
    hosts = f"{host and host + '@'}127.0.0.1:{silent.port},127.0.0.1:{port}"
    url = urlunsplit(silent._replace(netloc=hosts))
    proxy.mode = Mode.BLACKHOLE
    store = open_store(f"{url}?call_timeout={2 * CALL_SECONDS}")

    async def scenario() -> None:
        assert await store.astats() == []
        await store.aclose()

    assert store.stats() == []
    asyncio.run(scenario())


def test_an_enqueue_whose_answer_is_lost_makes_one_job(store, proxy):
    """A hundred times the server has done it and nobody was told: the engine makes sure itself."""
    made: list[Job] = []
    for _ in range(100):
        proxy.swallow_answer(b"INSERT INTO rowlock.job")
        made += store.enqueue([job()])
    found = store.list(JobFilter(), limit=config.LIST_LIMIT_MAX).jobs

    assert proxy.swallowed == 100
    assert sorted(each.id for each in made) == sorted(each.id for each in found)


def test_a_large_enqueue_whose_commit_is_lost_makes_each_job_once(store, proxy, monkeypatch):
    """What takes more than one statement is a transaction; so is its repeat."""
    monkeypatch.setattr(config, "BATCH_ROWS", 2)
    proxy.swallow_answer(b"COMMIT")
    made = store.enqueue([job() for _ in range(5)])

    assert proxy.swallowed == 1
    assert {each.id for each in made} == {each.id for each in store.list(JobFilter()).jobs}


def test_a_keyed_enqueue_whose_answer_is_lost_is_its_own(store, proxy):
    """It does not take its own first try for somebody else's job."""
    proxy.swallow_answer(b"COMMIT")
    (made,) = store.enqueue([job(key="k")])

    assert (proxy.swallowed, [each.id for each in store.list(JobFilter()).jobs]) == (1, [made.id])


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_settle_whose_answer_is_lost_is_content(store, proxy, colour):
    """The repeat finds that its own first try was done; in one statement, and in a transaction."""
    store.enqueue([job() for _ in range(3)])
    leases = store.claim(worker="w", queues=["default"], limit=3)
    batches = [
        (b"DELETE FROM rowlock.job", [Settlement(leases[0], Succeeded())]),
        (b"COMMIT", [Settlement(leases[1], Succeeded()), Settlement(leases[2], Released())]),
    ]

    async def settle(batch: list[Settlement]) -> None:
        await store.asettle(batch)
        await store.aclose()

    for bait, batch in batches:
        proxy.swallow_answer(bait)
        if colour == "blocking":
            store.settle(batch)
        else:
            asyncio.run(settle(batch))
    states = sorted(store.get(lease.id).state for lease in leases)

    assert proxy.swallowed == 2
    assert states == [JobState.READY, JobState.SUCCEEDED, JobState.SUCCEEDED]


def test_a_claim_whose_answer_is_lost_is_given_back(store, proxy):
    """The worker is told that it is unknown, and can give back what it does not know."""
    known, unknown = store.enqueue([job(), job()])
    (lease,) = store.claim(worker="w", queues=["default"])
    proxy.swallow_answer(b"UPDATE rowlock.job")
    with pytest.raises(StoreUnavailable):
        store.claim(worker="w", queues=["default"])
    assert store.get(unknown.id).state == JobState.RUNNING
    count = store.run(release_unknown("w", known={(lease.id, lease.token)}))
    back = store.get(unknown.id)

    assert (proxy.swallowed, count) == (1, 1)
    assert (back.state, back.attempt) == (JobState.READY, 0)
    assert store.get(known.id).state == JobState.RUNNING


@pytest.mark.direct("listens")
def test_a_listener_hears_that_it_hears(store):
    """It says that it listens once its own ring came back, then tells what others ring."""

    async def scenario() -> list[News | None]:
        heard: list[News | None] = []
        async with asyncio.timeout(20):
            async for note in store.engine.notifications():
                heard.append(note)
                if len(heard) == 2:
                    break
                await store.aenqueue([job(queue="mail")])
        await store.aclose()
        return heard

    assert asyncio.run(scenario()) == [None, News("mail", 0, "task")]


def test_a_bell_behind_a_pooler_does_not_count(store, monkeypatch):
    """Where LISTEN works and nothing is heard, as in transaction mode, it is said to be silent."""
    monkeypatch.setattr(config, "BELL_ANSWER_SECONDS", 0.2)

    async def ring_elsewhere(op: object) -> None: ...

    async def scenario() -> list[News | None]:
        monkeypatch.setattr(store.engine, "arun", ring_elsewhere)
        return [note async for note in store.engine.notifications()]

    with pytest.raises(StoreUnavailable, match="silent"):
        asyncio.run(scenario())


@pytest.mark.parametrize("trouble", ["cut", "blackhole"])
def test_a_listener_notices_that_its_connection_is_gone(hasty, proxy, monkeypatch, trouble):
    """A connection that is cut, or half open, ends it: whoever listens can begin anew."""
    monkeypatch.setattr(config, "BELL_PING_SECONDS", 0.1)
    monkeypatch.setattr(config, "BELL_ANSWER_SECONDS", 0.2)

    async def scenario() -> None:
        try:
            async for note in hasty.engine.notifications():
                assert note is None
                if trouble == "cut":
                    proxy.cut()
                else:
                    proxy.mode = Mode.BLACKHOLE
        finally:
            await hasty.aclose()

    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        asyncio.run(scenario())

    assert time.monotonic() - start < BOUND_SECONDS


def test_several_hosts(postgres_url):
    """The first that takes writes is used; the others may be away."""
    parts = PostgresUrl.parse(postgres_url).conninfo.partition("@")
    url = f"{parts[0]}@127.0.0.1:1,{parts[2]}?target_session_attrs=read-write"
    store = open_store(url)

    assert store.stats() == []
    assert "127.0.0.1:1,127.0.0.1:" in masked(url)
    store.close()


@pytest.mark.parametrize(
    ("url", "conninfo"),
    [
        ("postgresql:///db?host=%2Frun%2Fpg", "postgresql:///db?host=%2Frun%2Fpg"),
        ("postgresql://a:1,b:2/db?call_timeout=2", "postgresql://a:1,b:2/db"),
        ("postgresql://[::1]:1,[::2]:2/db", "postgresql://[::1]:1,[::2]:2/db"),
    ],
)
def test_urls_reach_libpq_as_they_are(url, conninfo):
    """All but our own options: an empty host is a socket, several hosts are several."""
    assert PostgresUrl.parse(url).conninfo == conninfo
    assert masked(url) == url


def test_a_url_that_is_none_is_refused():
    """By an error of ours, when it is read."""
    with pytest.raises(UnsupportedStore, match="can't be read"):
        open_store("postgresql://[::1/db")


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", ""])
def test_a_call_timeout_is_a_number_of_seconds(text):
    """Anything else is refused when the URL is read."""
    with pytest.raises(OptionInvalid, match="call_timeout"):
        PostgresUrl.parse(f"postgresql://h/db?call_timeout={text}")


@pytest.mark.parametrize(
    ("url", "seconds", "call"),
    [
        ("postgresql://h/db", 10.0, 10.0),
        ("postgresql://h/db", 100.0, config.POSTGRES_CALL_SECONDS),
        ("postgresql://h/db?call_timeout=3&connect_timeout=4", 10.0, 3.0),
        ("postgresql://h/db", 0.5, 0.5),
    ],
)
def test_a_supervisor_is_in_a_hurry(url, seconds, call):
    """Its calls take a third of a lease at most, whatever the URL allows."""
    found = PostgresUrl.parse(hurried(url, seconds))

    assert (call, PostgresUrl.parse(url).conninfo) == (found.call_seconds, found.conninfo)
    assert hurried("sqlite:///jobs.db", seconds) == "sqlite:///jobs.db"
