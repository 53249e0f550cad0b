"""The example shop in Flask with `flask rowlock worker`, and what the extension promises."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g

import rowlock
from rowlock import JobState
from rowlock.contrib.flask import Rowlock, queue_of
from rowlock.testing import use_test_database
from tests.contrib.processes import environment_of, running, serving

SERVER = """
import sys
from werkzeug.serving import make_server
from examples.web.flask_shop import create_app

make_server("127.0.0.1", 0, create_app(), threaded=True, fd=int(sys.argv[1])).serve_forever()
"""
FLASK = ("-m", "flask", "--app", "examples.web.flask_shop")
WORKER = (*FLASK, "rowlock", "worker", "-c", "2", "--no-cron", "--log-level", "warning")


def test_the_shop(postgres_url: str, tmp_path: Path):
    """The worker confirms in the application's context; a refused order leaves nothing.

    On PostgreSQL: the other tests here are on SQLite.
    """
    # Flask's own configuration names the database; the environment's other one is not used.
    unused = f"sqlite:///{tmp_path / 'unused.db'}"
    env = environment_of(unused, FLASK_ROWLOCK_DATABASE_URL=postgres_url, FLASK_SHOP="Boats")
    with serving(["-c", SERVER, "FD"], cwd=tmp_path, env=env) as client:
        made = client.post("/orders", data={"number": "1"})
        refused = client.post("/orders", data={"number": "-1"})
        with running(WORKER, cwd=tmp_path, env=env), rowlock.App(postgres_url) as app:
            done = app.wait(made.json()["job"], timeout=60)
            jobs = app.list().jobs
        told = client.get("/orders/1").json()
        missing = client.get("/orders/-1")

    assert (made.status_code, refused.status_code, missing.status_code) == (200, 409, 404)
    assert [(job.id, job.state) for job in jobs] == [(done.id, JobState.SUCCEEDED)]
    assert told == {"confirmation": "Boats: order 1 is confirmed"}
    assert not (tmp_path / "unused.db").exists()


@pytest.fixture
def app(sqlite_url: str) -> Flask:
    app = Flask("shop")
    app.config["ROWLOCK_DATABASE_URL"] = sqlite_url
    return app


def test_an_application_made_in_a_test_stays_on_its_database(app: Flask, tmp_path: Path):
    """Its own database, which it names when it is made, is not written to."""
    queue = Rowlock(app)
    own = tmp_path / "own.db"
    with use_test_database(queue, f"sqlite:///{tmp_path / 'test.db'}") as tested:
        another = Flask("shop")
        another.config["ROWLOCK_DATABASE_URL"] = f"sqlite:///{own}"
        queue.init_app(another)
        job = queue.enqueue("greet")
        jobs = [each.id for each in tested.list()]
        is_current = queue.flask is another

    assert (jobs, is_current) == ([job.id], True)
    assert not own.exists()
    assert queue.list().jobs == []


def test_each_job_has_a_context(app: Flask):
    """Of its own, also where there is one around; it is torn down, and told of the failure."""
    queue = Rowlock(app)
    told: list[Any] = []

    @app.teardown_appcontext
    def ended(error: BaseException | None) -> None:
        told.append(type(error).__name__)

    @queue.task(max_attempts=1)
    def note(number: int) -> list[Any]:
        found = [current_app.name, g.get("number")]
        g.number = number
        if number == 2:
            raise RuntimeError("two")
        return found

    @queue.task
    async def anote() -> list[Any]:
        return note(7)

    with queue, app.app_context():
        g.number = 0
        jobs = [note.enqueue(1), note.enqueue(2), anote.enqueue()]
        queue.drain()
        ends = [queue.get(job.id) for job in jobs]
        around = g.number
        called = note(3)

    assert [end.result for end in ends if end] == [["shop", None], None, ["shop", None]]
    # A plain call, inside a job too, stays in the context of its caller.
    assert (around, called) == (0, ["shop", 0])
    assert told == ["NoneType", "RuntimeError", "NoneType", "NoneType"]


def test_in_a_worker(app: Flask):
    """In its threads and on its loop."""
    queue = Rowlock(app)

    @queue.task
    def plain() -> str:
        return current_app.name

    @queue.task
    async def coroutine() -> str:
        return current_app.name

    async def work() -> list[Any]:
        async with queue, queue.worker():
            jobs = [await plain.aenqueue(), await coroutine.aenqueue()]
            return [(await queue.await_(job.id, timeout=30)).result for job in jobs]

    assert asyncio.run(work()) == ["shop", "shop"]


def test_the_last_application_counts(app: Flask, tmp_path: Path):
    """As a function makes one for each test; tasks that were collected elsewhere come along."""
    tasks = rowlock.Tasks()

    @tasks.task
    def name() -> str:
        return current_app.name

    queue = Rowlock(app)
    queue.include(tasks)
    other = Flask("other")
    other.config["ROWLOCK_DATABASE_URL"] = f"sqlite:///{tmp_path / 'other.db'}"
    queue.init_app(other)
    queue.include(tasks)
    with queue:
        job = name.enqueue()
        queue.drain()
        end = queue.get(job.id)

    assert end is not None and end.result == "other"
    assert queue is queue_of(other)
    assert other.config["ROWLOCK_DATABASE_URL"] == queue.url


def test_without_an_application():
    """Nothing goes to a database that nobody has named; the error says what to do."""
    queue = Rowlock()

    @queue.task
    def note() -> None: ...

    with pytest.raises(rowlock.OptionInvalid, match="flask rowlock worker"):
        note.enqueue()
    with pytest.raises(rowlock.OptionInvalid, match="has no queue"):
        queue_of(Flask("bare"))


def test_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch, sqlite_url: str):
    """Where the configuration says nothing."""
    monkeypatch.setenv("ROWLOCK_DATABASE_URL", sqlite_url)

    assert Rowlock(Flask("shop")).url == sqlite_url


def test_the_commands(app: Flask, monkeypatch: pytest.MonkeyPatch):
    """All of rowlock's, on the application's queue; their exit codes too."""
    monkeypatch.setenv("FLASK_APP", "unset when this test ends")
    queue = Rowlock(app)
    with queue:
        job = queue.enqueue("note")
        runner = app.test_cli_runner()
        listed = runner.invoke(args=["rowlock", "jobs", "list", "--json"])
        missing = runner.invoke(args=["rowlock", "jobs", "show", job.id.replace("7", "8")])

    assert listed.exit_code == 0 and job.id in listed.output
    assert missing.exit_code == 3
