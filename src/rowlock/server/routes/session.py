"""`/v1/session`: the session of a browser, kept in a cookie.

Scripts can't read the cookie, other sites can't make the browser send it, and it ends after 12
hours, with its token, or when its user signs out. Programs send their token with each request
instead.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta

from rowlock import config
from rowlock.server.gate import cookie_name
from rowlock.server.request import headers_of
from rowlock.server.routing import ANY_TOKEN, PUBLIC, AnyRoute, Call, Example, Reply, Route
from rowlock.store.ops.audit import audited
from rowlock.store.ops.tokens import end_session


class NewSessionSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to sign in."""

    token: Annotated[str, Meta(max_length=200, description="A token, or the code of a login link.")]


class SessionSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has begun. Its cookie is in the header `Set-Cookie`."""

    expires_in: Annotated[int, Meta(description="Seconds until it ends.")]


async def create_session(call: Call[NewSessionSchema, None]) -> Reply:
    gate = call.service.gate
    address = gate.proxies.client(call.request.scope)
    made = await gate.sign_in(call.body.token.strip(), address=address)
    cookie = _cookie(call, made.code, seconds=made.seconds)
    return Reply(SessionSchema(expires_in=made.seconds), status=201, headers={"set-cookie": cookie})


async def delete_session(call: Call[None, None]) -> Reply:
    digest = call.caller.session
    if digest is not None:
        op = audited(
            end_session(digest),
            call.deed("session.delete", call.caller.actor.token_id or ""),
            detail=lambda was_there: {} if was_there else None,
        )
        await call.service.store.arun(op)
        call.service.gate.forget(digest)
    return Reply(status=204, headers={"set-cookie": _cookie(call, "", seconds=0)})


def _cookie(call: Call[Any, None], code: str, *, seconds: int) -> str:
    scope = call.request.scope
    parts = [
        f"{cookie_name(headers_of(scope))}={code}",
        f"Path={quote(scope.get('root_path', '')) or '/'}",
        f"Max-Age={seconds}",
        "HttpOnly",
        "SameSite=Strict",
    ]
    if call.service.gate.proxies.is_https(scope):
        parts.append("Secure")
    return "; ".join(parts)


ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/session",
        operation="createSession",
        summary="Sign a browser in: exchange a token for a cookie",
        description="The cookie is `HttpOnly` and `SameSite=Strict`, and valid for 12 hours. With "
        "it, a request that changes something must come from a page of this server, and have the "
        "content type `application/json` or the header `X-Rowlock-Request`.",
        handler=create_session,
        scopes=PUBLIC,
        body=NewSessionSchema,
        bytes_max=config.HTTP_SESSION_BYTES_MAX,
        answers={201: SessionSchema},
        refusals=["unauthorized", "too_many_requests"],
        example=Example(
            SessionSchema(expires_in=43_200),
            NewSessionSchema(token=f"rwl_abcdefghijkl_{'x' * 43}"),
        ),
    ),
    Route(
        method="DELETE",
        path="/v1/session",
        operation="deleteSession",
        summary="Sign out: end the session of this request's cookie",
        handler=delete_session,
        scopes=ANY_TOKEN,
        answers={204: None},
    ),
]
