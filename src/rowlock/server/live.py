"""Live news: events for streams, and notifications for calls that wait for jobs.

The database is read once for all clients of this server. For events:

1. They are read only while somebody listens.
2. They come in the order of their rows. A row that was committed late comes when it is seen.
3. New jobs are found by their ids, which begin with a time, because an enqueue writes no event. Not
   reported are jobs with ids of the caller's own, and jobs from a clock that is seconds behind or a
   minute ahead.
4. A workflow that is dead while jobs of it wait for a retry is found by looking at the open ones.
   The end of a workflow is an event that was written.
5. A slow listener loses the oldest events, and is sent the number of lost ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from rowlock import config
from rowlock.events import Event, EventName, EventType, WorkflowStop, stop_of
from rowlock.server.background import Background
from rowlock.store import Store
from rowlock.store.ops.events import EventRow, NewestJob, last_event, newest_jobs, read_events
from rowlock.store.ops.workflow_info import OpenWorkflow, open_workflows
from rowlock.store.steps import News
from rowlock.worker.services import listen
from rowlock.worker.trouble import ServiceName, Trouble, repeat


@dataclass(frozen=True, slots=True)
class FeedItem:
    """An event, when it was published, and the place from which a listener can resume after it."""

    event: Event
    at: int
    place: str | None = None


Fits = Callable[[Event], bool]


class Listener:
    """A listener, with a bounded number of events that it has not read yet."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self._unread: deque[FeedItem] = deque()
        self._dropped = 0
        self.news: asyncio.Event = asyncio.Event()

    def put(self, item: FeedItem) -> None:
        """Keep the item, if its event is one that the listener wants."""
        if not self._fits(item.event):
            return
        if len(self._unread) >= config.EVENTS_BUFFER_MAX:
            self._unread.popleft()
            self._dropped += 1
        self._unread.append(item)
        self.news.set()

    def take(self) -> list[FeedItem]:
        """All unread items. If some were lost, the first item has their number."""
        items = list(self._unread)
        if self._dropped:
            gap = Event(EventType.DROPPED, "", "", count=self._dropped)
            items.insert(0, FeedItem(gap, items[0].at))
        self._unread.clear()
        self._dropped = 0
        self.news.clear()
        return items


