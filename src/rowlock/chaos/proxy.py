"""A proxy in front of a PostgreSQL server that misbehaves on demand, for tests.

Of the protocol it reads only the five bytes at the head of each message, and the statement of a
query. Modes can be switched at any time, even for open connections.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from enum import Enum, auto
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

DELAY_SECONDS: Final = 0.05
POLL_SECONDS: Final = 0.02
_HEADER: Final = struct.Struct("!cI")
_READ_BYTES: Final = 65_536
# Query, and the end of an extended query: the messages that the server answers.
_ASKING: Final = (b"Q", b"S")
_PARSE: Final = b"P"
_BIND: Final = b"B"
_QUERY: Final = b"Q"
_WRITES: Final = re.compile(rb"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\b(?!\s+OF\b)")
# A zero linger time makes closing send a reset.
_RESET: Final = struct.pack("ii", 1, 0)


class Mode(Enum):
    """What the proxy does with traffic."""

    PASS = auto()
    DELAY = auto()
    # Connections are accepted and read, but nothing is passed on or answered.
    BLACKHOLE = auto()
    # New connections are reset at once, and open ones are cut.
    REFUSE = auto()


class FaultyProxy:
    """A context manager that proxies the server of a URL. Clients connect to `url`.

    Example:
        with FaultyProxy(server.url) as proxy:
            app = rowlock.App(proxy.url)
            proxy.mode = Mode.BLACKHOLE
    """

    def __init__(self, server_url: str) -> None:
        self._parts = urlsplit(server_url)
        self.mode: Mode = Mode.PASS
        # Whether clients' connections stay open after the server has closed its own ends.
        self.keeps_clients: bool = False
        # How many answers were swallowed so far.
        self.swallowed: int = 0
        self._bait: bytes | None = None
        self._skip = 0
        self._commits = 0
        self._guard = threading.Lock()
        self._links: set[_Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="faulty-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        # Wakes the accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join()

    @property
    def url(self) -> str:
        """The server's URL, through the proxy."""
        user, at, _ = self._parts.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))

    def cut(self) -> None:
        """Reset all open connections."""
        with self._guard:
            links = list(self._links)
        for link in links:
            link.cut()

    def refuse(self) -> None:
        """Cut open connections, and reset new ones."""
        self.mode = Mode.REFUSE
        self.cut()

    def swallow_answer(self, bait: bytes, *, skip: int = 0) -> None:
        """Let the next message with these bytes reach the server, and lose the answer, once.

        Args:
            bait: Bytes in the client's message, or in the messages of one extended query.
            skip: How many such messages are answered first.
        """
        with self._guard:
            self._bait, self._skip = bait, skip

    def swallow_commit(self) -> None:
        """Lose the answer to the next query that commits something, once.

        That is a COMMIT, or a statement outside a transaction that changes rows.
        """
        with self._guard:
            self._commits += 1

    def swallow_no_more(self) -> None:
        """Swallow no more answers."""
        with self._guard:
            self._bait, self._commits = None, 0

    def takes_bait(self, asked: bytes, *, commits: bool) -> bool:
        """Return whether to swallow the answer to these messages."""
        with self._guard:
            if self._commits and commits:
                self._commits -= 1
                self.swallowed += 1
                return True
            if self._bait is None or self._bait not in asked:
                return False
            if self._skip:
                self._skip -= 1
                return False
            self._bait = None
            self.swallowed += 1
            return True

    def _serve(self) -> None:
        while not self._is_closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.mode is Mode.REFUSE:
                _reset(client)
                continue
            try:
                server = socket.create_connection((self._parts.hostname, self._parts.port or 5432))
            except OSError:
                _reset(client)
                continue
            link = _Link(self, client, server)
            with self._guard:
                self._links.add(link)
            link.start()

    def forget(self, link: _Link) -> None:
        """Remove a connection that has ended."""
        with self._guard:
            self._links.discard(link)


class _Link:
    """One client's connection and its other half, with a thread for each direction."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._over = threading.Event()
        self._is_swallowing = False
        self._asked = b""
        self._pending = b""
        self._talk = _Talk()

    def start(self) -> None:
        for target in (self._to_server, self._to_client):
            threading.Thread(target=target, name="faulty-proxy", daemon=True).start()

    def cut(self) -> None:
        self._over.set()
        _reset(self._client)
        _reset(self._server)
        self._proxy.forget(self)

    def _to_server(self) -> None:
        with contextlib.suppress(OSError):
            while heard := self._client.recv(_READ_BYTES):
                if self._may_pass():
                    self._look_at(heard)
                    self._server.sendall(heard)
        self.cut()

    def _to_client(self) -> None:
        with contextlib.suppress(OSError):
            while heard := self._server.recv(_READ_BYTES):
                if self._is_swallowing:
                    break
                if self._may_pass():
                    self._client.sendall(heard)
        while self._proxy.keeps_clients and not self._over.wait(POLL_SECONDS):
            pass
        self.cut()

    def _may_pass(self) -> bool:
        """Return whether to pass on what was read. In a black hole it is discarded."""
        if self._proxy.mode is Mode.DELAY:
            self._over.wait(DELAY_SECONDS)
        return self._proxy.mode is not Mode.BLACKHOLE and not self._over.is_set()

    def _look_at(self, heard: bytes) -> None:
        """Follow the client's messages, by their headers, to the end of each query."""
        self._pending += heard
        while len(self._pending) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._pending)
            # Start-up messages have no type, and are shorter than what would set the first byte.
            size = int.from_bytes(self._pending[:4]) if kind == b"\0" else length + 1
            if len(self._pending) < size:
                return
            message, self._pending = self._pending[:size], self._pending[size:]
            self._asked += self._talk.hear(kind, message[_HEADER.size :])
            if kind in _ASKING:
                asked, self._asked = self._asked, b""
                takes = self._proxy.takes_bait(asked, commits=self._talk.commits())
                self._is_swallowing = self._is_swallowing or takes


class _Talk:
    """Tracks whether a client's queries commit something."""

    def __init__(self) -> None:
        # Prepared statements by name.
        self._texts: dict[bytes, bytes] = {}
        self._is_begun = False
        self._is_commit = False

    def hear(self, kind: bytes, body: bytes) -> bytes:
        """Hear a message, and return what is asked by it, with the text of a prepared statement.

        To prepare a statement asks for nothing yet.
        """
        if kind == _PARSE:
            name, _, text = body.partition(b"\0")
            self._texts[name] = text
            return b""
        if kind == _BIND:
            name = body.partition(b"\0")[2].partition(b"\0")[0]
            body = self._texts.get(name, b"") + body
        if kind in (_BIND, _QUERY):
            self._hear_text(body)
            self._is_commit |= bool(_WRITES.search(body)) and not self._is_begun
        return body

    def _hear_text(self, text: bytes) -> None:
        if text.startswith(b"BEGIN"):
            self._is_begun = True
        elif text.startswith((b"COMMIT", b"ROLLBACK")):
            self._is_begun, self._is_commit = False, text.startswith(b"COMMIT")

    def commits(self) -> bool:
        """Return whether the query that has just ended commits, and start the next."""
        commits, self._is_commit = self._is_commit, False
        return commits


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # Wakes the thread that reads from it; closing alone does not.
        end.shutdown(socket.SHUT_RD)
    end.close()
