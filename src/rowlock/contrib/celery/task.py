"""A task with Celery's interface, on one of rowlock's.

1. As in Celery, an exception ends the job at once, unless `retry()` or `autoretry_for` asks for
   another attempt. A retry is a failed attempt with a delay of its own, so that rowlock counts it,
   shows it, and survives a crash in it.
2. Arguments are bound to the function's parameters when the job is enqueued, and checked against
   their annotations. The payload is the same as for a rowlock task.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Never, TypedDict, cast

from rowlock import config
from rowlock.clock import SystemClock, from_us
from rowlock.context import Cancel, Context, Fail, Release, Throttled
from rowlock.contrib.celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from rowlock.contrib.celery.result import AsyncResult
from rowlock.contrib.compat import (
    Unsupported,
    handler_for,
    is_over,
    permanent,
    refuse_unknown,
    seconds_until,
)
from rowlock.errors import OptionInvalid
from rowlock.limits import Limit
from rowlock.task import Task as RowlockTask

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery

# As in Celery.
MAX_RETRIES_DEFAULT = 3
RETRY_SECONDS_DEFAULT = 180.0
BACKOFF_SECONDS_MAX_DEFAULT = 600
# `retry(max_retries=...)` may ask for more than the task allows. A job has room for this many.
_RETRIES_ROOM = 20

EXPIRES = "expires_at"
_NO_RATE = re.compile(r"0+(?:\.0*)?(?:/[smhd]?)?")
# The exceptions of rowlock that a handler may raise.
_SAID = (Retry, Cancel, Fail, Release, Throttled)
_COMPOSE = "enqueue the next job in the task, or with rowlock's ctx.enqueue_on_success"
CALL_ADVICE = {
    "link": _COMPOSE,
    "link_error": "look at dead jobs: app.list(state='dead'), or the events of the HTTP API",
    "shadow": "give the task a name",
    "serializer": "leave it out: payloads are always JSON",
    "compression": "leave it out: payloads are plain JSON",
    "routing_key": "name a queue",
    "exchange": "name a queue",
    "headers": "add a parameter to the task",
    "time_limit": "set it on the task: @app.task(time_limit=...)",
    "soft_time_limit": "use time_limit on the task; a run that takes longer is ended and fails",
}
TASK_ADVICE = {
    "base": "move the code of its hooks into the function",
    "soft_time_limit": "use time_limit; a run that takes longer is ended and fails",
    "serializer": "leave it out: payloads are always JSON",
    "acks_late": "leave it out: a job is always acknowledged after it has ended",
    "throws": "leave it out: errors are stored with the job",
    "pydantic": "leave it out: parameters annotated with models get models",
}


class CallOptions(TypedDict, total=False):
    """The options of `apply_async`."""

    task_id: str | None
    countdown: float | None
    eta: datetime | None
    expires: float | datetime | timedelta | None
    queue: str | None
    priority: int | None
    # Options of publishing, which rowlock does differently.
    retry: bool
    retry_policy: Mapping[str, Any] | None
    ignore_result: bool


class CeleryTaskOptions(TypedDict, total=False):
    """The options of `@app.task`."""

    name: str | None
    bind: bool
    queue: str
    priority: int
    max_retries: int | None
    default_retry_delay: float
    autoretry_for: Sequence[type[BaseException]]
    dont_autoretry_for: Sequence[type[BaseException]]
    retry_kwargs: Mapping[str, Any]
    retry_backoff: bool | int | float
    retry_backoff_max: int
    retry_jitter: bool
    time_limit: float | None
    rate_limit: str | float | None
    ignore_result: bool
    track_started: bool
    executor: str


@dataclass(frozen=True, slots=True)
class Request:
    """The current run, as `self.request`."""

    id: str | None = None
    task: str | None = None
    retries: int = 0
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    called_directly: bool = True
    # rowlock's own: progress, log, token, cancellation.
    context: Context | None = None


_running: ContextVar[tuple[Task, Request] | None] = ContextVar("rowlock_celery", default=None)


class Task:
    """A function that can be enqueued, and still be called. See `@app.task`, `@shared_task`."""

    def __init__(self, function: Callable[..., Any], options: CeleryTaskOptions) -> None:
        refuse_unknown(options, CeleryTaskOptions.__annotations__, TASK_ADVICE, what="@task")
        if inspect.iscoroutinefunction(function):
            raise Unsupported("a coroutine function", "make it a rowlock task")
        self.run = function
        self.options = options
        self.max_retries: int | None = options.get("max_retries", MAX_RETRIES_DEFAULT)
        self.default_retry_delay: float = options.get("default_retry_delay", RETRY_SECONDS_DEFAULT)
        self.name: str = options.get("name") or f"{function.__module__}.{function.__name__}"
        self._app: Celery | None = None
        self._task: RowlockTask[..., Any] | None = None
        update_wrapper(self, function)

    # Enqueue

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue it with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue it with these arguments and options."""
        using = self.app.using_of(self.name, {**options, "task_id": task_id})
        job = self._bound.using(**using).enqueue(*(args or ()), **(kwargs or {}))
        return AsyncResult(job.id, app=self.app)

    def apply(self, *_: Any, **__: Any) -> Never:
        """Not supported."""
        raise Unsupported("apply()", "call the task, or enqueue it and app.drain()")

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return the task with arguments, to be enqueued later or by a schedule."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return the same as `s`: without chains, nothing is added to its arguments."""
        return self.s(*args, **kwargs)

    def signature(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature:
        """Return the task with arguments and options, given as to `apply_async`."""
        return Signature(self, tuple(args), kwargs or {}, options)

    def AsyncResult(self, id: str) -> AsyncResult:  # noqa: N802  # Celery's name for it
        """Return a job by its id."""
        return AsyncResult(id, app=self.app)

    # Run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function directly. Nothing is enqueued."""
        before = _running.set((self, Request()))
        try:
            return self._called(args, kwargs)
        finally:
            _running.reset(before)

    @property
    def request(self) -> Request:
        """The current run."""
        now = _running.get()
        return now[1] if now is not None and now[0] is self else Request()

    def retry(  # noqa: PLR0917  # as in Celery
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Never:
        """Run this job again later. It always raises, so no code after it runs.

        Args:
            exc: The exception to raise if no retries are left. Default: `MaxRetriesExceededError`.
            eta: The time of the retry, instead of `countdown`.
            countdown: The delay in seconds. Default: `default_retry_delay`.
            max_retries: A limit other than the task's.
        """
        if args is not None or kwargs is not None or options:
            raise Unsupported(
                "retry() with other arguments or options", "enqueue another job and return"
            )
        if not throw:
            raise Unsupported("retry(throw=False)", "let it raise")
        request = self.request
        if request.called_directly:
            raise exc or Retry("Task can be retried")
        limit = self.max_retries if max_retries is None else max_retries
        if limit is not None and request.retries >= limit:
            raise exc or MaxRetriesExceededError(f"Can't retry {self.name}[{request.id}]")
        if limit is None or request.retries + 1 < self.attempts_max:
            raise Retry(exc=exc, when=eta or countdown, seconds=self._retry_seconds(eta, countdown))
        raise Unsupported(
            f"retry number {request.retries + 1}", "give the task itself a larger max_retries"
        )

    def _retry_seconds(self, eta: datetime | None, countdown: float | None) -> float:
        if countdown is not None:
            return max(0.0, float(countdown))
        return self.default_retry_delay if eta is None else seconds_until(self.app.aware(eta))

    @property
    def attempts_max(self) -> int:
        """The number of attempts that its jobs have room for, whatever `retry()` asks for."""
        of_kwargs: int | None = self.options.get("retry_kwargs", {}).get("max_retries", 0)
        if self.max_retries is None or of_kwargs is None:
            return config.MAX_ATTEMPTS_LIMIT
        return max(self.max_retries, of_kwargs, _RETRIES_ROOM) + 1

    def update_state(self, *_: Any, **__: Any) -> Never:
        """Not supported."""
        raise Unsupported("update_state()", "use self.request.context.progress(0.4, 'halfway')")

    def _handle(self, context: Context, arguments: Mapping[str, Any]) -> Any:
        """Run a job in a worker."""
        job = context.job
        expires = job.meta.get(EXPIRES)
        if expires is not None and is_over(datetime.fromisoformat(str(expires))):
            raise Cancel("expired")
        self._refuse_overdue(context)
        request = Request(
            job.id, self.name, context.attempt - 1, (), arguments, False, context
        )  # fmt: skip
        before = _running.set((self, request))
        try:
            result = self._called((), arguments)
        except _SAID:
            raise
        except Ignore as ignored:
            raise Cancel(str(ignored)) from None
        except Reject as rejected:
            if rejected.requeue:
                raise Release(reason=str(rejected)) from None
            failed: Exception = rejected
        except Exception as error:  # noqa: BLE001  # raised on below, without this one as its context
            failed = error
        else:
            return None if self.options.get("ignore_result") else result
        finally:
            _running.reset(before)
        raise permanent(failed)

    @staticmethod
    def _refuse_overdue(context: Context) -> None:
        """Fail permanently, as in Celery, if the run exceeded its limit."""
        errors = context.job.errors
        last = errors[-1] if errors else None
        if last is not None and (last.attempt, last.type) == (context.attempt - 1, "TimeoutError"):
            raise permanent(TimeoutError(last.message))

    def _called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        own = (self,) if self.options.get("bind") else ()
        again = tuple(self.options.get("autoretry_for", ()))
        if not again:
            return self.run(*own, *args, **kwargs)
        try:
            return self.run(*own, *args, **kwargs)
        except (Ignore, Reject, *_SAID):
            raise
        except tuple(self.options.get("dont_autoretry_for", ())):
            raise
        except again as error:
            self._autoretry(error)

    def _autoretry(self, error: BaseException) -> Never:
        chosen = dict(self.options.get("retry_kwargs", {}))
        backoff = self.options.get("retry_backoff", False)
        if backoff:
            most = self.options.get("retry_backoff_max", BACKOFF_SECONDS_MAX_DEFAULT)
            # The exponent is bounded, because a job may have many attempts.
            power = 2 ** min(self.request.retries, 64)
            countdown = min(most, int(max(1.0, float(backoff))) * power)
            if self.options.get("retry_jitter", True):
                countdown = random.randrange(countdown + 1)
            chosen["countdown"] = countdown
        self.retry(exc=error, **chosen)

    # With its app

    def adopt(self, app: Celery) -> None:
        """Make it a task of this app, to which its jobs go from now on."""
        if self.name.startswith("__main__.") and app.main:
            self.name = f"{app.main}.{self.name.removeprefix('__main__.')}"
        skip = 1 if self.options.get("bind") else 0
        self._app = app
        self._task = app.add_handler(handler_for(self.run, self._handle, skip=skip), self)

    @property
    def app(self) -> Celery:
        """The app of the task."""
        if self._app is None:
            raise Unsupported("a shared task without an app", "create Celery(...) first")
        return self._app

    @property
    def _bound(self) -> RowlockTask[..., Any]:
        assert self.app is not None and self._task is not None
        return self._task

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"


@dataclass(frozen=True)
class Signature:
    """A task with its arguments and options. Celery's canvas is not supported."""

    task: Task
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def set(self, **options: Any) -> Signature:
        """Return it with more options."""
        return Signature(self.task, self.args, self.kwargs, {**self.options, **options})

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue it. As in Celery, these arguments come before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue it."""
        every = (*(args or ()), *self.args)
        named = {**self.kwargs, **(kwargs or {})}
        return self.task.apply_async(every, named, **{**self.options, **options})

    def __call__(self) -> Any:
        return self.task(*self.args, **self.kwargs)

    def __or__(self, _: object) -> Never:
        raise Unsupported("a chain", _COMPOSE)


def no_canvas(*_: Any, **__: Any) -> Never:
    """Raise `Unsupported` for `chain`, `group`, `chord` and `chunks`."""
    raise Unsupported(
        "chain, group and chord", f"{_COMPOSE}; for many at once use app.enqueue_many([...])"
    )


def check_call(options: Mapping[str, Any]) -> CallOptions:
    """Check the options of `apply_async`."""
    refuse_unknown(options, CallOptions.__annotations__, CALL_ADVICE, what="apply_async")
    return cast("CallOptions", options)


def using_of(chosen: CallOptions, *, aware: Callable[[datetime], datetime]) -> dict[str, Any]:
    """Convert options to those of `Task.using`. `aware` adds a time zone to naive times."""
    countdown, eta = chosen.get("countdown"), chosen.get("eta")
    expires = chosen.get("expires")
    if isinstance(expires, datetime):
        expires = aware(expires)
    return {
        "id": chosen.get("task_id"),
        "queue": chosen.get("queue"),
        "priority": chosen.get("priority"),
        "delay": None if countdown is None else max(0.0, float(countdown)),
        # As in Celery, a countdown takes precedence over an eta.
        "run_at": None if eta is None or countdown is not None else aware(eta),
        "meta": {} if expires is None else {EXPIRES: _expiry(expires).isoformat()},
    }


def _expiry(expires: float | datetime | timedelta) -> datetime:
    if isinstance(expires, datetime):
        return expires
    seconds = expires.total_seconds() if isinstance(expires, timedelta) else expires
    return from_us(SystemClock().now_us() + round(seconds * config.SECOND_US))


def limit_of(rate: str | float | None) -> Limit | None:
    """Return the limit of one task that a `rate_limit` of Celery's means. 0 and None mean none.

    Raises:
        OptionInvalid: It is no rate.
    """
    text = str(rate).strip() if isinstance(rate, str | int | float) else rate
    if text in (None, "") or (isinstance(text, str) and _NO_RATE.fullmatch(text)):
        return None
    try:
        # As in Celery, a number alone is one per second.
        return Limit(rate=f"{text}/s" if isinstance(text, str) and "/" not in text else text)
    except OptionInvalid as error:
        raise OptionInvalid("rate_limit", error.problem) from None


def delay_of(attempt: int, error: BaseException | None) -> float:
    """Return the delay that `retry()` chose. This is the retry policy of these tasks."""
    return error.seconds if isinstance(error, Retry) else 0.0
