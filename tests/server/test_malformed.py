"""Requests that nobody in their right mind sends: no 5xx, no crash, no growing memory."""

from __future__ import annotations

import random
import socket
import string
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from rowlock.server.table import ROUTES
from tests.server.running import Running

ROUNDS = 600
SEED = 20_300_131
API = [route for route in ROUTES if not route.is_page]
# What breaks parsers, databases and languages.
NASTY: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 0.1, "", " ", "\0",
    "\x1b[2J", "\ud7ff", "\uffff", "💥", "a" * 10_000, "'; DROP TABLE job; --", "%s%s%n", "../..",
    "null", "NaN", [], {}, [[]], [{}], {"": {}}, {"a": "\0"}, ["\0"], {"\0": 1}, "2030-01-31",
    "2030-02-30T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
]  # fmt: skip


def nasty_body(chance: random.Random, route: Any) -> bytes:
    """A body that is almost right: fields of the real one, with values of every kind."""
    import json

    if route.body is None or chance.random() < 0.2:
        value: Any = chance.choice(NASTY)
    else:
        names = [*route.body.__struct_fields__, "extra"]
        chosen = chance.sample(names, chance.randint(0, len(names)))
        value = {name: _value(chance, depth=2) for name in chosen}
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    encoded = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.2:
        place = chance.randrange(len(encoded) + 1)
        encoded = encoded[:place] + chance.randbytes(chance.randint(1, 8)) + encoded[place:]
    return encoded


def _value(chance: random.Random, depth: int) -> Any:
    pick = chance.random()
    if depth and pick < 0.15:
        return [_value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    if depth and pick < 0.3:
        names = ("id", "token", "outcome", "kind", "payload", "state", "fraction", "x")
        return {chance.choice(names): _value(chance, depth - 1) for _ in range(3)}
    return chance.choice(NASTY)


def nasty_path(chance: random.Random, path: str) -> str:
    filled = path
    for name in ("{id}", "{queue}", "{name}"):
        value = str(chance.choice(NASTY))[:300].replace("\ud7ff", "x")
        filled = filled.replace(name, quote(value or "x", safe=""))
    if chance.random() < 0.2:
        letters = chance.choices(string.printable, k=5)
        filled += "?" + quote("".join(letters), safe="=&")
    return filled


def test_almost_right_requests(api: Running):
    """Every route, with bodies and paths of every wrong kind, is answered without a 5xx."""
    chance = random.Random(SEED)
    client = api()
    statuses: dict[int, int] = {}
    for _ in range(ROUNDS):
        route = chance.choice(API)
        answer = client.request(
            route.method,
            nasty_path(chance, route.path),
            content=nasty_body(chance, route) if route.method == "POST" else None,
            headers={"content-type": "application/json"},
        )
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        if answer.status_code >= 400:
            assert "application/problem+json" == answer.headers["content-type"]

        assert answer.status_code < 500, (SEED, route.operation, answer.request.url, answer.text)
    assert {200, 404, 422} <= statuses.keys(), statuses


def test_random_bytes(api: Running):
    """Noise on the wire ends in an answer or a closed connection, and the server goes on."""
    chance = random.Random(SEED)
    parts = urlsplit(api.address)
    heads = [b"", b"GET ", b"POST /v1/jobs HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nhost: x\r\n"]
    before = memory_kib()
    for _ in range(ROUNDS // 2):
        noise = chance.choice(heads) + chance.randbytes(chance.randint(1, 2_000)) + b"\r\n\r\n"
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: _receive(connection), b""))  # used at once

        assert not answer.startswith(b"HTTP/1.1 5"), answer
    assert 200 == api().get("/healthz").status_code
    assert memory_kib() - before < 64 * 1024


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def memory_kib() -> int:
    """The resident memory of this process, in which the server runs."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
