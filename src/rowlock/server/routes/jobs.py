"""`/v1/jobs`: list, inspect, cancel, retry, move, run again and delete jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rowlock import codec, config
from rowlock.app import App
from rowlock.errors import NotFound, OptionInvalid
from rowlock.filters import FILTERS, JobFilter
from rowlock.ids import parse_id
from rowlock.job import Cancellation, CancelOutcome, Count, Job, JobState, LogLine
from rowlock.server.problems import Refusal
from rowlock.server.routes.enqueue import payload_of
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, job_links, scopes
from rowlock.server.schemas import (
    EXAMPLE_AT,
    EXAMPLE_JOB,
    GIVEN,
    JobChoice,
    JobSchema,
    JobSummary,
    JsonObject,
    Name,
    PageCursor,
    PageLimit,
    Seconds,
    Time,
    Uuid,
    copied,
    job_of,
    summary_of,
)
from rowlock.store.ops.audit import audited
from rowlock.store.ops.bulk import count_jobs
from rowlock.store.ops.hold import read_log
from rowlock.store.ops.look import get, list_jobs, related
from rowlock.store.ops.manage import (
    cancel,
    delete,
    job_filter,
    reroute,
    reschedule,
    retry,
    run_again,
    run_now,
)
from rowlock.store.ops.why import why
from rowlock.tokens import Scope
from rowlock.why import WhyCode


class JobQuery(JobChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs, and which page of them."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None


class DeleteQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to delete a job."""

    cascade: Annotated[
        bool,
        Meta(
            description="Also if other jobs wait for it. Those that need its success are cancelled."
        ),
    ] = False


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs. A short or empty page may have a `next`: continue until it is null."""

    jobs: list[JobSummary]
    next: str | None


class WaitedForSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another waits for."""

    id: Uuid
    kind: str
    state: JobState


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running: the first thing that prevents it.

    Match on `code`, and show `text` to people. Which other fields are set depends on the code.
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
    limit: str | None
    limit_key: str | None
    running: int | None
    allowed: int | None
    keys: Count | None
    reason: str | None
    waits_for: Uuid | None
    parents: Count | None
    unmet: Count | None
    jobs: list[WaitedForSchema]


class RelatedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The job whose success enqueued this one, and the jobs that its own success enqueued.

    `parent` is null if the job has none, or if it was removed. Its id stays in `meta.parent`.

    `waits_for` are jobs that it waits for or waited for, `waited_for_by` jobs that wait for it. At
    most 20 of each are listed. `is_cut` is true if there are more.
    """

    parent: JobSummary | None
    follow_ups: list[JobSummary]
    waits_for: list[JobSummary]
    waited_for_by: list[JobSummary]
    is_cut: bool


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a job, oldest line first."""

    lines: list[LogLine]


class RetrySchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to retry a job."""

    payload: (
        Annotated[JsonObject, Meta(description="Replaces the payload of the job.")] | UnsetType
    ) = UNSET


class RunAgainSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to run an ended job again."""

    payload: (
        Annotated[JsonObject, Meta(description="Instead of the payload of the ended job.")]
        | UnsetType
    ) = UNSET


class RescheduleSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a job is due: `run_at` or `delay`."""

    RULES: ClassVar[Mapping[str, Any]] = {
        "oneOf": [
            {"required": ["run_at"], "properties": {"run_at": GIVEN}},
            {"required": ["delay"], "properties": {"delay": GIVEN}},
        ]
    }

    run_at: Annotated[Time, Meta(description="A time in the past means now.")] | None = None
    delay: Annotated[Seconds, Meta(description="Seconds from now.")] | None = None


class RerouteSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a job goes."""

    queue: Name


async def list_page(call: Call[None, JobQuery]) -> Reply:
    query = call.query
    chosen = filter_of(call, query)
    op = list_jobs(chosen, state=query.state, limit=query.limit, cursor=await call.after())
    page = await call.store.arun(op)
    return Reply(JobPage(jobs=[summary_of(each) for each in page], next=await call.next(page.next)))


def filter_of(call: Call[Any, Any], asked: JobChoice) -> JobFilter:
    """The filter of a request, within the tenant of its caller."""
    chosen = {name: getattr(asked, name) for name in FILTERS}
    chosen["tenant"] = call.caller.tenant_of(asked.tenant)
    return job_filter(**chosen)


async def count_page(call: Call[None, JobChoice]) -> Reply:
    op = count_jobs(filter_of(call, call.query), state=call.query.state)
    found = await call.store.arun(op)
    return Reply(found)


async def get_job(call: Call[None, None]) -> Reply:
    return Reply(job_of(await find_job(call)))


async def find_job(call: Call[Any, Any]) -> Job:
    """The job that the path names, if the caller may see it."""
    id = job_id(call)
    found = await call.store.arun(get(id, tenant=call.caller.tenant))
    if found is None:
        raise NotFound(f"there is no job {id}, or it was removed")
    return found


