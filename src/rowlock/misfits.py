"""All the reasons why a value can't be passed to a handler, each with its path. Pure, no I/O.

First: it does not fit its type. msgspec stops at the first part that does not. This module
continues field by field, into lists and objects.

Second: it would reach the handler as another type. JSON has text, numbers, lists and objects. Where
an annotation names a type, the stored text is decoded to that type. Where it names none (no
annotation, `Any`, a bare `dict` or `list`), the handler gets a JSON type: a datetime would arrive
as text, and so would a key that is a number. Such a value is rejected when the job is enqueued.

1. A value is accepted in such a place if it reads back equal: a `StrEnum` is equal to its text, an
   `OrderedDict` to a dict.
2. A plain tuple is accepted and arrives as a list: users of JSON expect that, and calls with tuples
   are common. A named tuple would lose its names, and is rejected.
3. Only values that a codec has already written are walked, so their depth is bounded.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple, NewType, TypeAlias
from uuid import UUID

import msgspec
from msgspec import inspect

from rowlock import codec
from rowlock.errors import FieldError

_Parts: TypeAlias = "Iterator[tuple[object, Any, str]]"

_MISSING: Final = object()
_MESSAGE_BYTES_MAX: Final = 1024
_WHERE: Final = re.compile(r" - at (?:`key` in )?`\$([^`]*)`\Z")


def native(value: object) -> Any:
    """Convert to builtins, but keep scalars that have no JSON type of their own."""
    kept = codec.SCALARS_WRITTEN_AS_TEXT
    return msgspec.to_builtins(value, builtin_types=kept, str_keys=True, enc_hook=codec.to_exchange)


def plain(value: object) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=codec.to_exchange)


def converted(value: object, hint: Any) -> object:
    return msgspec.convert(value, hint, dec_hook=from_plain, str_keys=True)


def from_plain(target: Any, value: object) -> object:
    """Convert to a type unknown to msgspec: only pydantic's models are supported."""
    if not hasattr(target, "model_validate"):
        name = getattr(target, "__qualname__", str(target))
        raise TypeError(f"{name} can't be made from JSON; use a dataclass or a builtin type")
    try:
        # As JSON, because a strict model accepts a date as text from JSON only.
        return target.model_validate_json(msgspec.json.encode(value))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__} in its validator: {error}") from error


def value_errors(value: object, hint: Any, name: str, *, is_storable: bool) -> Iterator[FieldError]:
    path = codec.join_path("", name)
    try:
        is_fitting = True
        for error in _type_errors(native(value), hint, path):
            is_fitting = False
            yield error
        # A Decimal fits a float, but no longer once it is text.
        if is_fitting:
            yield from _type_errors(plain(value), hint, path)
            for change in changes(value, inspect.type_info(hint), path):
                yield change.error()
    except Exception as error:  # noqa: BLE001  # the value's own code may raise anything
        # A value that can't be stored can't always be converted, and is already reported.
        if is_storable:
            yield FieldError(path, described(error))


def _type_errors(value: object, hint: Any, path: str) -> Iterator[FieldError]:
    """Yield the errors of a value, as deep as the hint can be followed."""
    if value is _MISSING:
        yield FieldError(path, "required")
        return
    hint = _bare(hint, value)
    try:
        converted(value, hint)
    except Exception as error:  # noqa: BLE001  # a type's own constructor may raise anything
        is_inside = False
        for part, part_hint, part_path in _parts(value, hint, path):
            for found in _type_errors(part, part_hint, part_path):
                is_inside = True
                yield found
        if not is_inside:
            yield from _located(error, path)


def _bare(hint: Any, value: object) -> Any:
    """Strip Required, NotRequired, and Optional if there is a value."""
    origin = typing.get_origin(hint)
    if origin in (typing.Required, typing.NotRequired):
        return _bare(typing.get_args(hint)[0], value)
    if origin in (typing.Union, types.UnionType) and value is not None:
        arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        return arms[0] if len(arms) == 1 else hint
    return hint


def _parts(value: object, hint: Any, path: str) -> _Parts:
    """Return the parts of a value that have hints of their own, each with its path."""
    while typing.get_origin(hint) is Annotated or isinstance(hint, NewType):
        hint = getattr(hint, "__supertype__", None) or typing.get_args(hint)[0]
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if isinstance(value, (list, tuple)):
        hints = _item_hints(origin, args, len(value))
        for index, (part, part_hint) in enumerate(zip(value, hints, strict=False)):
            yield part, part_hint, codec.join_path(path, index)
    elif isinstance(value, dict) and len(args) == 2 and _is_mapping(origin):
        for key, part in value.items():
            yield part, args[1], codec.join_path(path, str(key))
    elif isinstance(value, dict) and isinstance(origin, type):
        yield from _object_parts(value, origin, path)


def _is_mapping(origin: Any) -> bool:
    is_class = isinstance(origin, type) and not typing.is_typeddict(origin)
    return is_class and issubclass(origin, Mapping)


def _item_hints(origin: Any, args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    if origin is tuple and args[1:] != (...,):
        return args if len(args) == count else ()
    return (args[0],) * count if args else ()


def _object_parts(value: dict[str, Any], cls: type, path: str) -> _Parts:
    fields = getattr(inspect.type_info(cls), "fields", ())
    hints = typing.get_type_hints(cls, include_extras=True) if fields else {}
    for field in fields:
        if field.encode_name in value or field.required:
            part = value.get(field.encode_name, _MISSING)
            yield part, hints[field.name], codec.join_path(path, field.encode_name)


def _located(error: Exception, path: str) -> list[FieldError]:
    """Return the fields that an error of msgspec, or of pydantic inside it, names."""
    where = _WHERE.search(str(error))
    path += where.group(1) if where else ""
    listed = getattr(error.__cause__, "errors", None)
    if not callable(listed):
        return [FieldError(path, described(error))]
    items = listed(include_url=False, include_context=False, include_input=False)
    return [
        FieldError(functools.reduce(codec.join_path, e["loc"], path), _short(e["msg"]))
        for e in items
    ]


def described(error: Exception) -> str:
    text = _WHERE.sub("", codec.error_record(error).message)
    if not isinstance(error, (msgspec.MsgspecError, ValueError, TypeError, NameError)):
        text = f"{type(error).__name__}: {text}"
    return _short(text)


def _short(message: str) -> str:
    return codec.clean_text(message, bytes_max=_MESSAGE_BYTES_MAX)


def open_type(hint: Any) -> inspect.Type | None:
    """Return the type of an annotation that leaves some part of a value open, else None."""
    type_info = inspect.type_info(hint)
    # Keys in JSON are text, whatever the annotation of the values.
    is_open = any(
        isinstance(each, (inspect.AnyType, inspect.DictType)) for each in _all_types(type_info)
    )
    return type_info if is_open else None


def is_convertible(hint: Any) -> bool:
    """Return whether values of an annotation can be made from JSON: not of any class they can."""
    return all(
        not isinstance(each, inspect.CustomType) or hasattr(each.cls, "model_validate")
        for each in _all_types(inspect.type_info(hint))
    )


def _all_types(type_info: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and all types inside it."""
    seen: set[int] = set()
    rest = [type_info]
    while rest:
        each = rest.pop()
        # A type may contain itself, so each is visited once.
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            rest += _inner_types(each)


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
        case inspect.TupleType(item_types=items) if isinstance(value, _LISTS):
            return zip(range(len(items)), value, items)  # noqa: B905  # checked against the type
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
