"""`/v1/limits`: list limits and their keys, change their numbers, pause and resume them.

A token that is bound to a tenant sees limits whose keys are tenants, of those only its own key, and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rowlock import config
from rowlock.job import Count
from rowlock.limit_info import LimitInfo, LimitKeys, LimitRules
from rowlock.limits import chosen_numbers
from rowlock.server.gate import Reach
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, Name, PageCursor, PageLimit, Seconds, copied
from rowlock.store.ops import limits as ops
from rowlock.store.ops.audit import audited
from rowlock.store.ops.limit_info import limit_keys, list_limits
from rowlock.store.steps import Op
from rowlock.tokens import Scope

Number = Annotated[int, Meta(ge=1, le=config.LIMIT_MAX)]
RateText = Annotated[
    str,
    Meta(
        max_length=config.NAME_CHARACTERS_MAX,
        description='How many jobs may start in a time: "100/s", "10/m", "100/s burst 20".',
    ),
]
KeyName = Annotated[Name, Meta(description="Only this key. Null for the limit as a whole.")]


class LimitRulesSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a limit, in total and per key. Null: not limited, or not set."""

    concurrency: int | None
    rate: str | None
    burst: int | None
    concurrency_per_key: int | None
    rate_per_key: str | None
    burst_per_key: int | None


class LimitSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A limit. `rules` are the numbers that count: those that were chosen, and the declared ones.

    If `declared` is null, no worker has declared it, and its jobs can't start. `waiting` jobs are
    due. `opens_at` is when its rate allows the next start, null for now. `paused_until` is null if
    it is not paused, or paused until somebody resumes it.
    """

    name: str
    rules: LimitRulesSchema
    declared: LimitRulesSchema | None
    chosen: LimitRulesSchema | None
    per: str | None
    is_ordered: bool
    on_dead: str
    weights: dict[str, int]
    declared_at: datetime | None
    running: Count
    waiting: Count
    paused_keys: Count
    oldest_waiting_seconds: float | None
    is_paused: bool
    paused_until: datetime | None
    paused_reason: str | None
    opens_at: datetime | None


class LimitKeySchema(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a limit. `is_own`: one of its numbers was set for this key alone."""

    key: str
    running: Count
    waiting: Count
    concurrency: int | None
    rate: str | None
    burst: int | None
    weight: int
    is_own: bool
    is_paused: bool
    paused_until: datetime | None
    paused_reason: str | None
    opens_at: datetime | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, by name. `next` is null on the last page."""

    limits: list[LimitSchema]
    next: str | None


class LimitWithKeys(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and some of its keys. `is_cut`: there are more. `next` is null on the last page."""

    limit: LimitSchema
    keys: list[LimitKeySchema]
    is_cut: bool
    next: str | None


class LimitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of the limits."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None


class LimitKeyQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which keys of a limit."""

    order: Annotated[
        Literal["busiest", "name"],
        Meta(
            description="`busiest` has no pages: the busiest of the first 1,000 keys. `name` has "
            "all, page by page."
        ),
    ] = "busiest"
    limit: PageLimit = 50
    cursor: PageCursor | None = None


class SetNumbers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers to use until they are unset. Those that are left out stay as they are.

    With `key`, `concurrency`, `rate` and `weight` are that key's own.
    """

    key: KeyName | None = None
    concurrency: Number | None = None
    rate: RateText | None = None
    concurrency_per_key: Number | None = None
    rate_per_key: RateText | None = None
    weight: Annotated[int, Meta(ge=1, le=config.LIMIT_WEIGHT_MAX)] | None = None


class OfKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limit as a whole, or one key."""

    key: KeyName | None = None


class PauseLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to pause, for how long, and why."""

    key: KeyName | None = None
    seconds: Annotated[Seconds, Meta(description="Null: until it is resumed.")] | None = None
    reason: Annotated[str, Meta(max_length=config.REASON_BYTES_MAX)] | None = None


async def list_page(call: Call[None, LimitQuery]) -> Reply:
    limit = call.query.limit
    after, tenant = await call.after() or "", call.caller.tenant
    found = await call.store.arun(list_limits(after=after, limit=limit, tenant=tenant))
    # A tenant's page may be short, because other limits are left out of it.
    following = found[-1].name if len(found) == limit else None
    return Reply(
        Limits(limits=[_limit_of(each) for each in found], next=await call.next(following))
    )


async def get_limit(call: Call[None, LimitKeyQuery]) -> Reply:
    name, query, tenant = call.path["limit"], call.query, call.caller.tenant
    place = await call.after()
    after = place or "" if query.order == "name" else None
    found = await _found(call, name)
    keys = LimitKeys(keys=[])
    if found.declared is not None:
        op = limit_keys(name, limit=query.limit, after=after, tenant=tenant)
        keys = await call.store.arun(op)
    return Reply(
        LimitWithKeys(
            limit=_limit_of(found),
            keys=[copied(each, LimitKeySchema) for each in keys],
            is_cut=keys.is_cut,
            next=await call.next(keys.next),
        )
    )


async def _found(call: Call[Any, Any], name: str) -> LimitInfo:
    found = await call.store.arun(list_limits([name], tenant=call.caller.tenant))
    if not found:
        raise ops.unknown_limit(name)
    return found[0]


def _limit_of(found: LimitInfo) -> LimitSchema:
    return copied(
        found,
        LimitSchema,
        rules=copied(found.rules, LimitRulesSchema),
        declared=_rules_of(found.declared),
        chosen=_rules_of(found.chosen),
    )


def _rules_of(found: LimitRules | None) -> LimitRulesSchema | None:
    return None if found is None else copied(found, LimitRulesSchema)


