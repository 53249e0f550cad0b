"""`/v1/events`: server-sent events, of all jobs or of one.

A stream ends when its client disconnects, or when the server stops. Then a client reconnects, with
the id of the last event that it has seen as `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from rowlock import config, events, job
from rowlock.clock import from_us
from rowlock.errors import Forbidden, NotFound, StoreUnavailable
from rowlock.events import EventType
from rowlock.ids import parse_id
from rowlock.server.live import FeedItem
from rowlock.server.problems import Refusal
from rowlock.server.routing import AnyRoute, Call, Route, scopes
from rowlock.server.schemas import Name, ProgressSchema, Uuid, copied
from rowlock.server.service import Service
from rowlock.store.ops.events import Watched, watch_job
from rowlock.tokens import Scope
from rowlock.workflow_rules import WorkflowState

MEDIA_TYPE: Final = "text/event-stream"
_RETRY: Final = b"retry: 2000\n\n"
_BEAT: Final = b": beat\n\n"

# Makes the id of an event from its place.
Mark = Callable[[str], str]


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events. By default all. With `job`, only events of that job, with its progress and log
    lines, beginning with its current state."""

    queue: Name | None = None
    kind: Name | None = None
    tenant: Name | None = None
    type: Annotated[
        list[EventType],
        Meta(max_length=len(EventType), description="May be repeated, for several types."),
    ] = []
    job: (
        Annotated[
            Uuid,
            Meta(description="Only events of this job, beginning with its current state."),
        ]
        | None
    ) = None
    seconds: (
        Annotated[
            int,
            Meta(ge=0, le=86_400, description="End the stream after this time. By default never."),
        ]
        | None
    ) = None


class EventSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one server-sent event."""

    type: EventType
    at: Annotated[datetime, Meta(description="When it was published, by the database's clock.")]
    job_id: str | None = None
    queue: str | None = None
    kind: str | None = None
    tenant: str | None = None
    attempt: Annotated[int, Meta(description="The attempt of a run that ended.")] | None = None
    duration_seconds: (
        Annotated[float, Meta(description="The duration of a run that ended.")] | None
    ) = None
    error: Annotated[str, Meta(description="The type of the error of a run.")] | None = None
    workflow: Annotated[Uuid, Meta(description="The workflow that has stopped.")] | None = None
    name: Annotated[str, Meta(description="The name of that workflow.")] | None = None
    state: Annotated[WorkflowState, Meta(description="The state of that workflow.")] | None = None
    limit: Annotated[str, Meta(description="The limit that was changed.")] | None = None
    key: Annotated[str, Meta(description="Its key, if only that was changed.")] | None = None
    change: (
        Annotated[
            Literal["set", "unset", "paused", "resumed"],
            Meta(description="What was done to the limit."),
        ]
        | None
    ) = None
    reason: Annotated[str, Meta(description="Why the limit was paused.")] | None = None
    count: Annotated[
        int,
        Meta(
            description="How many runs or jobs it stands for. For `enqueued` it is a lower bound. "
            "For `dropped` it is the number of events that this listener was too slow for."
        ),
    ] = 1
    is_summary: Annotated[
        bool,
        Meta(description="Whether it stands for many, which were too many to send."),
    ] = False
    progress: ProgressSchema | None = None
    line: Annotated[str, Meta(description="A line of the log of the job.")] | None = None


async def stream_events(call: Call[None, EventQuery]) -> Response:
    service, query = call.service, call.query
    place_held = service.streams.holding(call.caller.holder, most=config.HTTP_LISTENERS_MAX)
    if not call.held.enter_context(place_held):
        raise Refusal("overloaded", "too many clients listen to events; try again later")
    tenant = call.caller.tenant_of(query.tenant)
    id = None if query.job is None else parse_id(query.job, option="job")
    seal = await service.seal()
    bound = (EventQuery.__name__, call.caller.tenant, id)
    last = call.request.headers.get("last-event-id")
    place = None if last is None else seal.open(last, *bound, option="Last-Event-ID")

    def mark(place: str) -> str:
        return seal.close(place, *bound)

    if id is not None:
        first = 0 if place is None else int(place)
        watched = await service.store.arun(watch_job(id, first_line=first, tenant=tenant))
        if watched is None:
            raise NotFound(f"there is no job {id}, or it was removed")
        stream = _watch(service, watched, first, query, mark, tenant=tenant)
    else:
        stream = _listen(service, query, place, mark, tenant=tenant)
    if call.request.method == "HEAD":
        return Response(media_type=MEDIA_TYPE)
    return _Stream(_while_admitted(call, stream))


class _Stream(StreamingResponse):
    """A stream that closes its source as soon as its client disconnects."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        # Proxies must not buffer it.
        super().__init__(events, media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
        self._events = events

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


async def _while_admitted(
    call: Call[None, EventQuery], events: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """End the stream once the token of its client expires or is revoked."""
    async with aclosing(events):
        async for text in events:
            try:
                await call.admit()
            except (Refusal, Forbidden, StoreUnavailable):
                # The answer has begun, so all we can do is end it. The client may reconnect.
                return
            yield text


def _fits(query: EventQuery, tenant: str | None, event: events.Event) -> bool:
    return (
        (tenant is None or event.tenant == tenant)
        and (query.queue is None or event.queue == query.queue)
        and (query.kind is None or event.kind == query.kind)
        and (not query.type or event.type in query.type)
    )


async def _listen(
    service: Service, query: EventQuery, place: str | None, mark: Mark, *, tenant: str | None
) -> AsyncGenerator[bytes, None]:
    with service.feed.listening(lambda event: _fits(query, tenant, event)) as listener:
        try:
            await service.feed.begin()
            missed = [] if place is None else await service.feed.after(place)
        except StoreUnavailable:
            # The answer has begun, so all we can do is end it. The client reconnects.
            return
        yield _RETRY
        for item in missed:
            if _fits(query, tenant, item.event):
                yield _encoded_item(item, mark)
        done = {item.place for item in missed}
        end = _end_of(query)
        while not service.stopping.is_set() and (left := end - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, config.HTTP_STREAM_BEAT_SECONDS)):
                    await listener.news.wait()
            news = [
                each for each in listener.take() if each.place is None or each.place not in done
            ]
            yield b"".join(_encoded_item(each, mark) for each in news) or _BEAT


def _end_of(query: EventQuery) -> float:
    return math.inf if query.seconds is None else time.monotonic() + query.seconds


def _event_of(item: FeedItem) -> EventSchema:
    event = item.event
    stop = event.workflow
    limit = event.limit
    is_single = event.job_id is not None or stop is not None or limit is not None
    return EventSchema(
        type=event.type,
        at=from_us(item.at),
        job_id=event.job_id,
        queue=event.queue or None,
        kind=event.kind or None,
        tenant=event.tenant,
        attempt=event.attempt,
        duration_seconds=event.seconds,
        error=event.error,
        workflow=None if stop is None else stop.id,
        name=None if stop is None else stop.name,
        state=None if stop is None else stop.state,
        limit=None if limit is None else limit.name,
        key=None if limit is None else limit.key,
        change=None if limit is None else limit.change,
        reason=None if limit is None else limit.reason,
        count=event.count,
        is_summary=not is_single and event.type is not EventType.DROPPED,
    )


async def _watch(
    service: Service,
    watched: Watched | None,
    first: int,
    query: EventQuery,
    mark: Mark,
    *,
    tenant: str | None,
) -> AsyncGenerator[bytes, None]:
    """The events of one job, read twice a second until it is removed.

    The place of an event is the number of the next log line.
    """
    assert watched is not None
    id, before = watched.job.id, None
    quiet, end = 0.0, _end_of(query)
    yield _RETRY
    while not service.stopping.is_set():
        if watched is not None:
            news = _changes(before, watched)
            first, before = first + len(watched.lines), watched.job
            quiet = 0.0 if news else quiet + config.EVENTS_SECONDS
            if news:
                yield b"".join(_encoded(each, mark(str(first))) for each in news)
            elif quiet >= config.HTTP_STREAM_BEAT_SECONDS:
                quiet = 0.0
                yield _BEAT
        if time.monotonic() >= end:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(config.EVENTS_SECONDS):
                await service.stopping.wait()
        try:
            watched = await service.store.arun(watch_job(id, first_line=first, tenant=tenant))
        except StoreUnavailable:
            # Read again later: changes meanwhile are seen then.
            watched = None
            continue
        if watched is None and before is not None:
            yield _encoded(_of_job(before, EventType.GONE), str(first))
            return


def _changes(before: job.Job | None, watched: Watched) -> list[EventSchema]:
    now = watched.job
    news: list[EventSchema] = []
    if before is None or (before.state, before.attempt) != (now.state, now.attempt):
        news.append(_of_job(now, EventType(now.state.value)))
    if now.progress is not None and (before is None or before.progress != now.progress):
        event = _of_job(now, EventType.PROGRESS)
        news.append(msgspec.structs.replace(event, progress=copied(now.progress, ProgressSchema)))
    news += [
        msgspec.structs.replace(_of_job(now, EventType.LOG), at=line.time, line=line.text)
        for line in watched.lines
    ]
    return news


def _of_job(found: job.Job, type: EventType) -> EventSchema:
    times = (found.finished_at, found.started_at, found.created_at)
    at = next(each for each in times if each is not None)
    took = None
    if found.finished_at is not None and found.started_at is not None:
        took = (found.finished_at - found.started_at).total_seconds()
    return EventSchema(
        type=type,
        at=at,
        job_id=found.id,
        queue=found.queue,
        kind=found.kind,
        tenant=found.tenant,
        attempt=found.attempt,
        duration_seconds=took,
        error=found.errors[-1].type if found.errors else None,
    )


def _encoded_item(item: FeedItem, mark: Mark) -> bytes:
    return _with_id(_data_of(item), None if item.place is None else mark(item.place))


@lru_cache(maxsize=config.EVENTS_BUFFER_MAX)
def _data_of(item: FeedItem) -> bytes:
    """An item as JSON, encoded once for all streams.

    With 200 streams, encoding it for each took most of the loop's time.
    """
    return msgspec.json.encode(_event_of(item))


def _encoded(event: EventSchema, id: str | None) -> bytes:
    return _with_id(msgspec.json.encode(event), id)


def _with_id(data: bytes, id: str | None) -> bytes:
    """One event as text. Encoded JSON has no line breaks."""
    head = b"" if id is None else f"id: {id}\n".encode()
    return head + b"data: " + data + b"\n\n"


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/events",
        operation="streamEvents",
        summary="A stream of server-sent events",
        description="The data of each is an `Event`. To resume, send the id of the last one as "
        "`Last-Event-ID`. Events of the last ten minutes are sent again.",
        handler=stream_events,
        scopes=scopes(Scope.READ),
        query=EventQuery,
        headers={"Last-Event-ID": "The id of the last event that the client has seen."},
        answers={200: None},
        media_type=MEDIA_TYPE,
        item=EventSchema,
        refusals=["not_found"],
    ),
]
