"""`Celery`: rowlock's queue with the calls of Celery's application, and its settings (`conf`)."""

from __future__ import annotations

import importlib
import importlib.util
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from types import ModuleType
from typing import Any, Never, cast
from zoneinfo import ZoneInfo

from rowlock.app import App
from rowlock.contrib.celery.result import AsyncResult
from rowlock.contrib.celery.schedules import expression_of
from rowlock.contrib.celery.task import (
    CeleryTaskOptions,
    Signature,
    Task,
    check_call,
    delay_of,
    limit_of,
    using_of,
)
from rowlock.contrib.compat import Unsupported
from rowlock.cron import Cron, parse_cron
from rowlock.store import NewJob
from rowlock.task import Executor
from rowlock.task import Task as RowlockTask

# Settings that tune a broker, a backend or a pool, which don't exist here.
_NEEDLESS = frozenset(
    {
        "result_backend", "result_expires", "result_extended", "result_persistent",
        "task_track_started", "task_reject_on_worker_lost", "task_ignore_result", "task_protocol",
        "task_create_missing_queues", "task_publish_retry", "task_send_sent_event",
        "worker_concurrency", "worker_prefetch_multiplier", "worker_max_tasks_per_child",
        "worker_max_memory_per_child", "worker_send_task_events", "worker_pool",
        "worker_hijack_root_logger", "worker_cancel_long_running_tasks_on_connection_loss",
        "broker_connection_retry", "broker_connection_retry_on_startup", "broker_pool_limit",
        "broker_connection_max_retries", "broker_transport_options", "broker_heartbeat",
        "beat_scheduler", "beat_max_loop_interval",
    }
)  # fmt: skip
# Settings with only one possible value here.
_FIXED: dict[str, tuple[Any, ...]] = {
    "task_serializer": ("json",),
    "result_serializer": ("json",),
    "event_serializer": ("json",),
    "accept_content": (["json"], ("json",), {"json"}, ["application/json"]),
    "enable_utc": (True,),
    "task_acks_late": (True,),
}
_ADVICE = {
    "task_always_eager": "enqueue, and let the test call app.drain()",
    "task_eager_propagates": "enqueue, and let the test call app.drain()",
    "task_acks_late": "leave it out: a job is always acknowledged after it has ended",
    "task_routes": "set the queue of each task: @app.task(queue=...)",
    "task_queues": "leave it out: any name is a queue; name a worker's with rowlock worker -q",
    "task_time_limit": "set it on the tasks: @app.task(time_limit=...)",
    "task_soft_time_limit": "use time_limit on the tasks",
    "task_annotations": "set the options on the tasks themselves",
}

# As in Celery, shared tasks belong to every app of the process, including later ones, and enqueue
# to the one that was created last.
_shared: list[Task] = []
_apps: weakref.WeakValueDictionary[int, Celery] = weakref.WeakValueDictionary()
_numbers = count()


