"""`app.drain`, `app.worker` and `app.schedule`: the parts of the app that run and schedule jobs.

What they need is imported when they are first called: a program that only enqueues does without,
and its import costs a seventh less.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowlock import config
from rowlock.store import Store, options
from rowlock.task import Tasks, prepare_follow_up
from rowlock.worker.hooks import F, WorkerHooks
from rowlock.worker.settings import WorkerSettings, worker_settings

if TYPE_CHECKING:
    from rowlock.worker.drain import Drain
    from rowlock.worker.embedded import EmbeddedWorker
    from rowlock.worker.instrumentation import Middleware


from typing import Literal

from rowlock.cron import Cron, parse_times
from rowlock.errors import OptionInvalid, shown
from rowlock.schedule import Schedule
from rowlock.store import NewJob
from rowlock.store.ops.schedule import NewSchedule, new_schedule
from rowlock.task import EnqueueOptions, Task, TaskCall


class WorkerCalls(Tasks, ABC):
    """The calls of `App` that run jobs in this process."""

    store: Store
    state: Any
    worker_hooks: WorkerHooks

    @abstractmethod
    async def aclose(self) -> None:
        """Close the store."""

    def on_worker_start(self, function: F) -> F:
        """Call a function in each process that runs jobs, before the first job. A decorator.

        A coroutine function runs on the loop that runs the jobs. A plain function is called before
        it. If one fails, the worker ends. A drain calls none.

        Example:
            @app.on_worker_start
            async def warm_up() -> None: ...
        """
        return self.worker_hooks.add_start(function)

    def on_worker_stop(self, function: F) -> F:
        """Call a function in each process that ran jobs, after the last job. A decorator.

        Those declared last are called first. One that fails is logged. None is called if the
        process is killed, or if a plain function of a job does not stop within the grace.
        """
        return self.worker_hooks.add_stop(function)

    def lifespan(self, function: F) -> F:
        """Run the jobs of each process inside this generator or async generator. A decorator.

        What it yields is `ctx.state`, instead of the app's `state`, unless it yields None. It is
        entered after the plain start hooks and before the coroutines. An app has one.

        Example:
            @app.lifespan
            async def pools() -> AsyncIterator[Pool]:
                async with open_pool() as pool:
                    yield pool
        """
        return self.worker_hooks.set_lifespan(function)

    def add_middleware(self, middleware: Middleware) -> None:
        """Call a `rowlock.Middleware` around every run of every task, now and later ones.

        The one that is added last is the outermost. Add it in the app's module, so that every
        process has it.
        """
        from rowlock.worker.instrumentation import Middleware, add_middleware

        if not isinstance(middleware, Middleware):
            problem = f"must be an instance of a rowlock.Middleware, not {shown(middleware)}"
            raise OptionInvalid("middleware", problem)
        add_middleware(self, middleware)

    def drain(self, queues: Sequence[str] | None = None, *, limit: int | None = None) -> int:
        """Run what is ready in this process and return how many runs that were.

        For tests and scripts; a job that waits for its time or a retry is left.

        Args:
            queues: Only these. None: all.
            limit: Run at most this many jobs. None: until none is ready.

        Raises:
            RuntimeError: An event loop runs in this thread. Use `adrain` there.
        """
        _refuse_loop("drain()", "await app.adrain()")
        return self._drain(queues, limit).run()

    async def adrain(self, queues: Sequence[str] | None = None, *, limit: int | None = None) -> int:
        """As `drain`, with plain functions in a thread."""
        return await self._drain(queues, limit).arun()

    def _drain(self, queues: Sequence[str] | None, limit: int | None) -> Drain:
        from rowlock.worker.drain import Drain, DrainRequest

        if limit is not None:
            options.integer(limit, option="limit", low=0, high=config.ENQUEUE_MANY_MAX)
        request = DrainRequest(options.names(queues, option="queues"), limit)
        return Drain(self.store, self, state=self.state, prepare=prepare_follow_up, request=request)

    @asynccontextmanager
    async def worker(
        self,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        *,
        concurrency: int = config.WORKER_CONCURRENCY_DEFAULT,
        lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
        grace: float | timedelta = config.WORKER_GRACE_SECONDS_DEFAULT,
    ) -> AsyncIterator[EmbeddedWorker]:
        """Run jobs on this loop for as long as the block lasts: for a server's lifespan.

        It lacks the protection of `rowlock worker`: a handler that crashes its process crashes
        this one, and one that holds the GIL for longer than a lease loses the lease. A plain
        function that takes longer than the grace period continues after the block, and its outcome
        is stored when it ends.

        Args:
            queues: Only these; a mapping gives each its own number of slots. None: all.
            concurrency: How many jobs run at once.
            lease: How long a job is held without a heartbeat.
            grace: How long running jobs may continue when the block ends.
        """
        settings = worker_settings(queues=queues, concurrency=concurrency, lease=lease, grace=grace)
        async with (
            self.worker_hooks.around(self.state) as state,
            self._embedded(settings, state).serving() as worker,
        ):
            yield worker

    def run_worker(
        self,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        *,
        concurrency: int = config.WORKER_CONCURRENCY_DEFAULT,
        lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
        grace: float | timedelta = config.WORKER_GRACE_SECONDS_DEFAULT,
    ) -> None:
        """Run jobs in this process until SIGTERM or Ctrl-C: `worker` as a blocking call."""
        _refuse_loop("run_worker()", "async with app.worker()")
        settings = worker_settings(queues=queues, concurrency=concurrency, lease=lease, grace=grace)
        asyncio.run(self._serve(settings))

    async def _serve(self, settings: WorkerSettings) -> None:
        try:
            async with self.worker_hooks.around(self.state) as state:
                await self._embedded(settings, state).run_until_signalled()
        finally:
            await self.aclose()

    def _embedded(self, settings: WorkerSettings, state: Any) -> EmbeddedWorker:
        from rowlock.worker.embedded import EmbeddedWorker

        return EmbeddedWorker(
            self.store, self, state=state, prepare=prepare_follow_up, settings=settings
        )


def _refuse_loop(call: str, instead: str) -> None:
    """Raise if this thread runs an event loop: a blocking call would need a second one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{call} can't run inside an event loop: use `{instead}` there")


