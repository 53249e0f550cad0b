"""Routes: each is declared once, and dispatch, parsing and the OpenAPI document come from it.

A path's segments are split before they are decoded, so that a queue may be named `a/b` (`a%2Fb` in
a URL). Literal segments win over parameters.

Browsers, curl and proxies change some paths before they send them: `..` is removed, together with
the segment before it, even as `%2E%2E`, and some decode `%2F`. So a name can also be written with a
`~` in front, and then with `~2F` instead of `%2F`: `~..` is `..`, and `~a~2Fb` is `a/b`. A name
that begins with a tilde is written with `~~7E` in front.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.server.gate import Caller, Reach
from rowlock.server.service import Service
from rowlock.store import Store
from rowlock.store.ops.audit import Deed
from rowlock.tokens import Scope

# Pages of one list may differ in these.
_PAGE_FIELDS = frozenset({"limit", "cursor"})

_TILDE = re.compile(r"~(?:[^~]|~[0-9A-Fa-f]{2})*", re.DOTALL)
_TILDE_BYTE = re.compile(rb"~([0-9A-Fa-f]{2})")

B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """A request that was admitted: its caller, and its parameters and body, checked."""

    service: Service
    # On connections of its own, if the call is an expensive read.
    store: Store
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    request: Request
    # Checks again that the caller is admitted, for streams. Raises as the first check.
    admit: Callable[[], Awaitable[Caller]]
    # What is held until the answer is sent.
    held: ExitStack

    def deed(self, action: str, target: str) -> Deed:
        """The audit entry of an action of this caller."""
        address = self.service.gate.proxies.client(self.request.scope)
        return Deed(self.caller.actor, action, target, address)

    async def after(self) -> str | None:
        """The place after which the requested page begins. None: the first page."""
        cursor: str | None = getattr(self.query, "cursor", None)
        return None if cursor is None else (await self.service.seal()).open(cursor, *self._list())

    async def next(self, place: str | None) -> str | None:
        """The `next` of a page that ends at a place. None: it was the last page."""
        return None if place is None else (await self.service.seal()).close(place, *self._list())

    def _list(self) -> tuple[Any, ...]:
        """What a cursor is bound to: the list, its filters, and the tenant of the caller."""
        query: Any = self.query
        filters = [
            getattr(query, name) for name in query.__struct_fields__ if name not in _PAGE_FIELDS
        ]
        return type(query).__name__, self.caller.tenant, filters


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call returns: a record to be encoded as JSON, or nothing."""

    value: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Handler = Callable[[Call[B, Q]], Awaitable[Reply | Response]]

PUBLIC: None = None
ANY_TOKEN: frozenset[Scope] = frozenset()


def scopes(*names: Scope) -> frozenset[Scope]:
    """The scopes of a route: a token needs one of these, or `admin`."""
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Example:
    """A request and its answer, as the document shows them.

    `other` is an answer of the second type, if a call has two.
    """

    answer: object = None
    body: msgspec.Struct | None = None
    other: object = None


@dataclass(frozen=True, slots=True)
class Link:
    """A call that can follow an answer, with parameters or a body taken from that answer.

    Values that begin with `$` are runtime expressions of OpenAPI, such as `$response.body#/id`.
    """

    operation: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None


