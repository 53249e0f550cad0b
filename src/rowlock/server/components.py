"""The schemas of the document, as generators of clients read them. Pure.

1. An object of any shape says so: to some, one that names no properties is always empty.
2. What may be left out of a request has no `default`: to some, that makes it required. Its
   description tells.
3. What is always in an answer is required there, whatever it is by default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]


def readable(components: dict[str, Schema], *, sent: Iterable[Schema]) -> dict[str, Schema]:
    """The same components; `sent` are the schemas of the bodies of requests."""
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
    """Of what is sent."""
    return _with_properties(schema, {name: _told(each) for name, each in _properties(schema)})


def _present(schema: Schema) -> Schema:
    """Of what is answered."""
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


def _told(schema: Schema) -> Schema:
    default = schema.get("default")
    kept = {key: value for key, value in schema.items() if key != "default"}
    if default is None or default == "" or isinstance(default, dict | list):
        return kept
    said = f"By default {json.dumps(default)}."
    return {**kept, "description": f"{kept.get('description', '')} {said}".strip()}


def _open(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_open(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _open(value) for key, value in schema.items()}
    if made.get("type") == "object" and not made.keys() & {"properties", "additionalProperties"}:
        made["additionalProperties"] = True
    return made
