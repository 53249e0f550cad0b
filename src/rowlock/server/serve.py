"""Runs the API with uvicorn, for `rowlock serve` and `rowlock up`.

uvicorn reads the head of a request before our code is called, so its protocol gets bounds here:

1. A head that doesn't end within some seconds, or some kilobytes, ends its connection. So do
   trailers and the frames of chunks, in kilobytes.
2. Bytes that aren't HTTP are answered by a problem document, too.
3. The head of an answer leaves with the first part of its body.
4. A client that reads nothing of an answer for some seconds loses its connection.
5. Trailers are ignored. A proxy checks headers, not trailers, and they come after the decision who
   is admitted.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Sequence
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final, Self, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rowlock import config
from rowlock.app import App
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.server.alerts import AlertSettings
from rowlock.server.app import Api
from rowlock.server.connections import (
    Connections,
    ListeningSocket,
    raise_file_limit,
    raw_answer,
)
from rowlock.server.gate import Access, Openness
from rowlock.server.problems import Refusal
from rowlock.server.proxies import Proxies, networks_of
from rowlock.server.service import Service
from rowlock.store.ops.tokens import TokenState, token_state
from rowlock.tokens import digest_of, new_code
from rowlock.worker.signals import Wish, Wishes

logger: logging.Logger = logging.getLogger("rowlock.server")

# Connections accepted in one turn of the loop.
_ACCEPTED_MAX: Final = 128
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

    Args:
        is_open: Serve requests without a token. Only on loopback.
        has_login: Make a login link if there is no valid token. Only on loopback.
        trusted_proxies: Addresses and networks of proxies whose headers name the client.
        alerts: Where alerts are sent, if anywhere.

    Raises:
        OptionInvalid: The address can't be bound, or is not loopback and there is no valid token,
            or the server would be open.
        MigrationNeeded: The database lacks the schema of this version.
    """

    def __init__(
        self,
        app: App,
        *,
        host: str,
        port: int,
        is_open: bool = False,
        has_login: bool = False,
        trusted_proxies: Sequence[str] = (),
        has_dashboard: bool = True,
        alerts: AlertSettings | None = None,
        environment: str | None = None,
    ) -> None:
        proxies = Proxies(networks_of(trusted_proxies))
        state = _token_state(app)
        is_local = is_loopback(host)
        if not is_local:
            _check_reachable(host, state, is_open=is_open)
        # Whether there was a valid token at the start, or None if the database was away.
        self.has_token: bool | None = None if state is None else state.any_live
        self.is_open: bool = is_open
        is_locked_out = is_local and not is_open and self.has_token is False
        self._login = new_code() if has_login and is_locked_out else None
        self._connections = Connections(raise_file_limit())
        self._socket = listening(host, port, self._connections)
        access = Access(
            Openness.OPEN if is_open else Openness.CLOSED,
            hosts=_LOOPBACK_NAMES | {host.strip("[]").lower()},
            proxies=proxies,
            login=None if self._login is None else digest_of(self._login),
        )
        self._api = Api(
            Service(
                app,
                access=access,
                has_dashboard=has_dashboard,
                alerts=alerts,
                environment=environment,
            )
        )
        self._server = _UvicornServer(self._api, self._connections)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The URL of the server."""
        host, port, *_ = self._socket.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def login_link(self) -> str | None:
        """A link that signs one browser in, once, or None.

        The code is in the fragment, which no browser sends and no server logs.
        """
        return None if self._login is None else f"{self.address}/#login={self._login}"

    @property
    def waiting(self) -> int:
        """How many calls wait for jobs now."""
        return self._api.service.doorbell.waiting

    @property
    def requests(self) -> int:
        """How many requests are in progress."""
        return len(self._api.requests)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

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
    def __init__(self, api: Api, connections: Connections) -> None:
        # We log the start and the stop ourselves.
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        super().__init__(
            uvicorn.Config(
                api,
                http=cast("Any", partial(BoundedProtocol, connections=connections)),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_ACCEPTED_MAX,
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


def _check_reachable(host: str, state: TokenState | None, *, is_open: bool) -> None:
    """Raise `OptionInvalid` if a server that others can reach would let everybody in, or nobody."""
    if is_open:
        raise OptionInvalid(
            "open",
            f"{host} can be reached from other machines, and --open needs no token: listen on "
            "127.0.0.1, or leave out --open and make a token with `rowlock tokens create`",
        )
    if state is not None and not state.any_live:
        what = "all tokens have expired or were revoked" if state.any_made else "there is no token"
        raise OptionInvalid(
            "host",
            f"{host} can be reached from other machines, and {what}: make one with "
            "`rowlock tokens create`, or listen on 127.0.0.1",
        )


def _token_state(app: App) -> TokenState | None:
    """Whether there are tokens, or None if the database can't be reached.

    Then requests are refused until it can.
    """
    try:
        return app.store.run(token_state())
    except StoreUnavailable as error:
        logger.warning("requests are refused until the database is back: %s", error)
        return None


def listening(host: str, port: int, connections: Connections) -> socket.socket:
    """A socket that listens, and accepts connections while there is room for them."""
    opened = ListeningSocket(socket.AF_INET6 if ":" in host else socket.AF_INET, connections)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Set here because asyncio doesn't set it on a socket that it is given. Without it, the
        # second part of each answer waits 40 ms for the client.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.bind((host.strip("[]"), port))
        opened.listen()
    except (OSError, UnicodeError) as error:
        opened.close()
        problem = f"can't listen on {host}:{port}: {error}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            problem = (
                f"another program listens on {host}:{port}; choose another port, such as --port "
                f"{port % 65535 + 1}, or --port 0 for a free one"
            )
        raise OptionInvalid("port", problem) from error
    return opened


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
    """One connection, with bounds on the head of a request and on the time to read an answer."""

    transport: asyncio.Transport

    def __init__(self, *args: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._registry = connections
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        # Bytes of the head, or since the last byte of the body: chunks' frames and trailers.
        self._head_bytes = 0
        self._is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.transport: asyncio.Transport = cast("asyncio.Transport", _Joined(transport, self.loop))
        # Writing counts as paused while anything is unsent, so that the time for it is bounded.
        transport.set_write_buffer_limits(high=0)
        self._registry.note_silent(self)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        self._forget_write()
        self._registry.note_closed(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once. What is unsent is lost."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._is_in_body:
            self._expect_head()
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > config.HTTP_HEADER_BYTES_MAX:
            self._refuse(
                Refusal(
                    "head_too_large",
                    "the headers of the request are too large",
                )
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._head_bytes = 0
        self._forget_head()
        self._registry.note_busy(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_in_body = False
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_if_kept()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._expect_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_write()
        self._note_if_kept()

    def _note_if_kept(self) -> None:
        """Note that the connection waits for another request, and nothing is unsent."""
        if self.timeout_keep_alive_task is not None and not self.flow.write_paused:
            self._registry.note_kept(self)

    def _expect_progress(self) -> None:
        self._write_timer = self.loop.call_later(config.HTTP_WRITE_SECONDS, self._check_progress)

    def _check_progress(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent >= self._unsent:
            self.abort()
            return
        self._unsent = unsent
        self._expect_progress()

    def _forget_write(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

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
            self.transport.write(raw_answer(refusal))
        self.transport.close()