def job_links(id: str) -> list[Link]:
    """The calls that concern one job, whose id is at this place of an answer."""
    calls = ("getJob", "explainJob", "getRelatedJobs", "getJobLog")
    changes = ("cancelJob", "retryJob", "deleteJob")
    return [Link(operation, {"id": id}) for operation in (*calls, *changes)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Route(Generic[B, Q]):
    """One call of the API.

    `path` has its parameters in braces. Without `body`, no body is read. If it `is_optional`, it
    may be left out. `answers` are the types by status, None for an empty body. `refusals` are the
    codes of problems that only this call has.
    """

    method: str
    path: str
    operation: str
    summary: str
    handler: Handler[B, Q]
    scopes: frozenset[Scope] | None
    reach: Reach = Reach.TENANT
    description: str = ""
    query: type[Q] | None = None
    body: type[B] | None = None
    is_optional: bool = False
    bytes_max: int = config.HTTP_BODY_BYTES_MAX
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    # The schemas of path parameters that are neither UUIDs nor names.
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Any])
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: None})
    # The type of answers with a `Location`, which is the address of what was made.
    located: Any = None
    # Calls that can follow, by the type of the answer.
    links: Mapping[Any, Sequence[Link]] = field(default_factory=dict[Any, Sequence[Link]])
    refusals: Sequence[str] = ()
    # A read that may take long: a few run at a time, on connections of their own.
    is_expensive: bool = False
    example: Example = field(default_factory=Example)
    media_type: str = "application/json"
    # The type of each item of a stream. The document only names it, since no single value is sent.
    item: Any = None
    # Pages are for browsers and not in the document.
    is_page: bool = False

    @property
    def is_long(self) -> bool:
        """Whether its answers may be long and asked for again: they are compressed and tagged."""
        return self.is_expensive and self.method == "GET"

    @property
    def segments(self) -> list[str]:
        return self.path.strip("/").split("/") if self.path != "/" else []

    @property
    def resource(self) -> str:
        """The resource, such as `jobs` for `/v1/jobs/{id}`."""
        return self.segments[1] if self.path.startswith("/v1/") else "health"


AnyRoute = Route[Any, Any]


@dataclass(slots=True)
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict[str, "_Node"])
    parameter: _Node | None = None
    routes: dict[str, AnyRoute] = field(default_factory=dict[str, AnyRoute])

    def child(self, segment: str) -> _Node:
        if segment.startswith("{"):
            self.parameter = self.parameter or _Node()
            return self.parameter
        return self.literal.setdefault(segment, _Node())


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request and the values in its path, or the methods that the path has."""

    route: AnyRoute | None
    values: dict[str, str]
    allowed: list[str]


class Router:
    """Finds routes. `GET` routes also serve `HEAD`."""

    def __init__(self, routes: Iterable[AnyRoute]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.segments:
                node = node.child(segment)
            assert route.method not in node.routes, f"{route.method} {route.path} is declared twice"
            node.routes[route.method] = route

    def find(self, method: str, segments: list[str] | None) -> Match | None:
        """The match of a request, or None if there is no such path."""
        found = None if segments is None else _walk(self._root, segments, 0)
        if segments is None or found is None:
            return None
        route = found.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = sorted(found.routes)
            return Match(None, {}, [*allowed, "HEAD"] if "GET" in allowed else allowed)
        values = {
            name[1:-1]: _name_in(value, option=name[1:-1])
            for name, value in zip(route.segments, segments, strict=True)
            if name.startswith("{")
        }
        return Match(route, values, [])


def _name_in(segment: str, *, option: str) -> str:
    """The name in a segment of a path: the segment itself, or what its escapes stand for."""
    if not segment.startswith("~"):
        return segment
    if not _TILDE.fullmatch(segment):
        raise OptionInvalid(option, "a name after `~` may have `~` only before two hex digits")
    # An escape stands for a byte. Everything else is text.
    raw = _TILDE_BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), segment[1:].encode())
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise OptionInvalid(option, "its escapes are not UTF-8") from None


def _walk(node: _Node, segments: list[str], place: int) -> _Node | None:
    if place == len(segments):
        return node if node.routes else None
    segment = segments[place]
    below = node.literal.get(segment)
    found = None if below is None else _walk(below, segments, place + 1)
    if found is None and node.parameter is not None and segment:
        found = _walk(node.parameter, segments, place + 1)
    return found


def path_of(scope: Mapping[str, Any]) -> bytes:
    """The path as it was sent. Frameworks that cut a prefix off `path` may add a slash to it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0]


def segments_of(scope: Mapping[str, Any]) -> list[str] | None:
    """The decoded segments of a path below its prefix, or None if they are not UTF-8."""
    try:
        segments = [unquote_to_bytes(part).decode() for part in path_of(scope).split(b"/")]
    except UnicodeDecodeError:
        return None
    prefix = [part for part in scope.get("root_path", "").split("/") if part]
    below = segments[1:]
    if prefix and below[: len(prefix)] == prefix:
        below = below[len(prefix) :]
    return [] if below == [""] else below
