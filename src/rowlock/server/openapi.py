"""The OpenAPI 3.1 document, from the routes and the types that they parse and answer.

Generators of clients read its schemas, so:

1. An object of any shape says so: some generators take an object without named properties for one
   that is always empty.
2. An optional field of a request has no `default`: some generators would make it required. Its
   description names the default.
3. A field that is in every answer is required there, even if it has a default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from rowlock import config
from rowlock.server.gate import Reach
from rowlock.server.problems import KINDS, MEDIA_TYPE, Problem, Refusal
from rowlock.server.routing import AnyRoute, Link
from rowlock.tokens import Scope
from rowlock.version import __version__

Document = dict[str, Any]

_REFERENCE: Final = "#/components/schemas/{name}"
_DESCRIPTION: Final = """\
Durable background jobs on SQLite or PostgreSQL: enqueue, inspect, manage and run them.

Times are RFC 3339 in UTC. Durations are in seconds.
Errors are `application/problem+json`. Match on `code`.
"""
_SPANS_ALL: Final = (
    "It spans all tenants, so a token that is bound to a tenant is refused with 403."
)
# The codes that any call may answer, any call that needs a token, and any with a body.
ALWAYS: Final = ("option_invalid", "method_not_allowed", "store_unavailable", "internal_error")
WITH_TOKEN: Final = (
    "unauthorized",
    "forbidden",
    "forwarded",
    "misdirected",
    "too_many_requests",
)
WITH_BODY: Final = ("json_invalid", "request_timeout", "too_large", "unsupported_media_type")
_TAGS: Final = {
    "jobs": "Enqueue, inspect and change jobs.",
    "bulk": "Change many jobs at once.",
    "dead": "Dead jobs, grouped by error.",
    "queues": "Queues with their counts, to be paused and resumed.",
    "limits": "Limits on what runs, and their keys, to be changed, paused and resumed.",
    "workflows": "Jobs that wait for each other, to be enqueued, looked at, cancelled and retried.",
    "schedules": "Jobs that are enqueued on a schedule.",
    "leases": "Run jobs: lease them, extend the leases, settle them.",
    "kinds": "The kinds of jobs, with the schemas of their payloads.",
    "stats": "Counts of all queues together.",
    "workers": "The workers, and what they run.",
    "history": "Totals of past runs over time.",
    "events": "A stream of what happens now.",
    "system": "This installation.",
    "me": "The caller's own credential.",
    "session": "The session of a browser, kept in a cookie.",
    "tokens": "Credentials for this API.",
    "audit": "A log of who changed what.",
    "health": "Health checks, which need no token, and metrics.",
}
_LOCATION: Final = {
    "Location": {
        "description": "The path of what was made.",
        "required": True,
        "schema": {"type": "string"},
    }
}
_TAG: Final = {
    "ETag": {
        "description": "Of answers of 1 KiB and more. Send it as `If-None-Match` with the same "
        "request, and the answer is 304 while nothing has changed.",
        "schema": {"type": "string"},
    }
}
_RETRY_AFTER: Final = {
    "Retry-After": {
        "description": "Seconds to wait before the next try.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    }
}
_PROBLEM_HEADERS: Final[dict[int, Document]] = {
    401: {
        "WWW-Authenticate": {
            "description": "How to authenticate: with a bearer token.",
            "required": True,
            "schema": {"type": "string"},
        }
    },
    405: {
        "Allow": {
            "description": "The methods of this path, separated by commas.",
            "required": True,
            "schema": {"type": "string"},
        }
    },
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_PARAMETERS: Final[dict[str, Document]] = {
    "id": {"type": "string", "format": "uuid"},
}
_NAME_SCHEMA: Final = {
    "type": "string", "minLength": 1, "maxLength": config.NAME_CHARACTERS_MAX,
}  # fmt: skip
# Escaped, it can be longer than it is.
_ANY_NAME: Final = {"type": "string", "minLength": 1}
_NAME_IN_PATH: Final = (
    "If clients or proxies may change the path, as they do with `..` and `%2F`, write `~` in front "
    "of the name, and `~` for each `%`: `~..`, `~a~2Fb`. A name that begins with `~` needs that."
)


def document(routes: Iterable[AnyRoute], *, prefix: str = "", needs_token: bool = True) -> Document:
    """The whole document, for a server mounted below the prefix."""
    listed = tuple(route for route in routes if not route.is_page)
    made = {**_document(listed), "servers": [{"url": prefix or "/"}]}
    return made if needs_token else {**made, "paths": _without_security(made["paths"])}


def _without_security(paths: Document) -> Document:
    return {
        path: {method: {**operation, "security": []} for method, operation in methods.items()}
        for path, methods in paths.items()
    }


@cache
def _document(routes: tuple[AnyRoute, ...]) -> Document:
    types = _Types(routes)
    paths: dict[str, Document] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, types)
    used = {route.resource for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {"title": "rowlock", "version": __version__, "description": _DESCRIPTION},
        "tags": [
            {"name": name, "description": text} for name, text in _TAGS.items() if name in used
        ],
        "paths": paths,
        "components": {
            "schemas": types.components,
            "responses": {f"Problem{status}": _problem(status) for status in _statuses(routes)},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token made by `rowlock tokens create`. An open server needs "
                    "none.",
                }
            },
        },
    }


class _Types:
    """The schemas of all types that routes name, as components."""

    def __init__(self, routes: Sequence[AnyRoute]) -> None:
        named: list[Any] = [Problem]
        for route in routes:
            named += [route.body, route.query, route.item, *route.answers.values()]
        self._types = list(dict.fromkeys(each for each in named if each is not None))
        made = msgspec.json.schema_components(self._types, ref_template=_REFERENCE)
        schemas, components = _with_public_names(made)
        self._schemas: dict[Any, Document] = dict(zip(self._types, schemas, strict=True))
        queries = {route.query.__name__ for route in routes if route.query is not None}
        self.queries: dict[str, Document] = {name: components[name] for name in queries}
        others = {name: each for name, each in components.items() if name not in queries}
        sent = [self._schemas[route.body] for route in routes if route.body is not None]
        described = readable(others, sent=sent)
        self.components: dict[str, Document] = {
            name: {**schema, **rules_of(name)} for name, schema in described.items()
        }

    def schema(self, kind: Any) -> Document:
        return self._schemas[kind]


def rules_of(name: str) -> Document:
    """The rules across fields of a component, which its type declares as `RULES`."""
    for kind in _subclasses(msgspec.Struct):
        if _public_name(kind.__name__) == name and "RULES" in vars(kind):
            rules: Document = vars(kind)["RULES"]
            return rules
    return {}


def _subclasses(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    for each in below:
        if each.__module__.startswith("rowlock."):
            yield each
        yield from _subclasses(each)


def _with_public_names(schema: Any) -> Any:
    """The same schemas, with every component named as clients see it."""
    match schema:
        case dict():
            return {_public_name(key): _with_public_names(each) for key, each in schema.items()}
        case list() | tuple():
            return [_with_public_names(each) for each in schema]
        case str():
            return _public_name(schema)
        case _:
            return schema


def _public_name(name: str) -> str:
    """The component of a class: without `Schema`, by which a class avoids a name that is taken.

    Text with spaces is a description, and stays.
    """
    return name if " " in name else name.removesuffix("Schema")


def _operation(route: AnyRoute, types: _Types) -> Document:
    operation: Document = {
        "operationId": route.operation,
        "tags": [route.resource],
        "summary": route.summary,
        "description": _described(route),
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route, types),
            *_headers(route),
        ],
        "responses": _responses(route, types),
        "security": [] if route.scopes is None else [{"bearer": sorted(route.scopes)}],
    }
    if route.reach is Reach.SYSTEM:
        operation["x-rowlock-reach"] = "system"
    if route.body is not None:
        operation["requestBody"] = _request_body(route, types)
    return operation


def _described(route: AnyRoute) -> str:
    if route.scopes is None:
        return route.description
    needed = " or ".join(f"`{scope}`" for scope in Scope if scope in route.scopes) or "any"
    reach = _SPANS_ALL if route.reach is Reach.SYSTEM else ""
    return " ".join(part for part in (route.description, reach, f"Scope: {needed}.") if part)


def _path_parameters(route: AnyRoute) -> list[Document]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": route.parameters.get(name) or _PARAMETERS.get(name, _ANY_NAME),
            **({} if name in _PARAMETERS else {"description": _NAME_IN_PATH}),
        }
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _query_parameters(route: AnyRoute, types: _Types) -> list[Document]:
    if route.query is None:
        return []
    schema = types.queries[route.query.__name__]
    return [_query_parameter(name, each) for name, each in schema["properties"].items()]


def _query_parameter(name: str, schema: Document) -> Document:
    # A parameter may be left out, but is never null.
    arms = [arm for arm in schema.get("anyOf", []) if arm != {"type": "null"}]
    kept = dict(arms[0] if len(arms) == 1 else schema)
    described = kept.pop("description", "")
    return {
        "name": name,
        "in": "query",
        "required": False,
        "schema": kept,
        **({"description": described} if described else {}),
    }


def _headers(route: AnyRoute) -> list[Document]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "schema": _NAME_SCHEMA,
            "description": text,
        }
        for name, text in route.headers.items()
    ]


def _request_body(route: AnyRoute, types: _Types) -> Document:
    content: Document = {"schema": types.schema(route.body)}
    if route.example.body is not None:
        content["example"] = msgspec.json.decode(msgspec.json.encode(route.example.body))
    return {"required": not route.is_optional, "content": {"application/json": content}}


def _responses(route: AnyRoute, types: _Types) -> Document:
    responses: dict[str, Document] = {}
    for status, kind in route.answers.items():
        responses[str(status)] = _response(route, kind, types)
    if route.is_long:
        responses["304"] = {"description": "As the answer that `If-None-Match` names"}
    for code in _codes_of(route):
        status = KINDS[code].status
        reference = {"$ref": f"#/components/responses/Problem{status}"}
        responses.setdefault(str(status), reference)
    return dict(sorted(responses.items()))


def _response(route: AnyRoute, kind: Any, types: _Types) -> Document:
    described: Document = {"description": "Done" if kind is None else "The answer"}
    if kind is not None and route.located is kind:
        described["headers"] = _LOCATION
    if route.is_long:
        described["headers"] = _TAG
    if kind is not None and kind in route.links:
        described["links"] = {link.operation: _link(link) for link in route.links[kind]}
    if route.item is not None:
        described["description"] = (
            f"A stream: the data of each is of type {_public_name(route.item.__name__)}"
        )
        return {**described, "content": {route.media_type: {"x-item": types.schema(route.item)}}}
    if kind is None:
        return described
    content: Document = {"schema": types.schema(kind)}
    for example in (route.example.answer, route.example.other):
        if type(example) is kind:
            content["example"] = msgspec.json.decode(msgspec.json.encode(example))
    return {**described, "content": {route.media_type: content}}


def _link(link: Link) -> Document:
    made: Document = {"operationId": link.operation}
    if link.parameters:
        made["parameters"] = dict(link.parameters)
    return made if link.body is None else {**made, "requestBody": link.body}


def _codes_of(route: AnyRoute) -> list[str]:
    codes = [*route.refusals, *ALWAYS]
    codes += WITH_TOKEN if route.scopes is not None else ()
    codes += WITH_BODY if route.body is not None else ()
    return codes


def _statuses(routes: Iterable[AnyRoute]) -> list[int]:
    return sorted({KINDS[code].status for route in routes for code in _codes_of(route)})


def _problem(status: int) -> Document:
    """The problems of a status, with an example of each code."""
    kinds = {code: kind for code, kind in KINDS.items() if kind.status == status}
    examples = {
        code: {"value": msgspec.to_builtins(Refusal(code, kind.detail or kind.title).problem())}
        for code, kind in kinds.items()
    }
    schema = {"$ref": _REFERENCE.format(name="Problem")}
    made: Document = {
        "description": " ".join(
            f"`{code}`: {kind.title}. {kind.when}".strip() for code, kind in kinds.items()
        ),
        "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }
    return {**made, "headers": _PROBLEM_HEADERS[status]} if status in _PROBLEM_HEADERS else made


Schema = dict[str, Any]


def readable(components: dict[str, Schema], *, sent: Iterable[Schema]) -> dict[str, Schema]:
    """The same components, as generators of clients need them.

    Args:
        sent: The schemas of the bodies of requests.
    """
    taken: set[str] = set()
    for schema in sent:
        _reach(schema, components, taken)
    return {
        name: _open(_optional(schema) if name in taken else _present(schema))
        for name, schema in components.items()
    }


def _reach(schema: Any, components: dict[str, Schema], reached: set[str]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _reach(each, components, reached)
    elif isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in components and name not in reached:
            reached.add(name)
            _reach(components[name], components, reached)
        for each in schema.values():
            _reach(each, components, reached)


def _optional(schema: Schema) -> Schema:
    """The schema of a type that requests contain."""
    described = {name: _described_default(each) for name, each in _properties(schema)}
    return _with_properties(schema, described)


def _present(schema: Schema) -> Schema:
    """The schema of a type that only answers contain."""
    always = [name for name, each in _properties(schema) if "default" in each]
    kept = {
        name: {key: value for key, value in each.items() if key != "default"}
        for name, each in _properties(schema)
    }
    listed = [*schema.get("required", []), *always]
    made = _with_properties(schema, kept)
    return {**made, "required": sorted(set(listed))} if listed else made


def _properties(schema: Schema) -> list[tuple[str, Schema]]:
    return list(schema.get("properties", {}).items())


def _with_properties(schema: Schema, properties: dict[str, Schema]) -> Schema:
    return {**schema, "properties": properties} if properties else schema


def _described_default(schema: Schema) -> Schema:
    default = schema.get("default")
    kept = {key: value for key, value in schema.items() if key != "default"}
    if default is None or default == "" or isinstance(default, dict | list):
        return kept
    text = f"By default {json.dumps(default)}."
    return {**kept, "description": f"{kept.get('description', '')} {text}".strip()}


def _open(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_open(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _open(value) for key, value in schema.items()}
    if made.get("type") == "object" and not made.keys() & {"properties", "additionalProperties"}:
        made["additionalProperties"] = True
    return made
