"""A worker's own port for `/metrics`, `/healthz` and `/readyz`, served by its supervisor.

A thread of the supervisor's process answers. That process runs no user code, so no handler can hold
it up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

import msgspec

from rowlock.errors import OptionInvalid
from rowlock.observe.metrics import CONTENT_TYPE, exposition, of_counts, of_slots
from rowlock.worker.shared_memory import Snapshot

_REQUEST_SECONDS: Final = 10.0

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
            raise OptionInvalid("metrics-port", f"{port} can't be listened on: {error}") from error
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
    ask: Ask


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _PortServer

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
