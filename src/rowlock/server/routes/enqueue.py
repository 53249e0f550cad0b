"""`POST /v1/jobs` and `/v1/jobs/batch`: enqueue one job, or many."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from rowlock import config, job
from rowlock.errors import FieldError, OptionInvalid, PayloadInvalid
from rowlock.ids import id_of_tenant, parse_id
from rowlock.job import JobState
from rowlock.limits import TENANT
from rowlock.server.gate import Caller
from rowlock.server.json_text import excess
from rowlock.server.problems import FieldProblem, Refusal, field_problems
from rowlock.server.request import decode_value
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, job_links, scopes
from rowlock.server.schemas import (
    EXAMPLE_AT,
    EXAMPLE_ID,
    GIVEN,
    NAME_PATTERN,
    JsonObject,
    Name,
    Seconds,
    Time,
    Uuid,
    copied,
)
from rowlock.server.service import Service
from rowlock.store import NewJob, options
from rowlock.store.ops.enqueue import Copied, enqueue, id_taken
from rowlock.store.ops.idempotency import FirstAnswer, KeyedRequest, KeyReused, enqueue_once
from rowlock.tokens import Scope

KEY_HEADER: Final = "Idempotency-Key"
REPLAYED: Final = {"idempotency-replayed": "true"}
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
# About as much as a receipt takes, as JSON.
_RECEIPT_BYTES: Final = 300
# Checked for their size before they are decoded.
RawTags = Annotated[
    msgspec.Raw,
    Meta(
        extra_json_schema={
            "type": "array",
            "maxItems": config.TAGS_MAX,
            "items": {
                "type": "string",
                "minLength": 1,
                "maxLength": config.NAME_CHARACTERS_MAX,
                "pattern": NAME_PATTERN,
            },
        }
    ),
]


def _all_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object in which all these fields have such values."""
    return {"required": list(values), "properties": dict(values)}


def not_both(one: str, other: str) -> dict[str, Any]:
    """The rule that at most one of two fields is given."""
    return {"not": _all_of({one: GIVEN, other: GIVEN})}


def _needs(name: str, value: Mapping[str, Any], other: str) -> dict[str, Any]:
    """The rule that a field with such a value needs another field."""
    return {"anyOf": [{"not": _all_of({name: value})}, _all_of({other: GIVEN})]}


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every job that is enqueued may have. Options that are left out are those of its task."""

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
    key_hold: (
        Annotated[
            Literal["in_flight", "until_started", "kept"] | Seconds,
            Meta(
                description="Until when the key is held. Seconds are counted from the enqueue. By "
                "default `in_flight`, or `until_started` with `quiet`."
            ),
        ]
        | None
    ) = None
    delay: Annotated[Seconds, Meta(description="Seconds before it may run.")] | None = None
    run_at: Annotated[Time, Meta(description="The earliest time to run it.")] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=config.MAX_ATTEMPTS_LIMIT)] | UnsetType = UNSET
    keep: (
        Annotated[Seconds, Meta(description="Seconds to keep it once it ended.")] | UnsetType | None
    ) = UNSET
    tags: RawTags | UnsetType = UNSET
    meta: JsonObject | UnsetType = UNSET
    limit_key: (
        Annotated[
            Name,
            Meta(
                description="Its key at the limit of its task, instead of the one that the limit "
                "finds. The server must know the task."
            ),
        ]
        | None
    ) = None


class NewJobSchema(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue. Options that are left out are those of its task.

    Give either `delay` or `run_at` or `quiet`. `quiet` and `if_held: "replace"` need a `key`,
    and `max_wait` needs `quiet`.
    """

    RULES: ClassVar[Mapping[str, Any]] = {
        "allOf": [
            not_both("delay", "run_at"),
            not_both("delay", "quiet"),
            not_both("run_at", "quiet"),
            _needs("quiet", GIVEN, "key"),
            _needs("max_wait", GIVEN, "quiet"),
            _needs("if_held", {"const": "replace"}, "key"),
            {"not": _all_of({"quiet": GIVEN, "if_held": {"const": "keep"}})},
        ]
    }

    if_held: (
        Annotated[
            Literal["keep", "replace"],
            Meta(
                description="What to do to a waiting job that holds the key. By default `keep`, or "
                "`replace` with `quiet`."
            ),
        ]
        | None
    ) = None
    quiet: (
        Annotated[
            Seconds, Meta(description="Run it once no enqueue of its key came for this long.")
        ]
        | None
    ) = None
    max_wait: (
        Annotated[Seconds, Meta(description="With `quiet`: the longest wait, `quiet` at least.")]
        | None
    ) = None
    tenant: Annotated[Name, Meta(description="By default the tenant of the token.")] | None = None
    id: (
        Annotated[
            Uuid,
            Meta(
                description="An enqueue with the same id finds this job. If the token is bound to "
                "a tenant, the job's own id is derived from both: it is the `id` of the answer."
            ),
        ]
        | None
    ) = None


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
    given = given_options(service, caller, new)
    for name in ("if_held", "quiet", "max_wait"):
        given[name] = getattr(new, name)
    given["tenant"] = caller.tenant_of(new.tenant)
    if new.id is not None:
        given["id"] = own_id(caller, new.id)
    return service.app.prepare(given)


