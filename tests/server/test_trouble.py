"""When the database is away, or we are wrong: 503 or 500, and nothing of the inside is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from rowlock.errors import RowlockError, StoreUnavailable
from rowlock.server import problems
from rowlock.server.routes import jobs as jobs_module
from rowlock.store.ops.tokens import new_token
from tests.cell import CELL
from tests.support.server import Running, make_app
from tests.support.workers import crash

JOB = {"kind": "big"}


def assert_away(answer: httpx.Response, secrets: list[str]) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable"), answer.text
    assert answer.headers["retry-after"] == "2"
    for secret in secrets:
        assert secret not in answer.text


def test_postgres_is_away_and_comes_back():
    """Requests are refused meanwhile, probes say so, and all is well again by itself."""
    with CELL.server(durable=True) as server:
        app = make_app(f"{server.url}?connect_timeout=2")
        app.migrate()
        with Running(app) as running:
            token = running.make_token("admin")
            client = running.client(token)
            before = client.post("/v1/jobs", json=JOB)
            port = str(urlsplit(server.url).port)
            crash(server)
            refused = client.post("/v1/jobs", json=JOB)
            unready = running.client().get("/readyz")
            alive = running.client().get("/healthz")
            server.restart()
            deadline = time.monotonic() + 60
            while (ready := running.client().get("/readyz")).status_code != 200:
                assert time.monotonic() < deadline, ready.text
            after = client.post("/v1/jobs", json=JOB)

    assert (before.status_code, after.status_code, alive.status_code) == (201, 201, 200)
    for answer in (refused, unready):
        assert_away(answer, [port, "127.0.0.1", "connection"])


def test_a_sqlite_file_that_is_gone(sqlite_url):
    """Its path is nobody's business."""
    with Running(make_app(sqlite_url), is_open=True) as running:
        running.client().post("/v1/jobs", json=JOB)
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        path.rename(path.with_name("moved"))
        refused = running.client().post("/v1/jobs", json=JOB)

    assert_away(refused, [str(path.parent), path.name, "sqlite"])


def test_an_unmigrated_database(empty_postgres_url, monkeypatch):
    """A server does not start on it; one that is mounted says that it is not ready."""
    app = make_app(empty_postgres_url)
    with app, pytest.raises(RowlockError, match="rowlock migrate"):
        Running(app)


def test_a_server_starts_while_its_database_is_away():
    """Without a login link, since nobody knows of tokens; it serves once the database is there."""
    with CELL.server(durable=True) as server:
        app = make_app(f"{server.url}?connect_timeout=2")
        app.migrate()
        new = new_token(name="shop", scopes=["enqueue"])
        app.store.run(new.add())
        crash(server)
        with Running(app, has_login=True) as running:
            client = running.client(new.secret.text)
            refused = client.post("/v1/jobs", json=JOB)
            server.restart()
            deadline = time.monotonic() + 60
            while running.client().get("/readyz").status_code != 200:
                assert time.monotonic() < deadline
            served = client.post("/v1/jobs", json=JOB)
            link = running.server.login_link

    assert link is None
    assert_away(refused, ["127.0.0.1"])
    assert served.status_code == 201


def test_a_mistake_of_ours_is_told_by_an_id(api, monkeypatch, caplog):
    """The log has it in full, the answer nothing but where to look."""

    async def broken(call):
        secret = "SELECT canary"
        raise ZeroDivisionError(secret)

    (route,) = [route for route in jobs_module.ROUTES if route.operation == "listJobs"]
    monkeypatch.setattr(type(route), "handler", property(lambda _: broken))
    answer = api().get("/v1/jobs")
    monkeypatch.undo()

    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    incident = answer.json()["detail"].rpartition(" ")[2]
    assert "canary" not in answer.text and "Zero" not in answer.text
    (record,) = [record for record in caplog.records if incident in record.getMessage()]
    assert "canary" in str(record.exc_info[1])


def test_every_error_of_the_library_has_a_place():
    """In the one table of codes; with none of them, a mistake is a 500."""
    codes = {kind.code for kind in _all_below(RowlockError) if not _is_elsewhere(kind)}

    assert codes <= problems.KINDS.keys()
    assert problems.refusal_of(RowlockError("x")).problem().status == 500
    assert problems.refusal_of(StoreUnavailable("/a/path")).detail == problems.AWAY


def _is_elsewhere(kind: type[RowlockError]) -> bool:
    """Whether it is of extensions or of tests, which no request gets to see."""
    return kind.__module__.startswith(("rowlock.chaos.", "rowlock.contrib.", "rowlock.testing."))


def _all_below(kind: type[RowlockError]) -> list[type[RowlockError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _all_below(child))]


def test_a_stop_finishes_what_is_under_way(any_url):
    """A request that came before the signal is answered after it; none is cut off."""
    answers: list[int] = []
    jobs = {"jobs": [{"kind": "big", "payload": {"text": "x" * 1_000}}] * 5_000}
    with Running(make_app(any_url), is_open=True) as running:
        client = running.client()
        thread = threading.Thread(
            target=lambda: answers.append(client.post("/v1/jobs/batch", json=jobs).status_code)
        )
        thread.start()
        while running.server.requests == 0:
            time.sleep(0.001)
        running.server.stop()
        thread.join(60)

    assert answers == [201]
    with make_app(any_url) as app:
        assert app.stats(["default"])[0].counts["ready"].value == 5_000
