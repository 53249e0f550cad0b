"""Finds the parts of a payload that would reach the handler as another type. Pure, no I/O.

JSON has text, numbers, lists and objects. Where an annotation names a type, the stored text is
decoded to that type. Where it names none (no annotation, `Any`, a bare `dict` or `list`), the
handler gets a JSON type: a datetime would arrive as text, and so would a key that is a number. Such
a value is rejected when the job is enqueued.

1. A value is accepted in such a place if it reads back equal: a `StrEnum` is equal to its text, an
   `OrderedDict` to a dict.
2. A plain tuple is accepted and arrives as a list: users of JSON expect that, and calls with tuples
   are common. A named tuple would lose its names, and is rejected.
3. Only values that a codec has already written are walked, so their depth is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import inspect

from rowlock import codec
from rowlock.errors import FieldError


def open_type(hint: Any) -> inspect.Type | None:
    """Return the type of an annotation that leaves some part of a value open, else None."""
    type_info = inspect.type_info(hint)
    seen: set[int] = set()
    rest = [type_info]
    while rest:
        each = rest.pop()
        # Keys in JSON are text, whatever the annotation of the values.
        if isinstance(each, (inspect.AnyType, inspect.DictType)):
            return type_info
        # A type may contain itself, so each is visited once.
        if id(each) not in seen:
            seen.add(id(each))
            rest += _inner_types(each)
    return None


class Change(NamedTuple):
    """A part of a payload that would come back as another type, and what to do about it."""

    path: str
    what: str
    arrives: str
    annotation: str
    instead: str

    def error(self) -> FieldError:
        """Return the error, for a place where an annotation would help, too."""
        return FieldError(
            self.path,
            f"{self.what} would reach the handler as {self.arrives}; annotate the parameter with "
            f"{self.annotation}, or pass {self.instead}",
        )


def changes(value: object, type_info: inspect.Type, path: str) -> Iterator[Change]:
    """Yield every part of a value that would come back as another type."""
    match type_info:
        case inspect.Metadata(type=inner):
            yield from changes(value, inner, path)
        case inspect.AnyType():
            yield from _changes_of_any(value, path)
        case inspect.UnionType():
            for arm in _matching_arms(value, type_info):
                yield from changes(value, arm, path)
        case inspect.DictType() if isinstance(value, Mapping):
            yield from _changes_of_mapping(value, type_info.key_type, type_info.value_type, path)
        case _ if (items := _items(value, type_info)) is not None:
            for step, part, part_type in items:
                yield from changes(part, part_type, codec.join_path(path, step))


_Items: TypeAlias = "Iterator[tuple[str | int, object, inspect.Type]]"

_LISTS: Final = (list, tuple, Set)
_LIST_TYPES: Final = (
    *(inspect.ListType, inspect.VarTupleType, inspect.TupleType),
    *(inspect.SetType, inspect.FrozenSetType, inspect.CollectionType),
)
# Subclasses first: a datetime is a date, and an enum may be anything else as well.
_REMEDIES: Final[tuple[tuple[Any, str, str], ...]] = (
    (Enum, "its value", "its .value"),
    ((date, time), "text", "its .isoformat()"),
    (timedelta, "text", "its .total_seconds()"),
    ((UUID, Decimal), "text", "str() of it"),
    ((bytes, bytearray, memoryview), "text (base64)", "text"),
    ((tuple, Set), "a list", "a list"),
)


def _inner_types(type_info: inspect.Type) -> list[inspect.Type]:
    match type_info:
        case inspect.Metadata(type=inner):
            return [inner]
        case inspect.UnionType(types=arms):
            return list(arms)
        case inspect.TupleType(item_types=items):
            return list(items)
        case _:
            fields = [field.type for field in getattr(type_info, "fields", ())]
            item = getattr(type_info, "item_type", None)
            return fields if item is None else [item]


def _changes_of_any(value: object, path: str) -> Iterator[Change]:
    if isinstance(value, dict):
        yield from _changes_of_mapping(value, inspect.AnyType(), inspect.AnyType(), path)
    elif isinstance(value, list) or type(value) is tuple:
        for index, part in enumerate(value):
            yield from _changes_of_any(part, codec.join_path(path, index))
    elif value is not None and not isinstance(value, (str, int, float)):
        yield _change_of(value, path)


def _changes_of_mapping(
    value: Mapping[Any, object], key_type: inspect.Type, value_type: inspect.Type, path: str
) -> Iterator[Change]:
    stays_text = isinstance(key_type, (inspect.AnyType, inspect.StrType))
    for key, part in value.items():
        part_path = codec.join_path(path, codec.key_name(key))
        if stays_text and not isinstance(key, str):
            name = type(key).__qualname__
            what = f"its key, of type {name},"
            yield Change(part_path, what, "text", f"dict[{name}, ...]", "text as the key")
        yield from changes(part, value_type, part_path)


def _change_of(value: object, path: str) -> Change:
    found = (each for each in _REMEDIES if isinstance(value, each[0]))
    _, arrives, instead = next(found, (None, "a JSON object", "a dict"))
    what = f"a value of type {type(value).__qualname__}"
    return Change(path, what, arrives, "its type", instead)


def _matching_arms(value: object, union: inspect.UnionType) -> Iterator[inspect.Type]:
    """Yield the types of a union that a value may be meant for. JSON itself separates them."""
    for arm in union.types:
        match arm:
            case inspect.AnyType():
                yield arm
            case inspect.DictType():
                if isinstance(value, Mapping):
                    yield arm
            case inspect.StructType(tag_field=str(field), tag=tag) if isinstance(value, Mapping):
                if value.get(field) == tag:
                    yield arm
            case _ if isinstance(arm, _LIST_TYPES):
                if isinstance(value, _LISTS):
                    yield arm
            case _ if not isinstance(value, Mapping) and hasattr(arm, "cls"):
                # A TypedDict has no instances. Its values are mappings.
                if not isinstance(arm, inspect.TypedDictType) and isinstance(value, arm.cls):
                    yield arm
            case _:
                yield arm


def _items(value: object, type_info: inspect.Type) -> _Items | None:
    """Return the parts of a list or an object, each with its own type. None for other values."""
    match type_info:
        case inspect.TupleType(item_types=types) if isinstance(value, _LISTS):
            return zip(range(len(types)), value, types)  # noqa: B905  # checked against the type
        case _ if isinstance(type_info, _LIST_TYPES) and isinstance(value, _LISTS):
            item_type = type_info.item_type  # type: ignore[union-attr]  # not a tuple
            return ((index, part, item_type) for index, part in enumerate(value))
        case _ if hasattr(type_info, "fields"):
            return _fields(value, type_info)
        case _:
            return None


def _fields(value: object, type_info: Any) -> _Items:
    for index, field in enumerate(type_info.fields):
        if isinstance(value, Mapping):
            if field.encode_name in value:
                yield field.encode_name, value[field.encode_name], field.type
        elif isinstance(value, list):
            if index < len(value):
                yield index, value[index], field.type
        elif hasattr(value, field.name):
            yield field.encode_name, getattr(value, field.name), field.type
