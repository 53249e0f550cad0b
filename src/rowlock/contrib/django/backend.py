"""`RowlockBackend`: the backend for Django's tasks, in Django 6 and the backport `django-tasks`.

1. The kind of a task's jobs is the dotted name of its function. A task is registered when it is
   declared. A kind is looked up there, and never imported by its name.
2. The arguments are the payload: `{"args": […], "kwargs": {…}}`.
3. Everything uses Django's own connection, and so its transactions.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from traceback import format_exception
from types import TracebackType
from typing import Any, ClassVar, Self

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils import timezone
from msgspec.inspect import AnyType

from rowlock import misfits
from rowlock.context import Context
from rowlock.contrib.django import task_policy
from rowlock.contrib.django.project import declare, discover, project_app
from rowlock.contrib.django.tasks_api import (
    BaseTaskBackend,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
    task_finished,
    task_started,
)
from rowlock.errors import OptionInvalid
from rowlock.job import Job, JobError, JobState
from rowlock.task import Task
from rowlock.worker.run import is_last

_STATUSES = {
    JobState.WAITING: TaskResultStatus.READY,
    JobState.SCHEDULED: TaskResultStatus.READY,
    JobState.READY: TaskResultStatus.READY,
    JobState.RETRYING: TaskResultStatus.READY,
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobState.DEAD: TaskResultStatus.FAILED,
    JobState.CANCELLED: TaskResultStatus.FAILED,
}


class RowlockBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs of rowlock.

    `OPTIONS` are `max_attempts`, `retry`, `timeout`, `keep` and `max_crashes`, as in `App.task`.
    For a single task, use `rowlock.contrib.django.policy`.
    """

    supports_defer: ClassVar[bool] = True
    supports_async_task: ClassVar[bool] = True
    supports_get_result: ClassVar[bool] = True
    supports_priority: ClassVar[bool] = True

    # By their dotted names. The last declaration of a name is the one that runs.
    declared: ClassVar[dict[str, Any]] = {}

    def validate_task(self, task: Any) -> None:
        """Validate a task as Django does, and register it."""
        super().validate_task(task)
        path = task.module_path
        known = self.declared.get(path)
        if known is None:
            self.declared[path] = task
            declare(self._task_of(task))
        elif known.func is not task.func:
            self.declared[path] = task

    def _task_of(self, task: Any) -> Task[..., Any]:
        make = _coroutine if inspect.iscoroutinefunction(task.func) else _function
        run = make(type(self), task.module_path)
        settings = task_policy.options_of(
            run,
            function=task.func,
            name=task.module_path,
            queue=task.queue_name,
            defaults=self.options if task_policy.problem_of(self.options) is None else {},
        )
        fields = task_policy.CallFields(task.func, takes_context=task.takes_context)
        return Task(run, settings, fields=fields)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a job, as part of the open transaction, if there is one.

        Raises:
            TypeError: The task's function can't be called with these arguments, or JSON would
                change one of them: a UUID would arrive as text.
            PayloadInvalid: They can't be stored, because of their size or content.
        """
        self.validate_task(task)
        _check_arguments(task, args, kwargs)
        payload = {"args": list(args), "kwargs": dict(kwargs)}
        _check_unchanged(task, payload)
        job = project_app().enqueue(
            task.module_path,
            payload,
            queue=task.queue_name,
            priority=int(task.priority),
            run_at=aware(task.run_after),
        )
        result = result_of(job, task, backend=self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a job, as this transaction sees it.

        Raises:
            TaskResultDoesNotExist: There is no such job of a Django task, or its retention has
                expired.
        """
        try:
            job = project_app().get(result_id)
        except OptionInvalid:
            job = None
        task = None if job is None else self._declared(job)
        if job is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(job, task, backend=self.alias)

    def _declared(self, job: Job) -> Any:
        if job.kind not in self.declared:
            discover()
        return self.declared.get(job.kind)

    def check(self, **_: Any) -> Iterator[CheckMessage]:
        """Return the messages of `manage.py check` for this backend."""
        where = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("rowlock.contrib.django"):
            yield Error(
                f"{where} uses rowlock, which is not installed in this project.",
                hint="Add 'rowlock.contrib.django' to INSTALLED_APPS.",
                id="rowlock.E007",
            )
        if problem := task_policy.problem_of(self.options):
            text, hint = problem
            yield Error(f"{where}['OPTIONS'] {text}.", hint=hint, id="rowlock.E008")


def _check_arguments(task: Any, args: Any, kwargs: Any) -> None:
    """Reject arguments on which the worker could only fail."""
    given = (None, *args) if task.takes_context else args
    try:
        inspect.signature(task.func).bind(*given, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}: {error}") from None


