"""The doorbell of PostgreSQL: NOTIFY, coalesced, after the commit, without delaying callers.

A NOTIFY in every transaction serialises all commits of a database. So it is a transaction of its
own, after the commit, and a process rings for each queue at most once in a few milliseconds:

1. The first enqueue of a queue after that time sends it along, in the same round trip
   (`takes_turn`).
2. All others only report that there is news. One thread rings for them, if no enqueue has done it
   until a little after that time: a ring of its own needs another connection and round trip.

Workers also poll: a lost notification costs time, never a job.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rowlock import config
from rowlock.store.steps import News

logger: logging.Logger = logging.getLogger("rowlock.bell")

# So long after a ring, the thread rings if no enqueue has.
_THREAD_SECONDS = 1.5 * config.BELL_SECONDS

Notify = Callable[[list[str]], None]
# A bell is in it for as long as it has news to ring. None: the bell is gone.
Rings: TypeAlias = "queue.SimpleQueue[Bell | None]"


# Separates the names of a lane, and comes before them.
_LANE = "\x1f"


def bell_text(queue: str) -> str:
    """The payload for a queue. Empty, for a name that can't be sent, means any queue."""
    can_be_sent = len(queue.encode()) <= config.BELL_QUEUE_BYTES_MAX
    return queue if can_be_sent and not queue.startswith(_LANE) else ""


def news_text(news: News) -> str:
    """The payload for news: the lane, if it is short enough, or else the queue."""
    text = bell_text(news.queue)
    if not text or news.kind is None or _LANE in text:
        return text
    lane = _LANE.join(("", str(news.rank), text, news.kind))
    return lane if len(lane.encode()) <= config.BELL_LANE_BYTES_MAX else text


def read_news(text: str) -> News:
    """The news of a payload."""
    if not text.startswith(_LANE):
        return News(text)
    _, rank, queue, kind = text.split(_LANE, 3)
    return News(queue, int(rank), kind)


class Bell:
    """Rings for queues soon, from a thread of its own, which starts when first needed."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        # A signal handler may ring while it interrupts a ring.
        self._guard = threading.RLock()
        # Each thread has its own: a thread that must end has to learn of it, even if another thread
        # reads the news. Not an event, which is written in Python: an interrupt inside it could
        # leave its lock taken forever.
        self._news: Rings = queue.SimpleQueue()
        self._pending: set[str] = set()
        # When each queue was last rung for.
        self._rung_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def takes_turn(self, queue: str) -> bool:
        """Whether the caller rings for this queue itself. False: it was rung for a moment ago."""
        text, now = bell_text(queue), time.monotonic()
        with self._guard:
            if now < self._rung_at.get(text, -math.inf) + config.BELL_SECONDS:
                return False
            self._note_rung([text], now)
            self._pending.discard(text)
        return True

    def _note_rung(self, queues: Iterable[str], now: float) -> None:
        if len(self._rung_at) > config.BELL_QUEUES_MAX:
            self._rung_at.clear()
        self._rung_at.update(dict.fromkeys(queues, now))

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

    def ring_pending(self, news: Rings) -> bool:
        """Ring for pending news, in a bell's thread. Return whether that thread continues."""
        with self._guard:
            while not news.empty():
                news.get()
            queues, self._pending = sorted(self._pending), set()
            self._note_rung(queues, time.monotonic())
            goes_on = self._thread is threading.current_thread()
        if queues:
            self._ring_now(queues)
        return goes_on

    def seconds_left(self) -> float:
        """How long to leave the pending queues to the next enqueue."""
        with self._guard:
            rung = [self._rung_at.get(queue, -math.inf) for queue in self._pending]
        return min(rung, default=-math.inf) + _THREAD_SECONDS - time.monotonic()

    def _ring_now(self, queues: list[str]) -> None:
        try:
            self._notify(queues)
        except Exception as error:  # noqa: BLE001  # any error: the next ring may succeed
            _say(error)


def _serve(news: Rings) -> None:
    """Ring when there is news. In between, nothing here references the bell."""
    pause = threading.Event()
    while (bell := news.get()) is not None:
        if (left := bell.seconds_left()) > 0:
            pause.wait(left)
        goes_on = bell.ring_pending(news)
        del bell
        if not goes_on:
            return
        pause.wait(config.BELL_SECONDS)


def _say(error: Exception) -> None:
    """Log that a ring failed. The jobs are committed, and workers poll."""
    logger.warning("could not notify workers, which will find the jobs by polling: %s", error)
