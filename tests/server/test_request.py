"""What is no good request: refused by a problem document, whatever is wrong with it."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import tracemalloc
from urllib.parse import urlsplit

import httpx
import pytest

from rowlock import config

JSON = {"content-type": "application/json"}
# A lease that nobody holds.
HELD = {"id": "018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a", "token": 1}


def eventually(look, is_right):
    """What `look` returns once it is right, or after many tries."""
    end = time.monotonic() + 60
    while not is_right(found := look()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def talk(api, data: bytes) -> bytes:
    """Send bytes as they are, and read until the server closes, or an answer is whole."""
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(data)
        return answer_on(connection)


def answer_on(connection: socket.socket) -> bytes:
    """One answer, or as much of it as comes before the end."""
    answer = b""
    while b"\r\n\r\n" not in answer or not _is_whole(answer):
        received = connection.recv(65536)
        if not received:
            break
        answer += received
    return answer


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(
        (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), b":0"
    )
    return len(body) >= int(length.partition(b":")[2])


def problem_in(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head.lower(), answer
    document: dict[str, object] = json.loads(body)
    return document


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("GET", "//v1/jobs", 404, "not_found"),
        ("GET", "/v1/jobs/a/b/c/d", 404, "not_found"),
        ("GET", "/%ff", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/jobs", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_unknown_paths_and_methods(api, method, path, status, code):
    """With what the path allows; no token is needed to be told."""
    answer = api.client().request(method, path)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (status == 405) == ("allow" in answer.headers)
    problem = answer.json()
    assert problem.keys() == {"type", "title", "status", "detail", "code"}
    assert (problem["type"], problem["status"]) == (f"urn:rowlock:problem:{code}", status)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "json_invalid"),
        (b"{", 400, "json_invalid"),
        (b"\xff\xfe", 400, "json_invalid"),
        (b"\xef\xbb\xbf{}", 400, "json_invalid"),
        (b'{"\xd4": 1}', 400, "json_invalid"),
        (b"null", 422, "option_invalid"),
        (b"[]", 422, "option_invalid"),
        (b'{"kind": "\\ud800"}', 400, "json_invalid"),
        (b'{"kind": "x", "payload": ' + b"[" * 100_000, 400, "json_invalid"),
        (b'{"kind": "x", "payload": {"a": ' + b'{"a":' * 100 + b"1" + b"}" * 102, 422,
         "payload_invalid"),
        (b'{"kind": "x", "payload": {"a": ' + b"9" * 4_301 + b"}}", 422, "payload_invalid"),
        (b'{"kind": "x", "payload": {"a": 1e999}}', 422, "payload_invalid"),
        (b'{"kind": "x", "payload": {"a": NaN}}', 400, "json_invalid"),
        (b'{"kind": "x", "delay": 1' + b"0" * 400 + b"}", 422, "option_invalid"),
        (b'{"kind": "x", "' + b"y" * 100_000 + b'": 1}', 422, "option_invalid"),
    ],
)  # fmt: skip
def test_bad_bodies(api, body, status, code):
    """Refused, with a short answer, and the connection goes on."""
    client = api()
    answer = client.post("/v1/jobs", content=body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert len(answer.content) < 4_096
    assert api.app.list().jobs == []


@pytest.mark.parametrize(
    "media_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
def test_only_json_is_taken(api, media_type):
    """Other types of bodies are those that any page may send."""
    headers = {} if media_type is None else {"content-type": media_type}
    answer = api().post("/v1/jobs", content=b'{"kind": "x"}', headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_json_may_say_its_charset(api):
    """There is only one, but some clients name it, and more."""
    for media_type in (
        "Application/JSON; charset=UTF-8",
        "application/json; charset=utf-8; profile=x",
        'application/json; profile=x; Charset="utf-8"',
    ):
        headers = {"content-type": media_type}
        answer = api().post("/v1/jobs", content=b'{"kind": "x"}', headers=headers)

        assert answer.status_code == 201, media_type


def test_large_bodies_are_not_read(api):
    """Neither by what they say of their length, nor by their length."""
    token = api.tokens["admin", None]
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {2**40}\r\n\r\n"
    )
    said = problem_in(talk(api, head.encode()))

    def chunks():
        sent = b" " * 65_536
        for _ in range(config.HTTP_JOB_BYTES_MAX // len(sent) + 2):
            yield sent

    counted = api().post("/v1/jobs", content=chunks(), headers=JSON)

    assert (said["status"], said["code"]) == (413, "too_large")
    assert (counted.status_code, counted.json()["code"]) == (413, "too_large")


def test_slow_bodies_are_given_up(api, monkeypatch):
    """A body that does not come holds nothing for long."""
    monkeypatch.setattr(config, "HTTP_BODY_SECONDS", 0.2)
    monkeypatch.setattr(config, "HTTP_DRAIN_SECONDS", 0.1)
    token = api.tokens["admin", None]
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    answer = talk(api, head.encode())

    assert problem_in(answer)["code"] == "request_timeout"
    assert b"connection: close" in answer


def test_slow_heads_are_given_up(api, monkeypatch):
    """Also on a connection that was good before."""
    monkeypatch.setattr(config, "HTTP_HEADER_SECONDS", 0.2)
    first = talk(api, b"GET /healthz HTT")
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        good = answer_on(connection)
        connection.sendall(b"GET /healthz HTT")
        second = answer_on(connection)

    assert problem_in(first)["code"] == "request_timeout"
    assert b'{"status":"ok"}' in good
    assert problem_in(second)["code"] == "request_timeout"


def test_idle_connections_are_kept(api, monkeypatch):
    """Between requests a connection may be silent for longer than a head may take."""
    monkeypatch.setattr(config, "HTTP_HEADER_SECONDS", 0.2)
    parts = urlsplit(api.address)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        for _ in range(2):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b'{"status":"ok"}' in answer_on(connection)
            time.sleep(0.4)


def test_large_heads_are_refused(api):
    """A parser is not fed for ever."""
    answer = talk(api, b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 200_000)

    assert problem_in(answer)["code"] == "head_too_large"


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\r\n\r\n", b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
def test_what_is_no_http(api, data):
    """Answered in the same form as all else."""
    assert problem_in(talk(api, data))["code"] == "http_invalid"


def test_head_is_get_without_a_body(api):
    """With the same headers."""
    get, head = api().get("/healthz"), api().head("/healthz")

    assert (head.status_code, head.content) == (200, b"")
    assert get.headers["content-length"] == head.headers["content-length"]


def test_every_answer_has_security_headers(api):
    """Good ones, refused ones and pages; and none tells what serves it."""
    for answer in (
        api().get("/healthz"),
        api().get("/nowhere"),
        api().get("/docs"),
        api().get("/docs/docs.js"),
        api().get("/"),
        api.client().post("/v1/jobs", json={}),
    ):
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in headers


def test_too_many_at_once_are_sent_away(api, monkeypatch):
    """503 and when to come again, before any work; probes are answered."""
    monkeypatch.setattr(config, "HTTP_REQUESTS_MAX", 0)
    answer = api().get("/v1/jobs")

    assert api().get("/healthz").status_code == 200
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert answer.headers["retry-after"] == "2"


def test_answers_are_not_held_back(api):
    """Small parts are sent at once: without TCP_NODELAY many answers take 40 ms."""
    api().get("/healthz")
    listening = api.server._socket
    accepted = [
        each.transport.get_extra_info("socket")
        for each in list(api.server._server.server_state.connections)
    ]

    assert listening.proto == socket.IPPROTO_TCP
    for each in (listening, *accepted):
        assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs/batch", "jobs"),
        ("/v1/leases/heartbeat", "leases"),
        ("/v1/leases/settle", "settlements"),
    ],
)
def test_a_long_list_is_read_up_to_what_is_wrong(api, path, field):
    """To make something of millions of items takes seconds, in which nobody is served."""
    long = f'{{"{field}": [{"0," * config.HTTP_BODY_BYTES_MAX}0]}}'
    short = f'{{"{field}": [0]}}'
    answers = [api().post(path, content=body, headers=JSON) for body in (long, short)]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert [answer.json()["errors"][0]["field"] for answer in answers] == [f"{field}[0]"] * 2


@pytest.mark.parametrize(
    ("path", "field", "item"),
    [
        ("/v1/jobs/batch", "jobs", {"kind": "x"}),
        ("/v1/leases/heartbeat", "leases", HELD),
        ("/v1/leases/settle", "settlements", {**HELD, "outcome": "released"}),
    ],
)
def test_lists_are_bounded(api, monkeypatch, path, field, item):
    """At both ends, and an item that is too large is named."""
    monkeypatch.setattr(config, "HTTP_JOB_BYTES_MAX", 10_000)
    many = {field: [item] * (config.HTTP_BATCH_MAX + 1)}
    if path != "/v1/leases/heartbeat":
        too_many = api().post(path, json=many)
        assert (too_many.status_code, too_many.json()["errors"][0]["field"]) == (422, field)
        large = api().post(path, json={field: [item, {**item, "x": "y" * 10_000}]})
        assert (large.status_code, large.json()["code"]) == (413, "too_large")
        assert large.json()["detail"].startswith(f"{field}[1] ")
    none = api().post(path, json={field: []})

    assert (none.status_code, none.json()["errors"][0]["field"]) == (422, field)


DENSE = b"[" + b"[]," * 700_000 + b"0]"
TEXTS = DENSE.replace(b"[]", b'"a"')
SUCCESS = json.dumps({"settlements": [{**HELD, "outcome": "succeeded"}]}).encode()[:-3]
LARGE = {
    "meta": ("/v1/jobs/batch", b'{"jobs":[{"kind":"x","meta":{"a":' + DENSE + b"}}]}", 422),
    "tags": ("/v1/jobs/batch", b'{"jobs":[{"kind":"x","tags":' + TEXTS + b"}]}", 422),
    "payload": ("/v1/jobs/batch", b'{"jobs":[{"kind":"x","payload":{"a":' + DENSE + b"}}]}", 422),
    "one": ("/v1/jobs", b'{"kind":"x","payload":{"a":' + DENSE + b"}}", 422),
    "result": ("/v1/leases/settle", SUCCESS + b',"result":' + DENSE + b"}]}", 200),
    "follow-ups": ("/v1/leases/settle", SUCCESS + b',"follow_ups":' + DENSE + b"}]}", 422),
    "log": (
        "/v1/leases/heartbeat",
        json.dumps({"leases": [HELD]}).encode()[:-3] + b',"log":' + TEXTS + b"}]}",
        422,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_values_are_refused_by_their_text(api, name):
    """Decoded, tiny parts take twenty times their length, and everybody waits for that."""
    path, body, status = LARGE[name]
    tracemalloc.start()
    try:
        answer = api().post(path, content=body, headers=JSON)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert answer.status_code == status, answer.text
    assert len(answer.content) < 4_096
    assert peak < 8 * len(body)


def test_a_dense_payload_is_refused(api):
    """What counts is also how many lists and objects are in it."""
    dense = b'{"kind":"x","payload":{"a":[' + b"[]," * config.HTTP_CONTAINERS_MAX + b"0]}}"
    quoted = json.dumps({"kind": "x", "payload": {"a": "[]," * config.HTTP_CONTAINERS_MAX}})
    answers = [api().post("/v1/jobs", content=each, headers=JSON) for each in (dense, quoted)]

    assert [answer.status_code for answer in answers] == [422, 201]
    assert answers[0].json()["errors"] == [
        {"field": "payload", "message": "holds more than 100,000 lists and objects"}
    ]


def test_escapes_don_t_count_as_size(api):
    """A payload may be sent with every character escaped, and with spaces."""
    text = b"\\u0061" * 900_000
    body = b'{"kind": "x",' + b" " * 2_000_000 + b'"payload": {"a": "' + text + b'"}}'
    answer = api().post("/v1/jobs", content=body, headers=JSON)

    assert answer.status_code == 201
    assert api.app.get(answer.json()["id"]).payload == {"a": "a" * 900_000}


TWICE = {
    "option": ("/v1/jobs", b'{"kind": "x", "kind": "y"}'),
    "escaped": ("/v1/jobs", b'{"kind": "x", "k\\u0069nd": "y"}'),
    "payload": ("/v1/jobs", b'{"kind": "x", "payload": {"a": [{"b": 1, "b": 2}]}}'),
    "large payload": (
        "/v1/jobs",
        b'{"kind": "x", "payload": {"a": "' + b"x" * 70_000 + b'", "a": 1}}',
    ),
    "beside a large payload": (
        "/v1/jobs",
        b'{"kind": "x", "payload": {"a": "' + b"x" * 70_000 + b'"}, "kind": "y"}',
    ),
    "meta": ("/v1/jobs", b'{"kind": "x", "meta": {"a": 1, "a": 2}}'),
    "item": ("/v1/jobs/batch", b'{"jobs": [{"kind": "x"}, {"kind": "x", "kind": "y"}]}'),
    "list": ("/v1/jobs/batch", b'{"jobs": [{"kind": "x"}], "jobs": [{"kind": "y"}]}'),
    "filter": (
        "/v1/bulk",
        b'{"action": "cancel", "preview": true, "filter": {"kind": "x", "kind": "y"}}',
    ),
    "result": ("/v1/leases/settle", SUCCESS + b',"result":{"a":1,"a":2}}]}'),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_key_that_is_given_twice_is_refused(api, name):
    """Parsers differ in which of the two counts, so that what was checked is not what runs."""
    path, body = TWICE[name]
    answer = api().post(path, content=body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (400, "json_invalid"), answer.text
    assert "is given twice in one object" in answer.json()["detail"]
    assert api.app.list().jobs == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind": "x", "payload": {"a": "\\ud800"}}',
        b'{"kind": "x", "payload": {"a": "\\udc00\\ud800"}}',
        b'{"kind": "x", "payload": {"a": "\\ud83d\\ude00 \\uD83D x"}}',
    ],
)
def test_half_of_a_surrogate_pair_is_named(api, body):
    """It is no character, and can't be stored."""
    answer = api().post("/v1/jobs", content=body, headers=JSON)
    whole = api().post(
        "/v1/jobs", content=b'{"kind": "x", "payload": {"a": "\\ud83d\\ude00"}}', headers=JSON
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "json_invalid")
    assert "half of a surrogate pair at byte" in answer.json()["detail"]
    assert whole.status_code == 201