def own_id(caller: Caller, id: str) -> str:
    """An id that a caller chose. It is unique among all tenants."""
    # As it is, it could be taken, or tell of another tenant's job.
    return id if caller.tenant is None else id_of_tenant(parse_id(id), caller.tenant)


def given_options(service: Service, caller: Caller, new: JobOptions) -> dict[str, Any]:
    """The kind, payload and options of a job that a caller wants to enqueue."""
    given = {
        name: value
        for name in JobOptions.__struct_fields__
        if (value := getattr(new, name)) is not UNSET
    }
    if new.limit_key is not None and caller.tenant is not None:
        _refuse_foreign_key(service, new.kind, new.limit_key, caller.tenant)
    given["payload"] = payload_of(new.kind, new.payload)
    given["tags"] = tags = _decoded(new.tags, [], option="tags")
    if not isinstance(tags, list):
        raise OptionInvalid("tags", "must be a list of names")
    given["meta"] = meta_of(caller, new.meta)
    return given


def meta_of(caller: Caller, raw: msgspec.Raw | UnsetType) -> dict[str, Any]:
    """The `meta` of a request, with the token that it came with."""
    meta: Any = _decoded(raw, {}, option="meta")
    if not isinstance(meta, dict):
        raise OptionInvalid("meta", "must be a JSON object")
    if caller.actor.token_id is not None:
        meta["origin"] = f"token:{caller.actor.token_id}"
    return meta


def _refuse_foreign_key(service: Service, kind: str, key: str, tenant: str) -> None:
    """Keep a tenant from using up what another one may run."""
    task = service.app.find(kind)
    limit = None if task is None else task.settings.limit
    if limit is not None and limit.per is TENANT and key != tenant:
        problem = f"must be {tenant!r}, the tenant of the token, or left out"
        raise OptionInvalid("limit_key", problem)


def payload_of(kind: str, raw: msgspec.Raw | UnsetType) -> dict[str, Any]:
    """The payload of a request. Integers of any length are exact."""
    if raw is UNSET:
        return {}
    problem = excess(raw, bytes_max=config.PAYLOAD_BYTES_MAX)
    if problem is not None:
        raise PayloadInvalid(kind, [FieldError("payload", problem)])
    try:
        payload = decode_value(raw)
    except ValueError as error:
        raise PayloadInvalid(kind, [FieldError("payload", str(error))]) from None
    if not isinstance(payload, dict):
        raise PayloadInvalid(kind, [FieldError("payload", "must be a JSON object")])
    return payload


