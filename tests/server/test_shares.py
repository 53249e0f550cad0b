"""What one caller holds, others can't miss: requests, streams, waiting calls, expensive reads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import psycopg
import pytest

from rowlock import config
from rowlock.server.gate import Access, Gate, Openness
from rowlock.server.problems import Refusal
from rowlock.server.routes import ROUTES
from rowlock.server.service import Roster
from rowlock.server.shares import Shares, Turns
from rowlock.store import Store
from rowlock.store.ops.tokens import new_token
from rowlock.store.steps import Statement, Steps, reading
from tests.support.server import RawClient, Running, make_app
from tests.worker.waiting import wait_until


def taken(shares: Shares, holder: str, *, most: int) -> int:
    """How many places this holder gets, one after another."""
    count = 0
    while shares.take(holder, most=most):
        count += 1
    return count


def test_one_holder_gets_half():
    """And each newcomer half of the rest."""
    shares = Shares()

    assert [taken(shares, name, most=100) for name in "abc"] == [50, 25, 13]
    assert len(shares) == 88


def test_a_place_that_is_left_is_free():
    """For anybody; a holder of nothing is forgotten."""
    shares = Shares()
    with shares.holding("a", most=2) as first, shares.holding("a", most=2) as second:
        held = len(shares)

    assert (first, second, held, len(shares)) == (True, False, 1, 0)
    assert shares._held == {}


def new_turns() -> Turns:
    """Turns with the bounds of expensive reads."""
    return Turns(lambda: config.HTTP_READS_MAX, waiting_max=lambda: config.HTTP_READS_WAITING_MAX)


def in_turns(*asked: str, places: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """The holders in the order in which they were called, and how many ran at most at once."""
    monkeypatch.setattr(config, "HTTP_READS_MAX", places)
    turns, order, running, peak = new_turns(), list[str](), 0, 0

    async def read(holder: str) -> None:
        nonlocal running, peak
        async with turns.turn(holder):
            order.append(holder)
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0)
            running -= 1

    async def read_all() -> None:
        await asyncio.gather(*map(read, asked))

    asyncio.run(read_all())
    assert (turns.waiting, len(turns._running)) == (0, 0)
    return order, peak


def test_holders_take_turns(monkeypatch):
    """A long line of one is no line for the other."""
    order, peak = in_turns(*"aaaaaaaa", *"bb", places=2, monkeypatch=monkeypatch)

    assert sorted(order) == sorted("aaaaaaaabb")
    assert max(place for place, holder in enumerate(order) if holder == "b") <= 4
    assert peak == 2


def test_one_holder_uses_half_of_the_turns(monkeypatch):
    """However many it asks for."""
    order, peak = in_turns(*"aaaaaaaa", places=4, monkeypatch=monkeypatch)

    assert (len(order), peak) == (8, 2)


def test_a_line_is_bounded(monkeypatch):
    """Beyond it, a read is refused with the time to come again."""
    monkeypatch.setattr(config, "HTTP_READS_MAX", 2)
    monkeypatch.setattr(config, "HTTP_READS_WAITING_MAX", 4)
    turns, refused = new_turns(), list[Refusal]()

    async def read(end: asyncio.Event) -> None:
        try:
            async with turns.turn("a"):
                await end.wait()
        except Refusal as error:
            refused.append(error)

    async def read_all() -> None:
        end = asyncio.Event()
        reads = [asyncio.ensure_future(read(end)) for _ in range(5)]
        await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        end.set()
        await asyncio.gather(*reads)

    asyncio.run(read_all())

    assert [(each.code, each.headers["retry-after"]) for each in refused] == [
        ("too_many_requests", "2"),
        ("too_many_requests", "2"),
    ]
    assert (turns.waiting, len(turns._running)) == (0, 0)


@pytest.mark.parametrize("is_called", [False, True])
def test_whoever_gives_up_leaves_the_line(monkeypatch, is_called):
    """In line, or just when its turn has come."""
    monkeypatch.setattr(config, "HTTP_READS_MAX", 2)
    turns = new_turns()

    async def read() -> None:
        async with turns.turn("a"):
            pass

    async def give_up() -> None:
        async with turns.turn("a"):
            waiting = asyncio.ensure_future(read())
            await asyncio.sleep(0)
            if not is_called:
                waiting.cancel()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(60):
            await read()

    asyncio.run(give_up())

    assert (turns.waiting, len(turns._running), turns._lines) == (0, 0, {})


BODY = "content-type: application/json\r\ncontent-length: 10\r\n"


def test_bodies_of_refused_requests_take_no_place(api: Running, monkeypatch):
    """Whoever has no token may send bodies that never end, and others are served."""
    monkeypatch.setattr(config, "HTTP_REQUESTS_MAX", 4)
    monkeypatch.setattr(config, "HTTP_DRAIN_SECONDS", 60)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(RawClient(api)).send(f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{BODY}")
        # Read after those of the others.
        assert api.client().get("/healthz").status_code == 200
        answer = api().post("/v1/jobs", json={"kind": "x"})

    assert answer.status_code == 201


def test_few_bodies_of_refused_requests_are_read(api: Running, monkeypatch):
    """The connections of the others are closed with the answer."""
    monkeypatch.setattr(config, "HTTP_DRAINS_MAX", 1)
    monkeypatch.setattr(config, "HTTP_DRAIN_SECONDS", 60)
    wait_until(lambda: api.server._api._drains == 0)
    request = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\n{BODY}"
    with RawClient(api) as first, RawClient(api) as second:
        first.send(request)
        wait_until(lambda: api.server._api._drains == 1)
        second.send(request)
        answer = second.head()

    assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" in answer


def test_requests_of_one_token_leave_room(api: Running, monkeypatch):
    """It may hold half of the places."""
    monkeypatch.setattr(config, "HTTP_REQUESTS_MAX", 4)
    wait_until(lambda: api.server.requests == 0)
    token = api.tokens["enqueue", None]
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{BODY}"
    with RawClient(api) as one, RawClient(api) as two:
        one.send(head)
        two.send(head)
        wait_until(lambda: api.server.requests == 2)
        own = api("enqueue").post("/v1/jobs", json={"kind": "x"})
        other = api("enqueue", tenant="acme").post("/v1/jobs", json={"kind": "x"})

    assert (own.status_code, own.json()["code"], own.headers["retry-after"]) == (
        503,
        "overloaded",
        "2",
    )
    assert other.status_code == 201


@pytest.mark.parametrize("is_watching", [False, True])
def test_a_burst_of_streams_is_bounded(api: Running, monkeypatch, is_watching):
    """Each is counted before the database is asked; another tenant still finds a place."""
    service = api.server._api.service
    wait_until(lambda: not service.streams)
    monkeypatch.setattr(config, "HTTP_LISTENERS_MAX", 4)
    job = api.app.enqueue("ping", tenant="acme")
    path = f"/v1/events?job={job.id}" if is_watching else "/v1/events"
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(api)) for _ in range(12)]
        for client in clients:
            client.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n", token=api.tokens["read", None])
        statuses = [client.status() for client in clients]
        last = stack.enter_context(RawClient(api))
        last.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n", token=api.tokens["read", "acme"])
        other = last.status()

    assert sorted(statuses) == [200] * 2 + [503] * 10
    assert other == 200


def test_the_place_of_a_refused_stream_is_free_again(api: Running):
    """Also if there is no such job, or the client only wants the head."""
    service = api.server._api.service
    wait_until(lambda: not service.streams)
    api("read").get("/v1/events", params={"job": api.app.enqueue("x").id, "seconds": 0})
    api("read").get("/v1/events", params={"job": "01890000-0000-7000-8000-000000000000"})
    api("read").head("/v1/events")

    wait_until(lambda: not service.streams)


def poll(client: httpx.Client, kind: str, wait: float) -> list[str]:
    asked = {"worker": f"w-{kind}", "kinds": [kind], "wait": wait}
    return [held["id"] for held in client.post("/v1/leases", json=asked).json()["leases"]]


def test_waiting_calls_of_one_token_leave_room(api: Running, monkeypatch):
    """It may hold half of the places; a further call is held for a moment, and another's waits."""
    service = api.server._api.service
    wait_until(lambda: not service.waiters)
    monkeypatch.setattr(config, "HTTP_WAITERS_MAX", 4)
    with ThreadPoolExecutor(3) as threads:
        own = [threads.submit(poll, api("work"), "own", 50) for _ in range(2)]
        wait_until(lambda: len(service.waiters) == 2)
        began = time.monotonic()
        crowded = poll(api("work"), "own", 0.5)
        took = time.monotonic() - began
        other = threads.submit(poll, api("work", tenant="acme"), "other", 50)
        wait_until(lambda: len(service.waiters) == 3)
        job = api.app.enqueue("other", tenant="acme")
        found = other.result()
        jobs = api.app.enqueue_many([{"kind": "own"}] * 2)
        leased = [id for each in own for id in each.result()]

    assert (crowded, found) == ([], [job.id])
    assert took >= 0.5
    assert set(leased) == {each.id for each in jobs}


