"""The example shop in FastAPI, as a real server with a worker in it, on both databases."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker
from starlette.requests import Request
from starlette.responses import RedirectResponse

import rowlock
from rowlock import JobState, config
from rowlock.contrib.fastapi import (
    Dashboard,
    Queue,
    Visitor,
    lifespan,
    queue_of,
    transaction,
)
from rowlock.store.ops.tokens import new_token
from tests.contrib.processes import environment_of, serving

UVICORN = ("-m", "uvicorn", "--fd", "FD", "--log-level", "warning")


def test_the_shop(postgres_url: str, tmp_path: Path):
    """An order's job is done by the worker inside; a refused order leaves nothing.

    On PostgreSQL: the other tests here are on SQLite.
    """
    words = [*UVICORN, "examples.web.fastapi_shop:api"]
    with serving(words, cwd=tmp_path, env=environment_of(postgres_url)) as client:
        made = client.post("/orders", json={"number": 1})
        refused = client.post("/orders", json={"number": -1})
        with rowlock.App(postgres_url) as app:
            done = app.wait(made.json()["job"], timeout=60)
            jobs = app.list().jobs
        told = client.get(f"/jobs/{done.id}").json()
        orders = [client.get(f"/orders/{number}").json()["is_there"] for number in (1, -1)]
        refusals = board_answers(client)

    assert (made.status_code, refused.status_code) == (201, 402)
    assert [(job.id, job.state) for job in jobs] == [(done.id, JobState.SUCCEEDED)]
    assert told == {"state": "succeeded", "result": "order 1 is confirmed"}
    assert orders == [True, False]
    assert refusals == [403, 200, 404]


def board_answers(client: httpx.Client) -> list[int]:
    """Of the dashboard's API: to a stranger, to an operator, and to one who is lost."""
    operator = {"x-operator": "yes"}
    return [
        client.get("/queue/v1/jobs").status_code,
        client.get("/queue/v1/jobs", headers=operator).status_code,
        client.get("/queue/nowhere", headers=operator).status_code,
    ]


def test_what_ends_and_what_fails(sqlite_url: str, tmp_path: Path):
    """The transaction ends before the response is sent, so a failed commit is no success.

    And a watched dashboard does not hold the server: its stream is let go at the signal.
    """
    words = [*UVICORN, "examples.web.fastapi_shop:api"]
    operator = {"x-operator": "yes"}
    with serving(words, cwd=tmp_path, env=environment_of(sqlite_url)) as client:
        first = client.post("/orders", json={"number": 1}).status_code
        # The server ends a connection after an error of the application.
        closing = {"connection": "close"}
        second = client.post("/orders", json={"number": 1}, headers=closing).status_code
        with rowlock.App(sqlite_url) as app:
            jobs = app.list().jobs
        # Left open when the server is told to end, which must not wait for it.
        request = client.build_request("GET", "/queue/v1/events", headers=operator)
        stream = client.send(request, stream=True)

    assert (first, second) == (201, 500)
    assert len(jobs) == 1
    assert stream.status_code == 200


async def ask(api: Any, *paths: str) -> list[httpx.Response]:
    """Requests to an application in this process, within its lifespan."""
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        return [await client.get(path) for path in paths]


@pytest.mark.parametrize(
    ("guard", "status"),
    [
        (None, 401),
        (lambda request: True, 200),
        (lambda request: False, 403),
        (lambda request: None, 403),
        (lambda request: RedirectResponse("/login"), 307),
        (lambda request: answer_later(True), 200),
        (lambda request: answer_later(False), 403),
    ],
    ids=["tokens", "yes", "no", "nothing", "redirect", "yes, later", "no, later"],
)
@pytest.mark.asyncio
async def test_guards(sqlite_url: str, guard: Any, status: int):
    """Only a plain True lets in; a response is the answer; without a guard it takes a token."""
    queue = rowlock.App(sqlite_url)
    board = Dashboard(queue, guard=guard)
    api = FastAPI(lifespan=lifespan(queue, dashboard=board))
    api.mount("/queue", board)
    (answer,) = await ask(api, "/queue/v1/jobs")

    assert answer.status_code == status


async def answer_later(verdict: bool) -> bool:
    return verdict


