"""`/v1/me`: whoever asks, and what for; so that a client offers nothing that would be refused."""

from __future__ import annotations

import msgspec

from rowlock.server.routing import ANY_TOKEN, Answer, AnyRoute, Call, Example, Route
from rowlock.tokens import Scope
from rowlock.version import __version__


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The credential of this very request; an open server lets anybody do everything.

    `scopes` has all that is implied: with `admin` it names every one.
    """

    name: str
    token_id: str | None
    tenant: str | None
    scopes: list[Scope]
    is_open: bool
    version: str


async def get_me(call: Call[None, None]) -> Answer:
    caller = call.caller
    held = frozenset(Scope) if Scope.ADMIN in caller.scopes else caller.scopes
    return Answer(
        Me(
            name=caller.actor.name,
            token_id=caller.actor.token_id,
            tenant=caller.tenant,
            scopes=[scope for scope in Scope if scope in held],
            is_open=await call.service.gate.is_open(),
            version=__version__,
        )
    )


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/me",
        operation="getMe",
        summary="Who asks, and what they may do",
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
                version=__version__,
            )
        ),
    ),
]
