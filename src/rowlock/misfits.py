"""All the ways in which a value does not fit a type, each with its path. Pure.

msgspec stops at the first one. This module continues field by field, into lists and objects.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NewType, TypeAlias

import msgspec

from rowlock import codec, roundtrip
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
            for change in roundtrip.changes(value, msgspec.inspect.type_info(hint), path):
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
    fields = getattr(msgspec.inspect.type_info(cls), "fields", ())
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