@asynccontextmanager
async def mounted(url: str, guard: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a dashboard with that guard."""
    queue = rowlock.App(url)
    board = Dashboard(queue, guard=guard)
    api = FastAPI(lifespan=lifespan(queue, dashboard=board))
    api.mount("/queue", board)
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://test/queue") as client,
    ):
        yield client


@pytest.mark.asyncio
async def test_a_guard_names_its_visitor(sqlite_url: str):
    """The name is in the audit log, and the scopes and the tenant hold as those of a token."""
    who = Visitor(name="ada", scopes=["admin"])
    async with mounted(sqlite_url, lambda _: who) as client:
        paused = await client.post("/v1/queues/mail/pause")
        (entry,) = (await client.get("/v1/audit")).json()["entries"]
        me = (await client.get("/v1/me")).json()
        who = Visitor(name="bob", scopes=["read"], tenant="acme")
        refused = await client.post("/v1/queues/mail/pause")
        jobs = await client.get("/v1/jobs")
        workers = await client.get("/v1/workers")

    assert (paused.status_code, entry["actor"], me["name"]) == (200, "ada", "ada")
    assert (refused.status_code, jobs.status_code, workers.status_code) == (403, 200, 403)


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (True, 403),
        (Visitor(name="ada", scopes=["admin"]), 403),
        (Visitor(name="ada", scopes=["read"], can_create_tokens=True), 403),
        (Visitor(name="ada", scopes=["admin"], can_create_tokens=True), 201),
    ],
)
@pytest.mark.asyncio
async def test_a_guard_says_who_creates_tokens(sqlite_url: str, verdict: Any, status: int):
    """A token would outlast the guard's consent."""
    async with mounted(sqlite_url, lambda _: verdict) as client:
        made = await client.post("/v1/tokens", json={"name": "t", "scopes": ["read"]})
        me = (await client.get("/v1/me")).json()

    assert made.status_code == status
    assert me["can_create_tokens"] is (status == 201)


@pytest.mark.asyncio
async def test_a_cookie_is_for_the_prefix_only(sqlite_url: str):
    """Without a guard, a token becomes a session, which the rest of the site does not see."""
    new = new_token(name="ada", scopes=["read"])
    async with mounted(sqlite_url, None) as client:
        with rowlock.App(sqlite_url) as app:
            app.store.run(new.add())
        made = await client.post("/v1/session", json={"token": new.secret.text})
        me = await client.get("/v1/me")

    assert "; Path=/queue;" in made.headers["set-cookie"]
    assert (me.status_code, me.json()["name"]) == (200, "ada")


@pytest.mark.asyncio
async def test_a_stream_ends_when_the_guard_refuses(sqlite_url: str, monkeypatch):
    """It is asked again while the stream lasts."""
    monkeypatch.setattr(config, "TOKEN_KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(config, "HTTP_STREAM_BEAT_SECONDS", 0.01)
    verdicts = [True, True, True, False]

    def guard(_: Any) -> bool:
        return verdicts.pop(0)

    async with mounted(sqlite_url, guard) as client:
        answer = await client.get("/v1/events?seconds=10", timeout=60)

    assert answer.status_code == 200
    assert verdicts == []


@pytest.mark.asyncio
async def test_the_own_lifespan_is_around(sqlite_url: str):
    """Its state is kept; it begins before the queue's and ends after it."""
    told: list[str] = []
    queue = rowlock.App(sqlite_url)

    @queue.task
    async def note() -> None:
        told.append("job")

    @asynccontextmanager
    async def own(api: FastAPI) -> AsyncIterator[dict[str, Any]]:
        told.append("begin")
        yield {"pool": "a pool"}
        told.append("end")

    live = lifespan(queue, own, worker=True, queues=["default"], concurrency=2)
    async with live(FastAPI()) as state:
        job = await note.aenqueue()
        await queue.await_(job.id, timeout=30)

    assert state == {"pool": "a pool", "rowlock": queue}
    assert told == ["begin", "job", "end"]


@pytest.mark.asyncio
async def test_a_queue_without_a_lifespan(sqlite_url: str):
    """The error says what is missing."""
    queue = rowlock.App(sqlite_url)
    api, other = FastAPI(lifespan=lifespan(queue)), FastAPI()

    async def url(queue: Queue) -> str:
        return queue.url

    for each in (api, other):
        each.get("/")(url)
    (known,) = await ask(api, "/")
    with pytest.raises(rowlock.OptionInvalid, match=r"lifespan\(queue\)"):
        queue_of(Request({"type": "http", "app": other, "state": {}}))

    assert known.json() == sqlite_url
    assert (await ask(other, "/"))[0].status_code == 500


@pytest.mark.asyncio
async def test_a_blocking_session(sqlite_url: str):
    """Commits when the handler returns, and rolls back when it raises."""
    queue = rowlock.App(sqlite_url)
    engine = create_engine(sqlite_url)
    api = FastAPI(lifespan=lifespan(queue))
    db_of_request = transaction(sessionmaker(engine))

    @queue.task
    def confirm(number: int) -> None: ...

    @api.get("/orders/{number}")
    def order(number: int, db: Annotated[Session, db_of_request]) -> None:
        confirm.using(conn=db).enqueue(number=number)
        if number < 0:
            raise HTTPException(402)

    answers = await ask(api, "/orders/1", "/orders/-1")
    engine.dispose()
    with queue:
        numbers = [job.payload["number"] for job in queue.list(full=True)]

    assert [answer.status_code for answer in answers] == [200, 402]
    assert numbers == [1]
