"""`/v1/queues` and `/v1/stats`: counts per queue and in total. Pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from rowlock.job import Count, JobState, QueueStats
from rowlock.server.gate import Reach
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import Name, PageCursor, PageLimit, copied
from rowlock.store.ops.audit import audited
from rowlock.store.ops.manage import pause, resume
from rowlock.store.ops.stats import NamePage, queue_page, stats, tenant_stats
from rowlock.tokens import Scope


class CountsSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs by state."""

    waiting: Count
    scheduled: Count
    ready: Count
    running: Count
    retrying: Count
    succeeded: Count
    dead: Count
    cancelled: Count


class QueueSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at a glance."""

    queue: str
    is_paused: bool
    oldest_ready_seconds: float | None
    counts: CountsSchema


class Queues(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, by name. `next` is null on the last page."""

    queues: list[QueueSchema]
    next: str | None


class QueuePause(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a queue is paused now."""

    queue: str
    is_paused: bool


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """All queues together, or the named ones."""

    queues: int
    paused: int
    oldest_ready_seconds: float | None
    counts: CountsSchema


class QueueQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queues. By default all."""

    queue: Annotated[list[Name], Meta(max_length=100)] = []


class QueuePageQuery(QueueQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queues, and which page of them."""

    limit: PageLimit = 100
    cursor: PageCursor | None = None


async def list_queues(call: Call[None, QueuePageQuery]) -> Reply:
    query, tenant = call.query, call.caller.tenant
    page = NamePage(await call.after() or "", query.limit)
    names = query.queue or None
    op = queue_page(names, page=page) if tenant is None else tenant_stats(tenant, names, page=page)
    found = await call.service.store.arun(op)
    following = found[-1].queue if len(found) == query.limit else None
    return Reply(
        Queues(queues=[_queue_of(each) for each in found], next=await call.next(following))
    )


async def get_stats(call: Call[None, QueueQuery]) -> Reply:
    found = await _found(call)
    ages = [each.oldest_ready_seconds for each in found if each.oldest_ready_seconds is not None]
    return Reply(
        Stats(
            queues=len(found),
            paused=sum(each.is_paused for each in found),
            oldest_ready_seconds=max(ages, default=None),
            counts=_summed([each.counts for each in found]),
        )
    )


async def _found(call: Call[None, QueueQuery]) -> list[QueueStats]:
    names = call.query.queue or None
    tenant = call.caller.tenant
    op = stats(names) if tenant is None else tenant_stats(tenant, names)
    return await call.store.arun(op)


def _queue_of(found: QueueStats) -> QueueSchema:
    return copied(found, QueueSchema, counts=_summed([found.counts]))


def _summed(counts: Sequence[dict[JobState, Count]]) -> CountsSchema:
    none = Count(0)
    return CountsSchema(
        **{
            state.value: Count(
                value=sum(each.get(state, none).value for each in counts),
                exact=all(each.get(state, none).exact for each in counts),
            )
            for state in JobState
        }
    )


async def pause_queue(call: Call[None, None]) -> Reply:
    return await _set_pause(call, is_paused=True)


async def resume_queue(call: Call[None, None]) -> Reply:
    return await _set_pause(call, is_paused=False)


async def _set_pause(call: Call[None, None], *, is_paused: bool) -> Reply:
    queue = call.path["queue"]
    deed = call.deed("queue.pause" if is_paused else "queue.resume", queue)
    op = pause(queue) if is_paused else resume(queue)
    await call.store.arun(audited(op, deed))
    return Reply(QueuePause(queue=queue, is_paused=is_paused))


_QUEUE = QueueSchema(
    queue="mail",
    is_paused=False,
    oldest_ready_seconds=0.4,
    counts=_summed([{JobState.READY: Count(3), JobState.SUCCEEDED: Count(1_200)}]),
)

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/queues",
        operation="listQueues",
        summary="The queues, with counts of their jobs",
        description="Queues that are named are listed even if they are empty. A token that is "
        "bound to a tenant gets counts of that tenant's jobs.",
        handler=list_queues,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=QueuePageQuery,
        answers={200: Queues},
        example=Example(Queues(queues=[_QUEUE], next=None)),
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/pause",
        operation="pauseQueue",
        summary="Pause a queue: its jobs are not claimed, and new ones are accepted",
        handler=pause_queue,
        scopes=scopes(Scope.ADMIN),
        reach=Reach.SYSTEM,
        answers={200: QueuePause},
        example=Example(QueuePause(queue="mail", is_paused=True)),
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/resume",
        operation="resumeQueue",
        summary="Resume a paused queue",
        handler=resume_queue,
        scopes=scopes(Scope.ADMIN),
        reach=Reach.SYSTEM,
        answers={200: QueuePause},
        example=Example(QueuePause(queue="mail", is_paused=False)),
    ),
    Route(
        method="GET",
        path="/v1/stats",
        operation="getStats",
        summary="Counts of all queues together",
        handler=get_stats,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=QueueQuery,
        answers={200: Stats},
        example=Example(Stats(queues=1, paused=0, oldest_ready_seconds=0.4, counts=_QUEUE.counts)),
    ),
]
