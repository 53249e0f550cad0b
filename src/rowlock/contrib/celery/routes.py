"""`task_routes`: which queue and priority a task's jobs get, by name, pattern or function."""

from __future__ import annotations

import fnmatch
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rowlock.contrib.compat import Unsupported
from rowlock.errors import OptionInvalid

Route = Mapping[str, Any]
Find = Callable[[str, Sequence[Any], Mapping[str, Any], Mapping[str, Any]], Route | None]

# A broker's words, which say nothing beside a queue.
_OF_BROKERS: Final = {"routing_key", "exchange", "exchange_type", "delivery_mode", "serializer"}


class Router:
    """Finds the route of a task.

    Args:
        routes: As in Celery: a mapping of names and patterns, a list of such mappings or of pairs,
            functions, or their paths.
    """

    def __init__(self, routes: object = None) -> None:
        several = routes if isinstance(routes, list | tuple) else [routes]
        self._finds = [_find(each) for each in several if each]

    def route(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Route:
        """Return the options of the first route that names the task. Empty: none does."""
        for find in self._finds:
            route = find(name, args, kwargs or {}, options or {})
            if route is not None:
                return _checked(route)
        return {}


def _find(routes: object) -> Find:
    match routes:
        case str():
            return _by_function(_imported(routes))
        case Mapping():
            return _by_name(list(routes.items()))
        case list() | tuple() if all(isinstance(each, list | tuple) for each in routes):
            return _by_name([(pattern, target) for pattern, target in routes])
        case _ if callable(routes) or hasattr(routes, "route_for_task"):
            return _by_function(routes)
        case _:
            problem = (
                f"must be a mapping of names to queues, or a list of those, not {routes!r:.60}"
            )
            raise OptionInvalid("task_routes", problem)


def _by_name(pairs: Sequence[tuple[Any, Any]]) -> Find:
    exact: dict[str, Route] = {}
    patterns: list[tuple[re.Pattern[str], Route]] = []
    for pattern, target in pairs:
        # Checked at once, so that a wrong one is refused where it stands.
        route = _checked({"queue": target} if not isinstance(target, Mapping) else target)
        if isinstance(pattern, re.Pattern):
            patterns.append((pattern, route))
        elif "*" in pattern:
            patterns.append((re.compile(fnmatch.translate(pattern)), route))
        else:
            exact[pattern] = route

    def find(name: str, *_: object) -> Route | None:
        if name in exact:
            return exact[name]
        return next((route for pattern, route in patterns if pattern.match(name)), None)

    return find


def _by_function(function: Any) -> Find:
    if hasattr(function, "route_for_task"):
        router = function() if isinstance(function, type) else function
        return lambda name, args, kwargs, _: _as_route(router.route_for_task(name, args, kwargs))
    return lambda name, args, kwargs, options: _as_route(
        function(name, args, kwargs, dict(options), task=None)
    )


def _as_route(answer: Any) -> Route | None:
    return {"queue": answer} if isinstance(answer, str) else answer


def _checked(route: Route) -> Route:
    for option, value in route.items():
        if option in ("queue", "priority") or value is None:
            continue
        if option not in _OF_BROKERS or not route.get("queue"):
            raise Unsupported(f"task_routes {option}=", "name a queue: {'task': {'queue': 'mail'}}")
    queue = route.get("queue")
    # kombu's Queue has a name.
    return {"queue": getattr(queue, "name", queue), "priority": route.get("priority")}


def _imported(path: str) -> Any:
    module, _, name = path.replace(":", ".").rpartition(".")
    return getattr(importlib.import_module(module), name)
