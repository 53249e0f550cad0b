"""`Celery`: rowlock's queue with the calls of Celery's application.

As in Celery, much is lazy, so that a project's modules can import each other: settings by the name
of a module, `include` and `autodiscover_tasks` are read when a worker, a command or a drain loads
the app (`load_tasks`), and settings also when a job is first enqueued.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Never, cast
from zoneinfo import ZoneInfo

import msgspec

from rowlock.app import DATABASE_URL_VARIABLE, App
from rowlock.clock import SystemClock, duration_us, from_us
from rowlock.contrib.celery import fixups, signals
from rowlock.contrib.celery.app.calls import Call, check_call, eta_of, headers_of, options_of
from rowlock.contrib.celery.app.compose import BUILTINS, start
from rowlock.contrib.celery.app.control import Control
from rowlock.contrib.celery.app.task import Task as CeleryTask
from rowlock.contrib.celery.app.task import (
    annotate,
    check_annotations,
    delay_of,
    limit_of,
    task_of,
)
from rowlock.contrib.celery.app.trace import CanvasSchema, run_job
from rowlock.contrib.celery.exceptions import NotRegistered
from rowlock.contrib.celery.local import add_app, known_apps, the_task
from rowlock.contrib.celery.result import AsyncResult, GroupResult, ResultSet
from rowlock.contrib.celery.routes import Router
from rowlock.contrib.celery.schedules import expression_of
from rowlock.contrib.celery.settings import DEFAULTS, Settings, read_object
from rowlock.contrib.celery.signatures import LINKS, Signature, signature
from rowlock.contrib.celery.utils.log import task_logger
from rowlock.contrib.compat import Unsupported, loosen
from rowlock.cron import Cron, parse_cron
from rowlock.ids import new_id
from rowlock.job import decode_policy
from rowlock.store import NewJob, options
from rowlock.store.options import TypedJob
from rowlock.task import Task as RowlockTask
from rowlock.task_options import Executor

if TYPE_CHECKING:
    from rowlock.worker.drain import Drain

logger: logging.Logger = logging.getLogger("rowlock.contrib.celery")

# Parts of Celery's application that don't exist here.
_MISSING: Final[Mapping[str, str]] = {
    "canvas": "import chain, group and chord",
    "amqp": "leave it out: there is no broker",
    "connection": "leave it out: there is no broker",
    "connection_for_read": "leave it out: there is no broker",
    "connection_for_write": "leave it out: there is no broker",
    "connection_or_acquire": "leave it out: there is no broker",
    "broker_connection": "leave it out: there is no broker",
    "producer_pool": "leave it out: there is no broker",
    "producer_or_acquire": "leave it out: there is no broker",
    "pool": "leave it out: there is no broker",
    "backend": "results are stored with their jobs; read them with AsyncResult",
    "events": "read the events of the HTTP API, or connect a signal in the worker",
    "Worker": "run `rowlock --app module:app worker`",
    "WorkController": "run `rowlock --app module:app worker`",
    "Beat": "every worker is a scheduler",
    "on_after_fork": "connect signals.worker_process_init",
    "on_init": "do it after Celery(...)",
    "steps": "connect signals.worker_process_init",
    "user_options": "read your own options from the environment",
    "loader": "call app.load_tasks() to import the modules with tasks",
    "log": "connect signals.setup_logging",
    "bugreport": "run `rowlock doctor`",
    "setup_security": "leave it out: only who can write to the database can enqueue",
    "select_queues": "start workers with `rowlock worker -q`",
}

# As in Celery, shared tasks belong to every app of the process, including later ones, and enqueue
# to the one that was created last.
_shared: list[CeleryTask] = []


class Celery(App):
    """A `rowlock.App` with Celery's calls.

    Args:
        main: Replaces `__main__` in the names of tasks.
        broker: The database: `sqlite:///FILE` or `postgresql://…`. Default:
            `ROWLOCK_DATABASE_URL`. Without that variable, Celery's brokers are rejected.
        backend: Ignored, because results are stored with their jobs.
        include: Modules with tasks, imported when a worker loads the app.
        task_cls: The class of tasks without a `base` of their own, or its path.
        config_source: As for `config_from_object`.
        namespace: As for `config_from_object`.
        changes: Settings.
        set_as_current: Whether it becomes `current_app`.
        other: Settings by name. What replaces a part of Celery is refused.

    Example:
        app = Celery("shop", broker="postgresql://…")

        @app.task(bind=True, max_retries=5)
        def send(self, to): ...
    """

    on_configure: Any = None

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: str | Sequence[str] | None = None,
        task_cls: type[CeleryTask] | str | None = None,
        config_source: Any = None,
        namespace: str | None = None,
        changes: Mapping[str, Any] | None = None,
        set_as_current: bool = True,
        **other: Any,
    ) -> None:
        super().__init__(database_of(broker))
        self.on_worker_start(self._send_start)
        self.on_worker_stop(self._send_stop)
        self.main = main
        # Of this app in this process.
        self.oid: str = new_id()
        self.tasks: TaskRegistry = TaskRegistry()
        self.is_django: bool = fixups.is_project()
        self.conf: Settings = Settings(self._on_setting)
        self.control: Control = Control(self)
        self.on_after_configure: Hook = Hook()
        self.on_after_finalize: Hook = self.on_after_configure
        if self.on_configure is None:
            self.on_configure = self.on_after_configure
        else:
            # A derived class may have a method of this name.
            self.on_after_configure.connect(lambda sender: sender.on_configure())
        self._task_class = _class_of(task_cls)
        self._router = Router()
        # What is to be imported when the app is loaded.
        self._include = [include] if isinstance(include, str) else list(include or ())
        self._finders: list[Callable[[Sequence[str]], Iterable[str]]] = []
        self._loading = threading.RLock()
        self._is_loading = False
        if set_as_current:
            add_app(self)
        for name, function in BUILTINS.items():
            self._adopt(task_of(function, {"name": name, "bind": True}))
        for task in _shared:
            task.adopt(self)
        self._configure(changes, other)
        if config_source is not None:
            self.config_from_object(config_source, namespace=namespace)

    def _configure(self, changes: Mapping[str, Any] | None, other: Mapping[str, Any]) -> None:
        for name, value in other.items():
            if name in ("strict_typing", "autofinalize", "fixups") or value is None:
                continue
            if name not in self.conf:
                raise Unsupported(f"Celery({name}=...)", "leave it out: there is no such part here")
            self.conf[name] = value
        self.conf.update(changes or {})

    # Tasks

    @property
    def Task(self) -> type[CeleryTask]:  # noqa: N802  # Celery's name for it
        """The class of tasks without a `base` of their own."""
        return self._task_class

    @Task.setter
    def Task(self, kind: type[CeleryTask]) -> None:  # noqa: N802  # Celery's name for it
        self._task_class = kind
        for task in list(self.tasks.values()):
            task.rebase(self)

    def task(  # type: ignore[override]  # as Celery's, not as an app's
        self, *args: Callable[..., Any], **options: Any
    ) -> Any:
        """Make a function a task. Use it bare (`@app.task`) or with Celery's options."""
        return _decorator(args, options, self._adopt)

    def _adopt(self, task: CeleryTask) -> CeleryTask:
        task.adopt(self)
        return task

    def register_task(self, task: CeleryTask | type[CeleryTask], **options: Any) -> CeleryTask:
        """Make a class with `run` a task, or an instance of one."""
        made = task() if isinstance(task, type) else task
        if options:
            raise Unsupported(f"register_task({min(options)}=...)", "set it on the class")
        return self._adopt(made)

    def add_handler(self, task: CeleryTask) -> RowlockTask[..., Any]:
        """Register the function that runs a task's jobs. Tasks call this."""
        annotate(task, self.conf.now("task_annotations"))
        handler = task.shape.handler(partial(run_job, task))
        decorate = super().task(
            name=task.name,
            queue=task.queue or self.conf.now("task_default_queue"),
            priority=task.priority or 0,
            max_attempts=task.attempts_max,
            retry=delay_of,
            limit=limit_of(self._rate_of(task)),
            executor=cast("Executor", task.executor),
        )
        made: RowlockTask[..., Any] = decorate(handler)
        loosen(made, CanvasSchema)
        self.tasks[made.name] = task
        self._apply_limits(task, made)
        return made

    def _on_setting(self, name: str, value: Any) -> None:
        """Follow a setting. It may come after the tasks."""
        match name:
            case "broker_url":
                url = database_of(value)
                if url is not None:
                    self.use_database(url)
            case "task_routes":
                self._router = Router(value)
            case "task_default_rate_limit":
                limit_of(value)
                self._limit_all(**{name: value})
            case "task_annotations":
                check_annotations(value)
                for task in self.tasks.values():
                    annotate(task, value)
                self._limit_all()
            case "task_time_limit" | "result_expires" | "worker_disable_rate_limits":
                self._limit_all(**{name: value})
            case "timezone" if value is not None:
                parse_cron("* * * * *", timezone=value)
            case _:
                pass

    def _limit_all(self, **changed: Any) -> None:
        """Give each task its limits anew."""
        for name, task in self.tasks.items():
            limit = limit_of(self._rate_of(task, **changed))
            known = task.bound.settings.limit
            if (limit is None) != (known is None) or (
                limit is not None and known is not None and limit.numbers != known.numbers
            ):
                self._change_limit(name, limit)
            self._apply_limits(task, task.bound, **changed)

    def _rate_of(self, task: CeleryTask, **changed: Any) -> str | float | None:
        def setting(name: str) -> Any:
            return changed.get(name, self.conf.now(name))

        if setting("worker_disable_rate_limits"):
            return None
        own = task.rate_limit
        rate: str | float | None = setting("task_default_rate_limit") if own is None else own
        return rate

    def _apply_limits(self, task: CeleryTask, made: RowlockTask[..., Any], **changed: Any) -> None:
        """Give a task its time limit, and its jobs their retention."""
        time_limit = changed.get("task_time_limit", self.conf.now("task_time_limit"))
        hard = time_limit if task.time_limit is None else task.time_limit
        kept = changed.get("result_expires", self.conf.now("result_expires"))
        made.settings = replace(
            made.settings,
            timeout_us=None if not hard else duration_us(hard, option="time_limit"),
            # As in Celery, 0 and None mean forever.
            keep_us=options.keep_us(kept or None, option="result_expires"),
        )
        made.bind(self)

    def soft_limit_of(self, task: CeleryTask) -> float | None:
        """Return how many seconds a task may run before `SoftTimeLimitExceeded` is raised in it."""
        own = task.soft_time_limit
        limit: float | None = self.conf.task_soft_time_limit if own is None else own
        return limit or None

    def ignores_result_of(self, task: CeleryTask) -> bool:
        """Return whether what a task returns is dropped."""
        own = task.ignore_result
        return bool(self.conf.task_ignore_result if own is None else own)

    # Load

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str | None = "tasks",
        force: bool = False,
    ) -> None:
        """Import the module `tasks` of each of these packages that has one.

        They are imported when a worker, a command or a drain loads the app, or at once with
        `force`. Without packages, those are the installed apps of the Django project.
        """
        if packages is None and not self.is_django:
            raise Unsupported(
                "autodiscover_tasks() without packages and DJANGO_SETTINGS_MODULE",
                "name the packages: app.autodiscover_tasks(['shop'])",
            )

        def find(installed: Sequence[str]) -> Iterator[str]:
            chosen = packages() if callable(packages) else packages
            for package in installed if chosen is None else chosen:
                yield from _related(package, related_name)

        self._finders.append(find)
        if force:
            self.load_tasks()

    def load_tasks(self) -> None:
        """Read the settings, set Django up, and import all modules with tasks, once.

        Raises:
            Unsupported: A setting or an entry of `beat_schedule` can't be followed.
        """
        with self._loading:
            # A module that is being loaded may ask for it again.
            if not self._is_loading:
                self._load_tasks()

    def _load_tasks(self) -> None:
        self._is_loading = True
        try:
            self.conf.resolve()
            installed = fixups.set_up() if self.is_django else []
            signals.import_modules.send(sender=self)
            names = [*self._include, *self.conf.include, *self.conf.imports]
            while names or self._finders:
                for name in names:
                    importlib.import_module(name)
                # What was imported may have added more.
                finders, self._finders, self._include = self._finders, [], []
                names = [name for find in finders for name in find(installed)]
            self.scheduled()
        finally:
            self._is_loading = False

    finalize = load_tasks

    def _send_start(self) -> None:
        """Send the signals of a worker that starts."""
        self.load_tasks()
        about = {"loglevel": logging.getLogger().level, "logfile": None, "format": None}
        if signals.setup_logging.receivers:
            signals.setup_logging.send(sender=None, **about, colorize=False)
        else:
            for signal, each in (
                (signals.after_setup_logger, logging.getLogger()),
                (signals.after_setup_task_logger, task_logger),
            ):
                signal.send(sender=None, logger=each, **about, colorize=False)
        worker = WorkerProcess(self)
        signals.worker_init.send(sender=worker)
        signals.worker_process_init.send(sender=None)
        signals.worker_ready.send(sender=worker)

    def _send_stop(self) -> None:
        """Send the signals of a worker that stops."""
        worker = WorkerProcess(self)
        about = {"sig": "SIGTERM", "how": "Warm", "exitcode": 0}
        signals.worker_shutting_down.send(sender=worker.hostname, **about)
        signals.worker_process_shutdown.send(sender=None, pid=worker.pid, exitcode=0)
        signals.worker_shutdown.send(sender=worker)

    def _drain(self, queues: Sequence[str] | None, limit: int | None) -> Drain:
        self.load_tasks()
        return super()._drain(queues, limit)

    # Enqueue

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **chosen: Any,
    ) -> AsyncResult:
        """Enqueue a task by its name, which only the worker needs to know."""
        if args and name not in self.tasks:
            # Only a function says which names its arguments have.
            self.load_tasks()
        return self.publish(name, tuple(args or ()), dict(kwargs or {}), chosen)

    def publish(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        chosen: Mapping[str, Any],
    ) -> AsyncResult:
        """Enqueue a call of a task. Tasks call this."""
        task = self.tasks.get(name)
        links = {option: chosen[option] for option in LINKS if chosen.get(option)}
        if task is not None and self.conf.task_always_eager:
            check_call({option: value for option, value in chosen.items() if option not in LINKS})
            given = {"headers": headers_of(chosen), "throw": chosen.get("throw"), **links}
            return task.apply(args, kwargs, chosen.get("task_id"), **given)
        if links:
            result: AsyncResult = start(self, Signature(name, args, kwargs, chosen, app=self))
            return result
        call = self._call(name, args, kwargs, chosen)
        after = self._announce(call, args, kwargs)
        sent = self._send(call, args, kwargs)
        for send in after:
            send()
        return sent

    def _announce(
        self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Callable[[], object]]:
        """Send the signal before an enqueue, which may change headers. Return the one after it."""
        if not signals.before_task_publish.receivers and not signals.after_task_publish.receivers:
            return []
        id = call.using["id"] or new_id()
        call.using["id"] = id
        headers = {**call.own.get("headers", {}), "id": id, "task": call.name}
        about: dict[str, Any] = {"body": (args, kwargs, {}), "headers": headers, "exchange": ""}
        about.update(routing_key=call.using["queue"], properties={"correlation_id": id})
        signals.before_task_publish.send(sender=call.name, declare=[], retry_policy=None, **about)
        added = {name: value for name, value in headers.items() if name not in ("id", "task")}
        if added:
            call.own["headers"] = added
        return [partial(signals.after_task_publish.send, sender=call.name, **about)]

    def _send(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AsyncResult:
        task = self.tasks.get(call.name)
        if task is not None:
            (job,) = self.send([self._job(task, call, args, kwargs)], conn=None)
            return AsyncResult(job.id, app=self)
        if args:
            raise Unsupported(
                f"send_task({call.name!r}) with arguments by position",
                "pass them in kwargs: their names are unknown here",
            )
        if call.time_limit is not None:
            raise Unsupported("send_task(time_limit=...)", "set it on the task")
        given = {option: value for option, value in call.using.items() if value is not None}
        job = self.enqueue(call.name, kwargs, **given, meta=call.meta)
        return AsyncResult(job.id, app=self)

    def _job(
        self, task: CeleryTask, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> NewJob:
        by_place, named = task.shape.named(args, kwargs)
        if by_place:
            # So that hooks and signals see the call as it was made.
            call.own["args"] = len(by_place)
        new = task.bound.using(**call.using, meta=call.meta).new_job(*by_place, **named)
        if call.time_limit is None:
            return new
        policy = msgspec.structs.replace(
            decode_policy(new.policy), timeout=duration_us(call.time_limit, option="time_limit")
        )
        return new._replace(policy=policy.encoded())

    def node_job(
        self,
        task: CeleryTask,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        chosen: Mapping[str, Any],
        own: Mapping[str, Any],
    ) -> tuple[TypedJob[Any], list[Callable[[], object]]]:
        """Return the job of a step of a canvas, and what to call when it is written.

        `own` is what its run needs to know.
        """
        call = self._call(task.full_name, args, kwargs, chosen)
        call.own.update({name: each for name, each in own.items() if each is not None})
        after = self._announce(call, args, kwargs)
        return cast("TypedJob[Any]", self._job(task, call, args, kwargs)), after

    def _call(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], chosen: Mapping[str, Any]
    ) -> Call:
        """Check the options of a call, and complete them by the task's own, and by its route.

        The settings are read now, because they may come after the tasks.
        """
        task = self.tasks.get(name)
        own = {} if task is None else options_of(task)
        given = {**own, **{key: value for key, value in chosen.items() if value is not None}}
        check_call(given)
        route = self._route(name, args, kwargs, given)
        countdown, eta = given.get("countdown"), given.get("eta")
        using = {
            "id": given.get("task_id"),
            "queue": given.get("queue") or route.get("queue") or self.conf.task_default_queue,
            "priority": given.get("priority", route.get("priority")),
            "delay": None if countdown is None else max(0.0, float(countdown)),
            # As in Celery, a countdown takes precedence over an eta.
            "run_at": None if eta is None or countdown is not None else self.aware(eta),
        }
        if using["priority"] is None:
            using["priority"] = self.conf.task_default_priority
        noted = {"headers": headers_of(given), "soft": given.get("soft_time_limit")}
        noted["ignore_result"] = given.get("ignore_result")
        noted["eta"] = eta_of(using)
        return Call(
            name,
            using,
            {key: value for key, value in noted.items() if value is not None},
            expires=given.get("expires"),
            time_limit=given.get("time_limit"),
            aware=self.aware,
        )

    def _route(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        # The settings are read first: they have the routes.
        self.conf.resolve()
        return {} if given.get("queue") else self._router.route(name, args, kwargs, given)

    # Settings and results

    def config_from_object(
        self,
        obj: Any,
        silent: bool = False,
        force: bool = False,
        namespace: str | None = None,
    ) -> None:
        """Read settings from an object, or from a module or object by its path.

        A path is read later, when a setting is first needed, unless `force` is set.
        """
        self.conf.read_later(partial(read_object, obj, namespace))
        if force or not isinstance(obj, str):
            self.conf.resolve()

    def config_from_envvar(self, variable_name: str, silent: bool = False, **_: Any) -> None:
        """Read settings from the module that an environment variable names."""
        path = os.environ.get(variable_name)
        if path:
            self.config_from_object(path)
        elif not silent:
            raise Unsupported(f"config_from_envvar({variable_name!r})", "set that variable")

    def add_defaults(self, fun: Any) -> None:
        """Add settings that count if no other is made."""
        values = fun() if callable(fun) else fun
        for name, value in values.items():
            if self.conf.get(name, DEFAULTS.get(name)) in (None, DEFAULTS.get(name)):
                self.conf[name] = value

    def AsyncResult(self, id: str, **_: Any) -> AsyncResult:  # noqa: N802  # Celery's name for it
        """Return a job by its id."""
        return AsyncResult(id, app=self)

    def GroupResult(  # noqa: N802  # Celery's name for it
        self, id: str | None = None, results: Iterable[Any] | None = None, **_: Any
    ) -> GroupResult:
        """Return the results of a group."""
        return GroupResult(id, results, app=self)

    def ResultSet(self, results: Iterable[Any], **_: Any) -> ResultSet:  # noqa: N802  # Celery's name for it
        """Return several results as one."""
        return ResultSet(results, app=self)

    def signature(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a task by its name, with arguments, to be enqueued later or in a canvas."""
        return signature(*args, **{"app": self, **kwargs})

    @property
    def current_task(self) -> CeleryTask | None:
        """The task that runs here, or None."""
        return the_task()

    def set_current(self) -> None:
        """Make it `current_app`."""
        add_app(self)

    set_default = set_current

    def now(self) -> datetime:
        """Return the time, in the app's zone."""
        return from_us(SystemClock().now_us()).astimezone(self.timezone)

    @property
    def timezone(self) -> ZoneInfo:
        """The app's time zone."""
        return ZoneInfo(self.conf.timezone or "UTC")

    def gen_task_name(self, name: str, module: str) -> str:
        """Return the name of a task by those of its function and its module."""
        return f"{self.main if module == '__main__' and self.main else module}.{name}"

    def worker_main(self, argv: Sequence[str] | None = None) -> Never:
        """Not supported."""
        raise Unsupported("worker_main()", "run `rowlock --app module:app worker`")

    start = worker_main

    def __getattr__(self, name: str) -> Never:
        if name in _MISSING:
            raise Unsupported(f"app.{name}", _MISSING[name])
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    # Schedules

    def add_periodic_task(
        self,
        schedule: object,
        sig: Signature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **chosen: Any,
    ) -> str:
        """Add an entry to `beat_schedule`, and return its name."""
        whole = sig.clone(args, kwargs, **chosen)
        name = name or repr((whole.task, whole.args, dict(whole.kwargs)))
        entry = {"task": whole.task, "schedule": schedule, "args": whole.args}
        entry.update(kwargs=whole.kwargs, options=whole.options)
        self.conf.beat_schedule[name] = entry
        return name

    def scheduled(self) -> list[tuple[str, NewJob, Cron]]:
        """Return the schedules of every app, and the entries of `beat_schedule`."""
        self.on_after_configure.send(self)
        entries = self.conf.beat_schedule.items()
        return super().scheduled() + [self._entry(name, entry) for name, entry in entries]

    def _entry(self, name: str, entry: Mapping[str, Any]) -> tuple[str, NewJob, Cron]:
        task = self.tasks.get(entry["task"])
        if task is None:
            raise Unsupported(
                f"beat_schedule[{name!r}] with a task unknown to this app",
                f"import {entry['task']!r} where the worker loads the app",
            )
        args, kwargs = tuple(entry.get("args") or ()), dict(entry.get("kwargs") or {})
        call = self._call(task.full_name, args, kwargs, entry.get("options") or {})
        if self.conf.timezone is None and not self.conf.enable_utc:
            raise Unsupported(
                "beat_schedule in the machine's zone", "set conf.timezone to its name"
            )
        zone = self.conf.timezone or "UTC"
        job = self._job(task, call.repeated(), args, kwargs)
        return name, job, parse_cron(expression_of(entry["schedule"]), timezone=zone)

    def aware(self, moment: datetime) -> datetime:
        """Convert a time of Celery's: a naive one is in the app's time zone."""
        if moment.tzinfo is not None:
            return moment
        if self.conf.timezone is None and not self.conf.enable_utc:
            # As in Celery: the machine's own zone.
            return moment.astimezone(UTC)
        return moment.replace(tzinfo=self.timezone).astimezone(UTC)


class WorkerProcess:
    """The `sender` of a worker's signals: one of its processes."""

    def __init__(self, app: Celery) -> None:
        self.app = app
        self.pid: int = os.getpid()
        self.hostname: str = f"rowlock-{self.pid}@{socket.gethostname()}"


class TaskRegistry(dict[str, CeleryTask]):
    """`app.tasks`: the tasks by name."""

    def __missing__(self, name: str) -> Never:
        raise NotRegistered(name)


class Hook:
    """`app.on_after_configure`: functions that add periodic tasks, each called once.

    Unlike a signal, it lets errors pass: a schedule that can't be followed must not vanish.
    """

    def __init__(self) -> None:
        self._functions: list[Callable[..., Any]] = []

    def connect(self, *args: Callable[..., Any], **_: Any) -> Any:
        """Register a function to call before schedules are stored."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self._functions.append(function)
            return function

        return add(*args) if args else add

    def send(self, app: Celery) -> None:
        """Call the functions with the app."""
        functions, self._functions = self._functions, []
        for function in functions:
            function(sender=app)


def shared_task(*args: Callable[..., Any], **options: Any) -> Any:
    """Make a function a task of every app of this process. Use it bare or with options."""

    def share(task: CeleryTask) -> CeleryTask:
        _shared.append(task)
        for app in known_apps():
            task.adopt(app)
        return task

    return _decorator(args, options, share)


def _decorator(
    args: Sequence[Callable[..., Any]],
    options: Mapping[str, Any],
    keep: Callable[[CeleryTask], CeleryTask],
) -> Any:
    def decorate(function: Callable[..., Any]) -> CeleryTask:
        return keep(task_of(function, options))

    return decorate(*args) if args else decorate


def _class_of(kind: type[CeleryTask] | str | None) -> type[CeleryTask]:
    if isinstance(kind, str):
        module, _, name = kind.replace(":", ".").rpartition(".")
        found: type[CeleryTask] = getattr(importlib.import_module(module), name)
        return found
    return kind or CeleryTask


def _related(package: str, related_name: str | None) -> Iterator[str]:
    """Yield the module of a package that has tasks, if it has one."""
    if related_name is None:
        yield package
        return
    found = _package(package)
    name = f"{found.__name__}.{related_name}"
    # A plain module has no other inside.
    if hasattr(found, "__path__") and importlib.util.find_spec(name):
        yield name


def _package(name: str) -> ModuleType:
    """Import a package by its name, or by the class that configures it in Django."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        module, _, configuration = name.rpartition(".")
        if not module or error.name != name:
            raise
        return importlib.import_module(getattr(_package(module), configuration).name)


def database_of(broker: object) -> str | None:
    """Return the database of a broker's URL. None: that of `ROWLOCK_DATABASE_URL`.

    Raises:
        Unsupported: It is no database, and that variable is not set. Without its password.
    """
    url = broker[0] if isinstance(broker, list | tuple) and broker else broker
    if not url:
        return None
    scheme = str(url).partition(":")[0]
    if scheme in ("sqlite", "postgresql", "postgres"):
        return str(url)
    if os.environ.get(DATABASE_URL_VARIABLE):
        logger.info("the broker at %s:// is not used: jobs are in ROWLOCK_DATABASE_URL", scheme)
        return None
    raise Unsupported(
        f"a broker at {scheme}://",
        "set ROWLOCK_DATABASE_URL (sqlite:///FILE or postgresql://…), or pass it as the broker",
    )
