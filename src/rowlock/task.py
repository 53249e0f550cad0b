"""Tasks: functions that can be enqueued. `Task`, `TaskCall` (a task with options), `Tasks`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    cast,
    overload,
)
from uuid import UUID

import msgspec

from rowlock import config, suggest
from rowlock.clock import to_us
from rowlock.context import Context
from rowlock.cron import Cron
from rowlock.errors import OptionInvalid
from rowlock.inputs import Input
from rowlock.job import Job, Lease
from rowlock.limits import Fields, Key, Limit
from rowlock.signature import PayloadSchema
from rowlock.store import KnownPolicy, NewJob, options
from rowlock.store.options import TypedJob
from rowlock.task_options import (
    Duration,
    ErrorClasses,
    Executor,
    RetryOption,
    TaskOptions,
    check_function,
    expires_us,
    retry_rules,
    task_options,
    timeout_us,
    times_of,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
# Covariant, so that a checker finds the result of a coroutine.
R_co = TypeVar("R_co", covariant=True)


class EnqueueOptions(TypedDict, total=False):
    """The options of one job beside its payload. See `Task.using`."""

    key: str | None
    key_hold: options.KeyHold | None
    if_held: options.IfHeld | None
    quiet: Duration | None
    max_wait: Duration | None
    priority: int
    delay: Duration | None
    run_at: datetime | None
    tenant: str | None
    queue: str
    max_attempts: int
    keep: Duration | None
    timeout: Duration | None
    expires: Duration | datetime | None
    tags: Collection[str]
    meta: Mapping[str, object]
    id: str | UUID | None
    conn: object
    limit_key: Key | None


class Sender(Protocol):
    """The app, as a task sees it."""

    @property
    def keep_dead_us(self) -> int | None: ...
    def send(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]: ...
    async def asend(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]: ...
    def follow(self, job: NewJob) -> NewJob: ...


# What the tasks of other queues have, and what to call here instead.
_ELSEWHERE: Mapping[str, str] = {
    "delay": ".enqueue(...)",
    "apply_async": ".using(delay=..., queue=...).enqueue(...)",
    "defer": ".enqueue(...)",
    "defer_async": ".aenqueue(...)",
    "configure": ".using(...)",
    "kiq": ".aenqueue(...)",
    "send": ".enqueue(...)",
    "send_with_options": ".using(...).enqueue(...)",
}


def _refusing_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """Have a call with an option that does not exist say which one is meant, if that is known."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **chosen: P.kwargs) -> R:
        options.refuse_unknown(chosen, known)
        return function(*args, **chosen)

    return call


