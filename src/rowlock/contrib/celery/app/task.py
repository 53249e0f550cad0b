"""A task with Celery's interface, on one of rowlock's.

1. As in Celery, an exception ends the job at once, unless `retry()` or `autoretry_for` asks for
   another attempt. A retry is a failed attempt with a delay of its own, so that rowlock counts it,
   shows it, and survives a crash in it.
2. Arguments are bound to the function's parameters when the job is enqueued, and checked against
   their annotations, as far as these can be checked. The payload has the names of the parameters.
3. As in Celery, each task is the instance of a class of its own, whose attributes are its options.
   So options come from the decorator, from `base=`, or from the app's class of tasks.
"""

from __future__ import annotations

import inspect
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never, cast

from rowlock import config
from rowlock.context import Cancel, Context, Fail, Release, Throttled
from rowlock.contrib.celery import exceptions, fixups
from rowlock.contrib.celery.canvas import chain, chunks, xmap, xstarmap
from rowlock.contrib.celery.exceptions import (
    Ignore,
    ImproperlyConfigured,
    MaxRetriesExceededError,
    Reject,
    Replaced,
    Retry,
)
from rowlock.contrib.celery.local import runs
from rowlock.contrib.celery.result import AsyncResult, EagerResult, ReportedState
from rowlock.contrib.celery.signatures import Signature
from rowlock.contrib.celery.stamps import STAMPED
from rowlock.contrib.compat import CallShape, Unsupported, seconds_until
from rowlock.errors import OptionInvalid
from rowlock.ids import new_id
from rowlock.limits import Limit

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.task import Task as RowlockTask

logger: logging.Logger = logging.getLogger("rowlock.contrib.celery")

# `retry(max_retries=...)` may ask for more than the task allows. A job has room for this many.
_RETRIES_ROOM = 20
_NO_RATE = re.compile(r"0+(?:\.0*)?(?:/[smhd]?)?")
# The exceptions of rowlock that a handler may raise.
SAID: Final = (Retry, Cancel, Fail, Release, Throttled)

_AT_MOST_ONCE = (
    "leave it out: a job whose worker dies runs again. For at most once, make it a rowlock task "
    "with max_attempts=1"
)
# Options with only some possible values here, and what to do instead of the others.
_FIXED: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "serializer": ((None, "json"), "leave it out: payloads are always JSON"),
    "acks_late": ((None, True), _AT_MOST_ONCE),
    "reject_on_worker_lost": ((None, True), _AT_MOST_ONCE),
    "acks_on_failure_or_timeout": ((None, True), "leave it out: a failed job is not run again"),
    "acks_on_failure": ((None, True), "leave it out: a failed job is not run again"),
    "acks_on_timeout": ((None, True), "leave it out: a job past its limit is not run again"),
    "backend": ((None,), "leave it out: results are stored with their jobs"),
    "exchange": ((None, ""), "name a queue: @app.task(queue=...)"),
    "filter": ((None,), "decorate the function itself"),
    "pydantic_strict": ((None, False), "check the argument in the task"),
    "pydantic_context": ((None,), "check the argument in the task"),
    "pydantic_dump_kwargs": ((None,), "return model.model_dump(...) from the task"),
    "Strategy": ((None,), "leave it out: there are no consumers of messages"),
    "Request": ((None,), "write on_failure of a base class, or connect signals.task_failure"),
}
# Options that are always so here, or tune what does not exist.
_HARMLESS: Final = frozenset(
    {
        "typing", "throws", "track_started", "send_events", "trail", "compression",
        "store_errors_even_if_ignored", "delivery_mode", "exchange_type", "resultrepr_maxsize",
        "lazy", "shared", "pydantic", "store_eager_result", "abstract", "shadow_name",
    }
)  # fmt: skip
_USED: Final = frozenset(
    {
        "name", "bind", "base", "queue", "routing_key", "priority", "max_retries",
        "default_retry_delay", "autoretry_for", "dont_autoretry_for", "retry_kwargs",
        "retry_backoff", "retry_backoff_max", "retry_jitter", "time_limit", "soft_time_limit",
        "rate_limit", "ignore_result", "expires", "executor",
    }
)  # fmt: skip
# Options that a setting may change after the task was made.
_ANNOTATED: Final = frozenset(
    {
        "rate_limit", "time_limit", "soft_time_limit", "ignore_result", "expires", "queue",
        "priority", "default_retry_delay", "acks_late",
    }
)  # fmt: skip
# Names of Celery's task that have no meaning here.
_MISSING: Final[Mapping[str, str]] = {
    "backend": "results are stored with their jobs; read them with AsyncResult",
    "send_event": "connect a signal, or read the events of the HTTP API",
    "subtask_from_request": "call retry()",
    "signature_from_request": "call retry()",
}


