"""Shared parts of the shims for other queues: unsupported features, and errors without retry."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from types import GenericAlias, MappingProxyType
from typing import Any

from rowlock import misfits
from rowlock.clock import EPOCH, SystemClock, from_us
from rowlock.config import DURATION_SECONDS_MAX, PROGRESS_TEXT_BYTES_MAX, SECOND_US
from rowlock.context import Context, Fail
from rowlock.errors import OptionInvalid, RowlockError
from rowlock.inputs import Input
from rowlock.job import Job
from rowlock.signature import PayloadSchema
from rowlock.task import Task

# The parameter by which a handler gets its context. No user's parameter has this name.
_CONTEXT = "rowlock_context"
# The parameter for the result of another job as the first of `*args`: no list has both results and
# values.
_FIRST = "rowlock_first"
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


def arguments_of(message: str) -> tuple[Any, ...]:
    """Return the arguments of an exception by its text, which is a tuple if there are several."""
    if not message:
        return ()
    found = _key_of(message) if message.startswith("(") else message
    return found if isinstance(found, tuple) and len(found) > 1 else (message,)


class CallShape:
    """How a call of a function becomes a payload with names, and the payload a call again.

    The values of `*args` are a list under the name that they have there.

    Args:
        function: As it was written.
        skip: How many of its first parameters no caller gives, such as `self`.
    """

    def __init__(self, function: Callable[..., Any], *, skip: int = 0) -> None:
        self.function = function
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[skip:]
        kinds = inspect.Parameter
        by_place = [each for each in parameters if each.kind <= kinds.POSITIONAL_OR_KEYWORD]
        self._places: tuple[str, ...] = tuple(each.name for each in by_place)
        self._nameless: int = sum(each.kind is kinds.POSITIONAL_ONLY for each in by_place)
        rest = [each for each in parameters if each.kind is kinds.VAR_POSITIONAL]
        self._rest: str | None = rest[0].name if rest else None
        named = [each for each in parameters if each.kind is kinds.KEYWORD_ONLY]
        extra = [each for each in parameters if each.kind is kinds.VAR_KEYWORD]
        own = [kinds(_CONTEXT, kinds.KEYWORD_ONLY, annotation=Context)]
        if rest and not by_place:
            own.append(kinds(_FIRST, kinds.KEYWORD_ONLY, default=None, annotation=Any))
        self._signature = signature.replace(
            parameters=[
                *(each.replace(kind=kinds.POSITIONAL_OR_KEYWORD) for each in by_place),
                *map(_listed, rest),
                *named,
                *own,
                *extra,
            ]
        )

    def handler(self, call: CallOf) -> Callable[..., Any]:
        """Return a handler with the function's parameters and a context.

        `call` gets the context and the arguments. As for every task, the parameters' names and
        types are the payload's schema.
        """

        def handler(**arguments: Any) -> Any:
            context = arguments.pop(_CONTEXT)
            return call(context, arguments)

        update_wrapper(handler, self.function)
        handler.__signature__ = self._signature  # type: ignore[attr-defined]  # as inspect reads it
        return handler

    def named(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return a call with the values of `*args` as a list. The schema checks the others."""
        places = len(self._places)
        if self._rest is None or len(args) <= places:
            return args, dict(kwargs)
        rest = list(args[places:])
        if isinstance(rest[0], Input):
            return args[:places], {**kwargs, _FIRST: rest[0], self._rest: rest[1:]}
        return args[:places], {**kwargs, self._rest: rest}

    def room(self, args: Sequence[Any], kwargs: Iterable[str]) -> int:
        """Return how many arguments it takes by position besides these."""
        if self._rest is not None:
            return sys.maxsize
        return max(0, len([name for name in self._places if name not in kwargs]) - len(args))

    def call(
        self, arguments: Mapping[str, Any], *, given: int = 0
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call of a payload, with as many values by position as were `given` so."""
        left = dict(arguments)
        rest: Sequence[Any] = left.pop(self._rest, ()) if self._rest is not None else ()
        if _FIRST in left:
            rest = (left.pop(_FIRST), *rest)
        count = len(self._places) if rest else max(given, self._nameless)
        args: list[Any] = []
        for name in self._places[:count]:
            if name not in left:
                # Its default, and those of all after it.
                break
            args.append(left.pop(name))
        return (*args, *rest), left


def _listed(rest: inspect.Parameter) -> inspect.Parameter:
    """Return the parameter for the values of `*args`."""
    each: Any = rest.annotation
    hint: Any = list
    if isinstance(each, str):
        hint = f"list[{each}]"
    elif each is not rest.empty:
        hint = GenericAlias(list, (each,))
    return inspect.Parameter(rest.name, rest.KEYWORD_ONLY, default=[], annotation=hint)


class LooseSchema(PayloadSchema):
    """Checks what it can, because other queues check nothing.

    An annotation that can't be resolved, or can't be the type of a payload, is not checked. A
    default of None allows None.
    """

    def _resolved_hints(self) -> dict[str, Any]:
        hints = super()._resolved_hints()
        for parameter in self._parameters:
            hint = hints[parameter.name]
            if parameter.default is None and not self._is_context(hint) and hint is not Any:
                hints[parameter.name] = self._checkable(parameter, hint | None)
        return hints

    def _resolved(self, parameter: inspect.Parameter, holder: Callable[..., object]) -> Any:
        try:
            hint = super()._resolved(parameter, holder)
        except OptionInvalid:
            return Any
        return hint if self._is_context(hint) else self._checkable(parameter, hint)

    def _checkable(self, parameter: inspect.Parameter, hint: Any) -> Any:
        try:
            self._check_supported(parameter.name, hint)
        except OptionInvalid:
            return Any
        return hint if misfits.is_convertible(hint) else Any


def loosen(task: Task[..., Any], kind: type[LooseSchema] = LooseSchema) -> None:
    """Let a task check its payloads as other queues do: as far as it can."""
    task.schema = task.fields = kind(task.schema.function, task.name, Context)


def report_text(mark: str, value: object) -> str:
    """Return the text of a progress report that holds a value of another queue's.

    Raises:
        OptionInvalid: It is not JSON, or too long.
    """
    try:
        text = json.dumps({mark: value}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionInvalid("meta", f"must be JSON: {error}") from None
    most = PROGRESS_TEXT_BYTES_MAX
    if len(text.encode()) > most:
        raise OptionInvalid("meta", f"must be at most {most} bytes as JSON, not {len(text)}")
    return text


def reported(job: Job, mark: str) -> Any:
    """Return the value that a job reported last under this mark. None: it did not."""
    text = "" if job.progress is None else job.progress.text
    if not text.startswith(f'{{"{mark}":'):
        return None
    try:
        return json.loads(text)[mark]
    except (ValueError, RecursionError):
        # Anybody who may settle a job chooses the text.
        return None


def seconds_until(moment: datetime) -> float:
    """Return the seconds until a time, by this machine's clock, at least 0."""
    left = (moment - EPOCH).total_seconds() - SystemClock().now_us() / SECOND_US
    return min(max(0.0, left), DURATION_SECONDS_MAX)


def is_over(moment: datetime) -> bool:
    """Return whether a time has passed."""
    return moment < from_us(SystemClock().now_us())