class ScheduleCalls(ABC):
    """The calls of `App` that are about schedules."""

    store: Store

    @abstractmethod
    def _prepare(
        self, kind: str, payload: Mapping[str, object] | None, chosen: EnqueueOptions
    ) -> NewJob:
        """A checked job from a kind's name, a payload and options."""

    def schedule(
        self,
        name: str,
        task: Task[..., Any] | TaskCall[..., Any] | str,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = "UTC",
        payload: Mapping[str, object] | None = None,
        missed: Literal["skip", "once", "all"] = "skip",
    ) -> Schedule:
        """Enqueue a task at the times of a cron expression or at an interval, from now on.

        The same name again replaces the schedule. Its next time stays, unless `cron`, `every` or
        `timezone` are others; so it can be called at every start of a program.

        Args:
            name: Any name; unique in the database.
            task: A task, `task.using(...)` for options of its jobs, or a kind by its name.
            cron: Minute, hour, day of month, month, day of week; or six fields with seconds first;
                or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
            every: An interval instead of `cron`, whole seconds or a timedelta. The ticks are
                multiples of it since 1970, so that restarts don't shift them.
            timezone: An IANA name, such as "Europe/Berlin".
            payload: The arguments of each job.
            missed: What to do about ticks that were missed while no scheduler ran. "skip" ignores
                those more than five minutes old. "once" runs one job for all of them, "all" one for
                each of the last 100.

        Example:
            app.schedule("nightly", report, cron="30 2 * * *", timezone="Europe/Berlin")
        """
        times = parse_times(cron, every, timezone=timezone)
        job = self._scheduled_job(task, payload)
        return self.store.put_schedule(_new(name, job, times, missed=missed))

    async def aschedule(
        self,
        name: str,
        task: Task[..., Any] | TaskCall[..., Any] | str,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        timezone: str = "UTC",
        payload: Mapping[str, object] | None = None,
        missed: Literal["skip", "once", "all"] = "skip",
    ) -> Schedule:
        """As `schedule`."""
        times = parse_times(cron, every, timezone=timezone)
        job = self._scheduled_job(task, payload)
        return await self.store.aput_schedule(_new(name, job, times, missed=missed))

    def _scheduled_job(
        self, task: Task[..., Any] | TaskCall[..., Any] | str, payload: Mapping[str, object] | None
    ) -> NewJob:
        match task:
            case str():
                return self._prepare(task, payload, {})
            case Task():
                return _job_of(task, payload, {})
            case TaskCall():
                if task.conn is not None:
                    raise OptionInvalid("task", "conn is for a single job, not for a schedule")
                return _job_of(task.task, payload, task.chosen)
            case _:
                raise OptionInvalid("task", f"must be a task or a kind, not {task!r}")


def _job_of(
    task: Task[..., Any], payload: Mapping[str, object] | None, chosen: EnqueueOptions
) -> NewJob:
    # Not by a call: a payload may have names that a call can't, such as `self`.
    return task.prepare(task.schema.validate({} if payload is None else payload), chosen)


def _new(name: str, job: NewJob, times: Cron, *, missed: str) -> NewSchedule:
    return new_schedule(name, job, cron=times.text, timezone=times.timezone, missed=missed)
