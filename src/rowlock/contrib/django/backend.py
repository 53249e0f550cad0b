"""`RowlockBackend`: the backend for Django's tasks, in Django 6 and the backport `django-tasks`.

1. The kind of a task's jobs is the dotted name of its function. A task is registered when it is
   declared. A kind is looked up there, and never imported by its name.
2. The arguments are the payload: `{"args": […], "kwargs": {…}}`.
3. Everything uses Django's own connection, and so its transactions.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from traceback import format_exception
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from msgspec.inspect import AnyType

from rowlock import misfits
from rowlock.context import Context
from rowlock.contrib.django import task_policy
from rowlock.contrib.django.project import INSTALLED_NAME, declare, discover, project_app
from rowlock.contrib.django.settings import aware, moment
from rowlock.contrib.django.tasks_api import (
    BaseTaskBackend,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from rowlock.contrib.django.tasks_api import Task as TaskOfDjango
from rowlock.errors import OptionInvalid
from rowlock.job import Job, JobError, JobState
from rowlock.limits import Fields
from rowlock.store import NewJob
from rowlock.task import EnqueueOptions, Task
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

# In the `meta` of a job: the alias that enqueued it, if `TASKS` has several.
_ALIAS: Final = "django_backend"


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

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        # While there is one, nothing is enqueued. The tasks can be imported, so that
        # `manage.py check` can run, and report it.
        self._problem = task_policy.problem_of(self.options)
        # By their dotted names, with the options of this alias for their jobs.
        self._tasks: dict[str, Task[..., Any]] = {}

    def validate_task(self, task: Any) -> None:
        """Validate a task as Django does, and register it."""
        super().validate_task(task)
        self.register(task)

    def register(self, task: Any) -> None:
        """Make a task known to the project's app, with this backend's options."""
        path = task.module_path
        known = self.declared.get(path)
        if known is None:
            made = self._task_of(task)
            self.declared[path] = task
            declare(made)
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
            defaults=self.options if self._problem is None else {},
        )
        fields = task_policy.CallFields(task.func, takes_context=task.takes_context)
        if settings.cron is not None and fields.required:
            raise OptionInvalid(
                "cron",
                f"task {task.module_path!r} requires {', '.join(fields.required)}; give them "
                "defaults, or use app.schedule(..., payload=...)",
            )
        return Task(run, settings, fields=fields)

    def _with_my_options(self, task: Any) -> Task[..., Any]:
        """Return the task for an enqueue. The app's own has the options of the first alias."""
        app = project_app()
        path = task.module_path
        if path not in self._tasks:
            self._tasks[path] = self._task_of(task)
            self._tasks[path].bind(app)
        return self._tasks[path]

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a job, as part of the open transaction, if there is one.

        Raises:
            TypeError: The arguments do not fit the function's parameters and their annotations, or
                JSON would change one of them: a UUID would arrive as text.
            PayloadInvalid: They can't be stored, because of their size or content.
            ImproperlyConfigured: The backend's `OPTIONS` are invalid.
        """
        return self.send(task, args, kwargs, {})

    def send(self, task: Any, args: Any, kwargs: Any, chosen: EnqueueOptions) -> Any:
        """Enqueue a job with options that Django does not have. See `enqueue`."""
        (job,) = project_app().send([self.job(task, args, kwargs, chosen)], conn=None)
        result = result_of(job, task, backend=self.alias)
        # Another enqueue with the same key has sent it before.
        if job.created:
            task_enqueued.send(type(self), task_result=result)
        return result

    def job(self, task: Any, args: Any, kwargs: Any, chosen: EnqueueOptions) -> NewJob:
        """Return a checked job of a task. See `enqueue`."""
        self.validate_task(task)
        self.check_options()
        known = self._with_my_options(task)
        payload = _checked_payload(task, known.fields, args, kwargs)
        options: EnqueueOptions = {
            "queue": task.queue_name,
            "priority": int(task.priority),
            "run_at": aware(task.run_after),
            **chosen,
        }
        if len(task_backends.settings) > 1:
            options["meta"] = {**(chosen.get("meta") or {}), _ALIAS: self.alias}
        return known.prepare(known.schema.validate(payload), options)

    def check_options(self) -> None:
        """Raise `ImproperlyConfigured` if the backend's `OPTIONS` are invalid."""
        if self._problem is not None:
            text, hint = self._problem
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]['OPTIONS'] {text}. {hint}")

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
        if not apps.is_installed(INSTALLED_NAME):
            yield Error(
                f"{where} uses rowlock, which is not installed in this project.",
                hint=f"Add {INSTALLED_NAME!r} to INSTALLED_APPS.",
                id="rowlock.E007",
            )
        if self._problem is not None:
            text, hint = self._problem
            yield Error(f"{where}['OPTIONS'] {text}.", hint=hint, id="rowlock.E008")


