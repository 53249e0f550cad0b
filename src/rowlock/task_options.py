"""The options of a task, checked: how its jobs are run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from rowlock import retry as retries
from rowlock.clock import duration_us
from rowlock.cron import Cron, parse_times
from rowlock.errors import OptionInvalid, shown
from rowlock.job import Policy
from rowlock.limits import Limit
from rowlock.store import options

Executor = Literal["auto", "async", "thread", "process"]
Duration = float | timedelta
RetryOption = str | retries.Policy | Callable[[int, BaseException | None], Duration]
ErrorClasses = type[BaseException] | Collection[type[BaseException]]

_DEFAULT_RETRY = retries.to_stored(retries.jitter())


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How long to wait after a failure, and after which exceptions. None: after all of them."""

    policy: retries.Policy
    retry_for: tuple[type[BaseException], ...] | None = None
    no_retry_for: tuple[type[BaseException], ...] = ()

    def allow(self, error: BaseException) -> bool:
        """Whether a run that failed by this exception may be repeated."""
        if isinstance(error, self.no_retry_for):
            return False
        return self.retry_for is None or isinstance(error, self.retry_for)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The checked options of a task: how its jobs are run."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    retry: RetryRules
    timeout_us: int | None
    keep_us: int | None
    max_crashes: int
    executor: Executor
    cron: Cron | None = None
    limit: Limit | None = None
    expires_us: int | None = None

    def policy(self, *, keep_dead_us: int | None) -> Policy:
        """Return the policy that is stored with each job."""
        stored = retries.to_stored(self.retry.policy)
        return Policy(
            timeout=self.timeout_us,
            retry=None if stored == _DEFAULT_RETRY else stored,
            keep=self.keep_us,
            keep_dead=keep_dead_us,
            max_crashes=self.max_crashes,
            expires=self.expires_us,
        )


def task_options(
    function: Callable[..., Any],
    *,
    name: str | None,
    queue: str,
    priority: int,
    max_attempts: int,
    retry: RetryRules,
    timeout: Duration | None,
    keep: Duration | None,
    max_crashes: int,
    executor: Executor,
    cron: Cron | None = None,
    limit: Limit | None = None,
    expires: Duration | None = None,
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
    if limit is not None and not isinstance(limit, Limit):
        raise OptionInvalid("limit", f"must be app.limit(...) or rowlock.Limit(...), not {limit!r}")
    return TaskOptions(
        name=options.name(name or _own_name(function), option="name"),
        queue=options.name(queue, option="queue"),
        priority=options.priority_of(priority),
        max_attempts=options.attempts(max_attempts),
        retry=retry,
        timeout_us=timeout_us(timeout),
        keep_us=options.keep_us(keep),
        max_crashes=options.integer(max_crashes, option="max_crashes", low=1, high=1_000),
        executor=executor,
        cron=cron,
        limit=limit,
        expires_us=expires_us(expires),
    )


def retry_rules(
    policy: RetryOption, retry_for: ErrorClasses | None = None, no_retry_for: ErrorClasses = ()
) -> RetryRules:
    """Check the options about retries."""
    return RetryRules(
        retries.resolve(policy),
        None if retry_for is None else _classes(retry_for, option="retry_for"),
        _classes(no_retry_for, option="no_retry_for"),
    )


def _classes(value: ErrorClasses, *, option: str) -> tuple[type[BaseException], ...]:
    classes = [value] if isinstance(value, type) else value
    if not isinstance(classes, list | tuple | set | frozenset) or not all(
        isinstance(each, type) and issubclass(each, BaseException) for each in classes
    ):
        problem = f"must be an exception class or several of them, not {shown(value)}"
        raise OptionInvalid(option, problem)
    if option == "retry_for" and not classes:
        raise OptionInvalid(option, "is empty; to never retry, use max_attempts=1")
    return tuple(classes)


def check_function(function: object, *, has_name: bool) -> None:
    """Raise for what `@app.task` can't turn into a task."""
    if isinstance(function, str):
        problem = f"is the text {function!r}; write @app.task(name={function!r}) above a function"
        raise OptionInvalid("function", problem)
    if not callable(function):
        problem = f"must be a function, not {shown(function)}"
        if isinstance(function, classmethod):
            problem = "is a class method; use a function outside of the class"
        raise OptionInvalid("function", problem)
    own = _own_name(function)
    if own == "<lambda>" and not has_name:
        raise OptionInvalid("function", "a lambda has no name; write a def, or pass name=...")
    if not own and not has_name:
        raise OptionInvalid("name", f"is needed, since {shown(function)} has none of its own")
    owner, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    if owner and not owner.endswith("<locals>") and not inspect.ismethod(function):
        first = next(iter(inspect.signature(function).parameters), None)
        if first in ("self", "cls"):
            raise OptionInvalid(
                "function",
                f"is a method of {owner.rpartition('<locals>.')[2]}, and a job has no {first} to "
                "call it on; use a function outside of the class, and pass what it needs",
            )


def _own_name(function: Callable[..., Any]) -> str:
    """Return the function's name, or an empty text: a `functools.partial` has none."""
    name: str = getattr(function, "__name__", "")
    return name


def times_of(cron: str | None, every: Duration | None, timezone: str | None) -> Cron | None:
    """Check the times at which a task is enqueued by itself. None if there are none."""
    if cron is not None or every is not None:
        return parse_times(cron, every, timezone=timezone)
    if timezone is not None:
        raise OptionInvalid("timezone", "needs cron; it does nothing without it")
    return None


def expires_us(expires: Duration | None) -> int | None:
    """Check after which time a job is not to run. None: never."""
    if expires is None:
        return None
    length = duration_us(expires, option="expires")
    if length == 0:
        raise OptionInvalid("expires", "must be longer than 0 seconds; None means never")
    return length


def timeout_us(timeout: Duration | None) -> int | None:
    """Check a time limit. None: there is none."""
    if timeout is None:
        return None
    limit = duration_us(timeout, option="timeout")
    if limit == 0:
        raise OptionInvalid("timeout", "must be longer than 0 seconds; None means no limit")
    return limit
