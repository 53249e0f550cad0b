"""`/healthz`: this process answers. `/readyz`: its database does too, and its schema fits."""

from __future__ import annotations

from typing import Literal

import msgspec

from rowlock.server.problems import Refusal
from rowlock.server.routing import PUBLIC, Answer, AnyRoute, Call, Example, Route


class Health(msgspec.Struct, frozen=True):
    """All is well."""

    status: Literal["ok"] = "ok"


async def get_health(call: Call[None, None]) -> Answer:
    return Answer(Health())


async def get_readiness(call: Call[None, None]) -> Answer:
    if call.service.stopping.is_set():
        raise Refusal("overloaded", "the server is stopping")
    await call.service.readiness.check()
    return Answer(Health())


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/healthz",
        operation="getHealth",
        summary="Whether the server answers",
        handler=get_health,
        scopes=PUBLIC,
        answers={200: Health},
        example=Example(Health()),
    ),
    Route(
        method="GET",
        path="/readyz",
        operation="getReadiness",
        summary="Whether the database answers, and has the schema of this version",
        handler=get_readiness,
        scopes=PUBLIC,
        answers={200: Health},
        example=Example(Health()),
    ),
]
