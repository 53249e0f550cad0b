"""Progress and log lines of a run, written without holding up an event loop."""

from __future__ import annotations

import asyncio
import threading
import time

from rowlock import config
from rowlock.errors import LeaseLost
from rowlock.job import Lease
from rowlock.store import Store


class BlockingNotes:
    """For handlers in a thread: written at once, progress at most twice a second."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._next = 0.0
        self._pending: tuple[float, str] | None = None

    def progress(self, fraction: float, text: str) -> None:
        self._pending = (fraction, text)
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        if self._pending is None:
            return
        (fraction, text), self._pending = self._pending, None
        self._next = time.monotonic() + config.PROGRESS_SECONDS
        self._store.progress(self._lease, fraction=fraction, text=text)

    def log(self, line: str) -> None:
        self._store.log(self._lease, [line])


class LoopNotes:
    """For coroutines: gathered here, written by `aflush` beside the handler."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._guard = threading.Lock()
        self._pending: tuple[float, str] | None = None
        self._lines: list[str] = []

    def progress(self, fraction: float, text: str) -> None:
        with self._guard:
            self._pending = (fraction, text)

    def log(self, line: str) -> None:
        with self._guard:
            if len(self._lines) < config.LOG_LINES_MAX:
                self._lines.append(line)

    async def aflush(self) -> None:
        """Write what was gathered. In a thread: this loop may end before its connections do."""
        with self._guard:
            pending, self._pending = self._pending, None
            lines, self._lines = self._lines, []
        if pending is not None or lines:
            await asyncio.to_thread(self._write, pending, lines)

    def _write(self, pending: tuple[float, str] | None, lines: list[str]) -> None:
        try:
            if pending is not None:
                self._store.progress(self._lease, fraction=pending[0], text=pending[1])
            if lines:
                self._store.log(self._lease, lines)
        except LeaseLost:
            # Another runs it now; there is nobody left to write for.
            return
