"""Events, read from the database once for all who listen to this server; not while nobody does.

1. The order is that of the rows; a row that was committed late comes when it is seen.
2. New jobs are looked for by their ids, which begin with a time: nobody who enqueues writes an
   event. Those made by a clock that is seconds behind or a minute ahead, or was until it was set
   back, or with ids of their own, are not told.
3. A listener that reads slowly loses the oldest, and is told how many.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rowlock import config
from rowlock.events import Event, EventName, EventType
from rowlock.server.background import Background
from rowlock.store import Store
from rowlock.store.ops.events import NewJob, Told, last_event, newest_jobs, read_events
from rowlock.worker.services import listen
from rowlock.worker.trouble import ServiceName, Trouble, repeat


@dataclass(frozen=True, slots=True)
class FeedItem:
    """An event, when it was told, and the place from which a listener can go on after it."""

    event: Event
    at: int
    place: str | None = None


Fits = Callable[[Event], bool]


class Listener:
    """One who listens: what it has not read yet, bounded."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self._heard: deque[FeedItem] = deque()
        self._dropped = 0
        self.news: asyncio.Event = asyncio.Event()

    def hear(self, heard: FeedItem) -> None:
        """Keep it, if it is for this one."""
        if not self._fits(heard.event):
            return
        if len(self._heard) >= config.EVENTS_BUFFER_MAX:
            self._heard.popleft()
            self._dropped += 1
        self._heard.append(heard)
        self.news.set()

    def take(self) -> list[FeedItem]:
        """What there is; first of all how many were lost."""
        heard = list(self._heard)
        if self._dropped:
            gap = Event(EventType.DROPPED, "", "", count=self._dropped)
            heard.insert(0, FeedItem(gap, heard[0].at))
        self._heard.clear()
        self._dropped = 0
        self.news.clear()
        return heard


