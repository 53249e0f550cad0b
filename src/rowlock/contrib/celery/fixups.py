"""A Celery app in a Django project: `DJANGO_SETTINGS_MODULE` is set, as Celery's guide has it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VARIABLE = "DJANGO_SETTINGS_MODULE"


def is_project() -> bool:
    """Return whether this process is one of a Django project."""
    return bool(os.environ.get(VARIABLE)) and importlib.util.find_spec("django") is not None


def set_up() -> list[str]:
    """Set Django up, if nobody has, and return the packages of its installed apps."""
    import django
    from django.apps import apps

    if not apps.ready:
        django.setup()
    return [config.name for config in apps.get_app_configs()]


@contextmanager
def fresh_connections() -> Iterator[None]:
    """Close connections that are old or broken, before and after a run, as Django does."""
    _close_old()
    try:
        yield
    finally:
        _close_old()


def _close_old() -> None:
    from django.db import connections

    opened: list[Any] = connections.all(initialized_only=True)
    for connection in opened:
        # Not that of a test around us.
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def on_commit(call: Any) -> None:
    """Call a function when Django's transaction commits."""
    from django.db import transaction

    transaction.on_commit(call)
