"""`POST /v1/jobs` and `/v1/jobs/batch`: enqueue one job, or many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rowlock import codec, config, job
from rowlock.errors import FieldError, OptionInvalid, PayloadInvalid
from rowlock.job import JobState
from rowlock.server.gate import Caller
from rowlock.server.problems import FieldProblem, Refusal, field_problems
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import (
    EXAMPLE_AT,
    EXAMPLE_ID,
    JsonObject,
    Name,
    Seconds,
    Time,
    Uuid,
    copied,
)
from rowlock.server.service import Service
from rowlock.store import NewJob
from rowlock.store.ops.enqueue import enqueue, id_taken
from rowlock.tokens import Scope


class NewJobSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue. Options that are left out are those of its task."""

    kind: Annotated[Name, Meta(description="The name of the task.")]
    payload: (
        Annotated[JsonObject, Meta(description="The arguments, a JSON object.")] | UnsetType
    ) = UNSET
    queue: Name | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=config.PRIORITY_MIN, le=config.PRIORITY_MAX)] | UnsetType = (
        UNSET
    )
    key: Annotated[Name, Meta(description="One job in flight per tenant, kind and key.")] | None = (
        None
    )
    key_hold: Literal["in_flight", "kept"] | Seconds = "in_flight"
    delay: Annotated[Seconds, Meta(description="Seconds before it may run.")] | None = None
    run_at: Annotated[Time, Meta(description="The earliest time to run it.")] | None = None
    tenant: Annotated[Name, Meta(description="By default the tenant of the token.")] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=config.MAX_ATTEMPTS_LIMIT)] | UnsetType = UNSET
    keep: (
        Annotated[Seconds, Meta(description="Seconds to keep it once it ended.")] | UnsetType | None
    ) = UNSET
    tags: Annotated[list[Name], Meta(max_length=config.TAGS_MAX)] = []
    meta: dict[str, Any] = {}
    id: Annotated[Uuid, Meta(description="An enqueue with the same id finds this job.")] | None = (
        None
    )


class NewJobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to enqueue, all or none."""

    jobs: Annotated[list[NewJobSchema], Meta(min_length=1, max_length=config.HTTP_BATCH_MAX)]


class JobReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The job that an enqueue created or found. `created` is false if it existed."""

    id: Uuid
    created: bool
    kind: str
    queue: str
    state: JobState
    priority: int
    tenant: str | None
    key: str | None
    run_at: datetime
    created_at: datetime


class JobReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """The receipts of a batch in its order, and how many jobs are new, and how many existed."""

    created: int
    existing: int
    jobs: list[JobReceipt]


def receipt_of(made: job.Job) -> JobReceipt:
    """A receipt without payload, result and errors, which the scope `enqueue` must not read."""
    return copied(made, JobReceipt)


def prepare(service: Service, caller: Caller, new: NewJobSchema) -> NewJob:
    """The job to write, checked against its task if this server knows it."""
    given = {
        name: value
        for name in NewJobSchema.__struct_fields__
        if (value := getattr(new, name)) is not UNSET
    }
    given["payload"] = payload_of(new.kind, new.payload)
    given["tenant"] = caller.tenant_of(new.tenant)
    if caller.actor.token_id is not None:
        given["meta"] = {**new.meta, "origin": f"token:{caller.actor.token_id}"}
    return service.app.prepare(given)


def payload_of(kind: str, raw: msgspec.Raw | UnsetType) -> dict[str, Any]:
    """The payload of a request. Integers of any length are exact."""
    if raw is UNSET:
        return {}
    try:
        payload = codec.decode(bytes(raw).decode())
    except ValueError as error:
        raise PayloadInvalid(kind, [FieldError("payload", str(error))]) from None
    if not isinstance(payload, dict):
        raise PayloadInvalid(kind, [FieldError("payload", "must be a JSON object")])
    return payload


async def create_job(call: Call[NewJobSchema, None]) -> Reply:
    checked = prepare(call.service, call.caller, _with_key(call))
    made = await call.service.write_batcher.enqueue(checked)
    if call.caller.tenant not in (None, made.tenant):
        # Nothing was written: the job with that id belongs to another tenant.
        raise id_taken()
    if made.created:
        call.service.ledger.enqueued([made])
    return Reply(
        receipt_of(made),
        status=201 if made.created else 200,
        headers={"location": f"{call.request.scope.get('root_path', '')}/v1/jobs/{made.id}"},
    )


