"""What runs beside the jobs: schedules are fired, lost leases given back, old jobs removed.

Its names are loaded when they are asked for: a program that only enqueues needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowlock.scheduler.declare import adeclare_schedules, declare_schedules
    from rowlock.scheduler.fire import Scheduler
    from rowlock.scheduler.janitor import Janitor

__all__ = ["Janitor", "Scheduler", "adeclare_schedules", "declare_schedules"]

_HOME_OF = {
    "Janitor": "rowlock.scheduler.janitor",
    "Scheduler": "rowlock.scheduler.fire",
    "adeclare_schedules": "rowlock.scheduler.declare",
    "declare_schedules": "rowlock.scheduler.declare",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(_HOME_OF[name]), name)
