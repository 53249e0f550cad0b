"""`/v1/bulk`: cancel, retry, move or delete the jobs that match, with a preview and progress.

The work is done in the background, by any server. If a server ends, the next one continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from rowlock.clock import maybe_from_us
from rowlock.errors import NotFound, OptionInvalid
from rowlock.filters import FILTERS, JobFilter
from rowlock.ids import new_id
from rowlock.job import Count, JobState
from rowlock.server.problems import Refusal
from rowlock.server.routes.jobs import filter_of, job_id
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, scopes
from rowlock.server.schemas import (
    EXAMPLE_AT,
    EXAMPLE_ID,
    GIVEN,
    JobChoice,
    Name,
    Time,
    Uuid,
    copied,
)
from rowlock.store.ops.audit import audited
from rowlock.store.ops.bulk import (
    ALLOWED,
    NEEDS_STATE,
    OPTIONS,
    Bulk,
    BulkAction,
    Selection,
    TooMany,
    count_bulk,
    get_bulk,
    selection,
    start_bulk,
)
from rowlock.tokens import Scope


class BulkFilter(JobChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs: in one state, and matching every filter that is given."""


def _rule_of(action: BulkAction) -> dict[str, Any]:
    """The schema of the filter that an action takes."""
    states: list[str | None] = [state.value for state in JobState if state in ALLOWED[action]]
    chosen: dict[str, Any] = {"action": {"const": action.value}}
    required: list[str] = []
    for option, user in OPTIONS.items():
        chosen[option] = GIVEN if action is user else {"type": "null"}
        required += [option] if action is user else []
    if action in NEEDS_STATE:
        named = {"required": ["state"], "properties": {"state": {"enum": states}}}
        return {"required": ["filter", *required], "properties": {**chosen, "filter": named}}
    optional = {"properties": {"state": {"enum": [*states, None]}}}
    return {"properties": {**chosen, "filter": optional}}


class NewBulk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on the jobs that match a filter.

    With `preview`, nothing is done: the answer says how many jobs match. Without it, `expected` is
    that number. If more jobs match by then, nothing is done either. All actions but `cancel` and
    `retry` must name the state.
    """

    RULES: ClassVar[Mapping[str, Any]] = {
        "allOf": [
            {
                "anyOf": [
                    {"required": ["preview"], "properties": {"preview": {"const": True}}},
                    {"required": ["expected"], "properties": {"expected": GIVEN}},
                ]
            },
            {"anyOf": [_rule_of(action) for action in BulkAction]},
        ]
    }

    action: BulkAction
    filter: BulkFilter = BulkFilter()
    to: Annotated[Name, Meta(description="The queue of a `reroute`.")] | None = None
    run_at: Annotated[Time, Meta(description="The time of a `reschedule`.")] | None = None
    preview: bool = False
    expected: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    per_second: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=100_000,
                description="At most this many jobs per second. Unlimited if null.",
            ),
        ]
        | None
    ) = None


class BulkPreview(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs match now."""

    action: BulkAction
    filter: BulkFilter
    count: Count


class BulkSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The state of bulk work.

    `total` jobs matched when it began. `done` and `skipped` increase. A job is skipped if its key
    is in flight again. The ids of the first 1,000 are in `skipped_ids`.
    """

    id: Uuid
    action: BulkAction
    filter: BulkFilter
    to: str | None
    run_at: datetime | None
    per_second: int | None
    state: Literal["running", "done", "failed"]
    total: Count
    done: int
    skipped: int
    skipped_ids: list[str]
    actor: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    problem: str | None


async def create_bulk(call: Call[NewBulk, None]) -> Reply:
    asked = call.body
    chosen, state = filter_of(call, asked.filter), asked.filter.state
    wanted = selection(asked.action, state, chosen, to=asked.to, run_at=asked.run_at)
    if asked.preview:
        return await _preview(call, wanted)
    if asked.expected is None:
        raise OptionInvalid("expected", "is required; request a `preview` first")
    id = new_id()
    op = start_bulk(
        wanted,
        id=id,
        expected=asked.expected,
        actor=call.caller.actor,
        per_second=asked.per_second,
    )
    begun = await call.service.store.arun(
        audited(op, call.deed(f"bulk.{asked.action}", id), detail=_audit_detail)
    )
    if isinstance(begun, TooMany):
        more = "" if begun.count.exact else "at least "
        raise Refusal(
            "count_changed",
            f"{more}{begun.count.value} jobs match, and {asked.expected} were expected; "
            "nothing was done",
        )
    call.service.bulk.wake()
    place = f"{call.request.scope.get('root_path', '')}/v1/bulk/{begun.id}"
    return Reply(_bulk_of(begun), status=202, headers={"location": place})


async def _preview(call: Call[NewBulk, None], wanted: Selection) -> Reply:
    count = await call.store.arun(count_bulk(wanted))
    return Reply(
        BulkPreview(
            action=wanted.action,
            filter=_filter_of(wanted.state, wanted.chosen),
            count=count,
        )
    )


def _audit_detail(begun: Bulk | TooMany) -> Mapping[str, object] | None:
    """The filter and the count, or None if nothing was done."""
    if isinstance(begun, TooMany):
        return None
    shown = _filter_of(begun.state, begun.chosen)
    options = {"to": begun.to, "run_at": begun.run_at}
    given = {name: value for name, value in options.items() if value is not None}
    return {"total": begun.total.value, "filter": shown, **given}


async def get_progress(call: Call[None, None]) -> Reply:
    id = job_id(call)
    found = await call.store.arun(get_bulk(id, tenant=call.caller.tenant))
    if found is None:
        raise NotFound(f"there is no bulk work {id}, or it was removed")
    if found.finished_at is None:
        # The server that began it may be gone.
        call.service.bulk.wake()
    return Reply(_bulk_of(found))


def _bulk_of(found: Bulk) -> BulkSchema:
    state: Literal["running", "done", "failed"] = "done" if found.problem is None else "failed"
    return copied(
        found,
        BulkSchema,
        filter=_filter_of(found.state, found.chosen),
        state="running" if found.finished_at is None else state,
    )


def _filter_of(state: JobState | None, chosen: JobFilter) -> BulkFilter:
    values: dict[str, Any] = chosen.values()
    for name, filter in FILTERS.items():
        if filter.is_time:
            values[name] = maybe_from_us(values[name])
    return BulkFilter(state=state, **values)


_BULK = BulkSchema(
    id="018f3c5e-7c1a-7000-8000-3f6c1d2e4b5c",
    action=BulkAction.RETRY,
    filter=BulkFilter(state=JobState.DEAD, queue="mail"),
    to=None,
    run_at=None,
    per_second=None,
    state="running",
    total=Count(value=37, exact=True),
    done=20,
    skipped=1,
    skipped_ids=[EXAMPLE_ID],
    actor="operator",
    created_at=EXAMPLE_AT,
    updated_at=EXAMPLE_AT,
    finished_at=None,
    problem=None,
)

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/bulk",
        operation="createBulk",
        summary="Cancel, retry, move, run again or delete the jobs that match a filter",
        description="Send it with `preview` first, then with the `expected` count of the preview. "
        "`cancel` applies to jobs that have not ended, `retry` to dead jobs, or to cancelled ones "
        "if `state` says so. The others need a `state`. `reroute` needs `to`, the new queue, and "
        "`reschedule` needs `run_at`.",
        handler=create_bulk,
        is_expensive=True,
        scopes=scopes(Scope.ADMIN),
        body=NewBulk,
        answers={202: BulkSchema, 200: BulkPreview},
        located=BulkSchema,
        links={BulkSchema: [Link("getBulk", {"id": "$response.body#/id"})]},
        refusals=["count_changed"],
        example=Example(
            BulkPreview(
                action=BulkAction.RETRY,
                filter=BulkFilter(state=JobState.DEAD, queue="mail"),
                count=Count(value=37, exact=True),
            ),
            NewBulk(
                action=BulkAction.RETRY,
                filter=BulkFilter(state=JobState.DEAD, queue="mail"),
                preview=True,
            ),
            _BULK,
        ),
    ),
    Route(
        method="GET",
        path="/v1/bulk/{id}",
        operation="getBulk",
        summary="The progress of bulk work",
        handler=get_progress,
        scopes=scopes(Scope.READ),
        answers={200: BulkSchema},
        refusals=["not_found"],
        example=Example(_BULK),
    ),
]