def _with_key(call: Call[NewJobSchema, None]) -> NewJobSchema:
    """The new job, with the header `Idempotency-Key` as its `key` if it is sent."""
    header = call.request.headers.get("idempotency-key")
    if header is None:
        return call.body
    if call.body.key not in (None, header):
        raise OptionInvalid("key", "differs from the header Idempotency-Key")
    return msgspec.structs.replace(call.body, key=header)


async def create_jobs(call: Call[NewJobs, None]) -> Reply:
    # Checking thousands of payloads takes a while, and would block the loop.
    checked = await asyncio.to_thread(prepare_all, call.service, call.caller, call.body.jobs)
    op = enqueue(checked, tenant=call.caller.tenant)
    jobs = await call.service.store.arun(op)
    receipts = await asyncio.to_thread(receipts_of, jobs)
    pairs = zip(checked, receipts.jobs, strict=True)
    call.service.ledger.enqueued(new for new, receipt in pairs if receipt.created)
    return Reply(receipts, status=201 if receipts.created else 200)


def receipts_of(jobs: Sequence[job.Job]) -> JobReceipts:
    made = [receipt_of(each) for each in jobs]
    created = sum(receipt.created for receipt in made)
    return JobReceipts(created=created, existing=len(made) - created, jobs=made)


def prepare_all(
    service: Service, caller: Caller, jobs: Sequence[NewJobSchema], *, within: str = "jobs"
) -> list[NewJob]:
    """Prepare many jobs. A refusal names the bad fields of all of them, up to a bound."""
    checked: list[NewJob] = []
    problems: list[FieldProblem] = []
    codes: set[str] = set()
    for place, new in enumerate(jobs):
        try:
            checked.append(prepare(service, caller, new))
        except (PayloadInvalid, OptionInvalid) as error:
            codes.add(error.code)
            problems += field_problems(error, within=f"{within}[{place}].")
            if len(problems) >= config.FIELD_ERRORS_MAX:
                break
    if problems:
        code = "payload_invalid" if "payload_invalid" in codes else "option_invalid"
        listed = problems[: config.FIELD_ERRORS_MAX]
        raise Refusal(
            code, f"{len(listed)} fields are invalid; nothing was enqueued", errors=listed
        )
    return checked


_RECEIPT = JobReceipt(
    id=EXAMPLE_ID,
    created=True,
    kind="send_email",
    queue="mail",
    state=JobState.READY,
    priority=0,
    tenant=None,
    key="welcome-42",
    run_at=EXAMPLE_AT,
    created_at=EXAMPLE_AT,
)
_NEW = NewJobSchema(
    kind="send_email",
    payload=msgspec.Raw(b'{"to": "ada@example.com", "subject": "Welcome"}'),
    key="welcome-42",
)

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/jobs",
        operation="createJob",
        summary="Enqueue a job",
        description="The status is 201 if the job is new, 200 if one with its key or id existed.",
        handler=create_job,
        scopes=scopes(Scope.ENQUEUE),
        body=NewJobSchema,
        headers={"Idempotency-Key": "The same as `key`."},
        answers={201: JobReceipt, 200: JobReceipt},
        refusals=["payload_invalid"],
        example=Example(_RECEIPT, _NEW),
    ),
    Route(
        method="POST",
        path="/v1/jobs/batch",
        operation="createJobs",
        summary="Enqueue many jobs, all or none",
        description="Each receipt says whether its job is new. The status is 200 if none is.",
        handler=create_jobs,
        scopes=scopes(Scope.ENQUEUE),
        body=NewJobs,
        bytes_max=config.HTTP_BATCH_BYTES_MAX,
        answers={201: JobReceipts, 200: JobReceipts},
        refusals=["payload_invalid"],
        example=Example(JobReceipts(created=1, existing=0, jobs=[_RECEIPT]), NewJobs(jobs=[_NEW])),
    ),
]