def _decoded(raw: msgspec.Raw | UnsetType, default: Any, *, option: str) -> Any:
    """The value of `meta` or `tags`."""
    if raw is UNSET:
        return default
    problem = excess(raw, bytes_max=config.META_BYTES_MAX)
    if problem is not None:
        raise OptionInvalid(option, problem)
    try:
        return decode_value(raw)
    except ValueError as error:
        raise OptionInvalid(option, str(error)) from None


async def create_job(call: Call[NewJobSchema, None]) -> Reply:
    key, asked = idempotency_key(call.request), call.body
    size = 0 if asked.payload is UNSET else len(bytes(asked.payload))
    checked = await call.service.compute(size, prepare, call.service, call.caller, asked)
    if key is not None:
        receipts, headers = await _enqueue_once(call, [checked], key)
        return _created(call, receipts.jobs[0], headers)
    made = await call.service.write_batcher.enqueue(checked)
    if call.caller.tenant not in (None, made.tenant):
        # Nothing was written: the job with that id belongs to another tenant.
        raise id_taken()
    if made.created:
        call.service.ledger.enqueued([made])
    return _created(call, receipt_of(made), {})


def _created(call: Call[Any, Any], made: JobReceipt, headers: Mapping[str, str]) -> Reply:
    location = f"{call.request.scope.get('root_path', '')}/v1/jobs/{made.id}"
    return Reply(
        made, status=201 if made.created else 200, headers={"location": location, **headers}
    )


async def create_jobs(call: Call[NewJobs, None]) -> Reply:
    key = idempotency_key(call.request)
    # Checking thousands of payloads takes a while, and would block the loop.
    service = call.service
    checked = await service.compute(
        config.HTTP_BATCH_BYTES_MAX, prepare_all, service, call.caller, call.body.jobs
    )
    headers: Mapping[str, str] = {}
    if key is not None:
        receipts, headers = await _enqueue_once(call, checked, key)
    else:
        jobs = await service.store.arun(enqueue(checked, tenant=call.caller.tenant, is_lean=True))
        receipts = await service.compute(config.HTTP_BATCH_BYTES_MAX, receipts_of, jobs)
        _count(call, checked, receipts)
    return Reply(receipts, status=201 if receipts.created else 200, headers=headers)


def _count(call: Call[Any, Any], checked: Sequence[NewJob], receipts: JobReceipts) -> None:
    pairs = zip(checked, receipts.jobs, strict=True)
    call.service.ledger.enqueued(new for new, receipt in pairs if receipt.created)


def idempotency_key(request: Request) -> str | None:
    """The header `Idempotency-Key`, with or without quotes. None if it was not sent."""
    sent = request.headers.getlist(KEY_HEADER)
    if not sent:
        return None
    try:
        key = sent[0].encode("latin-1").decode().strip()
    except UnicodeDecodeError:
        raise OptionInvalid(KEY_HEADER, "must be UTF-8") from None
    if len(sent) > 1:
        raise OptionInvalid(KEY_HEADER, "is given more than once")
    if key.startswith('"'):
        quoted = _QUOTED.fullmatch(key)
        if quoted is None:
            raise OptionInvalid(
                KEY_HEADER, "begins with a quote, but does not end with one, or has a wrong escape"
            )
        key = _ESCAPED.sub(r"\1", quoted[1])
    return options.name(key, option=KEY_HEADER)


