"""`/v1/dead/groups`: dead jobs, grouped by error.

To retry or delete a group, use `/v1/bulk` with its fingerprint in the filter.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rowlock import config
from rowlock.job import Count
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, EXAMPLE_ID, Name, Uuid, copied
from rowlock.store.ops.dead import DeadGroup, dead_groups
from rowlock.tokens import Scope


class DeadGroupQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to group, and how many groups to answer."""

    kind: Name | None = None
    queue: Name | None = None
    tenant: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=config.DEAD_GROUPS_MAX)] = 100


class DeadGroupSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs of one kind whose last error has the same type and was raised in the same place.

    `message` is that of the job that died last, the sample. A count that is not exact is a lower
    bound.
    """

    fingerprint: str
    kind: str
    error: str
    message: str
    place: str
    count: Count
    first_at: datetime
    last_at: datetime
    sample_id: Uuid
    sample_queue: str


class DeadGroupsSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, the newest failure first. If `is_cut`, there are more or older ones."""

    groups: list[DeadGroupSchema]
    is_cut: bool


async def list_groups(call: Call[None, DeadGroupQuery]) -> Reply:
    query = call.query
    op = dead_groups(
        kind=query.kind,
        queue=query.queue,
        tenant=call.caller.tenant_of(query.tenant),
        limit=query.limit,
    )
    found = await call.store.arun(op)
    return Reply(DeadGroupsSchema(groups=[_group_of(e) for e in found.groups], is_cut=found.is_cut))


def _group_of(group: DeadGroup) -> DeadGroupSchema:
    return copied(
        group,
        DeadGroupSchema,
        sample_id=group.sample.id,
        sample_queue=group.sample.queue,
    )


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/dead/groups",
        operation="listDeadGroups",
        summary="Dead jobs, grouped by error",
        description="Each group is counted up to 10,000. With a filter, or a token that is bound "
        "to a tenant, only the newest 50,000 failures are read.",
        handler=list_groups,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=DeadGroupQuery,
        answers={200: DeadGroupsSchema},
        example=Example(
            DeadGroupsSchema(
                groups=[
                    DeadGroupSchema(
                        fingerprint="9f86d081884c7d65",
                        kind="send_email",
                        error="ConnectionRefusedError",
                        message="[Errno 111] Connection refused",
                        place="shop/mail.py send_email",
                        count=Count(value=37, exact=True),
                        first_at=EXAMPLE_AT,
                        last_at=EXAMPLE_AT,
                        sample_id=EXAMPLE_ID,
                        sample_queue="mail",
                    )
                ],
                is_cut=False,
            )
        ),
    ),
]
