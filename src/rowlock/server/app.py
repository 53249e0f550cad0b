"""The ASGI application: every request is routed, admitted, parsed and answered, in this order.

Every error is answered by a problem document. A bug of ours is logged, and the answer has only the
id of its log entry.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rowlock import config
from rowlock.app import App
from rowlock.errors import RowlockError
from rowlock.server.gate import Access, Caller, Openness
from rowlock.server.problems import Complaints, Refusal, refusal_of, unexpected
from rowlock.server.request import (
    BodyShare,
    Headers,
    Inbox,
    check_media_type,
    decode_body,
    decode_query,
    has_body,
    has_it,
    headers_of,
    read_body,
    takes_gzip,
)
from rowlock.server.routes import ROUTES
from rowlock.server.routing import AnyRoute, Call, Reply, Router, segments_of
from rowlock.server.service import Service
from rowlock.server.shares import Shares

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
# Lists become a tenth as long by it. Higher levels take twice the time for a tenth less.
_GZIP_LEVEL: Final = 4
_RAW_SECURITY: Final = [(name.encode(), value.encode()) for name, value in SECURITY.items()]


def asgi(
    app: App,
    *,
    is_open: bool = False,
    hosts: Sequence[str] | None = None,
    has_dashboard: bool = True,
    environment: str | None = None,
) -> Api:
    """The HTTP API of an app, to mount below any prefix of an ASGI application.

    Args:
        is_open: Serve requests without a token, because your own application authenticates them.
            By default every request needs a token, made by `rowlock tokens create`.
        hosts: If open, the host names of this server. Requests with another Host are refused.
        has_dashboard: Whether `GET /` is the dashboard.
        environment: The name that the dashboard shows in its frame, optionally with a color:
            "production:red". Colors are grey, red, amber, green, blue and violet.

    Example:
        api = FastAPI()
        api.mount("/queue", asgi(app))
    """
    names = None if hosts is None else frozenset(name.lower() for name in hosts)
    access = Access(Openness.GUARDED if is_open else Openness.CLOSED, hosts=names)
    return Api(Service(app, access=access, has_dashboard=has_dashboard, environment=environment))


class Api:
    """An ASGI application. Made by `asgi`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._router = Router(ROUTES)
        self._complaints = Complaints()
        self._drains = 0
        # Requests in progress.
        self.requests: Shares = Shares()

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
        inbox = Inbox(receive)
        with ExitStack() as held:
            try:
                response = await self._respond(scope, inbox, held)
                is_read = inbox.is_read(scope) or await self._drain(inbox)
            except ClientDisconnect:
                # The client is gone, so there is nobody to answer.
                return
            response.raw_headers += _missing(response)
            if not is_read:
                response.headers["connection"] = "close"
            if scope["method"] == "HEAD":
                response.body = b""
            await response(scope, receive, send)

    async def _drain(self, inbox: Inbox) -> bool:
        """Read the rest of a request, on a few connections at a time."""
        if self._drains >= config.HTTP_DRAINS_MAX:
            return False
        self._drains += 1
        try:
            return await inbox.drain()
        finally:
            self._drains -= 1

    async def _respond(self, scope: Scope, receive: Receive, held: ExitStack) -> Response:
        try:
            return await self._answer(scope, receive, held)
        except Refusal as refusal:
            return refusal.response()
        except RowlockError as error:
            self._complaints.note(error)
            return refusal_of(error).response()
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001  # a bug of ours must not be shown
            return unexpected(error).response()

    async def _answer(self, scope: Scope, receive: Receive, held: ExitStack) -> Response:
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
        admit = partial(self._admit, route, scope, headers)
        # Before a place is taken: only those who may call take places from one another.
        caller = await admit()
        with self._place(route, caller), self.service.bodies.share(caller.holder) as share:
            call: Call[Any, Any] = Call(
                service=self.service,
                store=self.service.reads if route.is_expensive else self.service.store,
                caller=caller,
                path=match.values,
                query=_query_of(route, scope),
                body=await self._body_of(route, headers, receive, share),
                request=Request(scope, receive),
                admit=admit,
                held=held,
            )
            reply = await (_in_turn(route, call) if route.is_expensive else route.handler(call))
            response = _encoded(reply) if isinstance(reply, Reply) else reply
            return await _shortened(response, headers) if route.is_long else response

    @contextmanager
    def _place(self, route: AnyRoute, caller: Caller) -> Iterator[None]:
        """Hold a place among the requests in progress."""
        if route.scopes is None and route.body is None:
            # Probes are answered without: a busy server is alive.
            yield
            return
        with self.requests.holding(caller.holder, most=config.HTTP_REQUESTS_MAX) as is_held:
            if not is_held:
                raise Refusal("overloaded", "too many requests at once; try again later")
            yield

    async def _body_of(
        self, route: AnyRoute, headers: Headers, receive: Receive, share: BodyShare
    ) -> Any:
        if route.body is None:
            return None
        if route.is_optional and "content-type" not in headers and not has_body(headers):
            return route.body()
        check_media_type(headers)
        body = await read_body(receive, headers, bytes_max=route.bytes_max, share=share)
        return await self.service.compute(len(body), decode_body, body, route.body)

    async def _admit(self, route: AnyRoute, scope: Scope, headers: Headers) -> Caller:
        caller = await self.service.gate.admit(scope, headers, scopes=route.scopes)
        caller.check(route.scopes or frozenset(), route.reach)
        return caller


async def _in_turn(route: AnyRoute, call: Call[Any, Any]) -> Reply | Response:
    """Answer when it is the caller's turn for an expensive read."""
    async with call.service.turns.turn(call.caller.holder):
        if await call.request.is_disconnected():
            raise ClientDisconnect
        return await route.handler(call)


def _query_of(route: AnyRoute, scope: Scope) -> Any:
    asked: bytes = scope["query_string"]
    if not asked and route.query is None:
        return None
    return decode_query(QueryParams(asked), route.query or _NoQuery)


class _NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a route without parameters."""


def _encoded(answer: Reply) -> Response:
    if answer.value is None:
        return Response(status_code=answer.status, headers=answer.headers)
    return Response(
        msgspec.json.encode(answer.value),
        answer.status,
        headers=answer.headers,
        media_type="application/json",
    )


async def _shortened(response: Response, headers: Headers) -> Response:
    """The answer, without its body if the client has it already, or compressed if it takes that.

    Only answers to expensive reads are: they are long and often asked for again, and none has a
    secret of this server, whose length after compression could give it away.
    """
    response.headers["vary"] = "Accept-Encoding"
    if len(response.body) < config.HTTP_GZIP_BYTES_MIN:
        return response
    if len(response.body) < config.HTTP_GZIP_THREAD_BYTES:
        return _tagged(response, headers)
    return await asyncio.to_thread(_tagged, response, headers)


def _tagged(response: Response, headers: Headers) -> Response:
    # Weak, because the compressed answer has the same.
    tag = f'W/"{hashlib.blake2b(response.body, digest_size=16).hexdigest()}"'
    response.headers["etag"] = tag
    if has_it(headers, tag) and response.status_code == HTTPStatus.OK:
        kept = {name: response.headers[name] for name in ("etag", "vary")}
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=kept)
    if takes_gzip(headers):
        response.body = gzip.compress(response.body, _GZIP_LEVEL, mtime=0)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
    return response


def _missing(response: Response) -> list[tuple[bytes, bytes]]:
    """The security headers that an answer has not set itself."""
    present = {name for name, _ in response.raw_headers}
    return [header for header in _RAW_SECURITY if header[0] not in present]
