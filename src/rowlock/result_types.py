"""Whether the result of one task can be an argument of another, by their annotations.

Only what is certain is refused. A result is checked again when the job that gets it runs.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

# A value of one of these is never one of another, except as the tables say.
_SCALARS: Final = (bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal, UUID)
_WIDENED: Final[Mapping[type, tuple[type, ...]]] = {
    bool: (int, float, Decimal),
    int: (float, Decimal),
    float: (Decimal,),
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence, Collection, Iterable)
_MAPPINGS: Final = (dict, Mapping)


def misfit(given: Any, wanted: Any) -> bool:
    """Whether a value of the type `given` certainly does not fit `wanted`."""
    given, wanted = _plain(given), _plain(wanted)
    if _is_open(given) or _is_open(wanted):
        return False
    if _is_union(given):
        return any(misfit(each, wanted) for each in typing.get_args(given))
    if _is_union(wanted):
        return all(misfit(given, each) for each in typing.get_args(wanted))
    if given is None or wanted is None:
        return given is not wanted
    own, other = typing.get_origin(given) or given, typing.get_origin(wanted) or wanted
    if _is_scalar(own) or _is_scalar(other):
        return not _widens(own, other)
    if own in _LISTS or other in _LISTS:
        if own not in _LISTS or other not in _LISTS:
            return own in _MAPPINGS or other in _MAPPINGS
        return _misfit_items(given, wanted)
    return False


def _misfit_items(given: Any, wanted: Any) -> bool:
    items, fitting = typing.get_args(given), typing.get_args(wanted)
    if not items or not fitting:
        return False
    if len(items) == 1 and (len(fitting) == 1 or fitting[1:] == (Ellipsis,)):
        return misfit(items[0], fitting[0])
    return False


def _plain(hint: Any) -> Any:
    """A type without what is around it."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return None if hint is type(None) else hint


def _is_open(hint: Any) -> bool:
    return hint is Any or hint is object or isinstance(hint, TypeVar | str | typing.ForwardRef)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _is_scalar(hint: Any) -> bool:
    return hint in _SCALARS


def _widens(own: Any, other: Any) -> bool:
    """Whether a scalar fits, or nothing is certain about one of the types."""
    if own is other:
        return True
    if not (_is_scalar(own) and _is_scalar(other)):
        # A class of users may be written as a text or a number. A list or a mapping is not.
        others = (own, other)
        return not any(each in (*_LISTS, *_MAPPINGS) for each in others)
    return other in _WIDENED.get(own, ())


def shown_type(hint: Any) -> str:
    """A type as users write it."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
