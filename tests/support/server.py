"""A server in a thread, its app, and clients of it."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import closing
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import httpx
import msgspec
import psycopg
import uvicorn

import rowlock
from rowlock.server.serve import HttpServer
from rowlock.store.ops.tokens import new_token


class Running:
    """Serves an app from a thread; its clients are those of a browser-less world.

    `running("read", tenant="acme")` is a client with a token of that scope and tenant.
    """

    def __init__(self, app: rowlock.App, **options: Any) -> None:
        self.app = app
        self.server = HttpServer(app, host="127.0.0.1", port=0, **options)
        self.address = self.server.address
        self._clients: dict[Any, httpx.Client] = {}
        self.tokens: dict[tuple[str, str | None], str] = {}

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            client.close()
        self.server.__exit__(kind, error, traceback)
        self.app.close()

    def make_token(self, *scopes: str, tenant: str | None = None, **options: Any) -> str:
        """A new token; its text."""
        name = "+".join(scopes)
        new = new_token(name=name, scopes=scopes, tenant=tenant, **options)
        self.app.store.run(new.add())
        return new.secret.text

    def make_tokens(self) -> None:
        """One of each scope: bound to no tenant, to acme, to zoo."""
        for tenant in (None, "acme", "zoo"):
            for scope in ("enqueue", "read", "work", "admin"):
                self.tokens[scope, tenant] = self.make_token(scope, tenant=tenant)

    def __call__(self, scope: str = "admin", *, tenant: str | None = None) -> httpx.Client:
        """A client with one of those tokens."""
        return self.client(self.tokens[scope, tenant])

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """A client with that token, or with none, and with these headers."""
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        key = frozenset(headers.items())
        if key not in self._clients:
            # It keeps no cookies: tests share it.
            jar = CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))
            self._clients[key] = httpx.Client(
                base_url=self.address, headers=headers, cookies=jar, timeout=60, trust_env=False
            )
        return self._clients[key]


class RawClient:
    """A connection to a server, by a bare socket that sends what it is told to."""

    def __init__(self, running: Running, *, receive_bytes: int | None = None) -> None:
        parts = urlsplit(running.address)
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(60)
        self.socket.connect((parts.hostname, parts.port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.socket.close()

    def send(self, head: str, *, token: str | None = None, body: bytes = b"") -> None:
        """Send the head of a request, whose lines end with CRLF, and an empty line after it."""
        credential = "" if token is None else f"authorization: Bearer {token}\r\n"
        self.socket.sendall(f"{head}{credential}\r\n".encode() + body)

    def head(self) -> bytes:
        """The head of the next answer, read by the byte so that nothing after it is lost."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (byte := self.socket.recv(1)):
                break
            head += byte
        return head

    def status(self) -> int:
        """The status of the next answer."""
        return int(self.head().split()[1])


@contextlib.contextmanager
def served_plainly(application: Any) -> Iterator[str]:
    """Any ASGI application, by a plain uvicorn in a thread; its address, that listens already."""
    config = uvicorn.Config(application, port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    sock = config.bind_socket()
    sock.listen()  # uvicorn does so when its thread comes to it: whoever is quicker was refused
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


EMPTIED = (
    "job",
    "finished",
    "key_hold",
    "queue",
    "worker",
    "log",
    "schedule",
    "audit",
    "first_answer",
    "session",
    "bulk",
    "history",
    "depth",
    "event",
    "job_limit",
    "limit_key",
    "workflow",
    "edge",
    "stack",
)


class Item(msgspec.Struct):
    """A part of an order."""

    name: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


def make_app(url: str) -> rowlock.App:
    """An app with a few tasks that are never run here."""
    app = rowlock.App(url)

    @app.task(queue="mail", max_attempts=5)
    def send_email(to: str, subject: str = "") -> None: ...

    @app.task(queue="shop", priority=3)
    def order(items: list[Item], note: str | None = None) -> None: ...

    return app


def empty(url: str, *, tables: Collection[str] = EMPTIED) -> None:
    """Remove the rows of the tests before."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(path, timeout=30)) as file, file:
            for table in tables:
                file.execute(f"DELETE FROM rowlock_{table}")
        return
    with psycopg.connect(url, autocommit=True) as connection:
        for table in (*tables, "claim"):
            connection.execute(f"DELETE FROM rowlock.{table}".encode())


def lease(api: Running, **options: Any) -> dict[str, Any]:
    """Lease the only due job of the kind `ping`."""
    asked = {"worker": "node-1", "kinds": ["ping"], **options}
    leases: list[dict[str, Any]] = api("work").post("/v1/leases", json=asked).json()["leases"]
    (held,) = leases
    return held


def settle(api: Running, held: dict[str, Any], **outcome: Any) -> None:
    """Settle such a lease."""
    settlement = {"id": held["id"], "token": held["token"], **outcome}
    answer = api("work").post("/v1/leases/settle", json={"settlements": [settlement]})
    assert answer.json()["settled"] == 1