@contextmanager
def reads_blocked(api: Running, url: str) -> Iterator[None]:
    """No expensive read of the history comes to its end in the block."""
    if not url.startswith("sqlite"):
        with psycopg.connect(url) as connection:
            connection.execute("LOCK TABLE rowlock.history IN ACCESS EXCLUSIVE MODE")
            yield
        return
    begun, go = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        begun.set()
        go.wait(300)
        yield Statement("clock")

    service = api.server._api.service
    blocking = threading.Thread(target=asyncio.run, args=[service.reads.arun(reading("x", steps))])
    blocking.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        go.set()
        blocking.join()


def test_expensive_reads_of_one_tenant(api: Running, module_url: str, monkeypatch):
    """They hold up neither enqueues nor leases, and wait in line, which is bounded."""
    monkeypatch.setattr(config, "HTTP_READS_WAITING_MAX", 24)
    service = api.server._api.service
    reader, path = api("read"), "/v1/history"
    with ThreadPoolExecutor(20) as threads:
        with reads_blocked(api, module_url):
            reads = [threads.submit(reader.get, path) for _ in range(20)]
            wait_until(lambda: service.turns.waiting == 12)
            wait_until(lambda: sum(each.done() for each in reads) == 6)
            enqueued = api("enqueue", tenant="zoo").post("/v1/jobs", json={"kind": "ping"})
            leased = poll(api("work", tenant="zoo"), "ping", 50)
            job = api("read", tenant="zoo").get(f"/v1/jobs/{enqueued.json()['id']}")
        answers = [each.result() for each in reads]

    assert (enqueued.status_code, job.status_code) == (201, 200)
    assert leased == [enqueued.json()["id"]]
    assert sorted(each.status_code for each in answers) == [200] * 14 + [429] * 6
    refused = [each for each in answers if each.status_code == 429]
    assert {(each.json()["code"], each.headers["retry-after"]) for each in refused} == {
        ("too_many_requests", "2")
    }


