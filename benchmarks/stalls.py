"""How long one client's input stops the HTTP server, and how much memory it takes.

python -m benchmarks.stalls [ATTACK...]

Each attack is sent to a server process of its own. Meanwhile a probe asks for `/healthz` without a
pause: its longest wait is the longest time that the event loop was stopped. The first row, without
an attack, is the noise of the machine. The peak of the memory is the kernel's own count.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock import App
from rowlock.store.ops.tokens import new_token
from rowlock.testing import ThrowAwayPostgres

BODY_BYTES = 63 * 10**6
STALLED = 20
QUIET_SECONDS = 3.0
PROBE = "--probe"


@dataclass(frozen=True)
class Target:
    """A server process, and a token of it."""

    process: subprocess.Popen[str]
    host: str
    port: int
    token: str

    def head(self, method: str, path: str, length: int) -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nhost: {self.host}\r\n"
            f"authorization: Bearer {self.token}\r\ncontent-type: application/json\r\n"
            f"content-length: {length}\r\n\r\n"
        ).encode()

    def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answer. 0 if the server closed the connection first."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def post(self, path: str, body: object) -> tuple[int, Any]:
        status, answer = self.call("POST", path, json.dumps(body).encode())
        return status, json.loads(answer) if answer else None

    def memory(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else 0


@contextmanager
def started(url: str) -> Iterator[Target]:
    new = new_token(name="benchmark", scopes=["enqueue", "work", "read"])
    with App(url) as app:
        app.store.run(new.add())
    environment = {**os.environ, "ROWLOCK_LOG_LEVEL": "error", "ROWLOCK_DATABASE_URL": url}
    words = [sys.executable, "-m", "rowlock.cli", "serve", "--port", "0"]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://([\d.]+):(\d+)", process.stdout.readline())
    assert found is not None
    try:
        yield Target(process, found[1], int(found[2]), new.secret.text)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Probe:
    """Asks for `/healthz` again and again, in a process of its own, and keeps the longest wait."""

    def __init__(self, target: Target) -> None:
        words = [sys.executable, "-m", "benchmarks.stalls", PROBE, target.host, str(target.port)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> float:
        return float(self._process.communicate()[0])


def probe(host: str, port: int) -> None:
    """Probe until stdin ends, and print the longest wait."""
    is_over = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=watch, daemon=True).start()
    connection = http.client.HTTPConnection(host, port, timeout=600)
    longest = 0.0
    print("begun", flush=True)
    while not is_over.is_set():
        began = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        longest = max(longest, time.perf_counter() - began)
    print(longest)


def lease_one(target: Target) -> dict[str, Any]:
    target.post("/v1/jobs", {"kind": "ping"})
    _, answer = target.post("/v1/leases", {"worker": "w", "kinds": ["ping"]})
    return {name: answer["leases"][0][name] for name in ("id", "token")}


def lost(held: dict[str, Any]) -> dict[str, Any]:
    return {**held, "outcome": "failed", "error": {"type": "OSError"}, "permanent": True}


def nothing(target: Target) -> int:
    time.sleep(QUIET_SECONDS)
    return target.call("GET", "/healthz")[0]


def traceback(target: Target) -> int:
    failed = {**lease_one(target), "outcome": "failed", "error": {"traceback": "\n" * 65_500}}
    return target.post("/v1/leases/settle", {"settlements": [failed]})[0]


def announce(target: Target) -> None:
    for number in range(20):
        kinds = [f"{number:02}-{place:04}-{'k' * 150}" for place in range(1_000)]
        target.post("/v1/leases", {"worker": f"w{number}", "kinds": kinds})


def kinds(target: Target) -> int:
    announce(target)
    return target.call("GET", "/v1/kinds")[0]


def why(target: Target) -> int:
    announce(target)
    _, made = target.post("/v1/jobs", {"kind": f"99-9999-{'k' * 150}"})
    return target.call("GET", f"/v1/jobs/{made['id']}/why")[0]


def dense(item: bytes, size: int) -> bytes:
    return b"[" + item * (size // len(item)) + b"0]"


def batch_of(field: bytes, item: bytes) -> Callable[[Target], int]:
    """One job with a field of tiny parts."""

    def attack(target: Target) -> int:
        value = dense(item, BODY_BYTES)
        value = value if field == b"tags" else b'{"a":' + value + b"}"
        body = b'{"jobs":[{"kind":"x","' + field + b'":' + value + b"}]}"
        return target.call("POST", "/v1/jobs/batch", body)[0]

    return attack


def honest_batch(target: Target) -> int:
    """Ten thousand jobs that are all accepted."""
    new = b'{"kind":"x","payload":{"a":' + dense(b"[1],", 5_800) + b"}}"
    body = b'{"jobs":[' + b",".join([new] * 10_000) + b"]}"
    return target.call("POST", "/v1/jobs/batch", body)[0]


def large_payloads(target: Target) -> int:
    """Sixty jobs whose payloads are as large and dense as they may be."""
    new = b'{"kind":"x","payload":{"a":' + dense(b"[12345678],", 10**6) + b"}}"
    return target.call("POST", "/v1/jobs/batch", b'{"jobs":[' + b",".join([new] * 60) + b"]}")[0]


def settle_result(target: Target) -> int:
    held = json.dumps({**lease_one(target), "outcome": "succeeded"}).encode()[:-1]
    body = b'{"settlements":[' + held + b',"result":' + dense(b"[],", BODY_BYTES) + b"}]}"
    return target.call("POST", "/v1/leases/settle", body)[0]


def stalled(target: Target) -> int:
    """Bodies that stop before their end."""
    with ExitStack() as stack:
        for _ in range(STALLED):
            connection = socket.create_connection((target.host, target.port))
            stack.enter_context(connection)
            connection.settimeout(2.0)
            try:
                connection.sendall(target.head("POST", "/v1/jobs/batch", BODY_BYTES))
                connection.sendall(b" " * (BODY_BYTES - 10**6))
            except OSError:
                pass
        return target.post("/v1/jobs", {"kind": "x", "payload": {"a": "b" * 100_000}})[0]


ATTACKS: dict[str, Callable[[Target], int]] = {
    "nothing": nothing,
    "traceback": traceback,
    "kinds": kinds,
    "why": why,
    "batch meta": batch_of(b"meta", b"[],"),
    "batch tags": batch_of(b"tags", b'"a",'),
    "batch payload": batch_of(b"payload", b'{"a":1},'),
    "honest batch": honest_batch,
    "large payloads": large_payloads,
    "settle result": settle_result,
    "stalled bodies": stalled,
}


def report(store: str, url: str, chosen: list[str]) -> None:
    with App(url) as app:
        app.migrate()
    for name in chosen:
        with started(url) as target:
            # What is imported and opened for the first request of each sort is no stall.
            target.post("/v1/leases/settle", {"settlements": [lost(lease_one(target))]})
            before = target.memory("VmHWM")
            probing = Probe(target)
            began = time.perf_counter()
            status = ATTACKS[name](target)
            seconds = time.perf_counter() - began
            longest = probing.end()
            more = (target.memory("VmHWM") - before) / 2**20
            print(
                f"{store:<9} {name:<15} {status or 'closed':>6}  {seconds:6.1f} s in all, "
                f"longest stall {longest * 1_000:7,.0f} ms, {more:6,.0f} MiB more",
                flush=True,
            )


def main() -> None:
    if sys.argv[1:2] == [PROBE]:
        probe(sys.argv[2], int(sys.argv[3]))
        return
    chosen = sys.argv[1:] or list(ATTACKS)
    with tempfile.TemporaryDirectory() as place:
        report("sqlite", f"sqlite:///{place}/rowlock.db", chosen)
    with ThrowAwayPostgres(durable=False) as server:
        report("postgres", server.url, chosen)


if __name__ == "__main__":
    main()
