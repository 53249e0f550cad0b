"""Runs the API with uvicorn, for `rowlock serve` and `rowlock up`.

uvicorn reads the head of a request before our code is called, so its protocol gets bounds here:

1. A head that doesn't end within some seconds, or some kilobytes, ends its connection.
2. Bytes that aren't HTTP are answered by a problem document, too.
3. The head of an answer leaves with the first part of its body.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import threading
from types import FrameType, TracebackType
from typing import Any, Final, Self, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rowlock import config
from rowlock.app import App
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.server.app import Api
from rowlock.server.gate import Openness
from rowlock.server.problems import MEDIA_TYPE, Refusal
from rowlock.server.service import Service
from rowlock.store.ops.tokens import TokenState, token_state
from rowlock.worker.signals import Wish, Wishes

logger: logging.Logger = logging.getLogger("rowlock.server")

_BACKLOG: Final = 2_048
_ANSWER: Final = b"HTTP/1.1 "
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class HttpServer:
    """A server that listens as soon as it is constructed, and serves once it is run.

    Until the first token is made, it is open on loopback, and refuses any other address.

    Raises:
        OptionInvalid: The address can't be bound, or is not loopback and there is no valid token.
        MigrationNeeded: The database lacks the schema of this version.
    """

    def __init__(self, app: App, *, host: str, port: int, has_dashboard: bool = True) -> None:
        state = _token_state(app)
        is_local = is_loopback(host)
        if not is_local and state is not None and not state.any_live:
            raise OptionInvalid(
                "host",
                f"{host} can be reached from other machines, and there is no valid token: make one "
                "with `rowlock tokens create`, or listen on 127.0.0.1",
            )
        self.is_open: bool = is_local and state is not None and not state.any_made
        self._socket = _listening(host, port)
        self._api = Api(
            Service(
                app,
                openness=Openness.UNTIL_TOKENS if is_local else Openness.CLOSED,
                hosts=_LOOPBACK_NAMES | {host.strip("[]").lower()},
                has_dashboard=has_dashboard,
            )
        )
        self._server = _UvicornServer(self._api)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The URL of the server."""
        host, port, *_ = self._socket.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def waiting(self) -> int:
        """How many calls wait for jobs now."""
        return self._api.service.doorbell.waiting

    @property
    def requests(self) -> int:
        """How many requests are in progress."""
        return self._api.requests

    def stop(self) -> None:
        """Stop gracefully. It may be called from another thread."""
        self._server.should_exit = True

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C. Requests in progress are finished."""
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        """Serve from a thread."""
        self._thread = threading.Thread(target=self.run, name="rowlock-server", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        self.stop()
        self._thread.join()


class _UvicornServer(uvicorn.Server):
    def __init__(self, api: Api) -> None:
        # We log the start and the stop ourselves.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        super().__init__(
            uvicorn.Config(
                api,
                http=BoundedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=config.HTTP_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(config.HTTP_STOP_SECONDS),
            )
        )
        self._api = api
        self._wishes = Wishes()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully at the first signal, with exit code 0, and at once at the second."""
        wish = self._wishes.hear()
        if wish is Wish.STOP:
            logger.info("stopping: %s", signal.Signals(sig).name)
        self.should_exit = True
        self.force_exit = wish is Wish.STOP_AT_ONCE

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Waiting calls would delay the end.
        self._api.service.stop()
        await super().shutdown(sockets)


def _token_state(app: App) -> TokenState | None:
    """Whether there are tokens, or None if the database can't be reached.

    Then requests are refused until it can.
    """
    try:
        return app.store.run(token_state())
    except StoreUnavailable as error:
        logger.warning("requests are refused until the database is back: %s", error)
        return None


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Set here, with the protocol named above, because asyncio doesn't set it on a socket that
        # it is given. Without it, the second part of each answer waits 40 ms for the client.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        listening.close()
        raise OptionInvalid("port", f"can't listen on {host}:{port}: {error}") from error
    return listening


class _Joined:
    """A transport that holds the head of an answer back until its body, or one turn of the loop.

    uvicorn writes them separately, with a system call each: of the 216 µs of processor time of an
    enqueue on SQLite, the second call took more than a tenth.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_ANSWER):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(HttpToolsProtocol):
    """One connection, with bounds on the head of a request."""

    transport: asyncio.Transport

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.transport: asyncio.Transport = cast("asyncio.Transport", _Joined(transport, self.loop))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_in_body:
            self._expect_head()
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._is_in_body and self._head_bytes > config.HTTP_HEADER_BYTES_MAX:
            self._refuse(
                Refusal(
                    "head_too_large",
                    "the headers of the request are too large",
                )
            )

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._forget_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_in_body = False
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("http_invalid", "the request is not HTTP/1.1"))

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(config.HTTP_HEADER_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        seconds = config.HTTP_HEADER_SECONDS
        self._refuse(Refusal("request_timeout", f"the head did not arrive within {seconds:g} s"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close, unless an earlier request is still being answered."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            problem = refusal.problem()
            body = msgspec.json.encode(problem)
            head = (
                f"HTTP/1.1 {problem.status} {problem.title}\r\n"
                f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
                "connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
