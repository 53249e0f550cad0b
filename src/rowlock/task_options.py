"""The options of a task: how its jobs are run, checked where it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from rowlock import retry as retries
from rowlock.clock import duration_us
from rowlock.cron import Cron, parse_cron
from rowlock.errors import OptionInvalid
from rowlock.job import Policy
from rowlock.store import options

_DEFAULT_RETRY = retries.to_stored(retries.jitter())

Executor = Literal["auto", "async", "thread", "process"]
Duration = float | timedelta
RetryOption = str | retries.Policy | Callable[[int, BaseException | None], Duration]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The checked options of a task: how its jobs are run."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    retry: retries.Policy
    timeout_us: int | None
    keep_us: int | None
    max_crashes: int
    executor: Executor
    cron: Cron | None = None

    def policy(self, *, keep_dead_us: int | None) -> Policy:
        """Return the policy that is stored with each job."""
        stored = retries.to_stored(self.retry)
        return Policy(
            timeout=self.timeout_us,
            retry=None if stored == _DEFAULT_RETRY else stored,
            keep=self.keep_us,
            keep_dead=keep_dead_us,
            max_crashes=self.max_crashes,
        )


def task_options(
    function: Callable[..., Any],
    *,
    name: str | None,
    queue: str,
    priority: int,
    max_attempts: int,
    retry_option: RetryOption,
    timeout: Duration | None,
    keep: Duration | None,
    max_crashes: int,
    executor: Executor,
    cron: str | None = None,
    timezone: str | None = None,
) -> TaskOptions:
    """Check the options of a task."""
    if executor not in ("auto", "async", "thread", "process"):
        raise OptionInvalid("executor", f"must be auto, async, thread or process, not {executor!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise OptionInvalid("function", "is a generator; remove the yield, or a call runs nothing")
    is_async = inspect.iscoroutinefunction(function)
    if is_async != (executor == "async") and executor not in ("auto", "process"):
        wanted = "async or process" if is_async else "thread or process"
        raise OptionInvalid("executor", f"must be {wanted} for this function, not {executor!r}")
    return TaskOptions(
        name=options.name(name or _own_name(function), option="name"),
        queue=options.name(queue, option="queue"),
        priority=options.priority_of(priority),
        max_attempts=options.attempts(max_attempts),
        retry=retries.resolve(retry_option),
        timeout_us=None if timeout is None else _timeout_us(timeout),
        keep_us=options.keep_us(keep),
        max_crashes=options.integer(max_crashes, option="max_crashes", low=1, high=1_000),
        executor=executor,
        cron=_cron_of(cron, timezone),
    )


def _own_name(function: Callable[..., Any]) -> str:
    """Return the function's name, or an empty text: a `functools.partial` has none."""
    name: str = getattr(function, "__name__", "")
    return name


def _cron_of(cron: str | None, timezone: str | None) -> Cron | None:
    if cron is not None:
        return parse_cron(cron, timezone="UTC" if timezone is None else timezone)
    if timezone is not None:
        raise OptionInvalid("timezone", "needs cron; it does nothing without it")
    return None


def _timeout_us(timeout: Duration) -> int:
    limit = duration_us(timeout, option="timeout")
    if limit == 0:
        raise OptionInvalid("timeout", "must be longer than 0 seconds; None means no limit")
    return limit
