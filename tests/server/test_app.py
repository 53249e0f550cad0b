"""Below a prefix of somebody's own application: Starlette's, FastAPI's, Django's, or by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from rowlock.errors import OptionInvalid
from rowlock.server import Api, asgi
from rowlock.server.service import environment_of
from tests.support.server import make_app, served_plainly

KEY = "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"


@contextlib.contextmanager
def served(application: Any) -> Iterator[httpx.Client]:
    with (
        served_plainly(application) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        yield client


def mounted(api: Api) -> Any:
    return Starlette(routes=[Mount("/deep", routes=[Mount("/queue", app=api)])])


def by_hand(api: Api) -> Any:
    """As one does in the `asgi.py` of a Django project."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/deep/queue/")
        await api({**scope, "root_path": "/deep/queue"}, receive, send)

    return application


def by_hand_stripped(api: Api) -> Any:
    """As those do who cut the prefix off themselves."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix("/deep/queue")
        cut = {"root_path": "/deep/queue", "path": path, "raw_path": path.encode()}
        await api({**scope, **cut}, receive, send)

    return application


@pytest.mark.parametrize("mount", [mounted, by_hand, by_hand_stripped])
def test_below_a_prefix(sqlite_url, mount):
    """Paths, locations and the document know of the prefix; pages load what is beside them."""
    app = make_app(sqlite_url)
    with app, served(mount(asgi(app, is_open=True))) as client:
        made = client.post("/deep/queue/v1/jobs", json={"kind": "x", "id": KEY})
        job = client.get(made.headers["location"])
        document = client.get("/deep/queue/openapi.json").json()
        page = client.get("/deep/queue/docs").text
        script = client.get("/deep/queue/docs/docs.js")
        unknown = client.get("/deep/queue/nowhere")

    assert (made.status_code, made.headers["location"]) == (201, f"/deep/queue/v1/jobs/{KEY}")
    assert (job.status_code, job.json()["id"]) == (200, KEY)
    assert document["servers"] == [{"url": "/deep/queue"}]
    assert 'src="docs/docs.js"' in page and script.status_code == 200
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def test_a_token_is_needed_unless_told_otherwise(any_url):
    """Nobody knows where somebody else's application listens: so it is closed, tokens or not."""
    app = make_app(any_url)
    with app, served(asgi(app)) as client:
        statuses = [client.get("/v1/jobs").status_code, client.get("/healthz").status_code]

    assert statuses == [401, 200]


def test_an_open_one_ignores_the_hosts_own_tokens(sqlite_url):
    """What the application around it has checked is not ours to judge."""
    app = make_app(sqlite_url)
    with app, served(asgi(app, is_open=True)) as client:
        headers = {"authorization": "Bearer of-your-own"}
        answer = client.post("/v1/jobs", json={"kind": "x"}, headers=headers)
        document = client.get("/openapi.json").json()

    assert answer.status_code == 201
    assert document["paths"]["/v1/jobs"]["post"]["security"] == []


def test_an_open_one_may_name_its_hosts(sqlite_url):
    """Others are refused then."""
    app = make_app(sqlite_url)
    with app, served(asgi(app, is_open=True, hosts=["Jobs.Example"])) as client:
        own = client.get("/v1/jobs", headers={"host": "jobs.example"})
        other = client.get("/v1/jobs", headers={"host": "evil.example"})

    assert (own.status_code, other.status_code) == (200, 421)


def test_web_sockets_are_refused(sqlite_url):
    """There is nothing to talk to."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    app = make_app(sqlite_url)
    with app:
        coroutine = asgi(app)({"type": "websocket", "path": "/v1/jobs"}, receive, send)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_loop_for_each_request(any_url):
    """As test clients do: nothing is left behind on the loop before."""
    app = make_app(any_url)
    transport = httpx.ASGITransport(mounted(asgi(app, is_open=True)))

    async def request(method: str, path: str, body: Any = None) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.request(method, f"/deep/queue{path}", json=body)
        await app.store.engine.aclose_loop()
        return answer

    with app:
        for _ in range(3):
            made = asyncio.run(request("POST", "/v1/jobs", {"kind": "x"}))
            asked = {"worker": "w", "kinds": ["y"], "wait": 0.05}
            waited = asyncio.run(request("POST", "/v1/leases", asked))
            work = {"action": "cancel", "expected": 1}
            begun = asyncio.run(request("POST", "/v1/bulk", work))
            ready = asyncio.run(request("GET", "/readyz"))
            app.delete(made.json()["id"])

            assert [answer.status_code for answer in (made, waited, begun, ready)] == [
                201,
                200,
                202,
                200,
            ]


def test_the_environment_is_told(sqlite_url):
    """Its name and color, to whoever may sign in; a color that is none is refused at the start."""
    app = make_app(sqlite_url)
    with app, served(asgi(app, is_open=True, environment="production:red")) as client:
        named = client.get("/v1/me").json()["environment"]
    plain = environment_of("staging")

    assert named == {"name": "production", "color": "red"}
    assert plain == ("staging", "grey")
    assert None is environment_of("")
    for bad in ("production:pink", ":red", "x" * 41):
        with pytest.raises(OptionInvalid, match="environment"):
            environment_of(bad)
