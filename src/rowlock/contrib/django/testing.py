"""Django's tests for `rowlock.testing`: which app they use, and what Django's tasks ask for.

`assert_enqueued(confirm, number=7)` works in every test of a project, whoever runs the tests.
"""

from __future__ import annotations

from typing import Any

from django.core import mail

from rowlock.app import App
from rowlock.contrib.django.project import project_app
from rowlock.contrib.django.settings import aware, has_tasks
from rowlock.testing.frameworks import WantedTask


def tested_app() -> App | None:
    """Return the project's app while Django's test environment is set up."""
    # Django makes the outbox for tests, and removes it after them.
    return project_app() if hasattr(mail, "outbox") else None


def wanted_task(task: object) -> WantedTask | None:
    """Return what a Django task asks for. None if it is not one."""
    if not has_tasks():
        return None
    from rowlock.contrib.django.call import DjangoTaskCall
    from rowlock.contrib.django.tasks_api import Task

    if isinstance(task, DjangoTaskCall):
        asked = _asked(task.task)
        return WantedTask(asked.kind, {**asked.options, **task.chosen})
    return _asked(task) if isinstance(task, Task) else None


def _asked(task: Any) -> WantedTask:
    """Return the options that `task.using(...)` has changed from the declaration."""
    from rowlock.contrib.django.backend import RowlockBackend

    options: dict[str, Any] = {}
    declared = RowlockBackend.declared.get(task.module_path, task)
    if task.queue_name != declared.queue_name:
        options["queue"] = task.queue_name
    if task.priority != declared.priority:
        options["priority"] = task.priority
    if task.run_after is not None:
        options["run_at"] = aware(task.run_after)
    return WantedTask(task.module_path, options)
