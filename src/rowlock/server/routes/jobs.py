"""`/v1/jobs`: look at jobs, cancel, retry and delete them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rowlock import codec, config
from rowlock.errors import NotFound, OptionInvalid
from rowlock.ids import parse_id
from rowlock.job import Cancellation, CancelOutcome, Count, Job, JobState, LogLine
from rowlock.server.problems import Refusal
from rowlock.server.routes.enqueue import payload_of
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import (
    JobErrorSchema,
    JobSchema,
    JobSummary,
    JsonObject,
    Name,
    Time,
    Uuid,
    copied,
    job_of,
    summary_of,
)
from rowlock.store import JobFilter
from rowlock.store.ops.audit import audited
from rowlock.store.ops.bulk import count_jobs
from rowlock.store.ops.hold import read_log
from rowlock.store.ops.look import get, list_jobs
from rowlock.store.ops.manage import cancel, delete, job_filter, retry
from rowlock.store.ops.related import related
from rowlock.store.ops.why import why
from rowlock.tokens import Scope
from rowlock.why import WhyCode


class JobChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs."""

    state: JobState | None = None
    kind: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    key: Name | None = None
    tag: Name | None = None
    error: (
        Annotated[Name, Meta(description="Text in the errors of its attempts, in any case.")] | None
    ) = None
    since: Annotated[Time, Meta(description="Created then or later.")] | None = None
    until: Annotated[Time, Meta(description="Created before.")] | None = None
    fingerprint: (
        Annotated[Name, Meta(description="Of dead jobs: see `/v1/dead/groups`.")] | None
    ) = None