def test_compressed_bodies_are_refused(api):
    """They would have to be unpacked before their size is known."""
    statuses = [
        api().post(
            "/v1/jobs", content=b'{"kind": "x"}', headers={**JSON, "content-encoding": encoding}
        ).status_code
        for encoding in ("gzip", "br", "identity", "Identity")
    ]  # fmt: skip

    assert statuses == [415, 415, 201, 201]


@contextlib.contextmanager
def half_sent(api, *, length: int, sent: int, token: str):
    """A request for one job whose body stops before its end."""
    parts = urlsplit(api.address)
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(head.encode() + b" " * sent)
        yield connection


def test_large_bodies_share_a_budget(api, monkeypatch):
    """One token can't take all of it, small requests need none, and what stalls gives it back."""
    monkeypatch.setattr(config, "HTTP_BODIES_BYTES_MAX", 256 * 1024)
    monkeypatch.setattr(config, "HTTP_BODIES_WAIT_SECONDS", 0.05)
    # Only its end gives back what the body takes, however slow the machine is.
    monkeypatch.setattr(config, "HTTP_BODY_PAUSE_SECONDS", 600.0)
    monkeypatch.setattr(config, "HTTP_BODY_SECONDS", 600.0)
    large = {"kind": "x", "payload": {"a": "b" * 120_000}}
    token = api.tokens["admin", None]

    def post(scope: str, new: object = large) -> httpx.Response:
        return api(scope).post("/v1/jobs", json=new)

    before = post("admin").status_code
    with half_sent(api, length=500_000, sent=180_000, token=token):
        refused = eventually(lambda: post("admin"), lambda answer: answer.status_code == 503)
        others = post("enqueue").status_code
        small = post("admin", {"kind": "x"}).status_code
    after = eventually(lambda: post("admin"), lambda answer: answer.status_code == 201)

    assert (before, others, small) == (201, 201, 201)
    assert refused.json()["code"] == "overloaded"
    assert refused.headers["retry-after"] == "2"
    assert after.status_code == 201