class Feed:
    """What happens, for all who listen here."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._listeners: set[Listener] = set()
        self._last: int | None = None
        self._seen: OrderedDict[int | str, None] = OrderedDict()

    @contextmanager
    def listening(self, fits: Fits) -> Iterator[Listener]:
        """Listen for as long as the block lasts."""
        listener = Listener(fits)
        self._listeners.add(listener)
        self._background.ensure("events", self._read_on)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def begin(self) -> None:
        """Tell of all that happens from now on; who listens already heard it anyway."""
        if self._last is not None:
            return
        last = await self._store.arun(last_event())
        told = await self._store.arun(read_events(last - config.EVENTS_OVERLAP_ROWS))
        jobs = await self._store.arun(newest_jobs())
        # If another has begun meanwhile, some of these may be news to whom that was answered.
        if self._last is None:
            self._last = last
            self._note([*(each.id for each in told), *(job.id for job in jobs)])

    def wake_all(self) -> None:
        """Let all see that the server stops."""
        for listener in self._listeners:
            listener.news.set()

    async def after(self, place: str) -> list[FeedItem]:
        """What was told after a place, as far as it is kept; nothing if the place is unknown."""
        row, _, index = place.partition(".")
        if not (row.isdecimal() and index.isdecimal() and len(row) < 19 and len(index) < 9):
            return []
        told = await self._store.arun(read_events(int(row) - 1))
        return [
            heard
            for each in told
            for number, heard in enumerate(_heard(each))
            if (each.id, number) > (int(row), int(index))
        ]

    async def _read_on(self) -> None:
        self._last = None
        errors = self._background.errors
        await repeat(
            self._read_while_heard, Trouble("events are not read", ServiceName.FEED, errors)
        )

    async def _read_while_heard(self) -> float:
        if not self._listeners:
            # Whoever comes next begins with what happens then.
            self._last = None
            return config.EVENTS_SECONDS
        await self.begin()
        for told in await self._told():
            if self._is_new(told.id):
                self._last = max(self._last or 0, told.id)
                self._tell(_heard(told))
        self._tell(self._enqueued(await self._store.arun(newest_jobs())))
        return config.EVENTS_SECONDS

    async def _told(self) -> list[Told]:
        assert self._last is not None
        told = await self._store.arun(read_events(self._last - config.EVENTS_OVERLAP_ROWS))
        if self._last and not told and await self._store.arun(last_event()) < self._last:
            # The table began anew: after a crash of the server it is empty.
            self._last = 0
        return told

    def _is_new(self, id: int | str) -> bool:
        if id in self._seen:
            return False
        self._note([id])
        return True

    def _note(self, ids: Iterable[int | str]) -> None:
        for id in ids:
            self._seen[id] = None
        most = 2 * (2 * config.EVENTS_NEW_MAX + config.EVENTS_ROWS_MAX)
        while len(self._seen) > most:
            self._seen.popitem(last=False)

    def _tell(self, heard: list[FeedItem]) -> None:
        for each in heard:
            for listener in self._listeners:
                listener.hear(each)

    def _enqueued(self, jobs: list[NewJob]) -> list[FeedItem]:
        new = [job for job in jobs if self._is_new(job.id)]
        if len(new) <= config.EVENTS_SINGLE_MAX:
            return [FeedItem(_enqueued(job), job.at) for job in new]
        names: Counter[EventName] = Counter((job.queue, job.kind, job.tenant) for job in new)
        return [
            FeedItem(Event(EventType.ENQUEUED, *name, count=number), new[-1].at)
            for name, number in names.items()
        ]


def _enqueued(job: NewJob) -> Event:
    return Event(EventType.ENQUEUED, job.queue, job.kind, job.tenant, job.id)


def _heard(told: Told) -> list[FeedItem]:
    return [
        FeedItem(event, told.at, f"{told.id}.{index}") for index, event in enumerate(told.events)
    ]


class Doorbell:
    """Wakes calls that wait for jobs of a queue. It only saves time: they poll anyway.

    A notification wakes a few waiting calls, not all: each polls with a query of its own, and on
    SQLite every write notifies. A call that finds a job wakes the next one, and the others poll
    within a second. So a job is found soon, and a notification costs the same however many wait.
    """

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        # In the order in which they came.
        self._waiting: dict[asyncio.Event, Collection[str] | None] = {}
        self._is_working = False
        self._rung: set[str] = set()
        self._next_at = 0.0

    @property
    def waiting(self) -> int:
        """How many wait just now."""
        return len(self._waiting)

    async def wait(self, queues: Collection[str] | None, seconds: float) -> None:
        """Until one of these queues (None: any) rings, it is time to look, or the time is over."""
        self._background.ensure("doorbell", self._listen)
        poll = config.POLL_SECONDS_WITH_BELL if self._is_working else config.POLL_SECONDS
        rung = asyncio.Event()
        self._waiting[rung] = queues
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, poll)):
                    await rung.wait()
        finally:
            del self._waiting[rung]

    def pass_on(self) -> None:
        """Whoever was woken has found a job: there may be one for another."""
        self._wake("", most=1)

    def wake_all(self) -> None:
        """Let all look, or answer."""
        for rung in self._waiting:
            rung.set()

    async def _listen(self) -> None:
        await listen(self._store, self._ring, self._on_state, self._background.errors)

    def _ring(self, queue: str) -> None:
        """At once, but not more often than looking is worth."""
        if not self._rung:
            wait = max(0.0, self._next_at - time.monotonic())
            asyncio.get_running_loop().call_later(wait, self._ring_now)
        self._rung.add(queue)

    def _ring_now(self) -> None:
        rung, self._rung = self._rung, set()
        self._next_at = time.monotonic() + config.HTTP_RING_SECONDS
        for queue in rung:
            self._wake(queue, most=config.HTTP_RING_WAKES)

    def _wake(self, queue: str, *, most: int) -> None:
        fitting = [
            rung
            for rung, queues in self._waiting.items()
            if not rung.is_set() and (not queue or queues is None or queue in queues)
        ]
        for rung in fitting[:most]:
            rung.set()

    def _on_state(self, is_working: bool) -> None:
        self._is_working = is_working
        # What happened while nobody listened is found by looking.
        self.wake_all()
