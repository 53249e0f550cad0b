"""The session of a browser: a cookie for a token, that no other page can use."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rowlock import config
from rowlock.server.proxies import Proxies, networks_of
from rowlock.store.ops.tokens import LOGIN_NAME, list_tokens, revoke_token
from tests.support.server import Running, make_app

JOB = {"kind": "big"}
OWN = {"sec-fetch-site": "same-origin"}


def sign_in(running: Running, token: str, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{running.address}/v1/session", json={"token": token}, headers=headers, trust_env=False
    )


def browser(running: Running, cookie: str | None = None, **headers: str) -> httpx.Client:
    """A client with the cookie of a new session, and with no token."""
    if cookie is None:
        answer = sign_in(running, running.make_token("admin"))
        cookie = answer.headers["set-cookie"].partition(";")[0]
    return running.client(cookie=cookie, **headers)


def test_a_token_becomes_a_cookie(api):
    """Scripts can't read it, other sites can't send it, and it is not the token."""
    token = api.make_token("enqueue", expires=3600)
    answer = sign_in(api, token)
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    port = urlsplit(api.address).port
    me = browser(api, cookie).get("/v1/me").json()

    assert answer.status_code == 201
    assert cookie.startswith(f"rowlock_session_{port}=") and token not in cookie
    assert {*attributes} == {
        "Path=/",
        "HttpOnly",
        "SameSite=Strict",
        f"Max-Age={answer.json()['expires_in']}",
    }
    assert 3500 < answer.json()["expires_in"] <= 3600
    assert (me["token_id"], me["scopes"]) == (token.split("_")[1], ["enqueue"])


def test_a_trusted_proxy_speaks_for_its_clients(api, monkeypatch):
    """The cookie is secure if it says so, and the audit has the client. Others aren't believed."""
    token = api.make_token("read")
    before = sign_in(api, token, **{"x-forwarded-proto": "https"})
    gate = api.server._api.service.gate
    monkeypatch.setattr(gate, "proxies", Proxies(networks_of(["127.0.0.1"])))
    named = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
    after = sign_in(api, token, **named)
    addresses = [entry["address"] for entry in api().get("/v1/audit").json()["entries"]]

    assert addresses == ["203.0.113.9", "127.0.0.1"]
    assert "Secure" not in before.headers["set-cookie"]
    assert after.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("token", ["", "nonsense", f"rwl_{'a' * 12}_{'b' * 43}", "c" * 43])