def test_a_large_body_must_not_pause(api, monkeypatch):
    """It would hold its room for as long."""
    monkeypatch.setattr(config, "HTTP_BODY_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(config, "HTTP_DRAIN_SECONDS", 0.1)
    token = api.tokens["admin", None]
    with half_sent(api, length=500_000, sent=100_000, token=token) as connection:
        problem = problem_in(answer_on(connection))

    assert problem["code"] == "request_timeout"
    assert "paused" in problem["detail"]


@pytest.mark.parametrize("count", [50, 200])
def test_long_lists_are_compressed(api, count):
    """For those who take it, short of a thread and in one; a short list is not."""
    api.app.enqueue_many([{"kind": "x"}] * count)
    gzipped, plain = (
        api().get("/v1/jobs", params={"limit": count}, headers={"accept-encoding": accepted})
        for accepted in ("br, gzip;q=0.8", "gzip;q=0")
    )
    short = api().get("/v1/jobs", params={"queue": "none"})
    job = api().get(f"/v1/jobs/{plain.json()['jobs'][0]['id']}")

    assert gzipped.headers["content-encoding"] == "gzip"
    assert int(gzipped.headers["content-length"]) < len(plain.content) / 5
    assert gzipped.json() == plain.json()
    for answer in (plain, short, job):
        assert "content-encoding" not in answer.headers
    assert [each.headers.get("vary") for each in (gzipped, plain, short, job)] == [
        "Accept-Encoding",
        "Accept-Encoding",
        "Accept-Encoding",
        None,
    ]


def test_a_list_that_has_not_changed_is_not_sent_again(api):
    """The tag of an answer stands for it, compressed or not, until a job changes."""
    jobs = api.app.enqueue_many([{"kind": "x"}] * 20)
    first = api().get("/v1/jobs", headers={"accept-encoding": "gzip"})
    tag = first.headers["etag"]

    def ask(tags: str) -> httpx.Response:
        return api().get("/v1/jobs", headers={"if-none-match": tags})

    same, other = ask(f'"x", {tag}'), ask('"x"')
    api.app.cancel(jobs[0].id)
    changed = ask(tag)

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert same.headers["cache-control"] == "no-store"
    assert (other.status_code, other.json()) == (200, first.json())
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