async def set_numbers(call: Call[SetNumbers, None]) -> Reply:
    given = _given(call.body)
    chosen = chosen_numbers(**given)
    name, key = call.path["limit"], call.body.key
    return await _change(call, "limit.set", ops.set_limit(name, key, chosen), given)


async def unset_numbers(call: Call[OfKey, None]) -> Reply:
    op = ops.unset_limit(call.path["limit"], call.body.key)
    return await _change(call, "limit.unset", op, _given(call.body))


async def pause_limit(call: Call[PauseLimit, None]) -> Reply:
    body = call.body
    op = ops.pause_limit(call.path["limit"], body.key, body.seconds, reason=body.reason)
    return await _change(call, "limit.pause", op, _given(body))


async def resume_limit(call: Call[OfKey, None]) -> Reply:
    op = ops.resume_limit(call.path["limit"], call.body.key)
    return await _change(call, "limit.resume", op, _given(call.body))


def _given(body: msgspec.Struct) -> dict[str, Any]:
    return {
        name: value for name, value in msgspec.structs.asdict(body).items() if value is not None
    }


async def _change(
    call: Call[Any, Any], action: str, op: Op[None], detail: Mapping[str, object]
) -> Reply:
    """Change a limit, and answer with what it is now."""
    name = call.path["limit"]
    await call.store.arun(audited(op, call.deed(action, name), detail=lambda _: detail))
    return Reply(_limit_of(await _found(call, name)))


_RULES = LimitRulesSchema(
    concurrency=50,
    rate="100/s",
    burst=5,
    concurrency_per_key=2,
    rate_per_key=None,
    burst_per_key=None,
)
_LIMIT = LimitSchema(
    name="stripe",
    rules=_RULES,
    declared=_RULES,
    chosen=None,
    per="customer",
    is_ordered=False,
    on_dead="continue",
    weights={"acme": 3},
    declared_at=EXAMPLE_AT,
    running=Count(3),
    waiting=Count(14),
    paused_keys=Count(0),
    oldest_waiting_seconds=12.5,
    is_paused=False,
    paused_until=None,
    paused_reason=None,
    opens_at=None,
)
_KEY = LimitKeySchema(
    key="acme",
    running=Count(2),
    waiting=Count(14),
    concurrency=2,
    rate=None,
    burst=None,
    weight=3,
    is_own=False,
    is_paused=False,
    paused_until=None,
    paused_reason=None,
    opens_at=None,
)
_CHOSEN = msgspec.structs.replace(
    _LIMIT,
    rules=msgspec.structs.replace(_RULES, concurrency=20),
    chosen=LimitRulesSchema(
        concurrency=20,
        rate=None,
        burst=None,
        concurrency_per_key=None,
        rate_per_key=None,
        burst_per_key=None,
    ),
)

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/limits",
        operation="listLimits",
        summary="The limits, with counts of their jobs",
        description="A token that is bound to a tenant gets the limits whose keys are tenants, "
        "with counts of that tenant's jobs.",
        handler=list_page,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=LimitQuery,
        answers={200: Limits},
        links={Limits: [Link("getLimit", {"limit": "$response.body#/limits/0/name"})]},
        example=Example(Limits(limits=[_LIMIT], next=None)),
    ),
    Route(
        method="GET",
        path="/v1/limits/{limit}",
        operation="getLimit",
        summary="A limit, and its keys",
        description="Keys are listed that have jobs which run or wait, that are paused, or that "
        "have numbers of their own. A token that is bound to a tenant gets its own key alone.",
        handler=get_limit,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=LimitKeyQuery,
        answers={200: LimitWithKeys},
        refusals=["not_found"],
        example=Example(LimitWithKeys(limit=_LIMIT, keys=[_KEY], is_cut=False, next=None)),
    ),
    Route(
        method="POST",
        path="/v1/limits/{limit}/set",
        operation="setLimit",
        summary="Use other numbers for a limit, or for one key, until they are unset",
        handler=set_numbers,
        scopes=scopes(Scope.ADMIN),
        reach=Reach.SYSTEM,
        body=SetNumbers,
        answers={200: LimitSchema},
        refusals=["not_found"],
        example=Example(_CHOSEN, SetNumbers(concurrency=20)),
    ),
    Route(
        method="POST",
        path="/v1/limits/{limit}/unset",
        operation="unsetLimit",
        summary="Go back to the declared numbers of a limit, or of one key",
        handler=unset_numbers,
        scopes=scopes(Scope.ADMIN),
        reach=Reach.SYSTEM,
        body=OfKey,
        is_optional=True,
        answers={200: LimitSchema},
        refusals=["not_found"],
        example=Example(_LIMIT, OfKey()),
    ),
    Route(
        method="POST",
        path="/v1/limits/{limit}/pause",
        operation="pauseLimit",
        summary="Pause a limit, or one key: no job starts there",
        handler=pause_limit,
        scopes=scopes(Scope.ADMIN),
        reach=Reach.SYSTEM,
        body=PauseLimit,
        is_optional=True,
        answers={200: LimitSchema},
        refusals=["not_found"],
        example=Example(
            msgspec.structs.replace(_LIMIT, paused_keys=Count(1)),
            PauseLimit(key="acme", seconds=600, reason="they asked for it"),
        ),
    ),
    Route(
        method="POST",
        path="/v1/limits/{limit}/resume",
        operation="resumeLimit",
        summary="Resume a paused limit, or one key",
        handler=resume_limit,
        scopes=scopes(Scope.ADMIN),
        reach=Reach.SYSTEM,
        body=OfKey,
        is_optional=True,
        answers={200: LimitSchema},
        refusals=["not_found"],
        example=Example(_LIMIT, OfKey(key="acme")),
    ),
]
