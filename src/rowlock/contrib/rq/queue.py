"""`Queue`: enqueues calls of functions, with RQ's options among their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Never, cast

import msgspec

from rowlock.app import App
from rowlock.clock import duration_us
from rowlock.config import SECOND_US
from rowlock.contrib.compat import Unsupported
from rowlock.contrib.rq.job import (
    DEPENDS_ON,
    DESCRIPTION,
    FAILURE_TTL_DEFAULT,
    RESULT_TTL_DEFAULT,
    RETRY,
    TIMEOUT_DEFAULT,
    Dependency,
    DependsOn,
    Job,
    Retry,
    app_of,
    register,
    shape_of,
)
from rowlock.contrib.rq.registry import (
    CanceledJobRegistry,
    DeferredJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
    jobs_in,
)
from rowlock.job import JobState, Policy, decode_policy
from rowlock.store import NewJob
from rowlock.store.ops.stats import exact_live_counts
from rowlock.store.options import TypedJob
from rowlock.workflow_rules import IfDead

_AT_FRONT_PRIORITY = 100
ADVICE: Final[Mapping[str, str]] = {
    "on_success": "do it at the end of the function",
    "on_failure": "look at dead jobs: app.list(state='dead'), or the events of the HTTP API",
    "on_stopped": "look at cancelled jobs: app.list(state='cancelled')",
    "ttl": "cancel the job yourself, or let the function check the time",
    "repeat": "use a schedule: app.schedule(...)",
    "webhooks": "read the events of the HTTP API",
    "pipeline": "use app.enqueue_many([...])",
    "unique": "use rowlock's key: task.using(key=...)",
}


# Names of RQ's queue that have no meaning here.
_MISSING: Final[Mapping[str, str]] = {
    "create_job": "call queue.enqueue(...)",
    "enqueue_job": "call queue.enqueue(...), or job.requeue()",
    "schedule_job": "call queue.enqueue_at(...)",
    "push_job_id": "call queue.enqueue(...)",
    "pop_job_id": "run a worker, or app.drain()",
    "dequeue_any": "run a worker, or app.drain()",
    "run_sync": "enqueue, and let the test call app.drain()",
    "delete": "call queue.empty(); a queue without jobs is gone",
    "compact": "leave it out: there is nothing to compact",
    "get_job_position": "look at `rowlock jobs why ID`",
    "enqueue_dependents": "leave it out: the store does it when a job ends",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `enqueue`."""

    job_timeout: float | str | None = None
    result_ttl: float | None = None
    failure_ttl: float | None = None
    job_id: str | None = None
    at_front: bool = False
    description: str | None = None
    meta: Mapping[str, Any] | None = None
    retry: Retry | int | None = None
    depends_on: DependsOn | None = None


class Prepared(NamedTuple):
    """A job, and the jobs that it waits for."""

    job: NewJob
    dependency: Dependency | None