class JobQuery(JobChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs, and which page of them."""

    limit: Annotated[int, Meta(ge=1, le=config.HTTP_LIST_LIMIT_MAX)] = 50
    cursor: Annotated[str, Meta(description="The `next` of the page before.")] | None = None


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs. It may be short, even empty, and still have a `next`: go on until null."""

    jobs: list[JobSummary]
    next: str | None


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running: the first thing that stands in its way.

    `code` is to match on, `text` to read; what the others have to do with a code says `text`.
    """

    id: Uuid
    state: JobState
    code: WhyCode
    text: str
    kind: str
    queue: str
    worker: str | None
    since: datetime | None
    until: datetime | None
    error: str | None
    nearest: list[str]
    ahead: Count | None
    slots: int | None
    workers: int | None


class RelatedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The job whose success enqueued this one, and those that its own success enqueued.

    Null: it has none, or that is gone; the parent's id stays in `meta.parent`.
    """

    parent: JobSummary | None
    follow_ups: list[JobSummary]


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a job, oldest line first."""

    lines: list[LogLine]


class RetrySchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job is to be tried again."""

    payload: Annotated[JsonObject, Meta(description="Instead of the one it had.")] | UnsetType = (
        UNSET
    )


async def list_page(call: Call[None, JobQuery]) -> Reply:
    query = call.query
    chosen = filter_of(call, query)
    op = list_jobs(chosen, state=query.state, limit=query.limit, cursor=query.cursor)
    page = await call.service.store.arun(op)
    return Reply(JobPage(jobs=[summary_of(each) for each in page], next=page.next))


def filter_of(call: Call[Any, Any], asked: Any) -> JobFilter:
    """The filter of a request, within the tenant of whoever asks."""
    names = ("kind", "queue", "key", "tag", "error", "since", "until", "fingerprint")
    chosen = {name: getattr(asked, name) for name in names}
    return job_filter(**chosen, tenant=call.caller.tenant_of(asked.tenant))


async def count_page(call: Call[None, JobChoice]) -> Reply:
    op = count_jobs(filter_of(call, call.query), state=call.query.state)
    found = await call.service.store.arun(op)
    return Reply(found)


async def get_job(call: Call[None, None]) -> Reply:
    return Reply(job_of(await found(call)))


async def found(call: Call[Any, Any]) -> Job:
    """The job that the path names, if whoever asks may see it."""
    id = job_id(call)
    there = await call.service.store.arun(get(id, tenant=call.caller.tenant))
    if there is None:
        raise NotFound(f"there is no job {id} (any more)")
    return there


def job_id(call: Call[Any, Any]) -> str:
    """The id in the path. What is no id is nobody's."""
    try:
        return parse_id(call.path["id"])
    except OptionInvalid:
        raise Refusal("not_found", "there is no such thing: its id must be a UUID") from None


async def explain_job(call: Call[None, None]) -> Reply:
    told = await call.service.store.arun(why(job_id(call), tenant=call.caller.tenant))
    return Reply(copied(told, Reason))


async def get_related(call: Call[None, None]) -> Reply:
    op = related(await found(call), tenant=call.caller.tenant)
    told = await call.service.store.arun(op)
    return Reply(
        RelatedJobs(
            parent=None if told.parent is None else summary_of(told.parent),
            follow_ups=[summary_of(each) for each in told.follow_ups],
        )
    )


async def get_log(call: Call[None, None]) -> Reply:
    there = await found(call)
    lines = await call.service.store.arun(read_log(there.id))
    return Reply(JobLog(lines=lines))


async def cancel_job(call: Call[None, None]) -> Reply:
    id = job_id(call)
    op = audited(
        cancel(id, tenant=call.caller.tenant),
        call.deed("job.cancel", id),
        detail=lambda answer: {"outcome": answer.outcome, "state": answer.state},
    )
    answer = await call.service.store.arun(op)
    return Reply(answer)


async def retry_job(call: Call[RetrySchema, None]) -> Reply:
    id = job_id(call)
    payload = None if call.body.payload is UNSET else await _new_payload(call)
    op = audited(
        retry(id, payload=payload, tenant=call.caller.tenant),
        call.deed("job.retry", id),
        detail=lambda _: {"new_payload": payload is not None},
    )
    return Reply(job_of(await call.service.store.arun(op)))


async def _new_payload(call: Call[RetrySchema, None]) -> str:
    """The encoded payload, checked against the job's task where that is known here."""
    kind = (await found(call)).kind
    payload = payload_of(kind, call.body.payload)
    task = call.service.app.find(kind)
    return task.schema.validate(payload) if task else codec.encode_payload(kind, payload)


async def delete_job(call: Call[None, None]) -> Reply:
    id = job_id(call)
    op = audited(delete(id, tenant=call.caller.tenant), call.deed("job.delete", id))
    await call.service.store.arun(op)
    return Reply(status=204)


_AT = datetime.fromisoformat("2030-01-31T12:00:00Z")
_JOB = JobSchema(
    id="018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a",
    kind="send_email",
    queue="mail",
    state=JobState.RETRYING,
    priority=0,
    tenant=None,
    key="welcome-42",
    attempt=1,
    max_attempts=5,
    run_at=_AT,
    created_at=_AT,
    started_at=_AT,
    finished_at=None,
    lease_expires_at=None,
    worker=None,
    token=1,
    crashes=0,
    cancel_requested=False,
    last_error="ConnectionError: refused",
    progress=None,
    tags=[],
    payload={"to": "ada@example.com", "subject": "Welcome"},
    result=None,
    errors=[
        JobErrorSchema(attempt=1, time=_AT, type="ConnectionError", message="refused", traceback="")
    ],
    meta={},
    timeout=None,
    retry=None,
    keep=86_400.0,
    max_crashes=3,
)

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/jobs",
        operation="listJobs",
        summary="A page of jobs",
        description="Dead ones come newest failure first, all others newest first. Payloads, "
        "results and tracebacks are left out.",
        handler=list_page,
        scopes=scopes(Scope.READ),
        query=JobQuery,
        answers={200: JobPage},
        example=Example(JobPage(jobs=[copied(_JOB, JobSummary)], next=None)),
    ),
    Route(
        method="GET",
        path="/v1/jobs/count",
        operation="countJobs",
        summary="How many jobs fit",
        description="Exact to 10,000; beyond, or among more than 50,000 rows, at least so many.",
        handler=count_page,
        scopes=scopes(Scope.READ),
        query=JobChoice,
        answers={200: Count},
        example=Example(Count(value=37, exact=True)),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        operation="getJob",
        summary="A job, with all that is known of it",
        handler=get_job,
        scopes=scopes(Scope.READ),
        answers={200: JobSchema},
        refusals=["not_found"],
        example=Example(_JOB),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/why",
        operation="explainJob",
        summary="Why a job is not running",
        description="A token that is bound to a tenant is told of that tenant's jobs alone: how "
        "many of them come first, or that none does.",
        handler=explain_job,
        scopes=scopes(Scope.READ),
        answers={200: Reason},
        refusals=["not_found"],
        example=Example(
            Reason(
                id=_JOB.id,
                state=JobState.READY,
                code=WhyCode.BEHIND,
                text="jobs are before it: 12 earlier",
                kind="send_email",
                queue="mail",
                worker=None,
                since=_AT,
                until=None,
                error=None,
                nearest=[],
                ahead=Count(value=12, exact=True),
                slots=None,
                workers=None,
            )
        ),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/related",
        operation="getRelatedJobs",
        summary="The job that it follows, and those that follow it",
        handler=get_related,
        scopes=scopes(Scope.READ),
        answers={200: RelatedJobs},
        refusals=["not_found"],
        example=Example(RelatedJobs(parent=None, follow_ups=[copied(_JOB, JobSummary)])),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/log",
        operation="getJobLog",
        summary="The lines that a job's handler logged",
        handler=get_log,
        scopes=scopes(Scope.READ),
        answers={200: JobLog},
        refusals=["not_found"],
        example=Example(JobLog(lines=[LogLine(time=_AT, text="sent to 3 of 5")])),
    ),
    Route(
        method="DELETE",
        path="/v1/jobs/{id}",
        operation="deleteJob",
        summary="Remove a job that does not run",
        description="A running one must be cancelled first.",
        handler=delete_job,
        scopes=scopes(Scope.ADMIN),
        answers={204: None},
        refusals=["not_found", "invalid_transition"],
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/cancel",
        operation="cancelJob",
        summary="Stop a job",
        description="At once if it waits, else by asking its worker; one that has ended is left.",
        handler=cancel_job,
        scopes=scopes(Scope.ADMIN),
        answers={200: Cancellation},
        refusals=["not_found"],
        example=Example(Cancellation(outcome=CancelOutcome.CANCELLED, state=JobState.CANCELLED)),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/retry",
        operation="retryJob",
        summary="Take a dead or cancelled job back to ready, as new",
        handler=retry_job,
        scopes=scopes(Scope.ADMIN),
        body=RetrySchema,
        is_optional=True,
        answers={200: JobSchema},
        refusals=["not_found", "invalid_transition", "payload_invalid"],
        example=Example(
            msgspec.structs.replace(_JOB, state=JobState.READY, attempt=0),
            RetrySchema(payload=msgspec.Raw(b'{"to": "grace@example.com", "subject": "Welcome"}')),
        ),
    ),
]
