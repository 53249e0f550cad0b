"""Requests that nobody in their right mind sends, to a real server: answers, and its memory.

python -m benchmarks.malformed [REQUESTS]

Wrong types, random bytes, bodies that are too deep or too large, heads and bodies that come too
slowly or never. What counts: no 5xx, and no more memory than before.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.http import Target, started
from rowlock import App
from rowlock.server.routes import ROUTES
from rowlock.store.ops.tokens import new_token
from rowlock.testing import ThrowAwayPostgres

SEED = 20_300_131
REQUESTS = 10_000
# A stream has no end to wait for.
API = [route for route in ROUTES if not route.is_page and route.item is None]
# What breaks parsers, databases and languages.
NASTY: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 0.1, "", " ", "\0",
    "\x1b[2J", "\ud7ff", "\uffff", "💥", "a" * 10_000, "'; DROP TABLE job; --", "%s%s%n", "../..",
    "null", "NaN", [], {}, [[]], [{}], {"": {}}, {"a": "\0"}, ["\0"], {"\0": 1}, "2030-01-31",
    "2030-02-30T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
]  # fmt: skip
_HEADS = [b"", b"GET ", b"POST /v1/jobs HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nhost: x\r\n"]


def nasty_body(chance: random.Random, route: Any) -> bytes:
    """A body that is almost right: fields of the real one, with values of every kind."""
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
    """The path of a route, filled with what is no id and hardly a name."""
    filled = path
    for name in ("{id}", "{queue}", "{name}"):
        value = str(chance.choice(NASTY))[:300].replace("\ud7ff", "x")
        filled = filled.replace(name, quote(value or "x", safe=""))
    if chance.random() < 0.2:
        letters = chance.choices(string.printable, k=5)
        filled += "?" + quote("".join(letters), safe="=&")
    return filled


def noise(chance: random.Random) -> bytes:
    """What is no HTTP, or hardly."""
    return chance.choice(_HEADS) + chance.randbytes(chance.randint(1, 2_000)) + b"\r\n\r\n"


def deep_body(chance: random.Random) -> bytes:
    """A payload of brackets within brackets."""
    depth = chance.choice([65, 1_000, 100_000, 1_000_000])
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
    middle = b"1" if opening != b"[" else b""
    return b'{"kind":"x","payload":{"a":' + opening * depth + middle + closing * depth + b"}}"


def asked(
    target: Target, method: str, path: str, body: bytes, *, length: int | None = None
) -> bytes:
    """A request as it goes over the wire; `length` is what it says of itself."""
    size = len(body) if length is None else length
    return (
        f"{method} {path} HTTP/1.1\r\nhost: {target.host}\r\nconnection: close\r\n"
        f"authorization: Bearer {target.token}\r\ncontent-type: application/json\r\n"
        f"content-length: {size}\r\n\r\n"
    ).encode() + body


def status_of(answer: bytes) -> str:
    """The status of an answer; `closed` if there was none."""
    return answer[9:12].decode("ascii", "replace") if answer.startswith(b"HTTP/1.1 ") else "closed"


def exchange(target: Target, sent: bytes) -> bytes:
    """Send it all, and read until the server closes. What is no whole request ends with its end."""
    with socket.create_connection((target.host, target.port), timeout=60) as connection:
        try:
            connection.sendall(sent)
            if b"connection: close" not in sent:
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65_536), b""))  # used at once
        except TimeoutError:
            raise
        except OSError:
            # It was closed before all was sent.
            return b""


def almost_right(target: Target, chance: random.Random) -> bytes:
    route = chance.choice(API)
    body = nasty_body(chance, route) if route.method == "POST" else b""
    return asked(target, route.method, nasty_path(chance, route.path), body)


def huge(target: Target, chance: random.Random) -> bytes:
    """More than is taken: said beforehand, or found out while it comes; or a head without end."""
    match chance.randrange(3):
        case 0:
            said = asked(target, "POST", "/v1/jobs", b"x" * 65_536, length=10**12)
            return said.replace(b"connection: close\r\n", b"")
        case 1:
            return asked(target, "POST", "/v1/jobs", b'"' + b"x" * (9 * 2**20) + b'"')
        case _:
            return b"GET /healthz HTTP/1.1\r\nx-long: " + b"x" * 200_000


def slow(target: Target, count: int, seconds: float) -> Counter[str]:
    """Connections that begin a request and never end it, all at once; how each was ended."""
    beginnings = [
        b"GET /v1/jobs HT",
        b"",
        asked(target, "POST", "/v1/jobs", b'{"kind"', length=100),
    ]
    statuses: Counter[str] = Counter()
    with selectors.DefaultSelector() as waiting:
        for number in range(count):
            connection = socket.create_connection((target.host, target.port), timeout=60)
            connection.sendall(beginnings[number % len(beginnings)])
            waiting.register(connection, selectors.EVENT_READ, connection)
        end = time.monotonic() + seconds
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(timeout=1):
                statuses[status_of(_received(key.data))] += 1
                waiting.unregister(key.data)
                key.data.close()
        statuses["still open"] += len(waiting.get_map())
        for key in list(waiting.get_map().values()):
            key.data.close()
    return statuses


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def memory_kib(pid: int | str = "self") -> int:
    """The resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def sent_to(target: Target, count: int, chance: random.Random) -> Counter[str]:
    """So many of each sort, mixed."""
    sorts: list[tuple[int, Callable[[], bytes]]] = [
        (60, lambda: almost_right(target, chance)),
        (30, lambda: noise(chance)),
        (7, lambda: asked(target, "POST", "/v1/jobs", deep_body(chance))),
        (3, lambda: huge(target, chance)),
    ]
    makers = [make for _, make in sorts]
    weights = [weight for weight, _ in sorts]
    statuses: Counter[str] = Counter()
    for _ in range(count):
        (make,) = chance.choices(makers, weights)
        statuses[status_of(exchange(target, make()))] += 1
    return statuses


def report(name: str, url: str, count: int) -> None:
    new = new_token(name="benchmark", scopes=["admin"])
    with App(url) as app:
        app.migrate()
        app.store.run(new.add())
    chance = random.Random(SEED)
    serve = [sys.executable, "-m", "rowlock.cli", "serve", "--port", "0"]
    with started(serve, token=new.secret.text, url=url) as target:
        pid = target.process.pid
        slow_ones = count // 50
        # All of the code has run, and all pools are full, before memory is compared.
        statuses = sent_to(target, count // 10, chance)
        before = memory_kib(pid)
        statuses += sent_to(target, count - count // 10 - slow_ones, chance)
        statuses += slow(target, slow_ones, seconds=60)
        after = memory_kib(pid)
        ready = exchange(target, asked(target, "GET", "/readyz", b""))
        assert status_of(ready) == "200", ready
    bad = sum(number for status, number in statuses.items() if status.startswith("5"))
    told = ", ".join(f"{status}: {number:,}" for status, number in sorted(statuses.items()))
    print(f"{name}: {statuses.total():,} requests, {bad} of them 5xx ({told})")
    print(f"{name}: memory {before / 1024:.0f} MiB before, {after / 1024:.0f} MiB after")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    with tempfile.TemporaryDirectory() as place:
        report("sqlite", f"sqlite:///{place}/rowlock.db", count)
    with ThrowAwayPostgres() as server:
        report("postgres", server.url, count)


if __name__ == "__main__":
    main()