@dataclass
class Request:
    """The current run, as `self.request`. Headers of the call are attributes, too."""

    id: str | None = None
    task: str | None = None
    retries: int = 0
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    called_directly: bool = True
    is_eager: bool = False
    # rowlock's own: progress, log, token, cancellation.
    context: Context | None = None
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    delivery_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hostname: str | None = None
    eta: str | None = None
    expires: str | None = None
    timelimit: tuple[float | None, float | None] = (None, None)
    ignore_result: bool = False
    # Of a canvas: the job that it began with, the job before this one, the id of the group, whether
    # it is in the header of a chord, and how often the task has replaced itself.
    canvas_root: str | None = None
    parent_id: str | None = None
    group: str | None = None
    chord: bool | None = None
    replaced_task_nesting: int = 0
    # Jobs that `add_to_chord` has added.
    chord_additions: list[str] = field(default_factory=list[str])
    stamps: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stamped_headers: Sequence[str] = ()
    chain: None = None
    callbacks: None = None
    errbacks: None = None
    utc: bool = True

    @property
    def root_id(self) -> str | None:
        """The id of the job that the canvas began with, or its own."""
        return self.canvas_root or self.id

    @property
    def task_name(self) -> str | None:
        """The same as `task`."""
        return self.task

    @property
    def correlation_id(self) -> str | None:
        """The same as `id`."""
        return self.id

    @property
    def request_dict(self) -> dict[str, Any]:
        """The headers of the call, with its id and the name of its task."""
        return {**self.headers, "id": self.id, "task": self.task, "retries": self.retries}

    _request_dict = request_dict

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute or a header."""
        return getattr(self, name, default)

    def __getattr__(self, name: str) -> Any:
        headers = self.__dict__.get("headers") or {}
        if name in headers:
            return headers[name]
        raise AttributeError(name)


class Task:
    """A function that can be enqueued, and still be called. See `@app.task`, `@shared_task`.

    Derive from it for `base=`, or write a class with `run` for `app.register_task`.
    """

    MaxRetriesExceededError: ClassVar[type[Exception]] = MaxRetriesExceededError
    OperationalError: ClassVar[type[Exception]] = exceptions.OperationalError

    # Its options, with Celery's defaults.
    name: str | None = None
    typing: bool = True
    max_retries: int | None = 3
    default_retry_delay: float = 180
    rate_limit: str | float | None = None
    ignore_result: bool | None = None
    time_limit: float | None = None
    soft_time_limit: float | None = None
    queue: str | None = None
    routing_key: str | None = None
    priority: int | None = None
    expires: float | datetime | timedelta | None = None
    executor: str = "auto"
    autoretry_for: Sequence[type[BaseException]] = ()
    dont_autoretry_for: Sequence[type[BaseException]] = ()
    retry_kwargs: Mapping[str, Any] = {}
    retry_backoff: bool | float = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    throws: Sequence[type[BaseException]] = ()
    acks_late: bool | None = None
    reject_on_worker_lost: bool | None = None
    track_started: bool | None = None
    serializer: str | None = None
    abstract: bool = True

    # No `__init__`: derived classes have their own, without arguments.
    _app: Celery | None = None
    _bound: RowlockTask[..., Any] | None = None
    _shape: CallShape | None = None
    # How its class was made, to make it again from the class of an app's tasks.
    _namespace: Mapping[str, Any] | None = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work. Decorated functions take this place."""
        raise NotImplementedError("Tasks must define the run method.")

    # Hooks, as in Celery: override them in a base class.

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Called before a run. If it raises, the run has failed."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        """Called after a run that returned."""

    def on_retry(
        self, exc: BaseException | None, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Called after a run that will be repeated."""

    def on_failure(
        self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Called after a run that failed for good."""

    def after_return(  # noqa: PLR0917  # as in Celery
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Called after a run that has succeeded or failed for good."""

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
        chosen = {**options, "task_id": task_id}
        return self.app.publish(self.full_name, tuple(args or ()), dict(kwargs or {}), chosen)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Enqueue it when Django's transaction commits."""
        fixups.on_commit(partial(self.delay, *args, **kwargs))

    def apply_async_on_commit(self, *args: Any, **kwargs: Any) -> None:
        """Enqueue it with options when Django's transaction commits."""
        fixups.on_commit(partial(self.apply_async, *args, **kwargs))

    def apply(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        *,
        throw: bool | None = None,
        **options: Any,
    ) -> EagerResult:
        """Run it at once, in this process, with its retries and hooks. Nothing is stored."""
        from rowlock.contrib.celery.app.compose import call_links
        from rowlock.contrib.celery.app.trace import run_eagerly

        headers = options.get("headers") or {}
        request = Request(
            id=task_id or new_id(),
            stamps=headers.get("stamps", {}),
            stamped_headers=headers.get(STAMPED, ()),
            task=self.full_name,
            args=list(args or ()),
            kwargs=dict(kwargs or {}),
            called_directly=False,
            is_eager=True,
            headers=headers,
        )
        propagates = self.app.conf.task_eager_propagates if throw is None else throw
        result = run_eagerly(self, request, throw=propagates)
        call_links(request, result, options)
        return result

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return the task with arguments, to be enqueued later, by a schedule or in a canvas."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """As `s`, but results of earlier steps are not passed to it."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **other: Any,
    ) -> Signature:
        """Return the task with arguments and options, given as to `apply_async`."""
        return Signature(self, args, kwargs, {**(options or {}), **other}, immutable=immutable)

    subtask = signature

    def map(self, it: Iterable[Any]) -> Signature:
        """Return one job that calls it with each of these values, and returns a list."""
        return xmap(self, it)

    def starmap(self, it: Iterable[Any]) -> Signature:
        """Return one job that calls it with each of these lists of arguments."""
        return xstarmap(self, it)

    def chunks(self, it: Iterable[Any], n: int) -> chunks:
        """Return jobs of `n` calls each, with these lists of arguments."""
        return chunks(self, it, n)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802  # Celery's name for it
        """Return a job by its id."""
        return AsyncResult(task_id, app=self.app)

    # Run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function directly. Nothing is enqueued."""
        stack = runs.get()
        # A derived class calls this in the run of a job, which stays the current one.
        if stack and stack[-1][0] is self and stack[-1][1].__dict__.pop("is_fresh", False):
            return self.run(*args, **kwargs)
        before = runs.set((*stack, (self, Request(args=args, kwargs=kwargs))))
        try:
            return self.run(*args, **kwargs)
        finally:
            runs.reset(before)

    @property
    def request(self) -> Request:
        """The current run."""
        return next((run for task, run in reversed(runs.get()) if task is self), Request())

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
        request = self.request
        if request.called_directly:
            raise exc or Retry("Task can be retried")
        options = {name: value for name, value in options.items() if value is not None}
        for value, now in ((args, list(request.args)), (kwargs, dict(request.kwargs))):
            if value is not None and (type(now)(value) != now or options):
                raise Unsupported("retry() with other arguments", "enqueue another job and return")
        if options:
            raise Unsupported(f"retry({min(options)}=...)", "enqueue another job and return")
        if not throw:
            raise Unsupported("retry(throw=False)", "let it raise")
        limit = self.max_retries if max_retries is None else max_retries
        if limit is not None and request.retries >= limit:
            raise exc or MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}]",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        if request.is_eager or limit is None or request.retries + 1 < self.attempts_max:
            raise Retry(exc=exc, when=eta or countdown, seconds=self._retry_seconds(eta, countdown))
        raise Unsupported(
            f"retry number {request.retries + 1}", "give the task itself a larger max_retries"
        )

    def replace(self, sig: Signature) -> Any:
        """Let another task or canvas take the place of this run. It ends here.

        Its job then has the result of that one, and what waits for it waits for that one, too.
        """
        if isinstance(sig, chain) and not sig.tasks:
            raise ImproperlyConfigured("Cannot replace with an empty chain")
        return self.on_replace(sig)

    def on_replace(self, sig: Signature) -> Any:
        """Called by `replace`. Override it to change the signature before."""
        from rowlock.contrib.celery.app.compose import replace_run

        request = self.request
        if request.context is None:
            return sig.apply().get()
        if request.stamps:
            sig.stamp(append_stamps=True, **request.stamps)
        raise Replaced(replace_run(request, sig, self.app))

    def add_to_chord(self, sig: Signature, lazy: bool = False) -> Any:
        """Add a task or a canvas to the header of the chord that this run belongs to."""
        from rowlock.contrib.celery.app.compose import extend_chord

        request = self.request
        if not request.chord or request.context is None:
            raise ValueError("Current task is not member of any chord")
        if lazy:
            raise Unsupported("add_to_chord(lazy=True)", "leave it out")
        added = extend_chord(request, sig, self.app)
        request.chord_additions.append(added.id)
        return added

    def _retry_seconds(self, eta: datetime | None, countdown: float | None) -> float:
        if countdown is not None:
            return max(0.0, float(countdown))
        return self.default_retry_delay if eta is None else seconds_until(self.app.aware(eta))

    @property
    def attempts_max(self) -> int:
        """The number of attempts that its jobs have room for, whatever `retry()` asks for."""
        of_kwargs: int | None = self.retry_kwargs.get("max_retries", 0)
        if self.max_retries is None or of_kwargs is None:
            return config.MAX_ATTEMPTS_LIMIT
        return max(self.max_retries, of_kwargs, _RETRIES_ROOM) + 1

    def update_state(
        self,
        task_id: str | None = None,
        state: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report a state and facts about it, which `AsyncResult.state` and `.info` return.

        It is stored as the job's progress, so at most twice a second, and the last one. `current`
        and `total` of `meta` are shown as its share. Called directly, it does nothing.
        """
        request = self.request
        if task_id is not None and task_id != request.id:
            raise Unsupported("update_state() of another job", "let each job report its own")
        reported = ReportedState(state, meta)
        text = reported.text
        if request.context is not None:
            request.context.progress(reported.fraction, text)

    def autoretry(self, error: BaseException) -> Never:
        """Retry after an error of `autoretry_for`."""
        chosen = dict(self.retry_kwargs)
        if self.retry_backoff:
            # The exponent is bounded, because a job may have many attempts.
            power = 2 ** min(self.request.retries, 64)
            factor = int(max(1.0, float(self.retry_backoff)))
            countdown = min(self.retry_backoff_max, factor * power)
            if self.retry_jitter:
                countdown = random.randrange(countdown + 1)
            chosen["countdown"] = countdown
        self.retry(exc=error, **chosen)

    # With its app

    def adopt(self, app: Celery) -> None:
        """Make it a task of this app, to which its jobs go from now on."""
        self.rebase(app)
        kind = type(self)
        if self.name is None:
            self.name = f"{kind.__module__}.{kind.__name__}"
        if self.name.startswith("__main__.") and app.main:
            self.name = f"{app.main}.{self.name.removeprefix('__main__.')}"
        if self._shape is None:
            self._check()
            self._shape = CallShape(self._function, skip=1 if "bind" in self.__dict__ else 0)
            self._wrap_run()
        self._app = app
        self._bound = app.add_handler(self)

    def rebase(self, app: Celery) -> None:
        """As in Celery: without a base of its own, a task has the class of its app's tasks."""
        if self._namespace is not None and not isinstance(self, app.Task):
            self.__class__ = type(type(self).__name__, (app.Task,), dict(self._namespace))
            self._check()

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = self.__dict__.get("__wrapped__") or self.run
        return function

    def _wrap_run(self) -> None:
        """Let `run` retry the errors of `autoretry_for`."""
        again = tuple(self.autoretry_for)
        if not again:
            return
        run = self.run

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except (Ignore, Reject, *SAID):
                raise
            except tuple(self.dont_autoretry_for):
                raise
            except again as error:
                self.autoretry(error)

        update_wrapper(wrapped, run)
        self.__dict__["run"] = wrapped

    def _check(self) -> None:
        """Refuse options that can't be followed, wherever they come from."""
        for option, (allowed, instead) in _FIXED.items():
            # Statically: some of these names raise when they are asked for.
            value = inspect.getattr_static(self, option, None)
            if value not in allowed:
                raise Unsupported(f"@task {option}={value!r:.60}", instead)
        if self.routing_key is not None and self.queue is None:
            raise Unsupported("@task routing_key=", "name a queue: @app.task(queue=...)")
        if inspect.iscoroutinefunction(self._function):
            raise Unsupported("a coroutine function", "make it a rowlock task")

    @property
    def app(self) -> Celery:
        """The app of the task."""
        if self._app is None:
            raise Unsupported("a task without an app", "create Celery(...) first")
        return self._app

    @property
    def shape(self) -> CallShape:
        """How a call of it becomes a payload."""
        assert self._shape is not None, "it belongs to an app"
        return self._shape

    @property
    def bound(self) -> RowlockTask[..., Any]:
        """The task of rowlock that runs its jobs."""
        assert self._bound is not None, "it belongs to an app"
        return self._bound

    @property
    def full_name(self) -> str:
        """Its name, once it belongs to an app."""
        assert self.app is not None and self.name is not None
        return self.name

    def __setattr__(self, name: str, value: object) -> None:
        stack = runs.get()
        if stack and stack[-1][0] is self:
            self._warn_of_sharing(name, stack[-1][1])
        super().__setattr__(name, value)

    def _warn_of_sharing(self, name: str, request: Request) -> None:
        """Celery runs one job per process, so that a task may keep things of a run on itself."""
        said: set[str] = self.__dict__.setdefault("_said", set())
        if request.context is None or self.executor == "process" or name in said:
            return
        said.add(name)
        logger.warning(
            "task %s sets self.%s while it runs, and jobs in other threads see it: give it "
            'executor="process", or a local variable',
            self.name,
            name,
        )

    def __getattr__(self, name: str) -> Any:
        if name in _MISSING:
            raise Unsupported(f"task.{name}", _MISSING[name])
        raise AttributeError(f"task {self.name!r} has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"


def task_of(function: Callable[..., Any], options: Mapping[str, Any]) -> Task:
    """Make a function a task, of a class of its own."""
    base: type[Task] = options.get("base") or Task
    for option, value in options.items():
        known = option in _USED or option in _HARMLESS or option in _FIXED
        if not known and not hasattr(base, option):
            raise Unsupported(
                f"@task {option}={value!r:.60}",
                "leave it out, or give it to a base class as an attribute: @app.task(base=...)",
            )
    if not isinstance(base, type) or not issubclass(base, Task):
        raise OptionInvalid("base", "must be a class that derives from this Task; import it anew")
    namespace: dict[str, Any] = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "run": function if options.get("bind") else staticmethod(function),
        "name": options.get("name") or f"{function.__module__}.{function.__name__}",
    }
    chosen = (name for name in options if name not in ("name", "bind", "base"))
    namespace.update({name: options[name] for name in chosen})
    task: Task = type(function.__name__, (base,), namespace)()
    task.__dict__["__wrapped__"] = function
    task.__dict__.update({"__name__": function.__name__, "__qualname__": function.__qualname__})
    if options.get("bind"):
        task.__dict__["bind"] = True
    if options.get("base") is None:
        task._namespace = namespace
    return task


def check_annotations(annotations: object) -> None:
    """Check the setting `task_annotations`.

    Raises:
        Unsupported: It changes something that only the task itself can.
    """
    for by_name in _mappings(annotations):
        for name, changes in by_name.items():
            for option in changes:
                if option not in _ANNOTATED:
                    raise Unsupported(
                        f"task_annotations[{name!r}] {option}=", "set it on the task itself"
                    )


def annotate(task: Task, annotations: object) -> None:
    """Give a task the options that `task_annotations` has for it."""
    for by_name in _mappings(annotations):
        for name in ("*", task.name or ""):
            for option, value in by_name.get(name, {}).items():
                setattr(task, option, value)


def _mappings(annotations: object) -> list[Mapping[str, Mapping[str, Any]]]:
    is_list = isinstance(annotations, list | tuple)
    several: list[Any] = list(cast("Any", annotations)) if is_list else [annotations or {}]
    for each in several:
        if not isinstance(each, Mapping):
            raise Unsupported("task_annotations by a class", "write a dict of names and options")
    return several


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
