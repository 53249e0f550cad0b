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
    """Whether only this machine can reach what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class HttpServer:
    """A server that listens from the moment it is made, and serves when it is run.

    Without a token ever made it is open on loopback, and refuses to be made anywhere else.

    Raises:
        OptionInvalid: The address can't be had, or is not loopback and there is no token.
        MigrationNeeded: The database has not the schema of this version.
    """

    def __init__(self, app: App, *, host: str, port: int, has_dashboard: bool = True) -> None:
        state = _token_state(app)
        is_local = is_loopback(host)
        if not is_local and state is not None and not state.any_live:
            raise OptionInvalid(
                "host",
                f"{host} can be reached from elsewhere, and no token holds: make one with "
                "`rowlock tokens create`, or listen on 127.0.0.1",
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
        """Where it is reached."""
        host, port, *_ = self._socket.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def waiting(self) -> int:
        """How many calls wait for jobs just now."""
        return self._api.service.doorbell.waiting

    @property
    def requests(self) -> int:
        """How many requests are worked on just now."""
        return self._api.requests

    def stop(self) -> None:
        """End it from another thread, politely."""
        self._server.should_exit = True

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C; what is being worked on is finished."""
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
        # What it has to say while all is well is said by us, or by nobody.
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
        """The first signal ends it politely, and with exit code 0; a second one at once."""
        wish = self._wishes.hear()
        if wish is Wish.STOP:
            logger.info("stopping: %s", signal.Signals(sig).name)
        self.should_exit = True
        self.force_exit = wish is Wish.STOP_AT_ONCE

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Those who wait for news would hold up the end.
        self._api.service.stop()
        await super().shutdown(sockets)


def _token_state(app: App) -> TokenState | None:
    """None: the database is away, so nobody knows; and nobody is served."""
    try:
        return app.store.run(token_state())
    except StoreUnavailable as error:
        logger.warning("the database is away, and requests are refused until it is back: %s", error)
        return None


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Said here, and the protocol named above: asyncio does it for no socket that it was given.
        # Without, the second part of each answer waits 40 ms for the client's kernel.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        listening.close()
        raise OptionInvalid("port", f"{host}:{port} can't be listened on: {error}") from error
    return listening


class _Joined:
    """A transport that keeps the head of an answer until its body comes, or the loop comes round.

    uvicorn writes them one after the other, each by a call of the system: of 216 µs of processor
    time that an enqueue took on SQLite, the second one took more than a tenth.
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
    """One connection."""

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
            self._refuse(Refusal("head_too_large", "the head of the request is too large"))

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._forget_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_in_body = False
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refusal("http_invalid", "this is not HTTP/1.1"))

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(config.HTTP_HEADER_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        seconds = config.HTTP_HEADER_SECONDS
        self._refuse(Refusal("request_timeout", f"its head did not come within {seconds:g} s"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answer and close, unless an answer to an earlier request is under way."""
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