def job_id(call: Call[Any, Any]) -> str:
    """The id in the path. Raises `not_found` if it is not a UUID."""
    try:
        return parse_id(call.path["id"])
    except OptionInvalid:
        raise Refusal("not_found", "not found: the id in the path must be a UUID") from None


async def explain_job(call: Call[None, None]) -> Reply:
    reason = await call.store.arun(why(job_id(call), tenant=call.caller.tenant))
    jobs = [copied(each, WaitedForSchema) for each in reason.jobs]
    return Reply(copied(reason, Reason, jobs=jobs))


async def get_related(call: Call[None, None]) -> Reply:
    op = related(await find_job(call), tenant=call.caller.tenant)
    found = await call.store.arun(op)
    return Reply(
        RelatedJobs(
            parent=None if found.parent is None else summary_of(found.parent),
            follow_ups=[summary_of(each) for each in found.follow_ups],
            waits_for=[summary_of(each) for each in found.waits_for],
            waited_for_by=[summary_of(each) for each in found.waited_for_by],
            is_cut=found.is_cut,
        )
    )


async def get_log(call: Call[None, None]) -> Reply:
    found = await find_job(call)
    lines = await call.store.arun(read_log(found.id))
    return Reply(JobLog(lines=lines))


async def cancel_job(call: Call[None, None]) -> Reply:
    id = job_id(call)
    op = audited(
        cancel(id, tenant=call.caller.tenant),
        call.deed("job.cancel", id),
        detail=lambda answer: {"outcome": answer.outcome, "state": answer.state},
    )
    answer = await call.store.arun(op)
    return Reply(answer)


async def retry_job(call: Call[RetrySchema, None]) -> Reply:
    id = job_id(call)
    payload = None if call.body.payload is UNSET else await _new_payload(call)
    op = audited(
        retry(id, payload=payload, tenant=call.caller.tenant),
        call.deed("job.retry", id),
        detail=lambda _: {"new_payload": payload is not None},
    )
    return Reply(job_of(await call.store.arun(op)))


async def run_job_again(call: Call[RunAgainSchema, None]) -> Reply:
    id = job_id(call)
    payload = None if call.body.payload is UNSET else await _new_payload(call)
    op = audited(
        run_again(id, payload=payload, tenant=call.caller.tenant),
        call.deed("job.run_again", id),
        detail=lambda job: {"new_id": job.id, "new_payload": payload is not None},
    )
    job = await call.store.arun(op)
    place = f"{call.request.scope.get('root_path', '')}/v1/jobs/{job.id}"
    return Reply(job_of(job), status=201, headers={"location": place})


async def run_job_now(call: Call[None, None]) -> Reply:
    id = job_id(call)
    op = audited(run_now(id, tenant=call.caller.tenant), call.deed("job.run_now", id))
    return Reply(job_of(await call.store.arun(op)))


async def reschedule_job(call: Call[RescheduleSchema, None]) -> Reply:
    id = job_id(call)
    op = audited(
        reschedule(id, call.body.run_at, delay=call.body.delay, tenant=call.caller.tenant),
        call.deed("job.reschedule", id),
        detail=lambda job: {"run_at": job.run_at},
    )
    return Reply(job_of(await call.store.arun(op)))


async def reroute_job(call: Call[RerouteSchema, None]) -> Reply:
    id = job_id(call)
    op = audited(
        reroute(id, call.body.queue, tenant=call.caller.tenant),
        call.deed("job.reroute", id),
        detail=lambda job: {"queue": job.queue},
    )
    return Reply(job_of(await call.store.arun(op)))


async def _new_payload(call: Call[RetrySchema, None] | Call[RunAgainSchema, None]) -> str:
    """The encoded payload, checked against the job's task if this server knows it."""
    kind = (await find_job(call)).kind
    given = call.body.payload
    size = 0 if given is UNSET else len(bytes(given))
    return await call.service.compute(size, _checked_payload, call.service.app, kind, given)


def _checked_payload(app: App, kind: str, given: msgspec.Raw | UnsetType) -> str:
    payload = payload_of(kind, given)
    task = app.find(kind)
    return task.schema.validate(payload) if task else codec.encode_payload(kind, payload)


