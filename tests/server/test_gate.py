"""Who is let in: tokens, scopes, an open loopback, and pages of other sites."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.server import gate
from rowlock.server.gate import Throttle
from rowlock.server.serve import HttpServer, is_loopback
from rowlock.store.ops.tokens import list_tokens, revoke_token
from tests.support.server import Running, empty, make_app

JOB = {"kind": "big"}
BAD = f"rwl_{'a' * 12}_{'b' * 43}"
FORWARDING = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Via")


@pytest.fixture(scope="module")
def opened(make_url, module_store):
    """A server that was started with --open."""
    with Running(make_app(make_url(module_store)), is_open=True) as running:
        yield running


@pytest.fixture
def open_api(opened):
    """That server, without a row of the tests before."""
    empty(opened.app.url)
    return opened


@pytest.fixture
def fresh(any_url):
    """A server of the test's own, without any token."""
    with Running(make_app(any_url)) as running:
        yield running


def test_a_token_is_needed_unless_it_is_open(fresh, open_api):
    """On loopback, too, even if none was ever made. With --open, nobody needs one."""
    closed = fresh.client().post("/v1/jobs", json=JOB)
    after = fresh.client(fresh.make_token("enqueue")).post("/v1/jobs", json=JOB)
    opened = open_api.client().post("/v1/jobs", json=JOB)
    wrong = open_api.client(BAD).post("/v1/jobs", json=JOB)

    assert (closed.status_code, after.status_code, opened.status_code) == (401, 201, 201)
    assert wrong.status_code == 401
    assert (fresh.server.is_open, open_api.server.is_open) == (False, True)


def test_a_challenge_says_whether_a_token_was_sent(fresh):
    """A client can tell a missing token from an invalid one."""
    missing = fresh.client().get("/v1/jobs")
    invalid = fresh.client(BAD).get("/v1/jobs")

    assert missing.headers["www-authenticate"] == 'Bearer realm="rowlock"'
    assert invalid.headers["www-authenticate"] == 'Bearer realm="rowlock", error="invalid_token"'


@pytest.mark.parametrize(
    ("version", "header"),
    [
        # What nginx sends by default with `proxy_pass http://127.0.0.1:8765`.
        ("1.0", ""),
        *(("1.1", f"{name}: 192.0.2.1\r\n") for name in FORWARDING),
    ],
)
def test_an_open_server_takes_no_forwarded_requests(open_api, version, header):
    """Whoever can reach the proxy would be an administrator."""
    host = urlsplit(open_api.address).netloc
    with socket.create_connection(host.split(":")) as connection:
        head = f"GET /v1/jobs HTTP/{version}\r\nHost: {host}\r\n{header}Connection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))

    assert answer.split()[1] == b"403"
    assert b'"code":"forwarded"' in answer and b"rowlock tokens create" in answer


