"""From a path to its route: literal segments first, then parameters. Pure.

Segments are split before they are decoded, so that a queue may be named `a/b` (`a%2Fb` in a URL).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from rowlock.server.routing import AnyRoute


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
    """The route of a request and the values in its path; without a route, what the path allows."""

    route: AnyRoute | None
    values: dict[str, str]
    allowed: list[str]


class Router:
    """Finds routes; `GET` serves `HEAD` too."""

    def __init__(self, routes: Iterable[AnyRoute]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.segments:
                node = node.child(segment)
            assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
            node.routes[route.method] = route

    def find(self, method: str, segments: list[str] | None) -> Match | None:
        """None: there is no such path."""
        found = None if segments is None else _walk(self._root, segments, 0)
        if segments is None or found is None:
            return None
        route = found.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = sorted(found.routes)
            return Match(None, {}, [*allowed, "HEAD"] if "GET" in allowed else allowed)
        values = {
            name[1:-1]: value
            for name, value in zip(route.segments, segments, strict=True)
            if name.startswith("{")
        }
        return Match(route, values, [])


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
    """The path as it was sent: frameworks that cut a prefix off the other one may add a slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0]


def segments_of(scope: Mapping[str, Any]) -> list[str] | None:
    """The decoded segments of a request's path below its prefix; None if they are no text."""
    try:
        segments = [unquote_to_bytes(part).decode() for part in path_of(scope).split(b"/")]
    except UnicodeDecodeError:
        return None
    prefix = [part for part in scope.get("root_path", "").split("/") if part]
    below = segments[1:]
    if prefix and below[: len(prefix)] == prefix:
        below = below[len(prefix) :]
    return [] if below == [""] else below
