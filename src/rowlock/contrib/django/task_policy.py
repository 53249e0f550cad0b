"""The options of a Django task's jobs: from its `@policy`, else from its backend's `OPTIONS`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeVar

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.limits import Limit
from rowlock.suggest import nearest
from rowlock.task import Executor, RetryOption, TaskOptions, task_options

F = TypeVar("F", bound=Callable[..., Any])
AsBackend = Literal["as the backend"]

_ATTRIBUTE = "rowlock_policy"
OPTIONS = ("max_attempts", "retry", "timeout", "keep", "max_crashes")


def policy(
    *,
    max_attempts: int | AsBackend = "as the backend",
    retry: RetryOption | AsBackend = "as the backend",
    timeout: float | timedelta | AsBackend | None = "as the backend",
    keep: float | timedelta | AsBackend | None = "as the backend",
    max_crashes: int | AsBackend = "as the backend",
    executor: Executor = "auto",
    limit: Limit | None = None,
) -> Callable[[F], F]:
    """Set the options of one task's jobs. Others come from the backend's `OPTIONS`.

    Args:
        max_attempts: Attempts before the task has failed.
        retry: How long to wait after a failure, as in `App.task`.
        timeout: A run that takes longer fails. None means no limit.
        keep: How long to keep a succeeded job, and so its result. None means forever.
        max_crashes: How often a job may crash its process before it has failed.
        executor: "process" runs it in a process of its own.
        limit: A `rowlock.Limit`: how many of its jobs may run, and when. Its `per` names a
            parameter of the task's function, or is a function of the arguments by name.

    Example:
        @task(queue_name="mail")
        @policy(max_attempts=3, timeout=60)
        def send_invoice(number: int) -> None: ...
    """
    given = {
        "max_attempts": max_attempts,
        "retry": retry,
        "timeout": timeout,
        "keep": keep,
        "max_crashes": max_crashes,
        "executor": executor,
        "limit": limit,
    }
    chosen = {name: value for name, value in given.items() if value != "as the backend"}

    def decorate(function: F) -> F:
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
        retry_option=chosen.get("retry", "jitter"),
        timeout=chosen.get("timeout"),
        keep=chosen.get("keep", config.KEEP_SECONDS_DEFAULT),
        max_crashes=chosen.get("max_crashes", config.MAX_CRASHES_DEFAULT),
        executor=chosen.get("executor", "auto"),
        limit=chosen.get("limit"),
    )


class CallFields:
    """The arguments of a Django task's function, by name, for the key at its limit."""

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        self._signature = inspect.signature(function)
        self._context: tuple[None, ...] = (None,) if takes_context else ()
        wanted = list(self._signature.parameters.values())[len(self._context) :]
        unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        self.parameters: list[str] = [each.name for each in wanted if each.kind not in unnamed]

    def value_of(self, payload: Mapping[str, Any], name: str) -> object:
        """Return the value of a parameter, or its default."""
        return self.with_defaults(payload)[name]

    def with_defaults(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by their names, with the defaults of others."""
        bound = self._signature.bind(*self._context, *payload["args"], **payload["kwargs"])
        bound.apply_defaults()
        return {name: value for name, value in bound.arguments.items() if name in self.parameters}


def problem_of(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a problem of a backend's `OPTIONS` with a hint, or None."""
    for name in options:
        if name not in OPTIONS:
            close = nearest(str(name), OPTIONS)
            hint = (
                f"Did you mean {close[0]!r}?" if close else f"The options are {', '.join(OPTIONS)}."
            )
            return f"has no option {name!r}", hint
    try:
        options_of(_nothing, function=_nothing, name="x", queue="x", defaults=options)
    except OptionInvalid as error:
        return "can't be used", str(error)
    return None


def _nothing() -> None:
    """Do nothing: a task to check options on."""