class Feed:
    """Reads events for all listeners of this server."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._listeners: set[Listener] = set()
        self._last: int | None = None
        # The dead workflows when they were last looked at, and when that is done again.
        self._dead: Collection[str] = ()
        self._flows_at = 0.0
        self._seen: OrderedDict[int | str, None] = OrderedDict()

    @contextmanager
    def listening(self, fits: Fits) -> Iterator[Listener]:
        """Listen until the block ends."""
        listener = Listener(fits)
        self._listeners.add(listener)
        self._background.ensure("events", self._read_on)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def begin(self) -> None:
        """Publish all events from now on, unless that has begun already."""
        if self._last is not None:
            return
        last = await self._store.arun(last_event())
        rows = await self._store.arun(read_events(last - config.EVENTS_OVERLAP_ROWS))
        jobs = await self._store.arun(newest_jobs())
        flows = await self._store.arun(open_workflows())
        # If another call has begun meanwhile, its listeners may not have seen some of these.
        if self._last is None:
            self._last = last
            self._dead = _stuck_of(flows).keys()
            self._note([*(row.id for row in rows), *(job.id for job in jobs)])

    def wake_all(self) -> None:
        """Wake all listeners, so that they see that the server stops."""
        for listener in self._listeners:
            listener.news.set()

    async def after(self, place: str) -> list[FeedItem]:
        """The events after the place of an item, as far as they are kept."""
        row, _, index = place.partition(".")
        rows = await self._store.arun(read_events(int(row) - 1))
        return [
            item
            for each in rows
            for number, item in enumerate(_items_of(each))
            if (each.id, number) > (int(row), int(index))
        ]

    async def _read_on(self) -> None:
        self._last = None
        errors = self._background.errors
        await repeat(self._read_if_heard, Trouble("events can't be read", ServiceName.FEED, errors))

    async def _read_if_heard(self) -> float:
        if not self._listeners:
            # The next listener begins with the events from then on.
            self._last = None
            return config.EVENTS_SECONDS
        await self.begin()
        for row in await self._newest_rows():
            if self._is_new(row.id):
                self._last = max(self._last or 0, row.id)
                self._publish(_items_of(row))
        self._publish(self._enqueued(await self._store.arun(newest_jobs())))
        if time.monotonic() >= self._flows_at:
            self._flows_at = time.monotonic() + config.WORKFLOW_SWEEP_SECONDS
            self._publish(self._stopped(await self._store.arun(open_workflows())))
        return config.EVENTS_SECONDS

    async def _newest_rows(self) -> list[EventRow]:
        assert self._last is not None
        rows = await self._store.arun(read_events(self._last - config.EVENTS_OVERLAP_ROWS))
        if self._last and not rows and await self._store.arun(last_event()) < self._last:
            # PostgreSQL empties the unlogged table when it recovers from a crash.
            self._last = 0
        return rows

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

    def _publish(self, items: list[FeedItem]) -> None:
        for item in items:
            for listener in self._listeners:
                listener.put(item)

    def _enqueued(self, jobs: list[NewestJob]) -> list[FeedItem]:
        new = [job for job in jobs if self._is_new(job.id)]
        if len(new) <= config.EVENTS_SINGLE_MAX:
            return [FeedItem(_enqueued(job), job.at) for job in new]
        names: Counter[EventName] = Counter((job.queue, job.kind, job.tenant) for job in new)
        return [
            FeedItem(Event(EventType.ENQUEUED, *name, count=number), new[-1].at)
            for name, number in names.items()
        ]

    def _stopped(self, flows: list[OpenWorkflow]) -> list[FeedItem]:
        """Workflows that have become dead while some of their jobs wait for a retry.

        Nobody notes that in the database: it is found by looking. Ends are written as events.
        """
        dead = _stuck_of(flows)
        before, self._dead = self._dead, dead.keys()
        return [
            FeedItem(stop_of(WorkflowStop(flow.id, flow.name, flow.state), flow.tenant), flow.at)
            for id, flow in dead.items()
            if id not in before
        ]


def _stuck_of(flows: Iterable[OpenWorkflow]) -> dict[str, OpenWorkflow]:
    return {flow.id: flow for flow in flows if flow.state == "dead" and flow.has_waiting}


def _enqueued(job: NewestJob) -> Event:
    return Event(EventType.ENQUEUED, job.queue, job.kind, job.tenant, job.id)


def _items_of(row: EventRow) -> list[FeedItem]:
    return [FeedItem(event, row.at, f"{row.id}.{index}") for index, event in enumerate(row.events)]


class Interest(NamedTuple):
    """Which jobs a call waits for. Calls with the same interest are served by any of them polling.

    `queues` None is all queues, `kinds` empty all kinds.
    """

    queues: tuple[str, ...] | None
    kinds: tuple[str, ...]
    tenant: str | None


class Doorbell:
    """Wakes calls that wait for jobs: by a notification, or to poll.

    1. A notification wakes a few waiting calls, not all: each polls with a query of its own, and on
       SQLite every write notifies. They are of different interests if possible.
    2. A call that finds a job wakes the next one of its interest, since there may be more.
    3. Of the calls with one interest, one is the scout: only it polls once a second. When it
       leaves, the next one becomes the scout.

    So a job is found soon, and waiting costs the same however many calls wait for the same jobs.
    """

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        # In the order of arrival.
        self._waiting: dict[asyncio.Event, Interest] = {}
        self._scouts: dict[Interest, asyncio.Event] = {}
        self._is_working = False
        self._rung: set[str] = set()
        self._next_at = 0.0

    @property
    def waiting(self) -> int:
        """How many calls wait now."""
        return len(self._waiting)

    async def wait(self, interest: Interest, seconds: float) -> bool:
        """Wait until it is time to poll, or for at most that long. Return whether it is time.

        It returns False about once a second, so that a client that has left is noticed.
        """
        self._background.ensure("doorbell", self._listen)
        rung = asyncio.Event()
        self._waiting[rung] = interest
        if interest not in self._scouts:
            self._make_scout(interest, rung)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, 2 * config.POLL_SECONDS_WITH_BELL)):
                    await rung.wait()
            return rung.is_set()
        finally:
            del self._waiting[rung]
            if self._scouts.get(interest) is rung:
                del self._scouts[interest]
                self._replace_scout(interest)

    def _make_scout(self, interest: Interest, rung: asyncio.Event) -> None:
        poll = config.POLL_SECONDS_WITH_BELL if self._is_working else config.POLL_SECONDS
        self._scouts[interest] = rung
        asyncio.get_running_loop().call_later(poll, rung.set)

    def _replace_scout(self, interest: Interest) -> None:
        for rung, other in self._waiting.items():
            if other == interest and not rung.is_set():
                self._make_scout(interest, rung)
                return

    def pass_on(self, interest: Interest) -> None:
        """Wake another call of this interest: the one that was woken has left with a job."""
        for rung, other in self._waiting.items():
            if other == interest and not rung.is_set():
                rung.set()
                return

    def wake_all(self) -> None:
        """Wake all calls."""
        for rung in self._waiting:
            rung.set()

    async def _listen(self) -> None:
        await listen(self._store, self._ring, self._on_state, self._background.errors)

    def _ring(self, news: News) -> None:
        """Wake calls at once, but at most once per `config.HTTP_RING_SECONDS`."""
        if not self._rung:
            wait = max(0.0, self._next_at - time.monotonic())
            asyncio.get_running_loop().call_later(wait, self._ring_now)
        self._rung.add(news.queue)

    def _ring_now(self) -> None:
        rung, self._rung = self._rung, set()
        self._next_at = time.monotonic() + config.HTTP_RING_SECONDS
        for queue in rung:
            self._wake(queue, most=config.HTTP_RING_WAKES)

    def _wake(self, queue: str, *, most: int) -> None:
        fitting = {
            rung: interest
            for rung, interest in self._waiting.items()
            if not rung.is_set()
            and (not queue or interest.queues is None or queue in interest.queues)
        }
        # The longest waiting call of each interest, then others.
        firsts = {interest: rung for rung, interest in reversed(fitting.items())}
        chosen = dict.fromkeys([*reversed(firsts.values()), *fitting])
        for rung in list(chosen)[:most]:
            rung.set()

    def _on_state(self, is_working: bool) -> None:
        self._is_working = is_working
        # Jobs that came while nothing was heard are found by polling.
        self.wake_all()
