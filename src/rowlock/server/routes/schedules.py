"""`/v1/schedules`: list schedules, run them now, pause and resume them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from rowlock.clock import from_us, to_us
from rowlock.cron import parse_cron
from rowlock.errors import OptionInvalid
from rowlock.job import JobState
from rowlock.schedule import MissedTicks, Schedule, ScheduleSource
from rowlock.server.routes.enqueue import JobReceipt, receipt_of
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, job_links, scopes
from rowlock.server.schemas import EXAMPLE_AT, EXAMPLE_ID, PageCursor, PageLimit, copied
from rowlock.store.ops import schedule as schedules
from rowlock.store.ops.audit import audited
from rowlock.store.ops.look import states
from rowlock.store.ops.schedule import list_schedules, run_schedule_now
from rowlock.tokens import Scope

_UPCOMING: Final = 5


class ScheduleSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. Its last job is the last one that it enqueued, by a tick or by hand.

    `upcoming` are its next times, `next_at` first, as if it were not paused. It is empty if this
    server does not know the time zone. `last_state` is null once the last job is removed.
    """

    name: str
    kind: str
    cron: str
    timezone: str
    missed: MissedTicks
    queue: str
    payload: dict[str, Any]
    priority: int
    tenant: str | None
    key: str | None
    max_attempts: int | None
    tags: list[str]
    is_paused: bool
    next_at: datetime
    last_at: datetime | None
    last_job_id: str | None
    last_state: JobState | None
    upcoming: list[datetime]
    source: ScheduleSource


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by name. `next` is null on the last page."""

    schedules: list[ScheduleSchema]
    next: str | None


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None


async def list_page(call: Call[None, ScheduleQuery]) -> Reply:
    query = call.query
    found = await call.store.arun(
        list_schedules(after=await call.after() or "", limit=query.limit, tenant=call.caller.tenant)
    )
    following = found[-1].name if len(found) == query.limit else None
    return Reply(
        SchedulePage(schedules=await _schedules_of(call, found), next=await call.next(following))
    )


async def _schedules_of(call: Call[Any, Any], found: Sequence[Schedule]) -> list[ScheduleSchema]:
    """The schedules as answers, with the states of their last jobs."""
    ids = [each.last_job_id for each in found if each.last_job_id is not None]
    known = await call.store.arun(states(ids))
    return [
        copied(
            each,
            ScheduleSchema,
            last_state=known.get(each.last_job_id or ""),
            upcoming=_upcoming(each),
        )
        for each in found
    ]


def _upcoming(each: Schedule) -> list[datetime]:
    try:
        cron = parse_cron(each.cron, timezone=each.timezone)
    except OptionInvalid:
        return []
    times = [to_us(each.next_at, option="next_at")]
    while len(times) < _UPCOMING:
        times.append(cron.next_after(times[-1]))
    return [from_us(time) for time in times]


async def run_schedule(call: Call[None, None]) -> Reply:
    name = call.path["name"]
    op = audited(
        run_schedule_now(name, tenant=call.caller.tenant),
        call.deed("schedule.run", name),
        detail=lambda made: {"job": made.id, "created": made.created},
    )
    made = await call.store.arun(op)
    if made.created:
        call.service.ledger.enqueued([made])
    return Reply(receipt_of(made))


async def pause_schedule(call: Call[None, None]) -> Reply:
    return await _set_pause(call, is_paused=True)


async def resume_schedule(call: Call[None, None]) -> Reply:
    return await _set_pause(call, is_paused=False)


async def _set_pause(call: Call[None, None], *, is_paused: bool) -> Reply:
    name = call.path["name"]
    deed = call.deed("schedule.pause" if is_paused else "schedule.resume", name)
    verb = schedules.pause_schedule if is_paused else schedules.resume_schedule
    op = verb(name, tenant=call.caller.tenant)
    changed = await call.store.arun(audited(op, deed))
    return Reply((await _schedules_of(call, [changed]))[0])


_SCHEDULE = ScheduleSchema(
    name="nightly-report",
    kind="report",
    cron="0 3 * * *",
    timezone="Europe/Berlin",
    missed=MissedTicks.SKIP,
    queue="default",
    payload={"days": 1},
    priority=0,
    tenant=None,
    key=None,
    max_attempts=5,
    tags=[],
    is_paused=False,
    next_at=EXAMPLE_AT,
    last_at=None,
    last_job_id=None,
    last_state=None,
    upcoming=[EXAMPLE_AT],
    source=ScheduleSource.CODE,
)
_RECEIPT = JobReceipt(
    id=EXAMPLE_ID,
    created=True,
    kind="report",
    queue="default",
    state=JobState.READY,
    priority=0,
    tenant=None,
    key=None,
    run_at=EXAMPLE_AT,
    created_at=EXAMPLE_AT,
)

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/schedules",
        operation="listSchedules",
        summary="A page of schedules",
        handler=list_page,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=ScheduleQuery,
        answers={200: SchedulePage},
        links={
            SchedulePage: [
                Link(operation, {"name": "$response.body#/schedules/0/name"})
                for operation in ("runSchedule", "pauseSchedule", "resumeSchedule")
            ]
        },
        example=Example(SchedulePage(schedules=[_SCHEDULE], next=None)),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{name}/run",
        operation="runSchedule",
        summary="Enqueue the job of a schedule now, and keep its next time",
        handler=run_schedule,
        scopes=scopes(Scope.ADMIN),
        answers={200: JobReceipt},
        links={JobReceipt: job_links("$response.body#/id")},
        refusals=["not_found"],
        example=Example(_RECEIPT),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{name}/pause",
        operation="pauseSchedule",
        summary="Pause a schedule: it enqueues nothing until it is resumed",
        handler=pause_schedule,
        scopes=scopes(Scope.ADMIN),
        answers={200: ScheduleSchema},
        refusals=["not_found"],
        example=Example(msgspec.structs.replace(_SCHEDULE, is_paused=True)),
    ),
    Route(
        method="POST",
        path="/v1/schedules/{name}/resume",
        operation="resumeSchedule",
        summary="Resume a paused schedule at its next time",
        handler=resume_schedule,
        scopes=scopes(Scope.ADMIN),
        answers={200: ScheduleSchema},
        refusals=["not_found"],
        example=Example(_SCHEDULE),
    ),
]
