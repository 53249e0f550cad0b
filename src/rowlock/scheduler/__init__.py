"""What runs beside the jobs: schedules are fired, lost leases given back, old jobs removed."""

from __future__ import annotations

from rowlock.scheduler.declare import adeclare_schedules, declare_schedules
from rowlock.scheduler.fire import Scheduler
from rowlock.scheduler.janitor import Janitor

__all__ = ["Janitor", "Scheduler", "adeclare_schedules", "declare_schedules"]
