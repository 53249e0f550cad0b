"""The installation itself: `/v1/kinds`, `/v1/workers`, `/v1/system`, `/v1/me`, and monitoring.

`/healthz` says that this process answers, `/readyz` that its database does, too, and has the right
schema. `/metrics` is for Prometheus.
"""

from __future__ import annotations

import asyncio
import platform
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rowlock import config
from rowlock.clock import from_us
from rowlock.job import QueueSlots, WorkerInfo
from rowlock.observe.metrics import CONTENT_TYPE, exposition, of_counts
from rowlock.server.gate import Reach
from rowlock.server.problems import Refusal
from rowlock.server.routing import ANY_TOKEN, PUBLIC, AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, EXAMPLE_ID, PageCursor, PageLimit, copied
from rowlock.server.service import EnvironmentColor, Service
from rowlock.store import migrate as migrations
from rowlock.store.engine import Engine
from rowlock.store.ops import health
from rowlock.store.ops.look import kinds, worker_page
from rowlock.store.sqlite.engine import SqliteEngine
from rowlock.store.statements import Dialect
from rowlock.task import Task
from rowlock.tokens import Scope
from rowlock.version import __version__


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job. Of a kind that only workers know, just the name is known."""

    kind: str
    is_known: bool
    workers: int
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    keep: float | None = None
    cron: str | None = None
    # The JSON Schema (2020-12) of its payload.
    schema: dict[str, Any] | None = None


class Kinds(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds that the server or a live worker knows, by name. `next` is null on the last page."""

    kinds: list[Kind]
    next: str | None


class KindQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    limit: Annotated[int, Meta(ge=1, le=config.HTTP_KINDS_LIMIT_MAX)] = config.HTTP_KINDS_LIMIT_MAX
    cursor: PageCursor | None = None


class WorkerSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that announced itself or holds a lease. `running` has the ids of its jobs."""

    id: str
    host: str
    pid: int
    queues: list[str]
    kinds: list[str]
    started_at: datetime | None
    last_beat_at: datetime | None
    running: list[str]
    # Reported by the worker itself, or null.
    slots: int | None
    # Slots taken by runs, and jobs that it claimed but has not begun.
    busy: int | None
    ahead: int | None
    # Queues with slots of their own.
    queue_slots: dict[str, QueueSlots]
    memory_bytes: int | None
    lost: int | None
    # The numbers of the limits that its code declares, in a few words.
    limits: dict[str, str]


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """Workers, by name. `next` is null on the last page."""

    workers: list[WorkerSchema]
    next: str | None


class WorkerQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    limit: PageLimit = 100
    cursor: PageCursor | None = None


class MigrationSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A migration that this version knows, and whether the database has it."""

    number: int
    name: str
    is_applied: bool


