"""`current_app` and `current_task` stand for the app and the task of the moment.

`replace_celery` lets this package stand for Celery.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from rowlock.contrib.compat import Unsupported

if TYPE_CHECKING:
    from rowlock.contrib.celery.app import Celery
    from rowlock.contrib.celery.app.task import Request, Task

_SHIM: Final = "rowlock.contrib.celery"

# As in Celery, the current app is the one that was created last, unless another was chosen.
_apps: weakref.WeakValueDictionary[int, Celery] = weakref.WeakValueDictionary()
_numbers = count()

# The runs that are under way in this context, the innermost last.
runs: ContextVar[tuple[tuple[Task, Request], ...]] = ContextVar("rowlock_celery", default=())


def add_app(app: Celery) -> None:
    """Make an app the current one."""
    _apps[next(_numbers)] = app


def known_apps() -> list[Celery]:
    """Return the apps of this process, the current one last."""
    found = [app for _, app in sorted(_apps.items())]
    return [app for number, app in enumerate(found) if app not in found[number + 1 :]]


def the_app() -> Celery:
    """Return the current app."""
    found = known_apps()
    if not found:
        raise Unsupported("current_app without an app", "create Celery(...) before it is used")
    return found[-1]


def the_task() -> Task | None:
    """Return the task that runs here, or None."""
    stack = runs.get()
    return stack[-1][0] if stack else None


class Proxy:
    """Stands for an object that is looked up at each use."""

    def __init__(self, find: Callable[[], object]) -> None:
        object.__setattr__(self, "_find", find)

    def _get_current_object(self) -> Any:
        find: Callable[[], object] = object.__getattribute__(self, "_find")
        return find()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get_current_object(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._get_current_object(), name, value)

    def __bool__(self) -> bool:
        return bool(self._get_current_object())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get_current_object()(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self._get_current_object() == other)

    def __hash__(self) -> int:
        return hash(self._get_current_object())

    def __repr__(self) -> str:
        return repr(self._get_current_object())


current_app: Celery = cast("Any", Proxy(the_app))
current_task: Task = cast("Any", Proxy(the_task))


def replace_celery() -> None:
    """Let `import celery` mean this shim in this process, so that no import has to be changed.

    Call it before the first import of `celery`, at the top of the `__init__.py` of your project.

    Raises:
        Unsupported: Celery itself is imported already.
    """
    shim = importlib.import_module(_SHIM)
    if sys.modules.get("celery", shim) is not shim:
        raise Unsupported(
            "replace_celery() after an import of celery", "call it before all other imports"
        )
    sys.modules["celery"] = shim
    # All of them now: a later import would load their files again, under another name.
    for found in pkgutil.walk_packages(shim.__path__, f"{_SHIM}."):
        name = found.name.removeprefix(_SHIM)
        sys.modules[f"celery{name}"] = importlib.import_module(found.name)