class Celery(App):
    """A `rowlock.App` with Celery's calls.

    Args:
        main: Replaces `__main__` in the names of tasks.
        broker: The database: `sqlite:///FILE` or `postgresql://…`. Default:
            `ROWLOCK_DATABASE_URL`. Celery's brokers are rejected.
        backend: Ignored, because results are stored with their jobs.
        include: Modules with tasks, imported at once.

    Example:
        app = Celery("shop", broker="postgresql://…")

        @app.task(bind=True, max_retries=5)
        def send(self, to): ...
    """

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Sequence[str] = (),
    ) -> None:
        check_broker(broker)
        super().__init__(broker)
        self.main = main
        self.conf: Settings = Settings(self._use_default_rate)
        self.control: Control = Control(self)
        self.on_after_configure: Hook = Hook()
        self.on_after_finalize: Hook = self.on_after_configure
        self._queueless: set[str] = set()
        self._rateless: set[str] = set()
        _apps[next(_numbers)] = self
        for task in _shared:
            task.adopt(self)
        for name in include:
            importlib.import_module(name)

    # Tasks

    def task(  # type: ignore[override]  # as Celery's, not as an app's
        self, *args: Callable[..., Any], **options: Any
    ) -> Any:
        """Make a function a task. Use it bare (`@app.task`) or with Celery's options."""
        return _decorator(args, options, self._adopt)

    def _adopt(self, task: Task) -> Task:
        task.adopt(self)
        return task

    def add_handler(self, handler: Callable[..., Any], task: Task) -> RowlockTask[..., Any]:
        """Register the function that runs a task's jobs. Tasks call this."""
        options = task.options
        if not options.get("queue"):
            self._queueless.add(task.name)
        rate = options.get("rate_limit")
        if rate is None:
            self._rateless.add(task.name)
            rate = self.conf.task_default_rate_limit
        decorate = super().task(
            name=task.name,
            queue=options.get("queue") or self.conf.task_default_queue,
            priority=options.get("priority", 0),
            max_attempts=task.attempts_max,
            retry=delay_of,
            timeout=options.get("time_limit"),
            limit=limit_of(rate),
            executor=cast("Executor", options.get("executor", "auto")),
        )
        return decorate(handler)

    def _use_default_rate(self, rate: str | float | None) -> None:
        """Limit each task that has no rate of its own. Settings may come after the tasks."""
        limit_of(rate)
        for name in self._rateless:
            self._change_limit(name, limit_of(rate))

    def autodiscover_tasks(
        self, packages: Iterable[str] | None = None, related_name: str = "tasks", **_: Any
    ) -> None:
        """Import the module `tasks` of each of these packages that has one, at once."""
        if packages is None:
            raise Unsupported("autodiscover_tasks() without packages", "name the packages")
        for package in packages() if callable(packages) else packages:
            name = f"{package}.{related_name}"
            if importlib.util.find_spec(name) is not None:
                importlib.import_module(name)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a task by its name, which only the worker needs to know."""
        chosen = self.using_of(name, options)
        known = self.find(name)
        if known is not None:
            job = known.using(**chosen).enqueue(*(args or ()), **(kwargs or {}))
            return AsyncResult(job.id, app=self)
        if args:
            raise Unsupported(
                f"send_task({name!r}) with arguments by position",
                "pass them in kwargs: their names are unknown here",
            )
        given = {option: value for option, value in chosen.items() if value is not None}
        return AsyncResult(self.enqueue(name, kwargs, **given).id, app=self)

    def AsyncResult(self, id: str) -> AsyncResult:  # noqa: N802  # Celery's name for it
        """Return a job by its id."""
        return AsyncResult(id, app=self)

    def config_from_object(self, source: Any, namespace: str | None = None, **_: Any) -> None:
        """Read settings from an object, or from a module by its name."""
        found = importlib.import_module(source) if isinstance(source, str) else source
        values = found if isinstance(found, Mapping) else vars(found)
        self.conf.update(_settings_in(values, namespace))

    def worker_main(self, argv: Sequence[str] | None = None) -> Never:
        """Not supported."""
        raise Unsupported("worker_main()", "run `rowlock --app module:app worker`")

    start = worker_main

    # Schedules

    def add_periodic_task(
        self, schedule: object, sig: Signature, *, name: str | None = None, **options: Any
    ) -> str:
        """Add an entry to `beat_schedule`, and return its name."""
        name = name or repr((sig.task.name, sig.args, dict(sig.kwargs)))
        entry = {"task": sig.task.name, "schedule": schedule, "args": sig.args}
        chosen = {**sig.options, **options}
        self.conf.beat_schedule[name] = {**entry, "kwargs": sig.kwargs, "options": chosen}
        return name

    def scheduled(self) -> list[tuple[str, NewJob, Cron]]:
        """Return the schedules of every app, and the entries of `beat_schedule`."""
        self.on_after_configure.send(self)
        entries = self.conf.beat_schedule.items()
        return super().scheduled() + [self._entry(name, entry) for name, entry in entries]

    def _entry(self, name: str, entry: Mapping[str, Any]) -> tuple[str, NewJob, Cron]:
        options = dict(entry.get("options") or {})
        for option in ("expires", "eta", "countdown", "task_id"):
            if options.get(option) is not None:
                raise Unsupported(f"beat_schedule[{name!r}] {option}=", "leave it out")
        task = self.find(entry["task"])
        if task is None:
            raise Unsupported(
                f"beat_schedule[{name!r}] with a task unknown to this app",
                f"import {entry['task']!r} where the worker loads the app",
            )
        call = task.using(**self.using_of(task.name, options))
        job = call.new_job(*entry.get("args", ()), **entry.get("kwargs", {}))
        cron = parse_cron(expression_of(entry["schedule"]), timezone=self.conf.timezone or "UTC")
        return name, job, cron

    def using_of(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the options of a call to those of `Task.using`. Tasks call this.

        The default queue is read now, because settings may come after the tasks.
        """
        using = using_of(check_call(options), aware=self.aware)
        if using["queue"] is None and (name in self._queueless or self.find(name) is None):
            using["queue"] = self.conf.task_default_queue
        return using

    def aware(self, moment: datetime) -> datetime:
        """Convert a time of Celery's: a naive one is in the app's time zone."""
        if moment.tzinfo is not None:
            return moment
        return moment.replace(tzinfo=ZoneInfo(self.conf.timezone or "UTC")).astimezone(UTC)