@pytest.mark.parametrize(
    "host", ["evil.example:8765", "evil.example", "", "127.0.0.1.evil.example"]
)
def test_a_foreign_name_is_refused_while_open(open_api, host):
    """A page whose name was pointed at this machine can't use it: neither read nor write."""
    for answer in (
        open_api.client().post("/v1/jobs", json=JOB, headers={"host": host}),
        open_api.client().get("/openapi.json", headers={"host": host}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (421, "misdirected")
    assert open_api.app.list().jobs == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:8765", "LOCALHOST."])
def test_names_of_this_machine_are_served(open_api, host):
    """Whatever the port says."""
    answer = open_api.client().post("/v1/jobs", json=JOB, headers={"host": host})

    assert answer.status_code == 201


def test_pages_of_other_sites_change_nothing(open_api):
    """What a browser sends for them is refused, with or without a body; reading is not shared."""
    foreign = [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://[bad"},
    ]
    statuses = [
        open_api.client().post("/v1/jobs", json=JOB, headers=headers).status_code
        for headers in foreign
    ]
    client = open_api.client()
    own = client.post("/v1/jobs", json=JOB, headers={"origin": open_api.address})
    fetched = client.post("/v1/jobs", json=JOB, headers={"sec-fetch-site": "same-origin"})
    preflight = client.options("/v1/jobs", headers={"origin": "https://evil.example"})

    assert statuses == [403] * len(foreign)
    assert (own.status_code, fetched.status_code) == (201, 201)
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_beyond_loopback_a_token_is_needed(any_url):
    """Without a valid one, a server that others can reach does not start, and says why."""
    app = make_app(any_url)
    with app:
        with pytest.raises(OptionInvalid, match=r"there is no token: .*rowlock tokens create"):
            HttpServer(app, host="0.0.0.0", port=0)
        Running.make_token(_Holder(app), "read")
        app.store.run(revoke_token(app.store.run(list_tokens()).tokens[0].id))
        with pytest.raises(OptionInvalid, match=r"have expired or were revoked: .*tokens create"):
            HttpServer(app, host="0.0.0.0", port=0)
        Running.make_token(_Holder(app), "read")
        with pytest.raises(OptionInvalid, match="--open needs no token"):
            HttpServer(app, host="0.0.0.0", port=0, is_open=True)
        with HttpServer(app, host="0.0.0.0", port=0, has_login=True) as server:
            port = server.address.rpartition(":")[2]
            answer = httpx.get(f"http://127.0.0.1:{port}/v1/jobs/x", trust_env=False)

    assert server.login_link is None
    assert answer.status_code == 401


class _Holder:
    def __init__(self, app):
        self.app = app


def test_loopback_is_told_from_elsewhere():
    """By address, and by the one name that is always this machine."""
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.example"]))


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer nonsense",
        f"Bearer rwl_{'a' * 12}_{'b' * 43}",
        "Basic dXNlcjpwYXNz",
        "Bearer \xff",
    ],
)
def test_bad_tokens_are_refused(api, header):
    """Whatever is wrong with them, the answer is the same."""
    refused = httpx.post(
        f"{api.address}/v1/jobs",
        json=JOB,
        headers={"authorization": header.encode("latin-1")},
        trust_env=False,
    )

    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert refused.json()["detail"] == "the token is unknown, expired or revoked"


def test_a_scope_is_needed(api):
    """Another scope is not enough; admin is."""
    wrong = api("read").post("/v1/jobs", json=JOB)
    right = [api(scope).post("/v1/jobs", json=JOB).status_code for scope in ("enqueue", "admin")]

    assert (wrong.status_code, wrong.json()["code"]) == (403, "forbidden")
    assert "enqueue" in wrong.json()["detail"]
    assert right == [201, 201]


def test_the_tenant_is_the_tokens(api):
    """It is set where none is named, and no other can be named: not by body, query or header."""
    acme = api("enqueue", tenant="acme")
    made = acme.post("/v1/jobs", json=JOB, headers={"x-tenant": "zoo", "tenant": "zoo"})
    same = acme.post("/v1/jobs", json={**JOB, "tenant": "acme"})
    other = acme.post("/v1/jobs", json={**JOB, "tenant": "zoo"})
    query = acme.post("/v1/jobs?tenant=zoo", json=JOB)

    assert (made.json()["tenant"], same.json()["tenant"]) == ("acme", "acme")
    assert (other.status_code, query.status_code) == (403, 422)
    assert {job.tenant for job in api.app.list()} == {"acme"}


def test_another_tenants_job_is_not_there(api):
    """404, as for an id that never was."""
    made = api("enqueue", tenant="acme").post("/v1/jobs", json=JOB)
    place = made.headers["location"]
    answers = [api("read", tenant=tenant).get(place) for tenant in ("acme", "zoo", None)]

    assert [answer.status_code for answer in answers] == [200, 404, 200]


def test_a_revoked_token_ends(api, monkeypatch):
    """Once it is looked up again, also where another process revokes it."""
    monkeypatch.setattr(config, "TOKEN_KNOWN_SECONDS", 0.05)
    token = api.make_token("enqueue")
    client = api.client(token)
    before = client.post("/v1/jobs", json=JOB).status_code
    api.app.store.run(revoke_token(token.split("_")[1]))
    after = [client.post("/v1/jobs", json=JOB).status_code for _ in range(1)]
    while after[-1] == 201:
        after.append(client.post("/v1/jobs", json=JOB).status_code)

    assert (before, after[-1]) == (201, 401)


