"""`/v1/tokens`: credentials for this API.

A token that is bound to a tenant can only make tokens of that tenant.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rowlock import config
from rowlock.errors import Forbidden
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, Name, PageCursor, PageLimit, copied
from rowlock.store.ops.audit import audited
from rowlock.store.ops.tokens import list_tokens, new_token, revoke_token
from rowlock.tokens import Scope, Token


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, newest first, including revoked and expired ones. `next` is null on the last page."""

    tokens: list[Token]
    next: str | None


class TokenQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page."""

    limit: PageLimit = 100
    cursor: PageCursor | None = None


class NewTokenSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create."""

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=len(Scope))]
    tenant: Name | None = None
    expires: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=config.DURATION_SECONDS_MAX,
                description="Seconds until it expires. By default it never does.",
            ),
        ]
        | None
    ) = None


class MadeToken(Token, frozen=True, kw_only=True):
    """A new token with its text, which is shown only this once."""

    token: str


async def list_page(call: Call[None, TokenQuery]) -> Reply:
    op = list_tokens(tenant=call.caller.tenant, limit=call.query.limit, cursor=await call.after())
    page = await call.service.store.arun(op)
    return Reply(Tokens(tokens=page.tokens, next=await call.next(page.next)))


async def create_token(call: Call[NewTokenSchema, None]) -> Reply:
    asked = call.body
    if not call.caller.can_create_tokens:
        raise Forbidden(
            "your application's guard does not let you create tokens, which would outlast its "
            "consent; create them with `rowlock tokens create`"
        )
    tenant = call.caller.tenant_of(asked.tenant)
    new = new_token(name=asked.name, scopes=asked.scopes, tenant=tenant, expires=asked.expires)
    op = audited(
        new.add(),
        call.deed("token.create", new.secret.id),
        detail=lambda made: {"name": made.name, "scopes": made.scopes, "tenant": made.tenant},
    )
    made = await call.service.store.arun(op)
    call.service.gate.forget(made.id)
    return Reply(copied(made, MadeToken, token=new.secret.text), status=201)


async def delete_token(call: Call[None, None]) -> Reply:
    id = call.path["id"]
    op = audited(revoke_token(id, tenant=call.caller.tenant), call.deed("token.revoke", id))
    await call.service.store.arun(op)
    call.service.gate.forget(id)
    return Reply(status=204)


_TOKEN = Token(
    id="abcdefghijkl",
    name="shop",
    scopes=[Scope.ENQUEUE],
    tenant=None,
    created_at=EXAMPLE_AT,
    expires_at=datetime.fromisoformat("2030-05-01T12:00:00Z"),
    revoked_at=None,
    last_used_at=EXAMPLE_AT,
)

ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/tokens",
        operation="listTokens",
        summary="The tokens, without their secrets",
        handler=list_page,
        scopes=scopes(Scope.ADMIN),
        query=TokenQuery,
        answers={200: Tokens},
        example=Example(Tokens(tokens=[_TOKEN], next=None)),
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        operation="createToken",
        summary="Create a token, whose text is answered only this once",
        handler=create_token,
        scopes=scopes(Scope.ADMIN),
        body=NewTokenSchema,
        answers={201: MadeToken},
        links={MadeToken: [Link("deleteToken", {"id": "$response.body#/id"})]},
        example=Example(
            copied(_TOKEN, MadeToken, token=f"rwl_{_TOKEN.id}_{'x' * 43}"),
            NewTokenSchema(name="shop", scopes=[Scope.ENQUEUE], expires=7_776_000),
        ),
    ),
    Route(
        method="DELETE",
        path="/v1/tokens/{id}",
        operation="deleteToken",
        summary="Revoke a token immediately",
        handler=delete_token,
        scopes=scopes(Scope.ADMIN),
        parameters={"id": {"type": "string", "pattern": "^[a-z2-7]{12}$"}},
        answers={204: None},
        refusals=["not_found"],
    ),
]
