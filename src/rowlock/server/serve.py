"""Runs the API with uvicorn: where it may listen, and how it ends. For `rowlock serve` and `up`."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
from types import FrameType, TracebackType
from typing import Final, Self

import uvicorn

from rowlock import config
from rowlock.app import App
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.server.app import Api
from rowlock.server.gate import Openness
from rowlock.server.protocol import BoundedProtocol
from rowlock.server.service import Service
from rowlock.store.ops.tokens import TokenState, token_state
from rowlock.worker.signals import Wish, Wishes

logger: logging.Logger = logging.getLogger("rowlock.server")

_BACKLOG: Final = 2_048
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
        self._server = _Server(self._api)
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


class _Server(uvicorn.Server):
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