def check_options() -> None:
    """Raise `ImproperlyConfigured` if the `OPTIONS` of any rowlock backend are invalid."""
    for backend in rowlock_backends():
        backend.check_options()


def rowlock_backends() -> list[RowlockBackend]:
    """Return the backends of `TASKS` that are rowlock's."""
    found: list[RowlockBackend] = []
    for alias in task_backends:
        try:
            backend = task_backends[alias]
        except task_backends.exception_class:
            # Another's that can't be imported. Django reports it to those who use it.
            continue
        if isinstance(backend, RowlockBackend):
            found.append(backend)
    return found


def register_imported() -> None:
    """Register the imported tasks that were declared for other backends.

    `task.using(backend=...)` can enqueue them here nevertheless, and a worker must know them.
    """
    for backend in rowlock_backends()[:1]:
        for module in list(sys.modules.values()):
            for value in list(getattr(module, "__dict__", {}).values()):
                # Not `isinstance`: it would evaluate Django's lazy objects.
                if issubclass(type(value), TaskOfDjango):
                    _register_elsewhere(backend, value)


def _register_elsewhere(backend: RowlockBackend, task: Any) -> None:
    if task.module_path not in backend.declared:
        try:
            backend.register(task)
        except OptionInvalid:
            # Nor can it be enqueued here: that raises the same.
            return


def _checked_payload(task: Any, fields: Fields, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the payload of a call. Raise if the worker could only fail on it."""
    assert isinstance(fields, task_policy.CallFields)
    payload = {"args": list(args), "kwargs": dict(kwargs)}
    try:
        fields.bind(payload)
    except TypeError as error:
        raise TypeError(f"{task.module_path}: {error}") from None
    for misfit in fields.misfits(_unchanged(task, payload)):
        raise TypeError(f"{task.module_path}: {misfit}")
    return payload


def _unchanged(task: Any, payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload as JSON. Reject arguments that JSON would change.

    Django checks this, too, but accepts bytes. Its tasks get their arguments as JSON types,
    whatever their annotations.
    """
    problem = None
    normal: dict[str, Any] = {}
    try:
        normal = normalize_json(payload)
    except (TypeError, ValueError) as error:
        problem = error
    for change in misfits.changes(payload, AnyType(), ""):
        raise TypeError(
            f"{task.module_path}: {change.path}: Unsupported type: {change.what} would come back "
            f"from JSON as another type; pass {change.instead}"
        ) from None
    if problem is not None:
        raise problem
    return normal


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
        self._result = result_of(job, task, backend=_alias_of(job, task))

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


def _alias_of(job: Job, task: Any) -> str:
    """Return the alias of the backend that enqueued a job."""
    mine = [backend.alias for backend in rowlock_backends()]
    wanted: str = job.meta.get(_ALIAS, task.backend)
    # The settings may have changed since, or another program has enqueued it by its name.
    return wanted if wanted in mine or not mine else mine[0]


def _queue_of(job: Job, task: Any, *, backend: str) -> str:
    """Return the job's queue, or one that Django accepts if the settings have changed since."""
    queues = task_backends[backend].queues
    if not queues:
        return job.queue
    allowed = [name for name in (job.queue, task.queue_name) if name in queues]
    return allowed[0] if allowed else min(queues)


def _task_of(job: Job, task: Any, *, backend: str) -> Any:
    return replace(
        task,
        backend=backend,
        priority=job.priority,
        queue_name=_queue_of(job, task, backend=backend),
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