class Task(Generic[P, R_co]):
    """A function that can be enqueued, and still be called. Created by `@app.task`.

    A plain call, `task(...)`, runs the function directly and enqueues nothing.
    """

    def __init__(
        self, function: Callable[..., R_co], settings: TaskOptions, *, fields: Fields | None = None
    ) -> None:
        self.function = function
        self.settings = settings
        known = EnqueueOptions.__annotations__
        self.schema: PayloadSchema = PayloadSchema(function, settings.name, Context, options=known)
        # What its limit knows of payloads. A framework may keep a call in another form.
        self.fields: Fields = self.schema if fields is None else fields
        self._sender: Sender | None = None
        self._policy_text: str | None = None
        # A job of this task without options, complete but for the payload.
        self._plain_job: NewJob | None = None
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The `kind` of its jobs."""
        return self.settings.name

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}"
            if (instead := _ELSEWHERE.get(name)) is not None:
                problem = (
                    f"a task has no {name!r}: use {getattr(self, '__name__', 'task')}{instead}"
                )
            raise AttributeError(problem, name=name, obj=self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function directly. Nothing is enqueued."""
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a job with these arguments.

        Raises:
            PayloadInvalid: The arguments do not fit the function's parameters. The error names
                every invalid field.
        """
        return self.sender.send([self.new_job(*args, **kwargs)], conn=None)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """As `enqueue`."""
        return (await self.sender.asend([self.new_job(*args, **kwargs)], conn=None))[0]

    @overload
    def job(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> TypedJob[T]: ...
    @overload
    def job(self: Task[P, T], *args: P.args, **kwargs: P.kwargs) -> TypedJob[T]: ...
    def job(self, *args: Any, **kwargs: Any) -> TypedJob[Any]:
        """A job to be enqueued with others: by `app.enqueue_many`, or in a workflow."""
        return cast("TypedJob[Any]", self.new_job(*args, **kwargs))

    def new_job(self, *args: Any, **kwargs: Any) -> NewJob:
        """As `job`, for those who know what is in it."""
        inputs: dict[str, Input] = {}
        payload = self.schema.encode(args, kwargs, inputs)
        if self._plain_job is None:
            self._plain_job = self.model(payload, {})
        made = self.another(self._plain_job, payload)
        return made._replace(inputs=inputs) if inputs else made

    def another(self, model: NewJob, payload: str, key: Key | None = None) -> NewJob:
        """Return a job like another one of this task, with another payload and its own key."""
        return self._placed(model.again(payload), key)

    def _placed(self, job: NewJob, key: Key | None) -> NewJob:
        limit = self.settings.limit
        return job if limit is None else job._replace(limit=limit.place(job, self.fields, key))

    @_refusing_unknown
    def using(
        self,
        *,
        key: str | None = None,
        key_hold: options.KeyHold | None = None,
        if_held: options.IfHeld | None = None,
        quiet: Duration | None = None,
        max_wait: Duration | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        tenant: str | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        keep: Duration | Literal["as the task"] | None = "as the task",
        timeout: Duration | Literal["as the task"] | None = "as the task",
        expires: Duration | datetime | Literal["as the task"] | None = "as the task",
        tags: Collection[str] = (),
        meta: Mapping[str, object] | None = None,
        id: str | UUID | None = None,
        conn: object | None = None,
        limit_key: Key | None = None,
    ) -> TaskCall[P, R_co]:
        """The task with options for one enqueue.

        Args:
            key: Allows one job in flight per tenant, kind and key. A second enqueue returns the
                first job.
            key_hold: How long the key is held: "in_flight" (default), "until_started" (free once
                the job runs; the default with `quiet`), seconds from the enqueue, or "kept" (as
                long as the job's row).
            if_held: What to do if another job holds the key. "keep" (default) doesn't change that
                job. "replace" gives it this payload and these options if it has not started.
            quiet: Debounce: run the job once no enqueue of its key has come for this long, in
                seconds or as a timedelta. Needs `key`, and means `if_held="replace"`. Can't be
                combined with `delay` or `run_at`.
            max_wait: With `quiet`: run the job at most this long after it was created, however
                often its key is enqueued.
            priority: -100 to 100. Higher runs first.
            delay: Run it this much later, in seconds or as a timedelta.
            run_at: Run it at this time, an aware datetime. The past means now. Can't be combined
                with `delay`.
            tenant: The tenant that owns the job.
            queue: A queue other than the task's.
            max_attempts: A limit other than the task's.
            keep: How long to keep the finished job, in seconds. 0 removes it at once, None keeps it
                forever.
            timeout: A time limit other than the task's. None means no limit.
            expires: Cancel the job instead of running it after this time: seconds or a timedelta
                from its creation, or an aware datetime. None means never.
            tags: Names to find the job by.
            meta: Free context, a small JSON object.
            id: A UUID of your own. The same id again means the same job. Its tokens are large
                numbers, so that none is used twice, even if the job is deleted and its id enqueued
                again.
            conn: Your own connection. The job exists if its transaction commits. With
                `enqueue_many`, pass it to that call.
            limit_key: The key at the task's limit, instead of the one that `per` says.
        """
        chosen: EnqueueOptions = {"key": key, "key_hold": key_hold, "tenant": tenant, "id": id}
        chosen.update({"if_held": if_held, "quiet": quiet, "max_wait": max_wait})
        chosen.update({"delay": delay, "run_at": run_at, "tags": tags, "meta": meta or {}})
        others = {"priority": priority, "queue": queue, "max_attempts": max_attempts}
        chosen.update(_given({**others, "limit_key": limit_key}, absent=None))
        stored = {"keep": keep, "timeout": timeout, "expires": expires}
        chosen.update(_given(stored, absent="as the task"))
        return TaskCall(self, chosen, conn)

    def prepare(self, payload: str, chosen: EnqueueOptions) -> NewJob:
        """Return a checked job from an encoded payload and options."""
        return self._placed(self.model(payload, chosen), chosen.get("limit_key"))

    def model(self, payload: str, chosen: EnqueueOptions) -> NewJob:
        """Return a checked job that has no key at its limit yet."""
        settings = self.settings
        job = options.new_job(
            kind=settings.name,
            payload=payload,
            queue=chosen.get("queue", settings.queue),
            priority=chosen.get("priority", settings.priority),
            tenant=chosen.get("tenant"),
            key=chosen.get("key"),
            key_hold=chosen.get("key_hold"),
            if_held=chosen.get("if_held"),
            quiet=chosen.get("quiet"),
            max_wait=chosen.get("max_wait"),
            max_attempts=chosen.get("max_attempts", settings.max_attempts),
            run_at=chosen.get("run_at"),
            delay=chosen.get("delay"),
            tags=chosen.get("tags"),
            meta=chosen.get("meta"),
            id=chosen.get("id"),
            policy=self._policy(chosen),
        )
        if settings.limit is not None:
            settings.limit.check_job(job.queue, job.rank)
        elif chosen.get("limit_key") is not None:
            raise OptionInvalid("limit_key", f"task {self.name!r} has no limit")
        return job

    def _policy(self, chosen: EnqueueOptions) -> str:
        if changes := _policy_changes(chosen):
            policy = self.settings.policy(keep_dead_us=self.sender.keep_dead_us)
            return msgspec.structs.replace(policy, **changes).encoded()
        if self._policy_text is None:
            policy = self.settings.policy(keep_dead_us=self.sender.keep_dead_us)
            self._policy_text = policy.encoded()
        return self._policy_text

    def known_policy(self) -> KnownPolicy:
        """The policy for jobs of this kind that were enqueued by name, without the task."""
        return KnownPolicy(self._policy({}), self.settings.max_attempts)

    @property
    def sender(self) -> Sender:
        if self._sender is None:
            raise OptionInvalid(
                "app", f"task {self.name!r} belongs to no app yet; call app.include(tasks) first"
            )
        return self._sender

    def bind(self, sender: Sender) -> None:
        """Send this task's jobs to that app from now on. The last app wins."""
        self._sender = sender
        self._policy_text = None
        self._plain_job = None

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"


class TaskCall(Generic[P, R_co]):
    """A task with options, ready for its arguments. Created by `Task.using`."""

    def __init__(self, task: Task[P, R_co], chosen: EnqueueOptions, conn: object | None) -> None:
        self._task = task
        self._chosen = chosen
        self._conn = conn
        # A job with these options, complete but for the payload.
        self._model: NewJob | None = None

    @property
    def task(self) -> Task[P, R_co]:
        """The task."""
        return self._task

    @property
    def chosen(self) -> EnqueueOptions:
        """The options without the connection."""
        return self._chosen

    @property
    def conn(self) -> object | None:
        """The connection on which its job is enqueued."""
        return self._conn

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a job with these arguments and the options."""
        return self._task.sender.send([self._made(*args, **kwargs)], conn=self._conn)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """As `enqueue`."""
        job = self._made(*args, **kwargs)
        return (await self._task.sender.asend([job], conn=self._conn))[0]

    @overload
    def job(
        self: TaskCall[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> TypedJob[T]: ...
    @overload
    def job(self: TaskCall[P, T], *args: P.args, **kwargs: P.kwargs) -> TypedJob[T]: ...
    def job(self, *args: Any, **kwargs: Any) -> TypedJob[Any]:
        """A job to be enqueued with others: by `app.enqueue_many`, or in a workflow.

        Raises:
            OptionInvalid: It has a connection. That belongs to the enqueue of all jobs.
        """
        return cast("TypedJob[Any]", self.new_job(*args, **kwargs))

    def new_job(self, *args: Any, **kwargs: Any) -> NewJob:
        """As `job`, for those who know what is in it."""
        if self._conn is not None:
            raise OptionInvalid(
                "conn", "pass it to enqueue_many(jobs, conn=...) or app.workflow(conn=...)"
            )
        return self._made(*args, **kwargs)

    def _made(self, *args: Any, **kwargs: Any) -> NewJob:
        inputs: dict[str, Input] = {}
        payload = self._task.schema.encode(args, kwargs, inputs)
        if self._model is None:
            self._model = self._task.model(payload, self._chosen)
        made = self._task.another(self._model, payload, self._chosen.get("limit_key"))
        return made._replace(inputs=inputs) if inputs else made


def _given(values: Mapping[str, object], *, absent: object) -> EnqueueOptions:
    given = {name: value for name, value in values.items() if value != absent}
    return cast("EnqueueOptions", given)


def _policy_changes(chosen: EnqueueOptions) -> dict[str, int | None]:
    """Return what a job's own options change in the policy of its task."""
    changes = dict[str, int | None]()
    if "keep" in chosen:
        changes["keep"] = options.keep_us(chosen["keep"])
    if "timeout" in chosen:
        changes["timeout"] = timeout_us(chosen["timeout"])
    if "expires" in chosen:
        end = chosen["expires"]
        if isinstance(end, datetime):
            changes |= {"expires": None, "expires_at": to_us(end, option="expires")}
        else:
            changes["expires"] = expires_us(end)
    return changes


def prepare_follow_up(task: Any, payload: dict[str, Any]) -> NewJob:
    """Return the job of `ctx.enqueue_on_success`."""
    if not isinstance(task, Task | TaskCall):
        raise OptionInvalid("task", f"must be a task or task.using(...), not {task!r}")
    sender = (task if isinstance(task, Task) else task._task).sender
    return sender.follow(task.new_job(**payload))


class Instrumentation(Protocol):
    """Wraps every enqueue and every run in a block: for traces, metrics and error reports."""

    def sending(self, jobs: Sequence[NewJob]) -> AbstractContextManager[Sequence[NewJob]]:
        """Return the block around an enqueue. It yields the jobs to be written."""
        ...

    def running(self, lease: Lease) -> AbstractContextManager[object]:
        """Return the block around a run of a handler, which may raise."""
        ...

    def marks(self) -> Mapping[str, object]:
        """Return what a job created now gets in its `meta`."""
        ...


class TaskDecorator(Protocol):
    """The decorator that `@app.task(...)` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


# Takes a task, and returns the function that replaces its own.
Wrap = Callable[[Task[..., Any]], Callable[..., Any]]


class Tasks:
    """A collection of tasks. `app.include(tasks)` adds them to an app."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        self._limits: dict[str, Limit] = {}
        self._wraps: list[Wrap] = []
        self.instrumentations: list[Instrumentation] = []

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = config.MAX_ATTEMPTS_DEFAULT,
        retry: RetryOption = "jitter",
        retry_for: ErrorClasses | None = None,
        no_retry_for: ErrorClasses = (),
        timeout: Duration | None = None,
        keep: Duration | None = config.KEEP_SECONDS_DEFAULT,
        expires: Duration | None = None,
        max_crashes: int = config.MAX_CRASHES_DEFAULT,
        executor: Executor = "auto",
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        limit: Limit | None = None,
    ) -> TaskDecorator: ...
    @_refusing_unknown
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = config.MAX_ATTEMPTS_DEFAULT,
        retry: RetryOption = "jitter",
        retry_for: ErrorClasses | None = None,
        no_retry_for: ErrorClasses = (),
        timeout: Duration | None = None,
        keep: Duration | None = config.KEEP_SECONDS_DEFAULT,
        expires: Duration | None = None,
        max_crashes: int = config.MAX_CRASHES_DEFAULT,
        executor: Executor = "auto",
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        limit: Limit | None = None,
    ) -> Any:
        """Make a function a task. Use it bare (`@app.task`) or with options.

        Args:
            name: The kind of its jobs. The default is the function's own name without its module,
                so that moving a file does not orphan stored jobs.
            queue: The queue of its jobs.
            priority: -100 to 100. Higher runs first.
            max_attempts: How many runs may begin before a job is dead, including the first. 1 means
                at most once: a run that is cut short after it began is dead as `Interrupted`.
            retry: How long to wait after a failure: a name, one of `rowlock.retry`, or a callable
                of (attempt, error).
            retry_for: Retry only after these exceptions, a class or several. None means all.
            no_retry_for: Never retry after these. A run past its limit counts as `TimeoutError`.
            timeout: A run that takes longer fails. None: no limit. A drain stops only coroutines.
            keep: How long to keep a succeeded or cancelled job, a day by default. 0 removes it at
                once, None keeps it forever.
            expires: Cancel a job instead of running it this long after its creation.
            max_crashes: How often a job may crash its process while running in isolation before it
                is dead.
            executor: Where it runs: "async", "thread" or "process". "auto" runs coroutines on the
                event loop and plain functions in threads. A drain runs all in its own process.
            cron: Enqueue it at these times, with the defaults of its parameters. Workers store the
                schedule under the task's name when they start. For arguments, see `app.schedule`.
            every: Enqueue it at this interval instead, in whole seconds or as a timedelta.
            timezone: The time zone of `cron`, an IANA name. UTC by default.
            limit: How many of its jobs may run, and when: `app.limit(...)` or a `rowlock.Limit`.
        """

        def decorate(target: Callable[..., Any]) -> Task[..., Any]:
            check_function(target, has_name=name is not None)
            settings = task_options(
                target,
                name=name,
                queue=queue,
                priority=priority,
                max_attempts=max_attempts,
                retry=retry_rules(retry, retry_for, no_retry_for),
                timeout=timeout,
                keep=keep,
                expires=expires,
                max_crashes=max_crashes,
                executor=executor,
                cron=times_of(cron, every, timezone),
                limit=limit,
            )
            return self._register(_runnable_alone(Task(target, settings)))

        return decorate if function is None else decorate(function)

    def _register(self, task: Task[..., Any]) -> Task[..., Any]:
        known = self._tasks.get(task.name)
        if known is not None and known is not task:
            raise OptionInvalid(
                "name", f"there is already a task {task.name!r}; give one of them another name"
            )
        if known is None:
            self._check_limit(task)
            self._tasks[task.name] = task
            for wrap in self._wraps:
                task.function = wrap(task)
        return task

    def _check_limit(self, task: Task[..., Any]) -> None:
        limit, settings = task.settings.limit, task.settings
        if limit is None:
            return
        limit.give_to(task.name, settings.queue, settings.priority, task.fields)
        self._add_limit(limit)

    def _change_limit(self, name: str, limit: Limit | None) -> None:
        """Give a task another limit, or none, from now on. For shims with late settings."""
        task = self._tasks[name]
        known = task.settings.limit
        if known is not None and known.name is not None:
            self._limits.pop(known.name, None)
        task.settings = replace(task.settings, limit=limit)
        self._check_limit(task)

    def _add_limit(self, limit: Limit) -> None:
        assert limit.name is not None
        known = self._limits.setdefault(limit.name, limit)
        if known is not limit and not known.agrees_with(limit):
            raise OptionInvalid(
                "limit", f"there is another limit {limit.name!r}; give one of them another name"
            )

    @property
    def declared_limits(self) -> Sequence[Limit]:
        """The limits, whether a task has them or not. A starting worker stores them."""
        return [self._limits[name] for name in sorted(self._limits)]

    def surround(self, wrap: Wrap) -> None:
        """Replace the function of every task by `wrap(task)`, now and for tasks added later.

        For instrumentation, and for frameworks that prepare something for each run.
        """
        self._wraps.append(wrap)
        for task in self:
            task.function = wrap(task)

    def follow(self, job: NewJob) -> NewJob:
        """Return a job of `ctx.enqueue_on_success` with the marks of the instrumentation."""
        for instrumentation in self.instrumentations:
            job = job.marked(instrumentation.marks())
        return job

    def _sending(self, jobs: Sequence[NewJob]) -> AbstractContextManager[Sequence[NewJob]]:
        """Return the block around an enqueue. It yields the jobs to be written."""
        return _blocks(self.instrumentations, jobs) if self.instrumentations else nullcontext(jobs)

    def find(self, kind: str) -> Task[..., Any] | None:
        """Return the task of a kind, or None if it is unknown here."""
        return self._tasks.get(kind)

    def nearest(self, kind: str) -> str:
        """Return a hint for an unknown kind: the names most like it."""
        close = suggest.nearest(kind, self._tasks, most=3)
        return f"; did you mean {', '.join(map(repr, close))}?" if close else ""

    def scheduled(self) -> list[tuple[str, NewJob, Cron]]:
        """Return the schedules declared in code, by name. A starting worker stores them."""
        return [
            (task.name, task.new_job(), cron)
            for task in self
            if (cron := task.settings.cron) is not None
        ]

    @property
    def kinds(self) -> list[str]:
        """The names of all tasks."""
        return sorted(self._tasks)

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())


@contextmanager
def _blocks(
    instrumentations: Sequence[Instrumentation], jobs: Sequence[NewJob]
) -> Iterator[Sequence[NewJob]]:
    with ExitStack() as entered:
        # The last one is the outermost, as around a run.
        for instrumentation in reversed(instrumentations):
            jobs = entered.enter_context(instrumentation.sending(jobs))
        yield jobs


def _runnable_alone(task: Task[..., Any]) -> Task[..., Any]:
    """Return the task. Raise if it has a schedule and required parameters."""
    if task.settings.cron is None:
        return task
    required = [
        parameter.name
        for parameter in inspect.signature(task.function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    # Hints are resolved only if needed: a task may name types that are defined below it.
    if required and required != [task.schema.context_parameter]:
        raise OptionInvalid(
            "cron",
            f"task {task.name!r} requires {', '.join(required)}; give them defaults, or use "
            "app.schedule(..., payload=...)",
        )
    return task
