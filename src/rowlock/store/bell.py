"""The doorbell of PostgreSQL: NOTIFY, coalesced, after the commit, never in anyone's way.

A NOTIFY in every transaction serialises all commits of a database, so producers only say which
queues have news, and one thread rings for all of them, each queue at most once in a few
milliseconds. Workers poll beside the bell: a lost ring costs time, never a job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from rowlock import config
from rowlock.errors import StoreUnavailable

logger: logging.Logger = logging.getLogger("rowlock.bell")

Notify = Callable[[list[str]], None]


def bell_text(queue: str) -> str:
    """What is rung for a queue; the empty text, for a name too long, means any queue."""
    return queue if len(queue.encode()) <= config.BELL_QUEUE_BYTES_MAX else ""


class Bell:
    """Rings for queues soon, from a thread of its own, which is started when first needed."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._guard = threading.Lock()
        self._news = threading.Event()
        self._pending: set[str] = set()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def ring(self, queues: Iterable[str]) -> None:
        """Say that these queues have news; returns at once."""
        with self._guard:
            self._pending.update(map(bell_text, queues))
            if self._thread is None:
                self._is_closing = False
                thread = threading.Thread(target=self._serve, name="rowlock-bell", daemon=True)
                self._thread = thread
                self._thread.start()
        self._news.set()

    def close(self) -> None:
        """Ring what is pending, then stop."""
        with self._guard:
            thread, self._thread = self._thread, None
            self._is_closing = True
        if thread is not None:
            self._news.set()
            thread.join()

    def _serve(self) -> None:
        pause = threading.Event()
        while True:
            self._news.wait()
            with self._guard:
                self._news.clear()
                queues, self._pending = sorted(self._pending), set()
                is_closing = self._is_closing
            if queues:
                self._ring_now(queues)
            if is_closing:
                return
            pause.wait(config.BELL_SECONDS)

    def _ring_now(self, queues: list[str]) -> None:
        try:
            self._notify(queues)
        except StoreUnavailable as error:
            # The jobs are committed, and workers poll: say it, and go on.
            logger.warning("the doorbell could not be rung: %s", error)
