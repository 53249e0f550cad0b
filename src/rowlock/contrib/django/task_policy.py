"""The options of a Django task's jobs: from its `@policy`, else from its backend's `OPTIONS`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeVar

import msgspec

from rowlock import config, misfits
from rowlock.errors import OptionInvalid
from rowlock.limits import Limit
from rowlock.suggest import nearest
from rowlock.task_options import (
    ErrorClasses,
    Executor,
    RetryOption,
    TaskOptions,
    retry_rules,
    task_options,
    times_of,
)

F = TypeVar("F", bound=Callable[..., Any])
AsBackend = Literal["as the backend"]

_ATTRIBUTE = "rowlock_policy"
OPTIONS = ("max_attempts", "retry", "timeout", "keep", "expires", "max_crashes")
# Names that other queues have for these options.
_ELSEWHERE: Final = {
    "max_retries": "Use 'max_attempts', which counts the first run, too.",
    "retries": "Use 'max_attempts', which counts the first run, too.",
    "backoff": "Use 'retry'.",
    "retry_backoff": "Use 'retry'.",
    "retry_for": "Use @policy(retry_for=...) of a task.",
    "autoretry_for": "Use @policy(retry_for=...) of a task.",
    "retry_delay": "Use 'retry': rowlock.retry.fixed(seconds).",
    "time_limit": "Use 'timeout'.",
    "soft_time_limit": "Use 'timeout'.",
    "result_ttl": "Use 'keep'.",
    "result_expires": "Use 'keep'.",
}


def policy(
    *,
    max_attempts: int | AsBackend = "as the backend",
    retry: RetryOption | AsBackend = "as the backend",
    retry_for: ErrorClasses | None = None,
    no_retry_for: ErrorClasses = (),
    timeout: float | timedelta | AsBackend | None = "as the backend",
    keep: float | timedelta | AsBackend | None = "as the backend",
    expires: float | timedelta | AsBackend | None = "as the backend",
    max_crashes: int | AsBackend = "as the backend",
    executor: Executor = "auto",
    limit: Limit | None = None,
    cron: str | None = None,
    every: float | timedelta | None = None,
    timezone: str | None = None,
) -> Callable[[F], F]:
    """Set the options of one task's jobs. Others come from the backend's `OPTIONS`.

    Args:
        max_attempts: Attempts before the task has failed.
        retry: How long to wait after a failure, as in `App.task`.
        retry_for: Retry only after these exceptions, a class or several. None means all.
        no_retry_for: Never retry after these.
        timeout: A run that takes longer fails. None means no limit.
        keep: How long to keep a succeeded job, and so its result. None means forever.
        expires: Cancel a job instead of running it this long after its creation.
        max_crashes: How often a job may crash its process before it has failed.
        executor: "process" runs it in a process of its own.
        limit: A `rowlock.Limit`: how many of its jobs may run, and when. Its `per` names a
            parameter of the task's function, or is a function of the arguments by name.
        cron: Enqueue it at these times, with the defaults of its parameters.
        every: Enqueue it at this interval instead, whole seconds or a timedelta.
        timezone: The time zone of `cron`, an IANA name. UTC by default.

    Raises:
        TypeError: It stands above `@task`, not below it.

    Example:
        @task(queue_name="mail")
        @policy(max_attempts=3, timeout=60)
        def send_invoice(number: int) -> None: ...
    """
    given = {
        "max_attempts": max_attempts,
        "retry": retry,
        "retry_for": retry_for,
        "no_retry_for": no_retry_for,
        "timeout": timeout,
        "keep": keep,
        "expires": expires,
        "max_crashes": max_crashes,
        "executor": executor,
        "limit": limit,
        "cron": cron,
        "every": every,
        "timezone": timezone,
    }
    chosen = {name: value for name, value in given.items() if value != "as the backend"}

    def decorate(function: F) -> F:
        if not inspect.isroutine(function):
            raise TypeError(
                "@policy must be below @task: write @task, then @policy(...), then the function"
            )
        setattr(function, _ATTRIBUTE, chosen)
        return function

    return decorate


def options_of(
    run: Callable[..., Any],
    *,
    function: Callable[..., Any],
    name: str,
    queue: str,
    defaults: Mapping[str, Any],
) -> TaskOptions:
    """Return the checked options of a Django task. Raise `OptionInvalid` if one is invalid."""
    chosen = {**defaults, **getattr(function, _ATTRIBUTE, {})}
    return task_options(
        run,
        name=name,
        queue=queue,
        priority=0,
        max_attempts=chosen.get("max_attempts", config.MAX_ATTEMPTS_DEFAULT),
        retry=retry_rules(
            chosen.get("retry", "jitter"),
            chosen.get("retry_for"),
            chosen.get("no_retry_for", ()),
        ),
        timeout=chosen.get("timeout"),
        keep=chosen.get("keep", config.KEEP_SECONDS_DEFAULT),
        expires=chosen.get("expires"),
        max_crashes=chosen.get("max_crashes", config.MAX_CRASHES_DEFAULT),
        executor=chosen.get("executor", "auto"),
        limit=chosen.get("limit"),
        cron=times_of(chosen.get("cron"), chosen.get("every"), chosen.get("timezone")),
    )


class _UnknownType(Exception):
    """An annotation names a type that JSON has no form of, such as a model."""


class CallFields:
    """The arguments of a Django task's function, by name."""

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._context: tuple[None, ...] = (None,) if takes_context else ()
        wanted = list(self._signature.parameters.values())[len(self._context) :]
        unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        named = [each for each in wanted if each.kind not in unnamed]
        self.parameters: list[str] = [each.name for each in named]
        self.required: list[str] = [each.name for each in named if each.default is each.empty]
        extra = [each.name for each in wanted if each.kind is each.VAR_KEYWORD]
        self._extra: str | None = extra[0] if extra else None

    @property
    def takes_extra(self) -> bool:
        """Whether the function has `**kwargs`."""
        return self._extra is not None

    def bind(self, payload: Mapping[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of a call. Raise `TypeError` if the function does not take them."""
        args, kwargs = payload.get("args") or (), payload.get("kwargs") or {}
        return self._signature.bind(*self._context, *args, **kwargs)

    def value_of(self, payload: Mapping[str, Any], name: str) -> object:
        """Return the value of a parameter, or its default."""
        return self.with_defaults(payload)[name]

    def with_defaults(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names, with the defaults of others."""
        bound = self.bind(payload)
        bound.apply_defaults()
        named = {name: bound.arguments[name] for name in self.parameters}
        return named if self._extra is None else {**bound.arguments[self._extra], **named}

    def misfits(self, payload: Mapping[str, Any]) -> Iterator[str]:
        """Yield a line for each argument that does not fit the annotation of its parameter."""
        for name, value in self.bind(payload).arguments.items():
            hint = self._hints.get(name, Any)
            # A boolean is an integer in Python, but not in JSON.
            if hint is int and isinstance(value, bool):
                continue
            try:
                msgspec.convert(value, hint, dec_hook=_give_up, str_keys=True)
            except _UnknownType:
                continue
            except msgspec.ValidationError as error:
                yield f"{name}: {misfits.described(error)}"

    @cached_property
    def _hints(self) -> dict[str, Any]:
        """The annotations that can be checked. One that is there only for type checkers can't."""
        hints: dict[str, Any] = {}
        for name in self.parameters:
            annotation = self._signature.parameters[name].annotation
            if annotation is inspect.Parameter.empty:
                continue
            try:
                holder = SimpleNamespace(__annotations__={"hint": annotation})
                scope = getattr(inspect.unwrap(self._function), "__globals__", {})
                hint = typing.get_type_hints(holder, scope, include_extras=True)["hint"]
                msgspec.json.Decoder(hint)
            except Exception:  # noqa: BLE001, S112  # an annotation may be any expression
                continue
            hints[name] = hint
        return hints


def _give_up(target: Any, value: object) -> object:
    raise _UnknownType(target, value)


def problem_of(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a problem of a backend's `OPTIONS` with a hint, or None."""
    for name in options:
        if name not in OPTIONS:
            return f"has no option {name!r}", _hint_for(str(name))
    try:
        options_of(_nothing, function=_nothing, name="x", queue="x", defaults=options)
    except OptionInvalid as error:
        return "can't be used", str(error)
    return None


def _hint_for(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    close = nearest(name, OPTIONS)
    return f"Did you mean {close[0]!r}?" if close else f"The options are {', '.join(OPTIONS)}."


def _nothing() -> None:
    """Do nothing: a task to check options on."""