async def delete_job(call: Call[None, DeleteQuery]) -> Reply:
    id = job_id(call)
    op = delete(id, cascade=call.query.cascade, tenant=call.caller.tenant)
    op = audited(op, call.deed("job.delete", id))
    await call.store.arun(op)
    return Reply(status=204)


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/jobs",
        operation="listJobs",
        summary="A page of jobs",
        description="Dead jobs are sorted by failure, others by creation, newest first. Payloads, "
        "results and tracebacks are left out.",
        handler=list_page,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=JobQuery,
        answers={200: JobPage},
        links={JobPage: job_links("$response.body#/jobs/0/id")},
        example=Example(JobPage(jobs=[copied(EXAMPLE_JOB, JobSummary)], next=None)),
    ),
    Route(
        method="GET",
        path="/v1/jobs/count",
        operation="countJobs",
        summary="How many jobs match",
        description="Exact up to 10,000. Above that, or among more than 50,000 rows, it is a lower "
        "bound.",
        handler=count_page,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=JobChoice,
        answers={200: Count},
        example=Example(Count(value=37, exact=True)),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        operation="getJob",
        summary="A job, with all of its fields",
        handler=get_job,
        scopes=scopes(Scope.READ),
        answers={200: JobSchema},
        refusals=["not_found"],
        example=Example(EXAMPLE_JOB),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/why",
        operation="explainJob",
        summary="Why a job is not running",
        description="With a token that is bound to a tenant, only that tenant's jobs are counted "
        "among those that come first.",
        handler=explain_job,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        answers={200: Reason},
        refusals=["not_found"],
        example=Example(
            Reason(
                id=EXAMPLE_JOB.id,
                state=JobState.READY,
                code=WhyCode.BEHIND,
                text="jobs are before it: 12 earlier",
                kind="send_email",
                queue="mail",
                worker=None,
                since=EXAMPLE_AT,
                until=None,
                error=None,
                nearest=[],
                ahead=Count(value=12, exact=True),
                slots=None,
                workers=None,
                limit=None,
                limit_key=None,
                running=None,
                allowed=None,
                keys=None,
                reason=None,
                waits_for=None,
                parents=None,
                unmet=None,
                jobs=[],
            )
        ),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/related",
        operation="getRelatedJobs",
        summary="The jobs that it comes from and waits for, and those that follow or wait for it",
        handler=get_related,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        answers={200: RelatedJobs},
        refusals=["not_found"],
        example=Example(
            RelatedJobs(
                parent=None,
                follow_ups=[copied(EXAMPLE_JOB, JobSummary)],
                waits_for=[],
                waited_for_by=[],
                is_cut=False,
            )
        ),
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
        example=Example(JobLog(lines=[LogLine(time=EXAMPLE_AT, text="sent to 3 of 5")])),
    ),
    Route(
        method="DELETE",
        path="/v1/jobs/{id}",
        operation="deleteJob",
        summary="Delete a job that is not running",
        description="Cancel a running job first. A job that others wait for needs `cascade`.",
        handler=delete_job,
        query=DeleteQuery,
        scopes=scopes(Scope.ADMIN),
        answers={204: None},
        refusals=["not_found", "invalid_transition"],
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/cancel",
        operation="cancelJob",
        summary="Cancel a job",
        description="A waiting job is cancelled at once. The worker of a running job is asked to "
        "stop it. A finished job stays as it is.",
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
        summary="Retry a dead or cancelled job, with all of its attempts",
        handler=retry_job,
        scopes=scopes(Scope.ADMIN),
        body=RetrySchema,
        bytes_max=config.HTTP_JOB_BYTES_MAX,
        is_optional=True,
        answers={200: JobSchema},
        refusals=["not_found", "invalid_transition", "payload_invalid"],
        example=Example(
            msgspec.structs.replace(EXAMPLE_JOB, state=JobState.READY, attempt=0),
            RetrySchema(payload=msgspec.Raw(b'{"to": "grace@example.com", "subject": "Welcome"}')),
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/run-again",
        operation="runJobAgain",
        summary="Enqueue an ended job again, as a new job",
        description="The new job has the payload and the options of the old one, and names it in "
        "`meta.run_again_of`.",
        handler=run_job_again,
        scopes=scopes(Scope.ADMIN),
        body=RunAgainSchema,
        bytes_max=config.HTTP_JOB_BYTES_MAX,
        is_optional=True,
        answers={201: JobSchema},
        located=JobSchema,
        links={JobSchema: job_links("$response.body#/id")},
        refusals=["not_found", "invalid_transition", "payload_invalid"],
        example=Example(
            msgspec.structs.replace(EXAMPLE_JOB, state=JobState.READY, attempt=0), RunAgainSchema()
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/run-now",
        operation="runJobNow",
        summary="Make a scheduled or retrying job due now",
        handler=run_job_now,
        scopes=scopes(Scope.ADMIN),
        answers={200: JobSchema},
        refusals=["not_found", "invalid_transition"],
        example=Example(msgspec.structs.replace(EXAMPLE_JOB, state=JobState.READY, attempt=0)),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/reschedule",
        operation="rescheduleJob",
        summary="Change when a job that waits is due",
        handler=reschedule_job,
        scopes=scopes(Scope.ADMIN),
        body=RescheduleSchema,
        answers={200: JobSchema},
        refusals=["not_found", "invalid_transition"],
        example=Example(
            msgspec.structs.replace(EXAMPLE_JOB, state=JobState.SCHEDULED, attempt=0),
            RescheduleSchema(run_at=EXAMPLE_AT),
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/reroute",
        operation="rerouteJob",
        summary="Move a job that waits to another queue",
        handler=reroute_job,
        scopes=scopes(Scope.ADMIN),
        body=RerouteSchema,
        answers={200: JobSchema},
        refusals=["not_found", "invalid_transition"],
        example=Example(
            msgspec.structs.replace(EXAMPLE_JOB, state=JobState.READY, attempt=0, queue="mail"),
            RerouteSchema(queue="mail"),
        ),
    ),
]
