"""`/v1/leases`: workers in any language. Like those in Python, they are fenced by tokens.

A call that waits for jobs ends when there are some, when its time is over, when the server stops,
or when its client disconnects. In the last case the leased jobs are released at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import ClientDisconnect

from rowlock import codec, config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid, RowlockError, StoreRefused
from rowlock.job import Beat, Lease, Progress, expiry_of
from rowlock.lifecycle import (
    CancelSeen,
    Failed,
    NotBegun,
    Outcome,
    Released,
    Succeeded,
    Throttle,
)
from rowlock.server.json_text import Reader, excess
from rowlock.server.live import Interest
from rowlock.server.problems import FieldProblem
from rowlock.server.request import bad_field, decode_body, decode_value, refusing
from rowlock.server.routes.enqueue import NewJobSchema, prepare_all
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, EXAMPLE_ID, Name, Seconds, Uuid, copied
from rowlock.store import NewJob, Settlement
from rowlock.store.ops.hold import Report, report
from rowlock.store.ops.settle import Settled, settle
from rowlock.store.steps import Op
from rowlock.tokens import Scope, worker_of
from rowlock.worker.report import report_less
from rowlock.worker.settler import batches, fallback, rows_within

# A settlement or heartbeat takes about as long as decoding this much text.
_ITEM_BYTES: Final = 512

logger: logging.Logger = logging.getLogger("rowlock.server")

LeaseSeconds = Annotated[float, Meta(ge=config.LEASE_SECONDS_MIN, le=config.HTTP_LEASE_SECONDS_MAX)]
LeaseToken = Annotated[int, Meta(ge=0, le=2**53, description="The token of the lease.")]
ErrorText = Annotated[str, Meta(max_length=config.ERROR_BYTES_MAX)]
JsonValue = Annotated[msgspec.Raw, Meta(extra_json_schema={})]
# Not decoded with the rest of the body, which has room for a million: they are counted first.
RawJobs = Annotated[
    msgspec.Raw,
    Meta(
        extra_json_schema={
            "type": "array",
            "items": {"$ref": "#/components/schemas/NewJob"},
            "maxItems": config.HTTP_FOLLOW_UPS_OF_JOB_MAX,
        }
    ),
]
RawLines = Annotated[
    msgspec.Raw,
    Meta(
        extra_json_schema={
            "type": "array",
            "items": {"type": "string"},
            "maxItems": config.LOG_LINES_MAX,
        }
    ),
]
_LINES: Final = msgspec.json.Decoder(Annotated[list[str], Meta(max_length=config.LOG_LINES_MAX)])


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's request for jobs."""

    worker: Annotated[
        Name,
        Meta(
            description="A name that no other process uses. If the token is bound to a tenant, it "
            "is prefixed with `tenant:`, the tenant and `/`. Parts that are too long are replaced "
            "by a digest."
        ),
    ]
    kinds: Annotated[
        list[Name],
        Meta(
            min_length=1,
            max_length=config.HTTP_WORKER_KINDS_MAX,
            description="The kinds that it can run.",
        ),
    ]
    queues: (
        Annotated[
            list[Name],
            Meta(
                min_length=1,
                max_length=config.HTTP_WORKER_QUEUES_MAX,
                description="By preference. Null for all.",
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=config.HTTP_LEASE_LIMIT_MAX)] = 1
    lease: Annotated[LeaseSeconds, Meta(description="Seconds until the lease expires.")] = (
        config.LEASE_SECONDS_DEFAULT
    )
    wait: Annotated[
        float,
        Meta(ge=0, le=config.HTTP_WAIT_SECONDS_MAX, description="Seconds to wait for a job."),
    ] = 0


class LeaseSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The right to one run of a job, and the job."""

    id: Uuid
    token: int
    expires_at: datetime | None
    kind: str
    payload: dict[str, Any]
    queue: str
    priority: int
    tenant: str | None
    key: str | None
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    timeout: float | None
    tags: list[str]
    meta: dict[str, Any]
    limit: str | None
    limit_key: str | None
    workflow: Uuid | None


class Leases(msgspec.Struct, frozen=True, kw_only=True):
    """The leased jobs. Empty if none are due."""

    leases: list[LeaseSchema]


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a running job. `fraction` is limited to 0 and 1."""

    fraction: float
    text: str = ""


class HeldLease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lease to extend, with the progress and log lines of its job."""

    id: Uuid
    token: LeaseToken
    progress: Reached | None = None
    log: RawLines | UnsetType = UNSET


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases to extend. They end `lease` seconds from now."""

    leases: Annotated[list[HeldLease], Meta(min_length=1, max_length=config.HTTP_BATCH_MAX)]
    lease: LeaseSeconds = config.LEASE_SECONDS_DEFAULT


class LeaseBeat(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one lease.

    `kept`: continue. `cancel_requested`: it is kept. Clean up, and settle as cancelled. `lost`:
    stop, because another worker has the job.
    """

    id: Uuid
    token: int
    status: Beat


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The state of each lease, in order."""

    leases: list[LeaseBeat]


class Success(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="outcome",
    tag="succeeded",
):
    """The run succeeded. `follow_ups` are enqueued only if this settlement is accepted."""

    id: Uuid
    token: LeaseToken
    result: JsonValue | UnsetType = UNSET
    follow_ups: RawJobs | UnsetType = UNSET


class RunError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error of a failed run."""

    type: ErrorText = "Error"
    message: ErrorText = ""
    traceback: ErrorText = ""


class Failure(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="outcome",
    tag="failed",
):
    """The run failed. It is retried by the job's policy, or after `delay`, unless `permanent`."""

    id: Uuid
    token: LeaseToken
    error: RunError = RunError()
    permanent: bool = False
    delay: Seconds | None = None


class ReleaseSchema(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="outcome",
    tag="released",
):
    """The job is returned without counting an attempt, to its old position or after `delay`."""

    id: Uuid
    token: LeaseToken
    delay: Seconds | None = None


class ThrottledSchema(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="outcome",
    tag="throttled",
):
    """A service asked to slow down, as with a 429. No attempt is counted.

    No job of this job's key starts for `seconds`, on any worker, if it runs under a limit. Without
    one, only this job waits that long. If the token is bound to a tenant, the key is closed only if
    it is that tenant.
    """

    id: Uuid
    token: LeaseToken
    seconds: Seconds
    reason: ErrorText | None = None


class Cancelled(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="outcome",
    tag="cancelled",
):
    """The run ended because the job was cancelled."""

    id: Uuid
    token: LeaseToken
    reason: ErrorText | None = None


AnySettlement = Success | Failure | ReleaseSchema | ThrottledSchema | Cancelled


class Settlements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How runs ended. Each is accepted or rejected on its own."""

    settlements: Annotated[
        list[AnySettlement],
        Meta(
            min_length=1,
            max_length=config.HTTP_BATCH_MAX,
            description=f"With at most {config.HTTP_FOLLOW_UPS_MAX:,} `follow_ups` in total.",
        ),
    ]


class LeaseEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one lease.

    `settled`: accepted. `already_settled`: this lease was settled before. `lost`: it expired, and
    the job may belong to another worker.
    """

    id: Uuid
    token: int
    status: Literal["settled", "already_settled", "lost"]


class SettledSchema(msgspec.Struct, frozen=True, kw_only=True):
    """How many were settled, and the result for each lease, in order."""

    settled: int
    leases: list[LeaseEnd]


async def create_leases(call: Call[LeaseRequest, None]) -> Reply:
    asked, service = call.body, call.service
    actor = call.caller.actor
    await service.roster.note(
        _worker(call),
        owner=(actor.tenant, None) if actor.tenant is not None else (None, actor.token_id),
        queues=asked.queues or [],
        kinds=asked.kinds,
        host=service.gate.proxies.client(call.request.scope),
    )
    await service.declare_limits()
    leases = await _claim(call)
    if not leases and asked.wait:
        leases = await _wait_for_jobs(call)
    if leases:
        service.doorbell.pass_on(_interest(call))
        if await call.request.is_disconnected():
            await _give_back(call, leases)
            raise ClientDisconnect
    size = len(leases) * _ITEM_BYTES + sum(_stored_bytes(each) for each in leases)
    return Reply(await service.compute(size, _leases_of, leases))


def _leases_of(leases: Sequence[Lease]) -> Leases:
    found = [copied(each.job, LeaseSchema, expires_at=each.expires_at) for each in leases]
    return Leases(leases=found)


def _stored_bytes(lease: Lease) -> int:
    """About as much text as is decoded to show its job."""
    assert lease.row is not None
    return len(lease.row.payload) + len(lease.row.errors or "")


async def _wait_for_jobs(call: Call[LeaseRequest, None]) -> list[Lease]:
    """Lease jobs as soon as there are some. Empty if the time is over, or the server stops.

    If too many calls wait, this one only pauses: a client whose call returned at once would ask
    again at once. Such calls are bounded as requests in progress.
    """
    service, asked = call.service, call.body
    end = time.monotonic() + asked.wait
    leases: list[Lease] = []
    interest, most = _interest(call), config.HTTP_WAITERS_MAX
    with service.waiters.holding(call.caller.holder, most=most) as is_held:
        if not is_held:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(asked.wait, config.HTTP_CROWDED_SECONDS)):
                    await service.stopping.wait()
            return []
        while not leases:
            left = end - time.monotonic()
            if left <= 0 or service.stopping.is_set():
                break
            is_time = await service.doorbell.wait(interest, left)
            if await call.request.is_disconnected():
                if is_time:
                    service.doorbell.pass_on(interest)
                raise ClientDisconnect
            if is_time or time.monotonic() >= end:
                async with service.polls.turn(call.caller.holder):
                    leases = await _claim(call)
    return leases


def _interest(call: Call[LeaseRequest, None]) -> Interest:
    queues, kinds = call.body.queues, call.body.kinds
    return Interest(
        None if queues is None else tuple(sorted(queues)),
        tuple(sorted(kinds)),
        call.caller.tenant,
    )


async def _claim(call: Call[LeaseRequest, None]) -> list[Lease]:
    """Lease up to `limit` jobs whose payloads fit into one answer.

    Each claim takes as many as should fit, by the size of the last payloads. Jobs that don't fit
    are released, and those that have expired are cancelled.
    """
    asked, size = call.body, call.service.payload_size
    leases: list[Lease] = []
    sizes: list[int] = []
    late = 0
    is_last = False
    while not is_last and len(leases) < asked.limit and late < config.HTTP_LEASE_LIMIT_MAX:
        fit = size.jobs_within(max(0, config.HTTP_LEASE_BYTES - sum(sizes)))
        if leases and fit == 0:
            break
        wanted = min(asked.limit - len(leases), max(1, fit))
        try:
            more = await _claim_some(call, wanted)
        except RowlockError as error:
            if not leases:
                raise
            # These jobs are leased, so answer with them.
            logger.warning("leased fewer jobs than requested: %s", error)
            break
        is_last = len(more) < wanted
        more, expired = await _without_expired(call, more)
        late += expired
        leases += more
        sizes += [_payload_bytes(lease) for lease in more]
        size.note(sizes[len(leases) - len(more) :])
    fitting = max(1, rows_within(sizes, config.HTTP_LEASE_BYTES))
    if beyond := leases[fitting:]:
        await _give_back(call, beyond)
    return leases[:fitting]


def _payload_bytes(lease: Lease) -> int:
    assert lease.row is not None
    payload = lease.row.payload
    return len(payload) if payload.isascii() else len(payload.encode())


async def _claim_some(call: Call[LeaseRequest, None], limit: int) -> list[Lease]:
    service, asked, tenant = call.service, call.body, call.caller.tenant
    return await service.store.aclaim(
        worker=_worker(call),
        queues=asked.queues,
        kinds=asked.kinds,
        tenants=None if tenant is None else [tenant],
        limit=limit,
        lease=asked.lease,
        policies=service.policies,
        limits=service.limits,
        on_refused=service.ledger.refused,
    )


def _worker(call: Call[LeaseRequest, None]) -> str:
    """The name of the worker. With a tenant's token it can't be that of another tenant's worker."""
    asked, tenant = call.body.worker, call.caller.tenant
    if tenant is None:
        return asked
    return worker_of(tenant, asked)


async def _without_expired(
    call: Call[LeaseRequest, None], leases: list[Lease]
) -> tuple[list[Lease], int]:
    """Cancel jobs that have expired. Return the others, and how many were cancelled."""
    ends = [(lease, expiry_of(lease.row)) for lease in leases if lease.row is not None]
    over = [Settlement(lease, CancelSeen(why)) for lease, why in ends if why is not None]
    if over:
        await _end_unrun(call, over)
    return [lease for lease, why in ends if why is None], len(over)


async def _give_back(call: Call[LeaseRequest, None], leases: Sequence[Lease]) -> None:
    """Release jobs that no client will run. If that fails, their leases have to expire."""
    await _end_unrun(call, [Settlement(lease, NotBegun()) for lease in leases])


async def _end_unrun(call: Call[LeaseRequest, None], ends: Sequence[Settlement]) -> None:
    try:
        await call.service.store.arun(settle(ends, chance=call.service.chance))
    except RowlockError as error:
        logger.warning(
            "could not release %d jobs, whose leases have to expire: %s", len(ends), error
        )


async def extend_leases(call: Call[Heartbeat, None]) -> Reply:
    service, size = call.service, _size_of(call.body.leases)
    reports, op = await service.compute(size, _reports, call)
    beats = await service.store.arun(op)
    return Reply(await service.compute(size, _heard, reports, beats))


def _size_of(items: Sequence[Any]) -> int:
    """About as many bytes as the items of a request take."""
    logs = (each.log for each in items if isinstance(each, HeldLease) and each.log is not UNSET)
    return len(items) * _ITEM_BYTES + sum(len(bytes(log)) for log in logs)


def _reports(call: Call[Heartbeat, None]) -> tuple[list[Report], Op[list[Beat]]]:
    reports = [
        Report(lease, _progress_of(each), _lines_of(each.log, place))
        for place, (each, lease) in enumerate(_held(call.body.leases, within="leases"))
    ]
    return reports, report(reports, lease=call.body.lease, tenant=call.caller.tenant)


def _lines_of(raw: msgspec.Raw | UnsetType, place: int) -> list[str]:
    if raw is UNSET:
        return []
    within = f"leases[{place}].log"
    if problem := excess(raw, bytes_max=config.HTTP_LOG_BYTES_MAX):
        raise bad_field(FieldProblem(within, problem))
    with refusing(within):
        lines: list[str] = _LINES.decode(raw)
    return lines


def _heard(reports: Sequence[Report], beats: Sequence[Beat]) -> Heard:
    return Heard(
        leases=[
            LeaseBeat(id=each.lease.id, token=each.lease.token, status=beat)
            for each, beat in zip(reports, beats, strict=True)
        ]
    )


def _progress_of(held: HeldLease) -> Progress | None:
    reached = held.progress
    return None if reached is None else Progress(reached.fraction, reached.text)


def _held(items: Sequence[Any], *, within: str) -> Iterator[tuple[Any, Lease]]:
    """Each item with its lease. Raises `Refusal` for an id that is not a UUID."""
    for place, each in enumerate(items):
        try:
            yield each, Lease(id=each.id, token=each.token)
        except OptionInvalid:
            raise bad_field(FieldProblem(f"{within}[{place}].id", "must be a UUID")) from None


async def settle_leases(call: Call[Settlements, None]) -> Reply:
    # Checking thousands of results and jobs takes a while, and would block the loop.
    settlements = await call.service.compute(config.HTTP_BATCH_BYTES_MAX, _settlements, call)
    settled = await _settle(call, settlements)
    lost = {lease.id for lease in settled.lost}
    repeated = {lease.id for lease in settled.repeated}
    ends = [
        LeaseEnd(id=lease.id, token=lease.token, status=_status(lease.id, lost, repeated))
        for lease in (settlement.lease for settlement in settlements)
    ]
    return Reply(SettledSchema(settled=len(ends) - len(lost) - len(repeated), leases=ends))


async def _settle(call: Call[Settlements, None], settlements: Sequence[Settlement]) -> Settled:
    """Settle all, in parts whose decisions don't stop the loop for long. See `_settle_part`."""
    refused: StoreRefused | None = None
    parts: list[Settled] = []
    for part in batches(settlements, bytes_max=config.HTTP_SETTLE_BYTES):
        try:
            parts.append(await _settle_part(call, part))
        except StoreRefused as error:
            refused = error
    if refused is not None:
        raise refused
    return _all_of(parts)


async def _settle_part(call: Call[Settlements, None], settlements: Sequence[Settlement]) -> Settled:
    """Settle and count all settlements that the database accepts.

    If it refuses one, that one is settled with less data.

    Raises:
        StoreRefused: One is refused even without its data. All others are settled.
    """
    try:
        return await _write(call, settlements)
    except StoreRefused as error:
        if len(settlements) == 1:
            call.service.ledger.refused()
            return await _settle_less(call, settlements[0], error)
    middle = len(settlements) // 2
    refused: StoreRefused | None = None
    parts: list[Settled] = []
    for half in (settlements[:middle], settlements[middle:]):
        try:
            parts.append(await _settle_part(call, half))
        except StoreRefused as error:
            refused = error
    if refused is not None:
        raise refused
    return _all_of(parts)


def _all_of(parts: Sequence[Settled]) -> Settled:
    return Settled(
        [run for part in parts for run in part.ended],
        lost=[lease for part in parts for lease in part.lost],
        repeated=[lease for part in parts for lease in part.repeated],
    )


async def _write(call: Call[Settlements, None], settlements: Sequence[Settlement]) -> Settled:
    service = call.service
    op = settle(settlements, chance=service.chance, tenant=call.caller.tenant)
    settled = await service.store.arun(op)
    service.count(settled.ended)
    service.ledger.followed(settlements, settled.ended)
    return settled


async def _settle_less(
    call: Call[Settlements, None], settlement: Settlement, refused: StoreRefused
) -> Settled:
    """Settle one without the data that the database may refuse."""
    less = fallback(settlement, refused)
    while less is not None:
        try:
            settled = await _write(call, [less])
        except StoreRefused as error:
            less = fallback(less, error)
            continue
        report_less(less, refused)
        return settled
    raise refused


def _settlements(call: Call[Settlements, None]) -> list[Settlement]:
    asked = call.body.settlements
    following = [_following(each, place) for place, each in enumerate(asked)]
    if sum(map(len, following)) > config.HTTP_FOLLOW_UPS_MAX:
        problem = f"must have at most {config.HTTP_FOLLOW_UPS_MAX:,} follow_ups in total"
        raise bad_field(FieldProblem("settlements", problem))
    return [
        Settlement(lease, _outcome_of(each), _follow_ups(call, following[place], place))
        for place, (each, lease) in enumerate(_held(asked, within="settlements"))
    ]


def _following(asked: AnySettlement, place: int) -> list[memoryview]:
    """The follow-ups of a settlement, each as its text."""
    if not isinstance(asked, Success) or asked.follow_ups is UNSET:
        return []
    within, most = f"settlements[{place}].follow_ups", config.HTTP_FOLLOW_UPS_OF_JOB_MAX
    reader = Reader(memoryview(asked.follow_ups))
    if reader.peek() != "[":
        raise bad_field(FieldProblem(within, "must be a list of jobs"))
    with refusing(within):
        found = list(islice(reader.items(within), most + 1))
    if len(found) > most:
        raise bad_field(FieldProblem(within, f"must have at most {most:,} items"))
    return found


def _status(
    id: str, lost: set[str], repeated: set[str]
) -> Literal["settled", "already_settled", "lost"]:
    if id in lost:
        return "lost"
    return "already_settled" if id in repeated else "settled"


def _outcome_of(asked: AnySettlement) -> Outcome:
    match asked:
        case Success():
            return Succeeded(*_result_of(asked.result))
        case Failure():
            error, delay = asked.error, asked.delay
            return Failed(
                error.type,
                error.message,
                error.traceback,
                permanent=asked.permanent,
                delay=None if delay is None else duration_us(delay, option="delay"),
            )
        case ReleaseSchema():
            return Released(duration_us(asked.delay or 0, option="delay") or None)
        case ThrottledSchema():
            return Throttle(duration_us(asked.seconds, option="seconds"), asked.reason)
        case Cancelled():
            return CancelSeen(asked.reason)


def _result_of(raw: msgspec.Raw | UnsetType) -> tuple[str | None, str | None]:
    """The stored form of a result, or why it can't be stored. The job has succeeded either way."""
    if raw is UNSET:
        return None, None
    if problem := excess(raw, bytes_max=config.PAYLOAD_BYTES_MAX):
        return None, f"result: {problem}"
    try:
        return codec.encode_result(decode_value(raw))
    except ValueError as error:
        return None, str(error)


def _follow_ups(
    call: Call[Settlements, None], asked: Sequence[memoryview], place: int
) -> list[NewJob]:
    if not asked:
        return []
    within = f"settlements[{place}].follow_ups"
    jobs = [
        decode_body(each, NewJobSchema, within=f"{within}[{number}]")
        for number, each in enumerate(asked)
    ]
    return prepare_all(call.service, call.caller, jobs, within=within)


_LEASE = LeaseSchema(
    id=EXAMPLE_ID,
    token=1,
    expires_at=EXAMPLE_AT,
    kind="send_email",
    payload={"to": "ada@example.com", "subject": "Welcome"},
    queue="mail",
    priority=0,
    tenant=None,
    key="welcome-42",
    attempt=1,
    max_attempts=5,
    created_at=EXAMPLE_AT,
    run_at=EXAMPLE_AT,
    timeout=None,
    tags=[],
    meta={},
    limit=None,
    limit_key=None,
    workflow=None,
)

# The first lease of an answer, in links.
_FIRST = {"id": "$response.body#/leases/0/id", "token": "$response.body#/leases/0/token"}

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/leases",
        operation="createLeases",
        summary="Lease jobs to run",
        description="With `wait`, the answer comes when there is a job, or when the time is over. "
        f"It has at most {config.HTTP_LEASE_BYTES >> 20} MiB of payloads, or a single job, so it "
        "may have fewer jobs than `limit` even if more are due.",
        handler=create_leases,
        scopes=scopes(Scope.WORK),
        body=LeaseRequest,
        answers={200: Leases},
        links={
            Leases: [
                Link("extendLeases", body={"leases": [_FIRST]}),
                Link("settleLeases", body={"settlements": [{"outcome": "succeeded", **_FIRST}]}),
                Link("getJob", {"id": _FIRST["id"]}),
            ]
        },
        example=Example(
            Leases(leases=[_LEASE]),
            LeaseRequest(worker="node-1", kinds=["send_email"], limit=10, wait=30),
        ),
    ),
    Route(
        method="POST",
        path="/v1/leases/heartbeat",
        operation="extendLeases",
        summary="Extend leases, report progress and log lines, learn of cancellations",
        handler=extend_leases,
        scopes=scopes(Scope.WORK),
        body=Heartbeat,
        bytes_max=config.HTTP_JOB_BYTES_MAX,
        answers={200: Heard},
        example=Example(
            Heard(leases=[LeaseBeat(id=EXAMPLE_ID, token=1, status=Beat.KEPT)]),
            Heartbeat(
                leases=[
                    HeldLease(
                        id=EXAMPLE_ID, token=1, progress=Reached(fraction=0.4, text="halfway")
                    )
                ]
            ),
        ),
    ),
    Route(
        method="POST",
        path="/v1/leases/settle",
        operation="settleLeases",
        summary="Settle leases: report how runs ended",
        handler=settle_leases,
        scopes=scopes(Scope.WORK),
        body=Settlements,
        bytes_max=config.HTTP_BATCH_BYTES_MAX,
        answers={200: SettledSchema},
        refusals=["payload_invalid"],
        example=Example(
            SettledSchema(settled=1, leases=[LeaseEnd(id=EXAMPLE_ID, token=1, status="settled")]),
            Settlements(
                settlements=[Success(id=EXAMPLE_ID, token=1, result=msgspec.Raw(b'"sent"'))]
            ),
        ),
    ),
]
