"""The ASGI application: every request is routed, admitted, parsed and answered, in this order.

Every error is answered by a problem document. A bug of ours is logged, and the answer has only the
id of its log entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rowlock import config
from rowlock.app import App
from rowlock.errors import RowlockError
from rowlock.server.gate import Caller, Openness
from rowlock.server.problems import Complaints, Refusal, refusal_of, unexpected
from rowlock.server.request import (
    Headers,
    Inbox,
    check_media_type,
    decode_body,
    decode_query,
    has_body,
    headers_of,
    read_body,
)
from rowlock.server.routes import ROUTES
from rowlock.server.routing import AnyRoute, Call, Reply, Router, segments_of
from rowlock.server.service import Service

# Headers of every answer. Pages that run scripts set their own policy.
SECURITY: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_RAW_SECURITY: Final = [(name.encode(), value.encode()) for name, value in SECURITY.items()]


def asgi(
    app: App,
    *,
    is_open: bool = False,
    hosts: Sequence[str] | None = None,
    has_dashboard: bool = True,
) -> Api:
    """The HTTP API of an app, to mount below any prefix of an ASGI application.

    Args:
        is_open: Serve requests without a token, because your own application authenticates them.
            By default every request needs a token, made by `rowlock tokens create`.
        hosts: If open, the host names of this server. Requests with another Host are refused.
        has_dashboard: Whether `GET /` is the dashboard.

    Example:
        api = FastAPI()
        api.mount("/queue", asgi(app))
    """
    openness = Openness.OPEN if is_open else Openness.CLOSED
    names = None if hosts is None else frozenset(name.lower() for name in hosts)
    return Api(Service(app, openness=openness, hosts=names, has_dashboard=has_dashboard))


class Api:
    """An ASGI application. Made by `asgi`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._router = Router(ROUTES)
        self._complaints = Complaints()
        # Requests in progress.
        self.requests: int = 0

    async def aclose(self) -> None:
        """End background work. Call it from the lifespan of the application that mounts this."""
        await self.service.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case _:
                # WebSockets are not served.
                await send({"type": "websocket.close", "code": 1008})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.service.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += 1
        inbox = Inbox(receive)
        try:
            response = await self._respond(scope, inbox)
            is_read = await inbox.drained(scope)
        except ClientDisconnect:
            # The client is gone, so there is nobody to answer.
            return
        finally:
            self.requests -= 1
        response.raw_headers += _missing(response)
        if not is_read:
            response.headers["connection"] = "close"
        if scope["method"] == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        try:
            return await self._answer(scope, receive)
        except Refusal as refusal:
            return refusal.response()
        except RowlockError as error:
            self._complaints.note(error)
            return refusal_of(error).response()
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001  # a bug of ours must not be shown
            return unexpected(error).response()

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        headers = headers_of(scope)
        method: str = scope["method"]
        match = self._router.find(method, segments_of(scope))
        if match is None:
            raise Refusal("not_found", "there is no such path; see /docs")
        if match.route is None:
            allowed = ", ".join(match.allowed)
            raise Refusal(
                "method_not_allowed", f"this path takes {allowed}", headers={"allow": allowed}
            )
        route = match.route
        # Probes are answered even then: a busy server is alive.
        if self.requests > config.HTTP_REQUESTS_MAX and route.scopes is not None:
            raise Refusal("overloaded", "too many requests at once; try again later")
        admit = partial(self._admit, route, scope, headers)
        call: Call[Any, Any] = Call(
            service=self.service,
            caller=await admit(),
            path=match.values,
            query=_query_of(route, scope),
            body=await _body_of(route, headers, receive),
            request=Request(scope, receive),
            admit=admit,
        )
        reply = await route.handler(call)
        return _encoded(reply) if isinstance(reply, Reply) else reply

    async def _admit(self, route: AnyRoute, scope: Scope, headers: Headers) -> Caller:
        client = scope.get("client")
        caller = await self.service.gate.admit(
            headers,
            method=scope["method"],
            address=client[0] if client else "",
            scopes=route.scopes,
        )
        caller.check(route.scopes or frozenset(), route.reach)
        return caller


def _query_of(route: AnyRoute, scope: Scope) -> Any:
    asked: bytes = scope["query_string"]
    if not asked and route.query is None:
        return None
    return decode_query(QueryParams(asked), route.query or _NoQuery)


class _NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a route without parameters."""


async def _body_of(route: AnyRoute, headers: Headers, receive: Receive) -> Any:
    if route.body is None:
        return None
    if route.is_optional and "content-type" not in headers and not has_body(headers):
        return route.body()
    check_media_type(headers)
    body = await read_body(receive, headers, bytes_max=route.bytes_max)
    return decode_body(body, route.body)


def _encoded(answer: Reply) -> Response:
    if answer.value is None:
        return Response(status_code=answer.status, headers=answer.headers)
    return Response(
        msgspec.json.encode(answer.value),
        answer.status,
        headers=answer.headers,
        media_type="application/json",
    )


def _missing(response: Response) -> list[tuple[bytes, bytes]]:
    """The security headers that an answer has not set itself."""
    present = {name for name, _ in response.raw_headers}
    return [header for header in _RAW_SECURITY if header[0] not in present]
