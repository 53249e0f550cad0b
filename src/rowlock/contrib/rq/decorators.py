"""`@job` registers a function when its module is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rowlock.app import App
from rowlock.contrib.rq.job import Job, register
from rowlock.contrib.rq.queue import Queue

Function = TypeVar("Function", bound=Callable[..., Any])

# Options that `delay` takes among the function's arguments.
_OF_CALL = ("job_id", "at_front")


def job(
    queue: Queue | str,
    connection: App | None = None,
    *,
    timeout: float | str | None = None,
    **options: Any,
) -> Callable[[Function], Function]:
    """Register a function and add `delay` and `enqueue` to it. A plain call still runs it."""
    lane = queue if isinstance(queue, Queue) else Queue(queue, connection)

    def decorate(function: Function) -> Function:
        register(lane.connection, function)

        def delay(*args: Any, **kwargs: Any) -> Job:
            of_call = {name: kwargs.pop(name) for name in _OF_CALL if name in kwargs}
            chosen = {**options, **of_call}
            return lane.enqueue_call(function, args, kwargs, timeout=timeout, **chosen)

        function.delay = function.enqueue = delay  # type: ignore[attr-defined]  # as RQ does
        return function

    return decorate
