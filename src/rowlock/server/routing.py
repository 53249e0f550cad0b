"""A route, declared once: dispatch, parsing, answers, and the OpenAPI document come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rowlock import config
from rowlock.server.gate import Caller, Reach
from rowlock.server.service import Service
from rowlock.store.ops.audit import Deed
from rowlock.tokens import Scope

B = TypeVar("B")
Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """A request that was let in: who asks, and what for, checked."""

    service: Service
    caller: Caller
    path: Mapping[str, str]
    query: Q
    body: B
    request: Request
    # Asks again whether the caller may, for what goes on; raises as at first.
    admit: Callable[[], Awaitable[Caller]]

    def deed(self, action: str, target: str) -> Deed:
        """A line for the audit."""
        return Deed(self.caller.actor, action, target)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returns: a Struct to be encoded, or nothing."""

    value: msgspec.Struct | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Handler = Callable[[Call[B, Q]], Awaitable[Answer | Response]]

PUBLIC: None = None
ANY_TOKEN: frozenset[Scope] = frozenset()


def scopes(*names: Scope) -> frozenset[Scope]:
    """Any one of these suffices; `admin` always does."""
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Example:
    """What is sent, and what is answered, as the document shows it.

    `other` is of the second type, where a call answers with two.
    """

    answer: msgspec.Struct | None = None
    body: msgspec.Struct | None = None
    other: msgspec.Struct | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Route(Generic[B, Q]):
    """One call of the API.

    `path` has its parameters in braces. `body` None: none is read; one that `is_optional` may be
    left out. `answers` are the types by status, None for an empty one. `refusals` are the codes
    of problems that this call has beyond those that all have.
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
    # The schemas of path parameters that are no UUIDs or names.
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Any])
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: None})
    refusals: Sequence[str] = ()
    example: Example = field(default_factory=Example)
    media_type: str = "application/json"
    # What a stream is made of: the document names the type, and no parser takes the whole for one.
    item: Any = None
    # Pages are for browsers, and not part of the document.
    is_page: bool = False

    @property
    def segments(self) -> list[str]:
        return self.path.strip("/").split("/") if self.path != "/" else []

    @property
    def resource(self) -> str:
        """What it is about: `jobs` for `/v1/jobs/{id}`."""
        return self.segments[1] if self.path.startswith("/v1/") else "health"


AnyRoute = Route[Any, Any]
