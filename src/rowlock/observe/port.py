"""A worker's own port for `/metrics`, `/healthz` and `/readyz`, served by its supervisor.

Threads of the supervisor's process answer. That process runs no user code, so no handler can hold
them up. Connections are bounded in number, time and bytes, because the supervisor must go on to
extend leases whatever is sent to this port. Errors of clients are not logged.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.observe.metrics import CONTENT_TYPE, exposition, of_counts, of_slots
from rowlock.worker.shared_memory import Snapshot

logger: logging.Logger = logging.getLogger("rowlock.worker")

Ask = Callable[[], Snapshot]


class WorkerPort:
    """Listens as soon as it is created, and serves while the block lasts.

    Raises:
        OptionInvalid: The port can't be listened on.
    """

    def __init__(self, ask: Ask, *, host: str, port: int) -> None:
        try:
            self._server = _PortServer((host, port), _Handler)
        except OSError as error:
            problem = f"can't listen on {host}:{port}: {error}"
            if error.errno == errno.EADDRINUSE:
                problem = (
                    f"another program listens on {host}:{port}; choose another --metrics-port, or "
                    "0 for a free one"
                )
            raise OptionInvalid("metrics-port", problem) from error
        self._server.ask = ask
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="rowlock-metrics", daemon=True
        )

    @property
    def address(self) -> str:
        """The URL of the port."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _PortServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    # Beyond it, the kernel lets clients wait for seconds.
    request_queue_size = 128
    ask: Ask

    def __init__(self, *args: Any) -> None:
        self._guard = threading.Lock()
        # With the time at which each has to end, the oldest first.
        self._open: dict[Any, float] = {}
        self._quiet_until = 0.0
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            if len(self._open) >= config.METRICS_PORT_CONNECTIONS_MAX:
                self._cut(next(iter(self._open)))
            self._open[request] = time.monotonic() + config.METRICS_PORT_SECONDS
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called twice a second: end connections whose time is over."""
        with self._guard:
            now = time.monotonic()
            for request in [each for each, end in self._open.items() if end <= now]:
                self._cut(request)

    def _cut(self, request: Any) -> None:
        """End a connection. Its thread, which may be reading, then closes it."""
        del self._open[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of ours, at most once per interval, and none of a client's."""
        error, now = sys.exception(), time.monotonic()
        if isinstance(error, OSError | LineTooLong) or now < self._quiet_until:
            return
        self._quiet_until = now + config.HTTP_COMPLAINT_SECONDS
        logger.error("the metrics port could not answer", exc_info=error)


class _BoundedReader:
    """Reads the lines of a request, up to a number of bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = config.METRICS_PORT_BYTES_MAX

    def readline(self, limit: int) -> bytes:
        line = self._file.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("request")
        return line

    def close(self) -> None:
        self._file.close()


class _Handler(BaseHTTPRequestHandler):
    server: _PortServer

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _BoundedReader(self.rfile)

    def do_GET(self) -> None:
        snapshot = self.server.ask()
        match self.path.partition("?")[0]:
            case "/metrics":
                text = exposition([*of_counts(snapshot.counts), *of_slots(snapshot.slots)])
                self._answer(200, text, CONTENT_TYPE)
            case "/healthz":
                self._answer_json(200, {"status": "ok"})
            case "/readyz":
                is_ready = snapshot.ready > 0
                status = {"status": "ok" if is_ready else "not ready"}
                children = {"children": snapshot.children, "ready": snapshot.ready}
                self._answer_json(200 if is_ready else 503, {**status, **children})
            case _:
                self._answer_json(404, {"status": "there is no such path"})

    def _answer_json(self, status: int, body: dict[str, object]) -> None:
        self._answer(status, msgspec.json.encode(body), "application/json")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Don't log scrapes."""

    def version_string(self) -> str:
        return "rowlock"
