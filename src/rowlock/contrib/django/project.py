"""The app of a Django project, created from its settings on first use, once per process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import autodiscover_modules

from rowlock.app import App
from rowlock.contrib.django.engine import DjangoDrain, DjangoEngine, with_fresh_connections
from rowlock.contrib.django.settings import (
    RowlockSettings,
    database_url,
    has_tasks,
    problems_of,
    read_settings,
)
from rowlock.store import NewJob, Store
from rowlock.task import Task, TaskCall, prepare_follow_up
from rowlock.worker.drain import Drain

MIGRATE_COMMAND = "python manage.py migrate"
INSTALLED_NAME = "rowlock.contrib.django"


class DjangoApp(App):
    """An app on one of `DATABASES`, with Django's own connections.

    Everything inside `transaction.atomic()` is part of it, so `task.enqueue()` needs no `conn`.
    Handlers get no stale connections. The project's app is `rowlock.contrib.django.app`.
    """

    def __init__(self, settings: RowlockSettings) -> None:
        self._settings = settings
        super().__init__(
            f"django://{settings.database}",
            strict=settings.strict,
            schema=settings.schema,
            keep_dead=settings.keep_dead,
        )
        self.surround(lambda task: with_fresh_connections(task.function))

    @property
    def settings(self) -> RowlockSettings:
        """The project's `ROWLOCK` settings."""
        return self._settings

    @property
    def url(self) -> str:
        """The URL by which workers open the database. It holds the password: don't log it."""
        return database_url(connections[self._settings.database])

    @property
    def migrate_command(self) -> str:
        """The command that brings the schema up to date."""
        return MIGRATE_COMMAND

    def use_database(self, url: str) -> None:
        """Do nothing: the database of the settings is always used."""
        chosen = self._settings
        self._engine = DjangoEngine(chosen.database, schema=chosen.schema, notify=chosen.notify)
        self.store: Store = Store(self._engine)
        self._url = url

    def empty(self) -> None:
        """Delete all jobs, schedules, tokens and histories: for `manage.py flush` and tests."""
        self._engine.empty()

    def _scheduled_job(
        self, task: Task[..., Any] | TaskCall[..., Any] | str, payload: Mapping[str, object] | None
    ) -> NewJob:
        if not has_tasks():
            return super()._scheduled_job(task, payload)
        from rowlock.contrib.django.call import DjangoTaskCall, using
        from rowlock.contrib.django.tasks_api import Task as TaskOfDjango

        given: Any = task
        call = using(given) if isinstance(given, TaskOfDjango) else given
        if isinstance(call, DjangoTaskCall):
            return call.job(**({} if payload is None else payload))
        return super()._scheduled_job(task, payload)

    def take(self, tasks: Iterable[Task[..., Any]]) -> None:
        """Add tasks to this app."""
        for task in tasks:
            self._register(task)

    def _drain(self, queues: Sequence[str] | None, limit: int | None) -> Drain:
        request = super()._drain(queues, limit).request
        return DjangoDrain(
            self.store, self, state=self.state, prepare=prepare_follow_up, request=request
        )

    def on_own_connections(self) -> App:
        """Return an app with the same tasks on its own connections, for workers and servers.

        Its tasks still enqueue through this one.
        """
        return _Apart(self)


class _Apart(App):
    """The tasks of a Django project, on connections that are not Django's."""

    def __init__(self, home: DjangoApp) -> None:
        chosen = home.settings
        super().__init__(
            home.url, strict=chosen.strict, schema=chosen.schema, keep_dead=chosen.keep_dead
        )
        self.state = home.state
        self._tasks, self._limits = home._tasks, home._limits

    @property
    def migrate_command(self) -> str:
        """The command that brings the schema up to date."""
        return MIGRATE_COMMAND


_guard = threading.RLock()
# Tasks that were declared before the app was created. While modules are imported, the settings may
# still be invalid, which `manage.py check` reports.
_declared: list[Task[..., Any]] = []
_app: list[DjangoApp] = []


def project_app() -> DjangoApp:
    """Return the app of this project.

    Raises:
        ImproperlyConfigured: `ROWLOCK` is invalid, or rowlock is not in `INSTALLED_APPS`.
            `manage.py check` lists all problems.
    """
    with _guard:
        if not _app:
            if apps.apps_ready and not apps.is_installed(INSTALLED_NAME):
                raise ImproperlyConfigured(f"Add {INSTALLED_NAME!r} to INSTALLED_APPS.")
            _app.append(DjangoApp(chosen_settings()))
            _app[0].take(_declared)
        return _app[0]


def chosen_settings() -> RowlockSettings:
    """Return the settings of `ROWLOCK`. Raise `ImproperlyConfigured` if they are invalid."""
    raw = getattr(django_settings, "ROWLOCK", {})
    for problem in problems_of(raw):
        raise ImproperlyConfigured(f"{problem.text} {problem.hint} (rowlock.{problem.code})")
    return read_settings(raw)


def declare(task: Task[..., Any]) -> None:
    """Add a task to the app, now or as soon as there is one."""
    with _guard:
        _declared.append(task)
        if _app:
            _app[0].take([task])


def discover() -> None:
    """Import the modules with tasks: `tasks` of each installed app, and those in `IMPORTS`.

    Tasks that are declared for other backends are known afterwards, too.

    Raises:
        ImproperlyConfigured: `ROWLOCK`, or the `OPTIONS` of a backend, are invalid.
    """
    autodiscover_modules("tasks")
    for name in chosen_settings().imports:
        import_module(name)
    if has_tasks():
        from rowlock.contrib.django.backend import check_options, register_imported

        check_options()
        register_imported()
