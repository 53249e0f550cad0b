"""The doorbell of PostgreSQL: NOTIFY, coalesced, after the commit, without delaying callers.

A NOTIFY in every transaction serialises all commits of a database. So producers only report which
queues have news, and one thread rings for all of them, each queue at most once in a few
milliseconds. Workers also poll: a lost notification costs time, never a job.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rowlock import config

logger: logging.Logger = logging.getLogger("rowlock.bell")

Notify = Callable[[list[str]], None]
# A bell is in it for as long as it has news to ring. None: the bell is gone.
News: TypeAlias = "queue.SimpleQueue[Bell | None]"


def bell_text(queue: str) -> str:
    """The payload for a queue. Empty, for a name that is too long, means any queue."""
    return queue if len(queue.encode()) <= config.BELL_QUEUE_BYTES_MAX else ""


class Bell:
    """Rings for queues soon, from a thread of its own, which starts when first needed."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        # A signal handler may ring while it interrupts a ring.
        self._guard = threading.RLock()
        # Each thread has its own: a thread that must end has to learn of it, even if another thread
        # reads the news. Not an event, which is written in Python: an interrupt inside it could
        # leave its lock taken forever.
        self._news: News = queue.SimpleQueue()
        self._pending: set[str] = set()
        self._thread: threading.Thread | None = None

    def ring(self, queues: Iterable[str]) -> None:
        """Report that these queues have news. Returns at once."""
        with self._guard:
            self._pending.update(map(bell_text, queues))
            if self._thread is None:
                self._thread = self._started()
            self._news.put(self)

    def _started(self) -> threading.Thread | None:
        """The thread that rings from now on. None if this process can't start another thread."""
        self._news = queue.SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(self._news,), name="rowlock-bell", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            _say(error)
            return None
        # A bell that is no longer referenced needs no thread.
        weakref.finalize(self, self._news.put, None).atexit = False
        return thread

    def close(self) -> None:
        """Ring for pending news, then stop."""
        with self._guard:
            thread, self._thread = self._thread, None
            self._news.put(self)
        if thread is not None:
            thread.join()

    def ring_pending(self, news: News) -> bool:
        """Ring for pending news, in a bell's thread. Return whether that thread continues."""
        with self._guard:
            while not news.empty():
                news.get()
            queues, self._pending = sorted(self._pending), set()
            goes_on = self._thread is threading.current_thread()
        if queues:
            self._ring_now(queues)
        return goes_on

    def _ring_now(self, queues: list[str]) -> None:
        try:
            self._notify(queues)
        except Exception as error:  # noqa: BLE001  # any error: the next ring may succeed
            _say(error)


def _serve(news: News) -> None:
    """Ring when there is news. In between, nothing here references the bell."""
    pause = threading.Event()
    while (bell := news.get()) is not None:
        goes_on = bell.ring_pending(news)
        del bell
        if not goes_on:
            return
        pause.wait(config.BELL_SECONDS)


def _say(error: Exception) -> None:
    """Log that a ring failed. The jobs are committed, and workers poll."""
    logger.warning("could not notify workers, which will find the jobs by polling: %s", error)