def test_nobody_signs_in_without_a_token(api, token):
    """And no page of another site can sign its visitors in."""
    refused = sign_in(api, token)
    foreign = sign_in(api, api.make_token("read"), **{"sec-fetch-site": "cross-site"})

    assert (refused.status_code, foreign.status_code) == (401, 403)
    assert "set-cookie" not in refused.headers and "set-cookie" not in foreign.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 201),
        ({"origin": "OWN"}, 201),
        ({}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "OWN"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_changes_come_from_our_own_pages(api, headers, status):
    """A browser sends the cookie also for a page on another port of this machine."""
    given = {name: api.address if value == "OWN" else value for name, value in headers.items()}
    answer = browser(api, **given).post("/v1/jobs", json=JOB)

    assert answer.status_code == status


def test_changes_need_what_no_form_can_send(api):
    """A JSON body, or a header of our own. Reading needs neither."""
    client = browser(api, **OWN)
    path = "/v1/queues/mail/pause"
    plain = client.post(path)
    form = client.post(path, data={"a": "b"})
    marked = client.post(path, headers={"x-rowlock-request": "1"})
    read = client.get("/v1/jobs")
    foreign = client.get("/v1/jobs", headers={"sec-fetch-site": "same-site"})

    assert (plain.status_code, form.status_code) == (403, 403)
    assert (marked.status_code, read.status_code, foreign.status_code) == (200, 200, 403)


def test_a_token_wins_over_a_cookie(api):
    """Whether it is valid or not."""
    client = browser(api, **OWN)
    reader = {"authorization": f"Bearer {api.tokens['read', None]}"}
    read = client.post("/v1/jobs", json=JOB, headers=reader)
    bad = client.post("/v1/jobs", json=JOB, headers={"authorization": "Bearer nonsense"})

    assert (read.status_code, bad.status_code) == (403, 401)


def test_signing_out_ends_it(api):
    """At once, for all tabs, and the token still works. Both are in the audit."""
    token = api.make_token("admin")
    cookie = sign_in(api, token).headers["set-cookie"].partition(";")[0]
    client = browser(api, cookie, **OWN, **{"x-rowlock-request": "1"})
    before = client.get("/v1/me")
    out = client.delete("/v1/session")
    after = client.get("/v1/me")
    entries = api.client(token).get("/v1/audit").json()["entries"]

    assert (before.status_code, out.status_code, after.status_code) == (200, 204, 401)
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert "session is over" in after.json()["detail"]
    assert [entry["action"] for entry in entries] == ["session.delete", "session.create"]
    assert {(entry["token_id"], entry["address"]) for entry in entries} == {
        (token.split("_")[1], "127.0.0.1")
    }


def test_revoking_the_token_ends_it(api):
    """At once on this server."""
    client = browser(api, **OWN)
    token_id = client.get("/v1/me").json()["token_id"]
    revoked = client.delete(f"/v1/tokens/{token_id}", headers={"x-rowlock-request": "1"})
    after = client.get("/v1/me")

    assert (revoked.status_code, after.status_code) == (204, 401)


def test_streams_go_with_the_cookie(api):
    """A page reads events as it reads everything else."""
    answer = browser(api).get("/v1/events?seconds=0")

    assert (answer.status_code, answer.text) == (200, "retry: 2000\n\n")


@pytest.fixture
def linked(any_url: str) -> Any:
    """A server on loopback without a token, with a login link."""
    with Running(make_app(any_url), has_login=True) as running:
        yield running


def test_a_login_link_works_once(linked):
    """For the first one who uses it. Its token is listed, and can be revoked."""
    address, _, code = linked.server.login_link.partition("/#login=")
    first, second = sign_in(linked, code), sign_in(linked, code)
    client = browser(linked, first.headers["set-cookie"].partition(";")[0], **OWN)
    me = client.get("/v1/me").json()
    (token,) = client.get("/v1/tokens").json()["tokens"]
    linked.app.store.run(revoke_token(token["id"]))
    linked.server._api.service.gate.forget(token["id"])
    after = client.get("/v1/me")

    assert address == linked.address
    assert (first.status_code, second.status_code) == (201, 401)
    assert "login link was used already" in second.json()["detail"]
    assert (me["name"], me["token_id"]) == (LOGIN_NAME, token["id"])
    assert "admin" in me["scopes"] and token["expires_at"] is not None
    assert after.status_code == 401


def test_a_restart_without_a_valid_token_has_a_new_link(any_url):
    """Also if a session of the last link is still valid, which goes on, or all tokens expired."""
    app = make_app(any_url)
    with Running(app, has_login=True) as running:
        code = running.server.login_link.partition("=")[2]
        cookie = sign_in(running, code).headers["set-cookie"].partition(";")[0].partition("=")[2]
        running.make_token("admin")
        token = next(each for each in app.store.run(list_tokens()).tokens if each.name == "admin")
        app.store.run(revoke_token(token.id))
    with Running(make_app(any_url), has_login=True) as running:
        name = f"rowlock_session_{urlsplit(running.address).port}"
        link = running.server.login_link
        again = browser(running, f"{name}={cookie}").get("/v1/me")
        old = sign_in(running, code)
        running.make_token("read")
    with Running(make_app(any_url), has_login=True) as third:
        closed = third.server.login_link

    assert link is not None and code not in link
    assert (again.status_code, old.status_code) == (200, 401)
    assert closed is None


def test_sessions_are_short(api):
    """Half a day, and never longer than the token."""
    answer = sign_in(api, api.make_token("read"))

    assert 0 <= config.SESSION_SECONDS - answer.json()["expires_in"] < 600


def test_the_last_use_of_a_token_is_stored(any_url):
    """Beside the requests: by a token, and by a session of it. Others stay unused."""
    with Running(make_app(any_url)) as running:
        used, by_session, unused = (running.make_token("read") for _ in range(3))
        running.client(used).get("/v1/jobs").raise_for_status()
        sign_in(running, by_session).raise_for_status()
    # What is not written yet is written at the end.
    with make_app(any_url) as app:
        found = {token.id: token.last_used_at for token in app.store.run(list_tokens()).tokens}
    times = [found[token.split("_")[1]] for token in (used, by_session, unused)]

    assert [time is None for time in times] == [False, False, True]