class Control:
    """`app.control`: the supported commands to workers."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def revoke(self, task_id: str | Sequence[str], terminate: bool = False, **_: Any) -> None:
        """Cancel a job, or several."""
        for id in [task_id] if isinstance(task_id, str) else task_id:
            self._app.cancel(id)

    def __getattr__(self, name: str) -> Never:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(f"control.{name}", "use app.workers(), app.stats() or `rowlock top`")


class Hook:
    """`app.on_after_configure`: functions that add periodic tasks, each called once."""

    def __init__(self) -> None:
        self._functions: list[Callable[..., Any]] = []

    def connect(self, function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        """Register a function to call before schedules are stored."""
        self._functions.append(function)
        return function

    def send(self, app: Celery) -> None:
        """Call the functions with the app."""
        functions, self._functions = self._functions, []
        for function in functions:
            function(sender=app)


def shared_task(*args: Callable[..., Any], **options: Any) -> Any:
    """Make a function a task of every app of this process. Use it bare or with options."""

    def share(task: Task) -> Task:
        _shared.append(task)
        for app in list(_apps.values()):
            task.adopt(app)
        return task

    return _decorator(args, options, share)


def _decorator(
    args: Sequence[Callable[..., Any]], options: Any, keep: Callable[[Task], Task]
) -> Any:
    def decorate(function: Callable[..., Any]) -> Task:
        return keep(Task(function, cast("CeleryTaskOptions", options)))

    return decorate(*args) if args else decorate


def _settings_in(values: Mapping[str, Any], namespace: str | None) -> dict[str, Any]:
    """Return the settings: CELERY_TIMEZONE with a namespace, timezone without."""
    prefix = f"{namespace}_" if namespace else ""
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in values.items()
        if name.startswith(prefix)
        and (name.isupper() if prefix else name.islower() and not name.startswith("_"))
        # Imports of a module are not settings.
        and not callable(value)
        and not isinstance(value, ModuleType)
    }


class Settings:
    """Settings as attributes and items. One that would change behaviour, but can't, is rejected."""

    beat_schedule: dict[str, Mapping[str, Any]]
    timezone: str | None
    task_default_queue: str
    task_default_rate_limit: str | float | None

    def __init__(self, on_rate: Callable[[str | float | None], None]) -> None:
        # Celery's default queue is "celery". Here it is rowlock's, which every worker serves.
        self.__dict__.update({"beat_schedule": {}, "timezone": None})
        self.__dict__.update(task_default_queue="default", task_default_rate_limit=None)
        self.__dict__["_on_rate"] = on_rate

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("beat_schedule", "timezone", "task_default_queue"):
            self.__dict__[name] = dict(value) if name == "beat_schedule" else value
        elif name == "task_default_rate_limit":
            self.__dict__["_on_rate"](value)
            self.__dict__[name] = value
        elif name in ("broker_url", "broker_read_url", "broker_write_url"):
            check_broker(value)
        elif name not in _NEEDLESS and value not in _FIXED.get(name, ()):
            instead = _ADVICE.get(name, "leave it out; payloads and results are JSON")
            raise Unsupported(f"conf.{name} = {value!r:.100}", instead)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def update(self, *mappings: Mapping[str, Any], **values: Any) -> None:
        """Set several settings."""
        for mapping in (*mappings, values):
            for name, value in mapping.items():
                setattr(self, name, value)


def check_broker(url: str | None) -> None:
    """Raise `Unsupported` for a broker that is not a database, without showing its password."""
    if url is not None and url.partition(":")[0] not in ("sqlite", "postgresql", "postgres"):
        raise Unsupported(
            f"a broker at {url.partition(':')[0]}://",
            "pass the database (sqlite:///FILE or postgresql://…), or leave it out and set "
            "ROWLOCK_DATABASE_URL",
        )