async def _enqueue_once(
    call: Call[Any, Any], checked: Sequence[NewJob], key: str
) -> tuple[JobReceipts, Mapping[str, str]]:
    """Enqueue jobs, or find what was answered when they were: the receipts, and extra headers."""
    tenant, service = call.caller.tenant, call.service
    size = sum(len(each.payload) + _RECEIPT_BYTES for each in checked)
    # As decoded, so that spaces between fields, and their order, do not matter.
    content = await service.compute(size, content_of, call.body)
    request = KeyedRequest.of(key, tenant=tenant, content=content)
    op = enqueue_once(enqueue(checked, tenant=tenant, is_lean=True), request, answer=packed)
    found = await service.store.arun(op)
    match found:
        case KeyReused():
            raise key_reused()
        case FirstAnswer():
            receipts = await service.compute(size, unpacked, found.text)
        case _:
            receipts = await service.compute(size, receipts_of, found)
    # An answer of our own is found if only the reply to its commit was lost.
    is_own = not checked[0].is_resend and receipts.jobs[0].id == checked[0].id
    if isinstance(found, FirstAnswer) and not is_own:
        return receipts, REPLAYED
    _count(call, checked, receipts)
    return receipts, {}


def key_reused() -> Refusal:
    return Refusal(
        "idempotency_key_reused",
        "this Idempotency-Key was used for a request with another body; use a new one",
        errors=[FieldProblem(KEY_HEADER, "was used for a request with another body")],
    )


def content_of(body: msgspec.Struct) -> bytes:
    """What tells a request from others with the same key."""
    return type(body).__name__.encode() + msgspec.json.encode(body)


def packed(jobs: Sequence[job.Job]) -> str:
    """The receipts of jobs as columns. A column with the same value in every row has it once."""
    columns = [_column(jobs, name) for name in JobReceipt.__struct_fields__]
    short = [values[:1] if values.count(values[0]) == len(values) else values for values in columns]
    return msgspec.json.encode(short).decode()


def _column(jobs: Sequence[job.Job], name: str) -> list[Any]:
    if isinstance(jobs, Copied):
        return jobs.column(name)
    return [getattr(each, name) for each in jobs]


def unpacked(text: str) -> JobReceipts:
    """The receipts that `packed` stored."""
    columns: list[list[Any]] = msgspec.json.decode(text)
    rows = max(map(len, columns))
    full = [values * rows if len(values) == 1 else values for values in columns]
    names = JobReceipt.__struct_fields__
    made = [dict(zip(names, row, strict=True)) for row in zip(*full, strict=True)]
    return _summed(msgspec.convert(made, list[JobReceipt]))


def receipts_of(jobs: Sequence[job.Job]) -> JobReceipts:
    return _summed([receipt_of(each) for each in jobs])


def _summed(made: list[JobReceipt]) -> JobReceipts:
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
        raise invalid_fields(problems, codes)
    return checked


def invalid_fields(problems: Sequence[FieldProblem], codes: Collection[str]) -> Refusal:
    """The refusal of a request with bad fields. `codes` are those of their errors."""
    code = "payload_invalid" if "payload_invalid" in codes else "option_invalid"
    listed = problems[: config.FIELD_ERRORS_MAX]
    text = f"{len(listed)} fields are invalid; nothing was enqueued"
    return Refusal(code, text, errors=listed)


KEY_TEXT: Final = (
    "A name for this request, quoted or not. For 24 hours, the same request with it is answered as "
    "the first one was, with `Idempotency-Replayed: true`, and enqueues nothing."
)
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
        bytes_max=config.HTTP_JOB_BYTES_MAX,
        headers={KEY_HEADER: KEY_TEXT},
        answers={201: JobReceipt, 200: JobReceipt},
        located=JobReceipt,
        links={
            JobReceipt: [
                *job_links("$response.body#/id"),
                Link("createLeases", body={"worker": "node-1", "kinds": ["$response.body#/kind"]}),
            ]
        },
        refusals=["payload_invalid", "idempotency_key_reused"],
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
        headers={KEY_HEADER: KEY_TEXT},
        answers={201: JobReceipts, 200: JobReceipts},
        links={JobReceipts: job_links("$response.body#/jobs/0/id")},
        refusals=["payload_invalid", "idempotency_key_reused"],
        example=Example(JobReceipts(created=1, existing=0, jobs=[_RECEIPT]), NewJobs(jobs=[_NEW])),
    ),
]
