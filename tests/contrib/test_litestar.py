"""The example shop in Litestar, as a real server with a worker in it, on both databases."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, get
from litestar.di import NamedDependency
from litestar.exceptions import NotAuthorizedException
from litestar.params import FromPath
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

import rowlock
from rowlock import JobState, config
from rowlock.contrib.litestar import RowlockPlugin, Visitor, queue_of, transaction
from tests.contrib.processes import environment_of, serving

WORDS = ("-m", "uvicorn", "--fd", "FD", "--log-level", "warning", "examples.web.litestar_shop:app")
OPERATOR = {"x-operator": "yes"}
# It would set the root logger, and leave it so for the tests that follow.
QUIET: dict[str, Any] = {"logging_config": None}


def test_the_shop(postgres_url: str, tmp_path: Path):
    """An order's job is done by the worker inside; a refused or failed order leaves nothing.

    On PostgreSQL: the other tests here are on SQLite.
    """
    with serving(WORDS, cwd=tmp_path, env=environment_of(postgres_url)) as client:
        made = client.post("/orders", json={"number": 1})
        refused = client.post("/orders", json={"number": -1})
        closing = {"connection": "close"}
        # Its commit fails: the client is told, because the response was not sent before.
        again = client.post("/orders", json={"number": 1}, headers=closing)
        with rowlock.App(postgres_url) as app:
            done = app.wait(made.json()["job"], timeout=60)
            jobs = app.list().jobs
        told = client.get(f"/jobs/{done.id}").json()
        board = [
            client.get("/queue/v1/jobs"),
            client.get("/queue/v1/jobs", headers=OPERATOR),
            client.get("/queue/", headers=OPERATOR),
            client.post("/queue/v1/jobs", json={"kind": "x"}, headers=OPERATOR),
        ]
        found = client.get(board[3].headers["location"], headers=OPERATOR)
        # Left open when the server is told to end, which must not wait for it.
        request = client.build_request("GET", "/queue/v1/events", headers=OPERATOR)
        stream = client.send(request, stream=True)

    assert [answer.status_code for answer in (made, refused, again)] == [201, 402, 500]
    assert [(job.id, job.state) for job in jobs] == [(done.id, JobState.SUCCEEDED)]
    assert told == {"state": "succeeded", "result": "order 1 is confirmed"}
    assert [answer.status_code for answer in board] == [403, 200, 200, 201]
    assert (found.status_code, stream.status_code) == (200, 200)


def test_the_commands(postgres_url: str, tmp_path: Path):
    """All of rowlock's, on the application's queue; a worker's processes find it as well."""
    litestar = [sys.executable, "-m", "litestar", "--app", "examples.web.litestar_shop:app"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*litestar, "rowlock", *words],
            env=environment_of(postgres_url),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    with rowlock.App(postgres_url) as app:
        app.migrate()
        job = app.enqueue("confirm", {"number": 5})
        listed, worked = run("jobs", "list", "--json"), run("worker", "--drain")
        done = app.get(job.id)
        missing = run("jobs", "show", job.id.replace("7", "8"))

    assert (listed.returncode, worked.returncode, missing.returncode) == (0, 0, 3), worked.stderr
    assert job.id in listed.stdout
    assert done.result == "order 5 is confirmed"


def test_an_application_without_a_queue_says_so():
    """Whoever asks for its queue is told what is missing."""
    with pytest.raises(rowlock.OptionInvalid, match="RowlockPlugin"):
        queue_of(Litestar([], **QUIET))


async def ask(app: Litestar, *paths: str) -> list[httpx.Response]:
    """Requests to an application in this process, within its lifespan."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with (
        app.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        return [await client.get(path) for path in paths]


@pytest.mark.asyncio
async def test_without_guards_it_takes_a_token(sqlite_url: str):
    """And no dashboard unless it is asked for."""
    queue = rowlock.App(sqlite_url)
    closed = Litestar(plugins=[RowlockPlugin(queue, dashboard="/deep/queue/")], **QUIET)
    bare = Litestar(plugins=[RowlockPlugin(queue)], **QUIET)
    answers = [*await ask(closed, "/deep/queue/v1/jobs"), *await ask(bare, "/queue/v1/jobs")]

    assert [answer.status_code for answer in answers] == [401, 404]


@pytest.mark.asyncio
async def test_the_dashboard_is_found_without_its_slash(sqlite_url: str):
    """What the page loads is beside it: so its address must end in one."""
    queue = rowlock.App(sqlite_url)
    board = RowlockPlugin(queue, dashboard="/deep/queue", guards=[lambda *_: None])
    app = Litestar(plugins=[board], **QUIET)
    without, with_slash = await ask(app, "/deep/queue", "/deep/queue/")

    assert (without.status_code, without.headers.get("location")) == (307, "/deep/queue/")
    assert with_slash.status_code == 200


@pytest.mark.asyncio
async def test_a_visitor_and_guards_that_change_their_mind(sqlite_url: str, monkeypatch):
    """The visitor's name and scopes count. A stream ends when a guard refuses."""
    monkeypatch.setattr(config, "TOKEN_KNOWN_SECONDS", 0.0)
    monkeypatch.setattr(config, "HTTP_STREAM_BEAT_SECONDS", 0.01)
    asked: list[str] = []

    async def guard(connection: Any, _: Any) -> None:
        asked.append(connection.url.path)
        if len(asked) > 5:
            raise NotAuthorizedException

    def visitor(_: Any) -> Visitor:
        return Visitor(name="ada", scopes=["read"])

    queue = rowlock.App(sqlite_url)
    board = RowlockPlugin(queue, dashboard="/queue", guards=[guard], visitor=visitor)
    app = Litestar(plugins=[board], **QUIET)
    me, stream = await ask(app, "/queue/v1/me", "/queue/v1/events?seconds=10")

    assert (me.json()["name"], me.json()["scopes"]) == ("ada", ["read"])
    assert (stream.status_code, len(asked)) == (200, 6)


@pytest.mark.asyncio
async def test_a_blocking_session_and_another_name(sqlite_url: str):
    """Commits when the handler returns, and rolls back when it raises."""
    queue = rowlock.App(sqlite_url)
    engine = create_engine(sqlite_url)

    @queue.task
    def confirm(number: int) -> None: ...

    @get("/orders/{number:int}", sync_to_thread=True)
    def order(
        number: FromPath[int], db: NamedDependency[Session], jobs: NamedDependency[Any]
    ) -> str:
        assert jobs is queue
        confirm.using(conn=db).enqueue(number=number)
        if number == 0:
            raise ValueError("no")
        return "yes"

    app = Litestar(
        [order],
        plugins=[RowlockPlugin(queue, dependency="jobs")],
        dependencies={"db": transaction(sessionmaker(engine))},
        **QUIET,
    )
    answers = await ask(app, "/orders/1", "/orders/0")
    engine.dispose()
    with queue:
        numbers = [job.payload["number"] for job in queue.list(full=True)]

    assert [answer.status_code for answer in answers] == [200, 500]
    assert numbers == [1]