def test_bad_tokens_are_throttled(fresh):
    """Beyond a number in a minute they get 429. Valid ones that never came before still enter."""
    good = fresh.make_token("enqueue")
    bad = fresh.client(BAD)
    statuses = [bad.post("/v1/jobs", json=JOB).status_code for _ in range(25)]
    late = bad.post("/v1/jobs", json=JOB)
    malformed = fresh.client("nonsense").post("/v1/jobs", json=JOB)
    still = fresh.client(good).post("/v1/jobs", json=JOB)

    assert statuses == [401] * config.AUTH_FAILURES_MAX + [429] * 5
    assert 0 < int(late.headers["retry-after"]) <= 60
    assert late.json()["code"] == malformed.json()["code"] == "too_many_requests"
    assert still.status_code == 201


def test_a_guessed_secret_does_not_lock_its_token_out(fresh):
    """Invalid secrets with the id of a token are throttled, the token itself is not."""
    good = fresh.make_token("enqueue")
    bad = fresh.client(good[:-4] + "AAAA")
    statuses = {bad.post("/v1/jobs", json=JOB).status_code for _ in range(25)}

    assert statuses == {401, 429}
    assert fresh.client(good).post("/v1/jobs", json=JOB).status_code == 201


def test_invalid_tokens_are_looked_up_seldom(any_url, monkeypatch):
    """One lookup serves all requests that send the same token at once."""
    monkeypatch.setattr(config, "TOKEN_KNOWN_SECONDS", 3600.0)
    app = make_app(any_url)
    lookups: list[str] = []
    find = gate.find_token

    def counted(secret):
        op = find(secret)

        def start():
            lookups.append(secret.id)
            return (yield from op.start())

        return msgspec.structs.replace(op, start=start)

    monkeypatch.setattr(gate, "find_token", counted)
    with Running(app) as running, ThreadPoolExecutor(8) as pool:
        good = running.make_token("read")
        for token in (BAD, good):
            running.client(token)
            list(pool.map(lambda _: running.client(token).get("/v1/me"), range(40)))  # noqa: B023

    assert sorted(lookups) == sorted(["a" * 12, good.split("_")[1]])


def test_invalid_tokens_are_logged_seldom(fresh, caplog):
    """With the address and the token's id, and never with its secret."""
    with caplog.at_level("WARNING", logger="rowlock.server"):
        for _ in range(5):
            fresh.client(BAD).get("/v1/jobs")
    lines = [record.getMessage() for record in caplog.records if "invalid tokens" in record.msg]

    assert len(lines) == 1
    assert "127.0.0.1" in lines[0] and "a" * 12 in lines[0]
    assert "b" * 43 not in caplog.text


def test_the_throttle_forgets():
    """After its time, and the oldest address when there are too many."""
    throttle = Throttle()
    for _ in range(config.AUTH_FAILURES_MAX):
        throttle.fail("a", now=100.0)

    assert throttle.seconds_left("a", now=100.0) == 60.0
    assert throttle.seconds_left("a", now=160.0) == 0.0
    assert throttle.seconds_left("b", now=100.0) == 0.0
    for number in range(config.AUTH_ADDRESSES_MAX):
        throttle.fail(f"other {number}", now=100.0)
    assert throttle.seconds_left("a", now=100.0) == 0.0


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/jobs/healthz", "/v1/healthz", "/healthz/v1/jobs", "/v1/jobs?next=/healthz"),
        *("/v1/jobs/../../healthz/../v1/jobs", "/v1/jobs;/healthz", "/v1/jobs/%2e%2e/healthz"),
        *("//healthz/../v1/jobs", "/v1/jobs%00/healthz", "/readyz/../metrics", "/v1/jobs/"),
    ],
)
def test_a_part_of_a_path_opens_nothing(api, path):
    """Only whole paths are open; one that holds such a path is asked for a token, or is unknown."""
    with socket.create_connection(urlsplit(api.address).netloc.split(":")) as connection:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    status = int(answer.split()[1])

    assert status in (400, 401, 404)
    assert b"rowlock_" not in answer and b'"jobs"' not in answer
