"""Shared parts of the shims for other queues: unsupported features, and errors without retry."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import update_wrapper
from types import MappingProxyType
from typing import Any

from rowlock.clock import EPOCH, SystemClock, from_us
from rowlock.config import DURATION_SECONDS_MAX, SECOND_US
from rowlock.context import Context, Fail
from rowlock.errors import RowlockError

# The parameter by which a handler gets its context. No user's parameter has this name.
_CONTEXT = "rowlock_context"
_KEY_CHARACTERS_MAX = 1_000

CallOf = Callable[[Context, Mapping[str, Any]], Any]


class Unsupported(RowlockError, NotImplementedError):
    """The shim does not support a feature. `instead` says what to do instead of `feature`."""

    code = "unsupported"

    def __init__(self, feature: str, instead: str) -> None:
        self.feature = feature
        self.instead = instead
        super().__init__(f"{feature} is not supported here: {instead}")


class TaskFailed(RowlockError):
    """A job is dead, and the type of its error can't be recreated here."""

    code = "task_failed"

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        self.message = message
        super().__init__(f"{type}: {message}")


def refuse_unknown(
    chosen: Mapping[str, object], known: Collection[str], advice: Mapping[str, str], *, what: str
) -> None:
    """Raise `Unsupported` for the first unknown option."""
    for option in chosen:
        if option not in known:
            instead = advice.get(option, "leave it out, or make this a rowlock task")
            raise Unsupported(f"{what} {option}=", instead)


def permanent(error: Exception) -> Fail:
    """Return the error as one without retry. The name of its type, text and traceback stay."""
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    same: Fail = type(kind.__name__, (Fail,), names)(str(error))
    same.__cause__ = error.__cause__
    same.__suppress_context__ = error.__suppress_context__
    return same.with_traceback(error.__traceback__)


def error_again(
    type_name: str, message: str, own: Mapping[str, type[Exception]] = MappingProxyType({})
) -> Exception:
    """Recreate an error from a worker: Python's own, or one of `own`, else a `TaskFailed`.

    Stored names are never imported or looked up in modules.
    """
    kind = own.get(type_name) or getattr(builtins, type_name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return TaskFailed(type_name, message)
    try:
        return kind(_key_of(message) if issubclass(kind, KeyError) else message)
    except TypeError:  # A UnicodeDecodeError needs more than a text.
        return TaskFailed(type_name, message)


def _key_of(message: str) -> object:
    """Return the key of a KeyError, whose text is the key's `repr`, or the text if it is long."""
    # The parser recurses, and takes a hundred bytes for each of the text. Anyone who may settle a
    # job chooses the text.
    if len(message) > _KEY_CHARACTERS_MAX:
        return message
    try:
        return ast.literal_eval(message)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return message


def handler_for(function: Callable[..., Any], call: CallOf, *, skip: int = 0) -> Callable[..., Any]:
    """Return a handler with a function's parameters, except the first `skip`, and a context.

    `call` gets the context and the arguments. As for every task, the parameters' names and types
    are the payload's schema.
    """

    def handler(**arguments: Any) -> Any:
        context = arguments.pop(_CONTEXT)
        return call(context, arguments)

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[skip:]
    own = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    last = inspect.Parameter.VAR_KEYWORD
    named = [each for each in parameters if each.kind is not last]
    extra = [each for each in parameters if each.kind is last]
    update_wrapper(handler, function)
    handler.__signature__ = signature.replace(parameters=[*named, own, *extra])  # type: ignore[attr-defined]  # as inspect reads it
    return handler


def seconds_until(moment: datetime) -> float:
    """Return the seconds until a time, by this machine's clock, at least 0."""
    left = (moment - EPOCH).total_seconds() - SystemClock().now_us() / SECOND_US
    return min(max(0.0, left), DURATION_SECONDS_MAX)


def is_over(moment: datetime) -> bool:
    """Return whether a time has passed."""
    return moment < from_us(SystemClock().now_us())
