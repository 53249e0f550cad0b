"""`/v1/audit`: who changed what over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, EXAMPLE_ID, Name, PageCursor, PageLimit, Uuid, copied
from rowlock.store.ops.audit import list_audit
from rowlock.tokens import Scope


class AuditEntrySchema(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: an `actor` (the name of a token) did an `action` to a `target`."""

    id: Uuid
    at: datetime
    actor: str
    token_id: str | None
    tenant: str | None
    action: str
    target: str
    address: Annotated[str, Meta(description="The address of the client.")] | None
    detail: dict[str, Any]


class AuditPageSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, newest first. `next` is null on the last page."""

    entries: list[AuditEntrySchema]
    next: str | None


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter and page."""

    target: (
        Annotated[
            Name, Meta(description="What was changed: the id of a job, the name of a queue, …")
        ]
        | None
    ) = None
    limit: PageLimit = 50
    cursor: PageCursor | None = None


async def list_page(call: Call[None, AuditQuery]) -> Reply:
    query = call.query
    op = list_audit(
        tenant=call.caller.tenant, target=query.target, limit=query.limit, cursor=await call.after()
    )
    page = await call.store.arun(op)
    return Reply(
        AuditPageSchema(
            entries=[copied(each, AuditEntrySchema) for each in page.entries],
            next=await call.next(page.next),
        )
    )


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/audit",
        operation="listAudit",
        summary="Changes over HTTP in the last 90 days, and who made them",
        handler=list_page,
        is_expensive=True,
        scopes=scopes(Scope.ADMIN),
        query=AuditQuery,
        answers={200: AuditPageSchema},
        example=Example(
            AuditPageSchema(
                entries=[
                    AuditEntrySchema(
                        id="018f3c5e-7c1a-7000-8000-3f6c1d2e4b5b",
                        at=EXAMPLE_AT,
                        actor="operator",
                        token_id="abcdefghijkl",  # noqa: S106  # an id, and made up
                        tenant=None,
                        action="job.cancel",
                        target=EXAMPLE_ID,
                        address="192.0.2.7",
                        detail={"outcome": "cancelled", "state": "cancelled"},
                    )
                ],
                next=None,
            )
        ),
    ),
]