def _check_unchanged(task: Any, payload: dict[str, Any]) -> None:
    """Reject arguments that JSON would change. Django checks this, too, but accepts bytes.

    Django's tasks get their arguments as JSON types, whatever their annotations.
    """
    problem = None
    try:
        normalize_json(payload)
    except (TypeError, ValueError) as error:
        problem = error
    for change in misfits.changes(payload, AnyType(), ""):
        raise TypeError(
            f"{task.module_path}: {change.path}: {change.what} would come back from JSON as "
            f"another type; pass {change.instead}"
        ) from None
    if problem is not None:
        raise problem


def _function(backend: type[RowlockBackend], path: str) -> Any:
    def run(
        ctx: Context, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any:
        with Executing(backend, backend.declared[path], ctx.job) as executing:
            return executing.end(
                executing.task.func(*executing.context, *(args or ()), **(kwargs or {}))
            )

    return run


def _coroutine(backend: type[RowlockBackend], path: str) -> Any:
    async def run(
        ctx: Context, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any:
        with Executing(backend, backend.declared[path], ctx.job) as executing:
            return executing.end(
                await executing.task.func(*executing.context, *(args or ()), **(kwargs or {}))
            )

    return run


class Executing:
    """A context manager around a run. `end` takes the value that the task returned."""

    def __init__(self, backend: type[Any], task: Any, job: Job) -> None:
        self.task = task
        self._backend = backend
        self._job = job
        self._result = result_of(job, task, backend=task.backend)

    @property
    def context(self) -> tuple[Any, ...]:
        """The arguments that come before the function's own."""
        return (TaskContext(task_result=self._result),) if self.task.takes_context else ()

    def __enter__(self) -> Self:
        task_started.send(self._backend, task_result=self._result)
        return self

    def end(self, value: Any) -> Any:
        """Take the returned value. If it can't be stored, the worker only records that."""
        self._set("_return_value", value)
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._finish(TaskResultStatus.SUCCESSFUL)
        elif self._is_last(error):
            trace = "".join(format_exception(error))
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            self._result.errors.append(TaskError(exception_class_path=path, traceback=trace))
            self._finish(TaskResultStatus.FAILED)

    def _is_last(self, error: BaseException) -> bool:
        job = self._job
        return is_last(error, attempt=job.attempt, max_attempts=job.max_attempts)

    def _finish(self, status: Any) -> None:
        self._set("finished_at", timezone.now())
        self._set("status", status)
        task_finished.send(self._backend, task_result=self._result)

    def _set(self, name: str, value: object) -> None:
        # Django's results are frozen for users, not for backends.
        object.__setattr__(self._result, name, value)


def result_of(job: Job, task: Any, *, backend: str) -> Any:
    """Return the result of a job of the declared `task`."""
    result = TaskResult(
        task=_task_of(job, task, backend=backend),
        id=job.id,
        status=_STATUSES[job.state],
        enqueued_at=moment(job.created_at),
        # For earlier attempts, only their errors are known.
        started_at=moment(job.started_at),
        last_attempted_at=moment(job.started_at),
        finished_at=moment(job.finished_at),
        args=job.payload.get("args") or [],
        kwargs=job.payload.get("kwargs") or {},
        backend=backend,
        errors=[_error_of(error) for error in job.errors],
        worker_ids=_workers_of(job),
    )
    object.__setattr__(result, "_return_value", job.result)
    return result


def _task_of(job: Job, task: Any, *, backend: str) -> Any:
    queues = task.get_backend().queues
    return replace(
        task,
        backend=backend,
        priority=job.priority,
        # Jobs stay where they are when the settings change.
        queue_name=job.queue if not queues or job.queue in queues else task.queue_name,
        run_after=moment(job.run_at) if job.state is JobState.SCHEDULED else None,
    )


def _workers_of(job: Job) -> list[str]:
    """Return one entry per attempt, as Django counts them. Only the last name is known."""
    return [job.worker or ""] * job.attempt


def _error_of(error: JobError) -> Any:
    path = error.type
    if "." not in path:
        # A class of Python, or a name of ours for a lost lease or a crash.
        path = f"builtins.{path}" if hasattr(builtins, path) else "rowlock.RowlockError"
    return TaskError(exception_class_path=path, traceback=error.traceback or str(error))


def moment(time: datetime | None) -> datetime | None:
    """Convert a time to this project's form: aware, or naive and local."""
    if time is None or settings.USE_TZ:
        return time
    naive: datetime = timezone.make_naive(time)
    return naive


def aware(time: datetime | None) -> datetime | None:
    """Convert a time of this project to an aware one."""
    if time is None or timezone.is_aware(time):
        return time
    made: datetime = timezone.make_aware(time)
    return made
