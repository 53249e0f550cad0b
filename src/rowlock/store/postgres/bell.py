"""The doorbell of PostgreSQL: NOTIFY, coalesced, after the commit, never in anyone's way.

A NOTIFY in every transaction serialises all commits of a database, so producers only say which
queues have news, and one thread rings for all of them, each queue at most once in a few
milliseconds. Workers poll beside the bell: a lost ring costs time, never a job.
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
# A bell is in it for as long as it has news that were not rung; None: it is gone.
News: TypeAlias = "queue.SimpleQueue[Bell | None]"


def bell_text(queue: str) -> str:
    """What is rung for a queue; the empty text, for a name too long, means any queue."""
    return queue if len(queue.encode()) <= config.BELL_QUEUE_BYTES_MAX else ""


class Bell:
    """Rings for queues soon, from a thread of its own, which is started when first needed."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        # A signal's handler may ring while it interrupts a ring.
        self._guard = threading.RLock()
        # Each thread has its own: one that is to end must hear that, whoever else is told of news.
        # Not an event, which is written in Python: an interrupt inside of it could leave its lock
        # taken for ever.
        self._news: News = queue.SimpleQueue()
        self._pending: set[str] = set()
        self._thread: threading.Thread | None = None

    def ring(self, queues: Iterable[str]) -> None:
        """Say that these queues have news; returns at once."""
        with self._guard:
            self._pending.update(map(bell_text, queues))
            if self._thread is None:
                self._thread = self._started()
            self._news.put(self)

    def _started(self) -> threading.Thread | None:
        """The thread that rings from now on; None if this process can have no more."""
        self._news = queue.SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(self._news,), name="rowlock-bell", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            _say(error)
            return None
        # Of a bell that nobody has any more, nobody needs the thread.
        weakref.finalize(self, self._news.put, None).atexit = False
        return thread

    def close(self) -> None:
        """Ring what is pending, then stop."""
        with self._guard:
            thread, self._thread = self._thread, None
            self._news.put(self)
        if thread is not None:
            thread.join()

    def ring_pending(self, news: News) -> bool:
        """Ring for what is pending, in a bell's thread; whether that thread goes on."""
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
        except Exception as error:  # noqa: BLE001  # of any kind: the next ring may succeed
            _say(error)


def _serve(news: News) -> None:
    """Ring when there is news. Between two of them nothing here holds the bell."""
    pause = threading.Event()
    while (bell := news.get()) is not None:
        goes_on = bell.ring_pending(news)
        del bell
        if not goes_on:
            return
        pause.wait(config.BELL_SECONDS)


def _say(error: Exception) -> None:
    """The jobs are committed, and workers poll: say it, and go on."""
    logger.warning("the doorbell could not be rung: %s", error)
