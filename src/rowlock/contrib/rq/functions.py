"""Which functions may be run, and how: registered by code, never by what a row says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rowlock.app import App
from rowlock.context import Context, TimedOut
from rowlock.contrib.compat import Unsupported, handler_for
from rowlock.contrib.rq.job import RETRY, Job, current
from rowlock.task import Task

# As in RQ, in seconds.
TIMEOUT_DEFAULT: Final = 180
RESULT_TTL_DEFAULT: Final = 500
FAILURE_TTL_DEFAULT: Final = 31_536_000

# Where a failed run says how long to wait; the retry policy sees no more than the error.
_DELAY = "rowlock_rq_delay"


class Retry:
    """How often a failed job is run again, and after how many seconds, as RQ's."""

    def __init__(
        self, max: int, interval: int | Iterable[int] = 0, enqueue_at_front: bool = False
    ) -> None:
        if max < 1:
            raise ValueError("max: please enter a value greater than 0")
        if enqueue_at_front:
            raise Unsupported("Retry(enqueue_at_front=True)", "leave it out: it keeps its place")
        self.max = max
        self.intervals: list[int] = [interval] if isinstance(interval, int) else list(interval)
        if any(each < 0 for each in self.intervals):
            raise ValueError("interval: negative numbers are not allowed")


def register(app: App, function: Callable[..., Any]) -> Task[..., Any]:
    """Let an app run a function's jobs: to be called where the worker imports it.

    Its kind is the function's path, `module.name`; an equal name registers no other function.
    """
    if inspect.ismethod(function) or not hasattr(function, "__qualname__"):
        raise Unsupported(f"{function!r:.100}", "give a plain function of a module")
    if function.__module__ == "__main__":
        raise ValueError("Functions from the __main__ module cannot be processed by workers")
    name = f"{function.__module__}.{function.__qualname__}"
    known = app.find(name)
    if known is not None:
        _refuse_namesake(known, function)
        return known

    def call(context: Context, arguments: Mapping[str, Any]) -> Any:
        return _run(app, function, context, arguments)

    decorate = app.task(
        name=name,
        max_attempts=1,
        retry=_delay_of,
        timeout=TIMEOUT_DEFAULT,
        keep=RESULT_TTL_DEFAULT,
    )
    return decorate(handler_for(function, call))


def _refuse_namesake(known: Task[..., Any], function: Callable[..., Any]) -> None:
    """Of lambdas, and of functions within others, many have one name: the first would be run."""
    is_nameless = "<" in function.__qualname__
    if is_nameless and inspect.unwrap(known.function) is not inspect.unwrap(function):
        raise Unsupported(
            f"another function by the name of {known.name}", "give a plain function of a module"
        )


def _run(
    app: App, function: Callable[..., Any], context: Context, arguments: Mapping[str, Any]
) -> Any:
    before = current.set(Job(context.job, connection=app))
    try:
        result = function(**arguments)
    except (Exception, TimedOut) as error:
        setattr(error, _DELAY, _interval(context))
        raise
    finally:
        current.reset(before)
    if isinstance(result, Retry):
        raise Unsupported("a Retry that is returned", "raise, and enqueue with retry=Retry(...)")
    return result


def _interval(context: Context) -> float:
    """As RQ reckons it: with more retries than intervals the first one is used several times."""
    stored = context.job.meta.get(RETRY)
    if not isinstance(stored, Mapping) or not stored["intervals"]:
        return 0.0
    intervals: list[float] = stored["intervals"]
    left: int = stored["max"] - context.attempt + 1
    return intervals[min(max(len(intervals) - left, 0), len(intervals) - 1)]


def _delay_of(attempt: int, error: BaseException | None) -> float:
    delay: float = getattr(error, _DELAY, 0.0)
    return delay