class System(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of the server and its database, and the state of the database.

    `size_bytes` is the size of rowlock's tables, or of the whole SQLite file. `wal_bytes` is that
    of SQLite's write-ahead log.
    """

    version: str
    python: str
    store: str
    store_version: str
    schema: str
    migration: int
    # By the database's clock.
    now: datetime
    is_open: bool
    has_dashboard: bool
    size_bytes: int
    wal_bytes: int | None
    connections: health.Connections | None
    dead_tuples: health.DeadTuples | None
    oldest_transaction: health.OldestTransaction | None
    expired_leases: health.ExpiredLeases
    migrations: list[MigrationSchema]


class EnvironmentSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server runs, for people."""

    name: str
    color: EnvironmentColor


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The credential of this request. On an open server, everybody may do everything.

    `scopes` includes implied ones: with `admin`, it has all.
    """

    name: str
    token_id: str | None
    tenant: str | None
    scopes: list[Scope]
    is_open: bool
    can_create_tokens: bool
    version: str
    environment: EnvironmentSchema | None


class Health(msgspec.Struct, frozen=True):
    """The server, or its database, is healthy."""

    status: Literal["ok"] = "ok"


async def list_kinds(call: Call[None, KindQuery]) -> Reply:
    service, query = call.service, call.query
    after, most = await call.after() or "", query.limit
    op = kinds(after=after, limit=most + 1, tenant=call.caller.tenant)
    found = await call.store.arun(op)
    announced = dict(found)
    known = {task.name: task for task in service.app if task.name > after}
    names = sorted({*announced, *known})
    page = names[:most]
    listed = [
        _kind(service, name, known.get(name), workers=announced.get(name, 0)) for name in page
    ]
    following = page[-1] if len(names) > most else None
    return Reply(Kinds(kinds=listed, next=await call.next(following)))


def _kind(service: Service, kind: str, task: Task[..., Any] | None, *, workers: int) -> Kind:
    if task is None:
        return Kind(kind=kind, is_known=False, workers=workers)
    settings = task.settings
    return Kind(
        kind=kind,
        is_known=True,
        workers=workers,
        queue=settings.queue,
        priority=settings.priority,
        max_attempts=settings.max_attempts,
        timeout=_seconds(settings.timeout_us),
        keep=_seconds(settings.keep_us),
        cron=None if settings.cron is None else settings.cron.text,
        schema=service.schemas[kind],
    )


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / config.SECOND_US


async def list_workers(call: Call[None, WorkerQuery]) -> Reply:
    op = worker_page(after=await call.after() or "", limit=call.query.limit)
    page = await call.store.arun(op)
    listed = [_worker_of(each) for each in page.workers]
    return Reply(Workers(workers=listed, next=await call.next(page.next)))


def _worker_of(found: WorkerInfo) -> WorkerSchema:
    vitals = found.vitals
    return copied(
        found,
        WorkerSchema,
        **{name: getattr(vitals, name) for name in vitals.__struct_fields__},
    )


async def get_system(call: Call[None, None]) -> Reply:
    service = call.service
    store, engine = call.store, call.store.engine
    server = await store.arun(health.server())
    connections, dead_tuples, oldest = None, None, None
    if engine.dialect is Dialect.POSTGRES:
        connections = await store.arun(health.connections())
        dead_tuples = await store.arun(health.dead_tuples())
        oldest = await store.arun(health.oldest_transaction())
    return Reply(
        System(
            version=__version__,
            python=platform.python_version(),
            store=engine.dialect,
            store_version=server.version,
            schema=engine.schema,
            migration=migrations.migrations(engine.dialect)[-1].number,
            now=from_us(server.now),
            is_open=service.gate.is_open,
            has_dashboard=service.has_dashboard,
            size_bytes=await store.arun(health.size()),
            wal_bytes=await asyncio.to_thread(_wal_bytes, engine),
            connections=connections,
            dead_tuples=dead_tuples,
            oldest_transaction=oldest,
            expired_leases=await store.arun(health.expired_leases()),
            migrations=await asyncio.to_thread(_migrations, engine),
        )
    )


def _wal_bytes(engine: Engine) -> int | None:
    """The size of SQLite's log, whose file is missing between the last close and the next write."""
    if not isinstance(engine, SqliteEngine):
        return None
    try:
        return Path(f"{engine.file.path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _migrations(engine: Engine) -> list[MigrationSchema]:
    applied = engine.applied()
    return [
        MigrationSchema(number=each.number, name=each.name, is_applied=each.number in applied)
        for each in migrations.migrations(engine.dialect)
    ]


async def get_me(call: Call[None, None]) -> Reply:
    caller = call.caller
    held = frozenset(Scope) if Scope.ADMIN in caller.scopes else caller.scopes
    place = call.service.environment
    return Reply(
        Me(
            name=caller.actor.name,
            token_id=caller.actor.token_id,
            tenant=caller.tenant,
            scopes=[scope for scope in Scope if scope in held],
            is_open=call.service.gate.is_open,
            can_create_tokens=Scope.ADMIN in held and caller.can_create_tokens,
            version=__version__,
            environment=None if place is None else copied(place, EnvironmentSchema),
        )
    )


async def get_health(call: Call[None, None]) -> Reply:
    return Reply(Health())


async def get_readiness(call: Call[None, None]) -> Reply:
    if call.service.stopping.is_set():
        raise Refusal("overloaded", "the server is stopping")
    await call.service.readiness.check()
    return Reply(Health())


async def get_metrics(call: Call[None, None]) -> Response:
    gauges = await call.service.gauges.read()
    metrics = [*of_counts(call.service.ledger.totals), *gauges]
    return Response(exposition(metrics), headers={"content-type": CONTENT_TYPE})


_KIND = Kind(
    kind="send_email",
    is_known=True,
    workers=2,
    queue="mail",
    priority=0,
    max_attempts=5,
    keep=86_400.0,
    schema={
        "type": "object",
        "properties": {"to": {"type": "string"}, "subject": {"type": "string"}},
        "required": ["to", "subject"],
        "additionalProperties": False,
    },
)
_WORKER = WorkerSchema(
    id="web-1:4711",
    host="web-1",
    pid=4711,
    queues=["mail"],
    kinds=["send_email"],
    started_at=EXAMPLE_AT,
    last_beat_at=EXAMPLE_AT,
    running=[EXAMPLE_ID],
    slots=50,
    busy=1,
    ahead=0,
    queue_slots={"mail": QueueSlots(slots=20, busy=1)},
    memory_bytes=80_000_000,
    lost=0,
    limits={"stripe": "concurrency 50, per customer"},
)
_SYSTEM = System(
    version=__version__,
    python="3.13.1",
    store="postgres",
    store_version="17.2",
    schema="rowlock",
    migration=3,
    now=EXAMPLE_AT,
    is_open=False,
    has_dashboard=True,
    size_bytes=50_000_000,
    wal_bytes=None,
    connections=health.Connections(used=12, limit=97),
    dead_tuples=health.DeadTuples(live=120, dead=3_000, vacuum_seconds=42.0),
    oldest_transaction=None,
    expired_leases=health.ExpiredLeases(count=0, oldest_seconds=0.0),
    migrations=[MigrationSchema(number=1, name="schema", is_applied=True)],
)

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/kinds",
        operation="listKinds",
        summary="The kinds of jobs, with the JSON Schemas of their payloads",
        handler=list_kinds,
        is_expensive=True,
        scopes=scopes(Scope.READ, Scope.ENQUEUE),
        answers={200: Kinds},
        query=KindQuery,
        example=Example(Kinds(kinds=[_KIND], next=None)),
    ),
    Route(
        method="GET",
        path="/v1/workers",
        operation="listWorkers",
        summary="The workers, and what they run",
        handler=list_workers,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        reach=Reach.SYSTEM,
        query=WorkerQuery,
        answers={200: Workers},
        example=Example(Workers(workers=[_WORKER], next=None)),
    ),
    Route(
        method="GET",
        path="/v1/system",
        operation="getSystem",
        summary="Versions, the state of the database, and whether the server is open",
        handler=get_system,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        reach=Reach.SYSTEM,
        answers={200: System},
        example=Example(_SYSTEM),
    ),
    Route(
        method="GET",
        path="/v1/me",
        operation="getMe",
        summary="The caller's own credential, and what it allows",
        handler=get_me,
        scopes=ANY_TOKEN,
        answers={200: Me},
        example=Example(
            Me(
                name="operator",
                token_id="abcdefghijkl",  # noqa: S106  # an id, and made up
                tenant=None,
                scopes=[Scope.READ],
                is_open=False,
                can_create_tokens=False,
                version=__version__,
                environment=EnvironmentSchema(name="production", color=EnvironmentColor.RED),
            )
        ),
    ),
]
# For health checks and Prometheus.
MONITORING: list[AnyRoute] = [
    Route(
        method="GET",
        path="/healthz",
        operation="getHealth",
        summary="Whether the server is up",
        handler=get_health,
        scopes=PUBLIC,
        answers={200: Health},
        example=Example(Health()),
    ),
    Route(
        method="GET",
        path="/readyz",
        operation="getReadiness",
        summary="Whether the database is up, and has the schema of this version",
        handler=get_readiness,
        scopes=PUBLIC,
        answers={200: Health},
        example=Example(Health()),
    ),
    Route(
        method="GET",
        path="/metrics",
        operation="getMetrics",
        summary="Metrics for Prometheus",
        description="Values of queues are at most ten seconds old, large counts about a minute.",
        handler=get_metrics,
        scopes=scopes(Scope.READ),
        reach=Reach.SYSTEM,
        answers={200: str},
        media_type="text/plain",
    ),
]
