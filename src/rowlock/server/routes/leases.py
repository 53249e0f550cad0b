"""`/v1/leases`: workers in any language. Like those in Python, they are fenced by tokens.

A call that waits for jobs ends when there are some, when its time is over, when the server stops,
or when its client disconnects. In the last case the leased jobs are released at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import ClientDisconnect

from rowlock import codec, config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid, RowlockError, StoreRefused
from rowlock.job import Beat, Lease, Progress
from rowlock.lifecycle import CancelSeen, Failed, NotBegun, Outcome, Released, Succeeded
from rowlock.server.problems import FieldProblem, Refusal
from rowlock.server.request import decode_body
from rowlock.server.routes.enqueue import NewJobSchema, prepare_all
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, EXAMPLE_ID, Name, Seconds, Uuid, copied
from rowlock.store import NewJob, Settlement, options
from rowlock.store.ops.hold import Report, report
from rowlock.store.ops.settle import Settled, settle
from rowlock.tokens import Scope, worker_of
from rowlock.worker.report import report_less
from rowlock.worker.settler import fallback, rows_within

logger: logging.Logger = logging.getLogger("rowlock.server")

LeaseSeconds = Annotated[float, Meta(ge=config.LEASE_SECONDS_MIN, le=config.HTTP_LEASE_SECONDS_MAX)]
LeaseToken = Annotated[int, Meta(ge=0, le=2**53, description="The token of the lease.")]
ErrorText = Annotated[str, Meta(max_length=config.ERROR_BYTES_MAX)]
JsonValue = Annotated[msgspec.Raw, Meta(extra_json_schema={})]
# Not decoded with the rest of the body, which has room for a million: they are counted first.
RawJob = Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/NewJob"})]


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker's request for jobs."""

    worker: Annotated[
        Name,
        Meta(
            description="A name that no other process uses. If the token is bound to a tenant, it "
            "is prefixed with `tenant:`, the tenant and `/`. At most 200 characters in all."
        ),
    ]
    kinds: Annotated[
        list[Name], Meta(min_length=1, max_length=1_000, description="The kinds that it can run.")
    ]
    queues: (
        Annotated[
            list[Name],
            Meta(min_length=1, max_length=100, description="By preference. Null for all."),
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
    log: Annotated[list[str], Meta(max_length=config.LOG_LINES_MAX)] = []


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases to extend. They end `lease` seconds from now."""

    leases: Annotated[list[HeldLease], Meta(min_length=1, max_length=config.HTTP_BATCH_MAX)]
    lease: LeaseSeconds = config.LEASE_SECONDS_DEFAULT


class LeaseBeat(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one lease.

    `kept`: go on. `cancel_requested`: it is kept; clean up and settle as cancelled. `lost`: stop.
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
    follow_ups: Annotated[list[RawJob], Meta(max_length=100)] = []


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


AnySettlement = Success | Failure | ReleaseSchema | Cancelled


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
    client = call.request.client
    await service.roster.note(
        _worker(call),
        queues=asked.queues or [],
        kinds=asked.kinds,
        host="" if client is None else client.host,
    )
    end = time.monotonic() + asked.wait
    while not (leases := await _claim(call)):
        left = end - time.monotonic()
        is_full = service.doorbell.waiting >= config.HTTP_WAITERS_MAX
        if left <= 0 or is_full or service.stopping.is_set():
            break
        await service.doorbell.wait(asked.queues, left)
        if await call.request.is_disconnected():
            raise ClientDisconnect
    if leases:
        service.doorbell.pass_on()
        if await call.request.is_disconnected():
            await _give_back(call, leases)
            raise ClientDisconnect
    return Reply(
        Leases(
            leases=[copied(each.job, LeaseSchema, expires_at=each.expires_at) for each in leases]
        )
    )


async def _claim(call: Call[LeaseRequest, None]) -> list[Lease]:
    """Lease up to `limit` jobs whose payloads fit into one answer.

    Each claim takes as many as should fit, by the size of the last payloads. Jobs that don't fit
    are released.
    """
    asked, size = call.body, call.service.payload_size
    leases: list[Lease] = []
    sizes: list[int] = []
    is_last = False
    while not is_last and len(leases) < asked.limit:
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
        on_refused=service.ledger.refused,
    )


def _worker(call: Call[LeaseRequest, None]) -> str:
    """The name of the worker. With a tenant's token it can't be that of another tenant's worker."""
    asked, tenant = call.body.worker, call.caller.tenant
    if tenant is None:
        return asked
    return options.name(worker_of(tenant, asked), option="worker")


async def _give_back(call: Call[LeaseRequest, None], leases: Sequence[Lease]) -> None:
    """Release jobs that no client will run. If that fails, their leases have to expire."""
    back = [Settlement(lease, NotBegun()) for lease in leases]
    try:
        await call.service.store.arun(settle(back, chance=call.service.chance))
    except RowlockError as error:
        logger.warning(
            "could not release %d jobs, whose leases have to expire: %s", len(back), error
        )


async def extend_leases(call: Call[Heartbeat, None]) -> Reply:
    reports = [
        Report(lease, _progress_of(each), each.log)
        for each, lease in _held(call.body.leases, within="leases")
    ]
    op = report(reports, lease=call.body.lease, tenant=call.caller.tenant)
    beats = await call.service.store.arun(op)
    return Reply(
        Heard(
            leases=[
                LeaseBeat(id=each.lease.id, token=each.lease.token, status=beat)
                for each, beat in zip(reports, beats, strict=True)
            ]
        )
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
            bad = FieldProblem(f"{within}[{place}].id", "must be a UUID")
            raise Refusal("option_invalid", f"{bad.field}: {bad.message}", errors=[bad]) from None


async def settle_leases(call: Call[Settlements, None]) -> Reply:
    # Checking thousands of results and jobs takes a while, and would block the loop.
    settlements = await asyncio.to_thread(_settlements, call)
    settled = await _settle(call, settlements)
    lost = {lease.id for lease in settled.lost}
    repeated = {lease.id for lease in settled.repeated}
    ends = [
        LeaseEnd(id=lease.id, token=lease.token, status=_status(lease.id, lost, repeated))
        for lease in (settlement.lease for settlement in settlements)
    ]
    return Reply(SettledSchema(settled=len(ends) - len(lost) - len(repeated), leases=ends))


async def _settle(call: Call[Settlements, None], settlements: Sequence[Settlement]) -> Settled:
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
            parts.append(await _settle(call, half))
        except StoreRefused as error:
            refused = error
    if refused is not None:
        raise refused
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
    following = sum(len(each.follow_ups) for each in asked if isinstance(each, Success))
    if following > config.HTTP_FOLLOW_UPS_MAX:
        problem = f"must have at most {config.HTTP_FOLLOW_UPS_MAX:,} follow_ups in total"
        bad = FieldProblem("settlements", problem)
        raise Refusal("option_invalid", f"{bad.field}: {bad.message}", errors=[bad])
    return [
        Settlement(lease, _outcome_of(each), _follow_ups(call, each, place))
        for place, (each, lease) in enumerate(_held(asked, within="settlements"))
    ]


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
        case Cancelled():
            return CancelSeen(asked.reason)


def _result_of(raw: msgspec.Raw | UnsetType) -> tuple[str | None, str | None]:
    """The stored form of a result, or why it can't be stored. The job has succeeded either way."""
    if raw is UNSET:
        return None, None
    try:
        return codec.encode_result(codec.decode(bytes(raw).decode()))
    except ValueError as error:
        return None, str(error)


def _follow_ups(call: Call[Settlements, None], asked: AnySettlement, place: int) -> list[NewJob]:
    if not isinstance(asked, Success) or not asked.follow_ups:
        return []
    within = f"settlements[{place}].follow_ups"
    jobs = [
        decode_body(each, NewJobSchema, within=f"{within}[{number}]")
        for number, each in enumerate(asked.follow_ups)
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
)

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
