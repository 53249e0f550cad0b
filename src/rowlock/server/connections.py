"""The connections of a server: a bounded number, and idle ones give way to new ones.

1. There are fewer connections than the process may have open files, so that the database, logs and
   files of the dashboard can always be opened. The soft limit is raised for it at the start.
2. If all are taken, a new connection replaces the one that is idle for longest: first one that has
   not sent the head of a request yet, then one that is kept between two requests. A connection
   with a request in progress is never closed for it.
3. If none is idle, the new connection is answered with 503 and closed.
4. The log says so at most once per interval, however many come.

Rejected: a share of the connections per address. Behind a proxy all clients have the same address,
and without one an attacker has many. Callers are told apart once they have shown a token: see
`shares`.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import time
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from rowlock import config
from rowlock.server.problems import MEDIA_TYPE, Refusal

logger: logging.Logger = logging.getLogger("rowlock.server")

# Connections that still wait to be accepted.
_BACKLOG: Final = 2_048
# Replaced connections are closed in the next turn of the loop: until then there may be more.
_SLACK: Final = 16
# Refused in one turn of the loop.
_REFUSED_MAX: Final = 64
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Abortable(Protocol):
    """A connection that can be closed at once."""

    def abort(self) -> None: ...


class Connections:
    """Counts the connections of one server, and knows which are idle."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open = 0
        # Accepted, but not yet known to the loop.
        self._arriving = 0
        # Both in the order in which they became idle.
        self._silent: dict[Abortable, None] = {}
        self._kept: dict[Abortable, None] = {}
        self._quiet_until = 0.0

    def __len__(self) -> int:
        """How many are open."""
        return self._open

    @property
    def is_changing(self) -> bool:
        """Whether a new one has to wait for a turn of the loop, which may make room for it.

        Those that were replaced are closed by then, and those just accepted may be replaced.
        """
        is_idle = bool(self._silent or self._kept)
        is_full = self._open >= self.most
        return self._open >= self.most + _SLACK or (is_full and not is_idle and self._arriving > 0)

    def admit(self) -> bool:
        """Count a new connection, and return whether there is room for it."""
        if self._open >= self.most:
            self.complain(f"all {self.most:,} connections are in use")
            if not self._replace():
                return False
        self._open += 1
        self._arriving += 1
        return True

    def _replace(self) -> bool:
        longest = next(iter(self._silent), None) or next(iter(self._kept), None)
        if longest is None:
            return False
        self.note_busy(longest)
        longest.abort()
        return True

    def note_silent(self, connection: Abortable) -> None:
        """It is new, and has not sent the head of a request."""
        self._arriving -= 1
        self._silent[connection] = None

    def note_busy(self, connection: Abortable) -> None:
        """It has a request in progress."""
        self._silent.pop(connection, None)
        self._kept.pop(connection, None)

    def note_kept(self, connection: Abortable) -> None:
        """Its request is answered, and it is kept for another."""
        self._kept[connection] = None

    def note_closed(self, connection: Abortable) -> None:
        """It is closed."""
        self.note_busy(connection)
        self._open -= 1

    def complain(self, problem: str) -> None:
        """Log that connections are refused, at most once per interval."""
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + config.HTTP_COMPLAINT_SECONDS
        logger.warning(
            "%s: idle ones are closed, and new ones refused if none is idle; the limit is %s, "
            "or fewer if the process may have fewer open files (ulimit -n)",
            problem,
            f"{config.HTTP_CONNECTIONS_MAX:,}",
        )


class ListeningSocket(socket.socket):
    """Accepts connections as long as there is room for them.

    asyncio calls `accept` until it would block. An error for lack of open files would make it log
    thousands of tracebacks per second, so such an error never reaches it.
    """

    def __init__(self, family: socket.AddressFamily, connections: Connections) -> None:
        # With the protocol named: asyncio sets options of TCP only on such sockets.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._connections = connections
        # Given up to accept and refuse a connection when no other file can be opened.
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def listen(self, backlog: int = _BACKLOG, /) -> None:
        """Listen with our own backlog: for asyncio it is also how many it accepts in one turn."""
        super().listen(_BACKLOG)

    def accept(self) -> tuple[socket.socket, Any]:
        """A connection for which there is room. The others are refused."""
        for _ in range(_REFUSED_MAX):
            if self._connections.is_changing:
                break
            try:
                connection, address = super().accept()
            except OSError as error:
                if error.errno not in _OUT_OF_FILES:
                    raise
                self._connections.complain(f"can't accept connections: {error.strerror}")
                self._refuse_by_spare()
                continue
            if self._connections.admit():
                return connection, address
            _refuse(connection)
        raise BlockingIOError

    def _refuse_by_spare(self) -> None:
        os.close(self._spare)
        try:
            with suppress(OSError):
                _refuse(super().accept()[0])
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        if self.fileno() >= 0:
            os.close(self._spare)
        super().close()


def _refuse(connection: socket.socket) -> None:
    """Answer with 503, as far as that goes without waiting, and close."""
    refusal = Refusal("overloaded", "too many connections; try again later")
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.send(raw_answer(refusal))
        # What has arrived must be read: otherwise the close discards the answer.
        with suppress(BlockingIOError):
            connection.recv(config.HTTP_HEADER_BYTES_MAX)
        connection.shutdown(socket.SHUT_WR)


def raw_answer(refusal: Refusal) -> bytes:
    """The bytes of an answer after which the connection is closed."""
    problem = refusal.problem()
    body = msgspec.json.encode(problem)
    retry = f"retry-after: {config.HTTP_RETRY_SECONDS}\r\n" if problem.status == 503 else ""
    head = (
        f"HTTP/1.1 {problem.status} {problem.title}\r\n"
        f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        f"{retry}connection: close\r\n\r\n"
    )
    return head.encode() + body


def raise_file_limit() -> int:
    """Raise the limit of open files for this process, and return how many connections it allows."""
    reserve = config.HTTP_FILES_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.HTTP_CONNECTIONS_MAX + reserve
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    if soft == resource.RLIM_INFINITY:
        return config.HTTP_CONNECTIONS_MAX
    return min(config.HTTP_CONNECTIONS_MAX, soft - min(reserve, soft // 2))