def test_lists_and_sums_are_expensive():
    """What reads many rows is declared so; what workers and producers call is not."""
    expensive = {route.operation for route in ROUTES if route.is_expensive}
    resources = {"jobs", "leases", "tokens", "events"}
    others = {route.operation for route in ROUTES if route.resource in resources} - expensive

    assert {"listJobs", "countJobs", "getStats", "getHistory", "listDeadGroups"} <= expensive
    assert {"createBulk", "explainJob", "listKinds", "listQueues"} <= expensive
    assert {"createJob", "createLeases", "extendLeases", "settleLeases", "getJob"} <= others


def test_calls_of_one_moment_announce_a_worker_once(any_url):
    """However many come before the first is written."""
    with make_app(any_url) as app:
        app.migrate()
        roster, announced = Roster(app.store), list[str]()

        class Noting(Store):
            async def arun(self, op):
                announced.append(op.name)
                return await super().arun(op)

        roster._store = Noting(app.store.engine)

        async def note_all() -> None:
            note = {"owner": (None, None), "queues": ["q"], "kinds": ["k"], "host": "h"}
            await asyncio.gather(*(roster.note("w", **note) for _ in range(10)))
            await app.store.engine.aclose_loop()

        asyncio.run(note_all())

    assert announced == ["announce"]


def test_a_burst_of_one_token_is_looked_up_once(any_url):
    """However many requests come with it before it is known."""
    new = new_token(name="one", scopes=["read"])
    with make_app(any_url) as app:
        app.migrate()
        app.store.run(new.add())
        used, read = list[str](), list[str]()
        gate = Gate(app.store, Access(Openness.CLOSED), used=used.append)

        class Noting(Store):
            async def arun(self, op):
                read.append(op.name)
                return await super().arun(op)

        gate._store = Noting(app.store.engine)
        headers = {"authorization": f"Bearer {new.secret.text}"}
        asked = {"method": "GET", "client": ("x", 1), "headers": []}

        async def admit_all() -> None:
            await asyncio.gather(
                *(gate.admit(asked, headers, scopes=frozenset()) for _ in range(10))
            )
            await app.store.engine.aclose_loop()

        asyncio.run(admit_all())

    assert (read, used) == (["find_token"], [new.secret.id])