class Queue:
    """A queue by its name.

    Args:
        name: Any name.
        connection: The `rowlock.App`.
        default_timeout: Seconds that a job may take. 180 by default, as in RQ.
    """

    def __init__(
        self,
        name: str = "default",
        connection: App | None = None,
        default_timeout: float | str | None = None,
        is_async: bool = True,
        **other: object,
    ) -> None:
        for option, value in other.items():
            if value is not None:
                raise Unsupported(f"Queue({option}=...)", "leave it out")
        if not is_async:
            raise Unsupported("Queue(is_async=False)", "enqueue, and let the test call app.drain()")
        self.name = name
        self.connection: App = app_of(connection)
        self._timeout = TIMEOUT_DEFAULT if default_timeout is None else default_timeout

    def enqueue(self, f: Callable[..., Any] | str, *args: Any, **kwargs: Any) -> Job:
        """Enqueue a call of a function. Its arguments may include RQ's options."""
        return self._enqueue(f, args, kwargs, {})

    def enqueue_in(
        self, time_delta: timedelta, func: Callable[..., Any] | str, *args: Any, **kwargs: Any
    ) -> Job:
        """Enqueue a call to be run after a delay."""
        return self._enqueue(func, args, kwargs, {"delay": time_delta})

    def enqueue_at(
        self, datetime: datetime, f: Callable[..., Any] | str, *args: Any, **kwargs: Any
    ) -> Job:
        """Enqueue a call to be run at a time, which must have a time zone."""
        return self._enqueue(f, args, kwargs, {"run_at": datetime})

    def enqueue_call(
        self,
        func: Callable[..., Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | str | None = None,
        **options: Any,
    ) -> Job:
        """Enqueue a call with its arguments in a tuple and a dict."""
        given = {"args": args, "kwargs": kwargs, "job_timeout": timeout, **options}
        return self._enqueue(func, (), given, {})

    def _enqueue(
        self,
        function: Callable[..., Any] | str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        when: dict[str, Any],
    ) -> Job:
        return self._sent([self._prepared(function, args, kwargs, when)])[0]

    def _sent(self, prepared: Sequence[Prepared]) -> list[Job]:
        """Enqueue jobs in one transaction. If one waits for others, they are a workflow."""
        app = self.connection
        if not any(each.dependency for each in prepared):
            jobs = app.send([each.job for each in prepared], conn=None)
            return [Job(job, connection=app) for job in jobs]
        ids: list[str] = []
        with app.workflow(self.name) as flow:
            for job, dependency in prepared:
                if job.is_resend:
                    raise Unsupported(
                        "enqueue(job_id=..., depends_on=...)",
                        "leave job_id out, and keep the id of the job that enqueue returns",
                    )
                node = cast("TypedJob[Any]", job)
                if dependency is None:
                    ids.append(flow.add(node).id)
                else:
                    if_dead: IfDead = "run" if dependency.allow_failure else "wait"
                    after = dependency.known_to(app)
                    ids.append(flow.add(node, after=after, if_dead=if_dead).id)
        return [Job.fetch(id, connection=app) for id in ids]

    def _prepared(
        self,
        function: Callable[..., Any] | str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        when: dict[str, Any],
    ) -> Prepared:
        options, args, kwargs = _parse(args, kwargs)
        app = self.connection
        task = app.find(function) if isinstance(function, str) else register(app, function)
        if task is None:
            raise Unsupported(
                f"a function by its path, {function!r}, that is not registered here",
                "import it, and pass the function itself; names are never imported",
            )
        retry = Retry(options.retry) if isinstance(options.retry, int) else options.retry
        dependency = Dependency.of(options.depends_on)
        call = task.using(
            queue=self.name,
            id=options.job_id,
            priority=_AT_FRONT_PRIORITY if options.at_front else None,
            max_attempts=1 if retry is None else retry.max + 1,
            meta=_meta_of(options, retry, dependency),
            **when,
        )
        by_place, named = shape_of(task).named(args, kwargs)
        new = call.new_job(*by_place, **named)
        policy = _policy_of(decode_policy(new.policy), options, timeout=self._timeout)
        return Prepared(new._replace(policy=policy.encoded()), dependency)

    @staticmethod
    def prepare_data(
        func: Callable[..., Any] | str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        timeout: float | str | None = None,
        **options: Any,
    ) -> PreparedCall:
        """Return a call for `enqueue_many`, with the options of `enqueue`."""
        return PreparedCall(func, tuple(args or ()), dict(kwargs or {}), timeout, options)

    def enqueue_many(
        self, job_datas: Iterable[PreparedCall], pipeline: None = None, group_id: None = None
    ) -> list[Job]:
        """Enqueue many calls in one transaction, all or none."""
        if pipeline is not None or group_id is not None:
            raise Unsupported("enqueue_many(pipeline=..., group_id=...)", "leave it out")
        made = [
            self._prepared(
                each.func,
                (),
                {
                    "args": each.args,
                    "kwargs": each.kwargs,
                    "job_timeout": each.timeout,
                    **each.options,
                },
                {},
            )
            for each in job_datas
        ]
        return self._sent(made)

    def get_job_ids(self, offset: int = 0, length: int = -1) -> list[str]:
        """Return the ids of the ready jobs in their order. At most 10,000 may be ready."""
        ready = jobs_in(self.connection, self.name, JobState.READY, chosen=lambda _: True)
        ids = [job.id for job in ready]
        return ids[offset:] if length < 0 else ids[offset : offset + length]

    @property
    def job_ids(self) -> list[str]:
        """The ids of the ready jobs in their order."""
        return self.get_job_ids()

    def get_jobs(self, offset: int = 0, length: int = -1) -> list[Job]:
        """Return the ready jobs in their order."""
        found = Job.fetch_many(self.get_job_ids(offset, length), connection=self.connection)
        return [job for job in found if job is not None]

    @property
    def jobs(self) -> list[Job]:
        """The ready jobs in their order."""
        return self.get_jobs()

    def empty(self) -> int:
        """Delete the ready jobs. Return how many there were."""
        return self.connection.bulk("delete", JobState.READY, queue=self.name).done

    def remove(self, job_or_id: Job | str, pipeline: None = None) -> None:
        """Cancel a waiting job."""
        self.connection.cancel(job_or_id if isinstance(job_or_id, str) else job_or_id.id)

    @classmethod
    def all(cls, connection: App | None = None, **_: object) -> list[Queue]:
        """Return the queues that have jobs."""
        app = app_of(connection)
        return [cls(each.queue, connection=app) for each in app.stats()]

    @property
    def started_job_registry(self) -> StartedJobRegistry:
        """The jobs that run."""
        return StartedJobRegistry(queue=self)

    @property
    def finished_job_registry(self) -> FinishedJobRegistry:
        """The jobs that have succeeded, and are kept."""
        return FinishedJobRegistry(queue=self)

    @property
    def failed_job_registry(self) -> FailedJobRegistry:
        """The jobs that have failed for good."""
        return FailedJobRegistry(queue=self)

    @property
    def scheduled_job_registry(self) -> ScheduledJobRegistry:
        """The jobs that wait for their time, or for a retry."""
        return ScheduledJobRegistry(queue=self)

    @property
    def deferred_job_registry(self) -> DeferredJobRegistry:
        """The jobs that wait for others."""
        return DeferredJobRegistry(queue=self)

    @property
    def canceled_job_registry(self) -> CanceledJobRegistry:
        """The jobs that were cancelled."""
        return CanceledJobRegistry(queue=self)

    def fetch_job(self, job_id: str) -> Job | None:
        """Return a job of this queue by its id."""
        found = self.connection.get(job_id)
        if found is None or found.queue != self.name:
            return None
        return Job(found, connection=self.connection)

    @property
    def count(self) -> int:
        """The number of ready jobs, without those scheduled for later."""
        ready = self.connection.stats([self.name])[0].counts[JobState.READY]
        if ready.exact:
            return ready.value
        return self.connection.store.run(exact_live_counts()).get((self.name, JobState.READY), 0)

    def __len__(self) -> int:
        return self.count

    def is_empty(self) -> bool:
        """Return whether no job is ready."""
        return self.count == 0

    def __getattr__(self, name: str) -> Never:
        if name in _MISSING:
            raise Unsupported(f"queue.{name}", _MISSING[name])
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and other.name == self.name

    def __lt__(self, other: Queue) -> bool:
        return self.name < other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return f"<Queue {self.name}>"

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call for `enqueue_many`, as `prepare_data` returns it."""

    func: Callable[..., Any] | str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    timeout: float | str | None
    options: dict[str, Any]


def _parse(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Options, Sequence[Any], dict[str, Any]]:
    """Separate RQ's options from the function's own arguments."""
    for option, instead in ADVICE.items():
        if kwargs.get(option):
            raise Unsupported(f"enqueue({option}=...)", instead)
    rest = {name: each for name, each in kwargs.items() if name not in ADVICE}
    known = Options.__dataclass_fields__
    options = Options(**{name: rest.pop(name) for name in list(rest) if name in known})
    if "args" in rest or "kwargs" in rest:
        assert not args, "pass either args=, or arguments by position"
        args, rest = rest.get("args") or (), dict(rest.get("kwargs") or {})
    return options, args, rest


def _meta_of(
    options: Options, retry: Retry | None, dependency: Dependency | None
) -> dict[str, Any]:
    meta = dict(options.meta or {})
    if options.description is not None:
        meta[DESCRIPTION] = options.description
    if retry is not None:
        meta[RETRY] = {"max": retry.max, "intervals": retry.intervals}
    if dependency is not None:
        meta[DEPENDS_ON] = dependency.ids
    return meta


def _policy_of(policy: Policy, options: Options, *, timeout: float | str) -> Policy:
    seconds = _seconds(timeout if options.job_timeout is None else options.job_timeout)
    kept = RESULT_TTL_DEFAULT if options.result_ttl is None else options.result_ttl
    failed = FAILURE_TTL_DEFAULT if options.failure_ttl is None else options.failure_ttl
    return msgspec.structs.replace(
        policy,
        timeout=None if seconds < 0 else duration_us(seconds, option="job_timeout"),
        keep=_ttl_us(kept),
        keep_dead=_ttl_us(failed),
    )


def _ttl_us(seconds: float) -> int | None:
    """Convert a ttl. As in RQ, -1 means forever."""
    return None if seconds < 0 else round(seconds * SECOND_US)


def _seconds(timeout: float | str) -> float:
    """Convert a timeout as RQ does: 180, "180", "3m", "1h", "1d"."""
    if not isinstance(timeout, str):
        return timeout
    unit = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}.get(timeout[-1:].lower())
    return float(timeout) if unit is None else float(timeout[:-1]) * unit
