"""rowlock in a Django project: `INSTALLED_APPS = ["rowlock.contrib.django", …]`.

    TASKS = {"default": {"BACKEND": "rowlock.contrib.django.RowlockBackend"}}

`app` is the project's `rowlock.App`, for rowlock tasks beside Django's:

    from rowlock.contrib.django import app

    @app.task
    def greet(name: str) -> None: ...

Names are imported on first use, because Django imports this module before its settings are ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowlock.contrib.django.backend import RowlockBackend
    from rowlock.contrib.django.call import using
    from rowlock.contrib.django.project import DjangoApp
    from rowlock.contrib.django.task_policy import policy

    app: DjangoApp

__all__ = ["DjangoApp", "RowlockBackend", "app", "policy", "using"]

_HOMES = {
    "DjangoApp": "rowlock.contrib.django.project",
    "RowlockBackend": "rowlock.contrib.django.backend",
    "policy": "rowlock.contrib.django.task_policy",
    "using": "rowlock.contrib.django.call",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "app":
        from rowlock.contrib.django.project import project_app

        return project_app()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
