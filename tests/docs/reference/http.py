"""HTTP: calls, parameters, bodies and answers, from the document that the server makes."""

from __future__ import annotations

from typing import Any

from rowlock import config
from rowlock.events import EventType
from rowlock.server.gate import Reach
from rowlock.server.openapi import ALWAYS, WITH_BODY, WITH_TOKEN, document
from rowlock.server.routes import ROUTES
from rowlock.server.routing import AnyRoute
from rowlock.tokens import Scope
from tests.docs.reference.docstrings import attribute_texts
from tests.docs.reference.markdown import anchor, as_cell, code, codes, joined, prose, table

Schema = dict[str, Any]

TYPES = "http-types.md"
CALLS = "http-calls.md"
# From what a token is mostly made for to what it is seldom made for.
_SCOPES = (Scope.READ, Scope.ENQUEUE, Scope.WORK, Scope.ADMIN)


def sections() -> dict[str, str]:
    """A table of all calls, each of them by its resource, and the types."""
    made = document(ROUTES)
    routes = [route for route in ROUTES if not route.is_page]
    schemas: dict[str, Schema] = made["components"]["schemas"]
    return {
        "table of calls": _overview(routes),
        "problems of all calls": _common_problems(),
        "calls": joined(
            *(
                _resource(tag, [route for route in routes if route.resource == tag["name"]], made)
                for tag in made["tags"]
            )
        ),
        "types": joined(*(_type(name, schemas[name]) for name in sorted(schemas))),
        "types of events": table(
            ["type", ""],
            [(code(each), as_cell(attribute_texts(EventType)[each.name])) for each in EventType],
        ),
    }


def _overview(routes: list[AnyRoute]) -> str:
    return table(
        ["call", "operation", "scope", ""],
        [
            (
                code(f"{route.method} {route.path}"),
                f"[{code(route.operation)}]({CALLS}#{anchor(route.operation)})",
                _scope(route),
                as_cell(route.summary),
            )
            for route in routes
        ],
    )


def _scope(route: AnyRoute) -> str:
    if route.scopes is None:
        return "none"
    listed = " or ".join(code(scope) for scope in _SCOPES if scope in route.scopes) or "any"
    return f"{listed}, all tenants" if route.reach is Reach.SYSTEM else listed


def _common_problems() -> str:
    return table(
        ["calls", "problems"],
        [
            ("all", codes(ALWAYS)),
            ("those that need a token", codes(WITH_TOKEN)),
            ("those with a body", codes(WITH_BODY)),
        ],
    )


def _resource(tag: dict[str, str], routes: list[AnyRoute], made: Schema) -> str:
    calls = [_call(route, made["paths"][route.path][route.method.lower()]) for route in routes]
    return joined(f"## {tag['name'].capitalize()}", tag["description"], *calls)


def _call(route: AnyRoute, operation: Schema) -> str:
    problems = [each for each in route.refusals if each not in ALWAYS]
    return joined(
        f"### {route.operation}",
        f"`{route.method} {route.path}`, scope: {_scope(route)}",
        prose(f"{operation['summary']}. {route.description}"),
        _parameters(operation),
        _body(operation),
        _answers(operation),
        f"Problems: {codes(problems)}." if problems else "",
    )


def _parameters(operation: Schema) -> str:
    rows = [
        (
            code(each["name"]),
            each["in"],
            type_of(each["schema"]),
            _default(each["schema"]),
            as_cell(each.get("description", "")),
        )
        for each in operation["parameters"]
    ]
    return table(["parameter", "in", "type", "default", ""], rows) if rows else ""


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default in (None, []) else code(default)


def _body(operation: Schema) -> str:
    if "requestBody" not in operation:
        return ""
    sent = operation["requestBody"]
    may = "" if sent["required"] else "; it may be left out"
    return f"Body: {type_of(sent['content']['application/json']['schema'])}{may}."


def _answers(operation: Schema) -> str:
    told = [
        f"{status} {_content(answer)}".strip()
        for status, answer in operation["responses"].items()
        if "$ref" not in answer
    ]
    return f"Answer: {'; '.join(told)}."


def _content(answer: Schema) -> str:
    for media_type, content in answer.get("content", {}).items():
        if "x-item" in content:
            return f"{code(media_type)}, each of its data is {type_of(content['x-item'])}"
        shown = type_of(content["schema"])
        return shown if media_type == "application/json" else f"{code(media_type)}"
    return "without a body"


def _type(name: str, schema: Schema) -> str:
    values = f"One of {codes(schema['enum'])}." if "enum" in schema else ""
    return joined(f"## {name}", prose(schema.get("description", "")), _fields(schema), values)


def _fields(schema: Schema) -> str:
    if "properties" not in schema:
        return ""
    # Of what is answered everything is there, and need not be said to be.
    is_sent = schema.get("additionalProperties") is False
    needed = schema.get("required", [])
    return table(
        ["field", "type", "required", ""],
        [
            (
                code(name),
                type_of(each),
                "yes" if is_sent and name in needed else "",
                as_cell(_described(each)),
            )
            for name, each in schema["properties"].items()
        ],
    )


def _described(schema: Schema) -> str:
    own = schema.get("description", "")
    arms = [arm["description"] for arm in schema.get("anyOf", []) if "description" in arm]
    return " ".join([*arms, own]).strip()


def type_of(schema: Schema) -> str:
    """A JSON Schema in words."""
    match schema:
        case {"$ref": str(target)}:
            name = target.rpartition("/")[2]
            return f"[{code(name)}]({TYPES}#{anchor(name)})"
        case {"anyOf": list(arms)}:
            return " or ".join(type_of(arm) for arm in arms)
        case {"enum": list(values)}:
            return " or ".join(code(f'"{value}"') for value in values)
        case {"type": "array"}:
            items = type_of(schema.get("items", {}))
            return f"list of {items}{_bounds(schema, 'minItems', 'maxItems', of='items')}"
        case {"type": "object", "additionalProperties": dict(each)}:
            return f"object of {type_of(each)}"
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    match schema:
        case {"type": "string", "format": str(format)}:
            return {"uuid": "UUID", "date-time": "time"}[format]
        case {"type": "string", "minLength": 1, "maxLength": config.NAME_CHARACTERS_MAX}:
            return "name"
        case {"type": "string", "pattern": str(pattern)}:
            return f"string like {code(pattern)}"
        case {"type": "string"}:
            return f"string{_bounds(schema, 'minLength', 'maxLength', of='characters')}"
        case {"type": "integer" | "number" as kind}:
            return f"{kind}{_bounds(schema, 'minimum', 'maximum')}"
    return str(schema.get("type", "any"))


def _bounds(schema: Schema, low: str, high: str, *, of: str = "") -> str:
    least, most = schema.get(low), schema.get(high)
    if most is None:
        return ""
    bounds = f"at most {most:,.0f}" if least is None else f"{least:,g} to {most:,.0f}"
    return f" ({bounds} {of})".replace(" )", ")")
