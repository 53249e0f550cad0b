"""rowlock: a durable background-job queue in the database you already have.

    import rowlock

    app = rowlock.App("sqlite:///jobs.db")

    @app.task
    def greet(name: str) -> None: ...

    greet.enqueue(name="Ada")

Names are imported on first use, so that the command line starts quickly.
"""

from __future__ import annotations

from rowlock.version import __version__

# The form that type checkers know. Importing `typing` would take longer than all of this package
# that a command needs before it can handle a signal.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rowlock import retry
    from rowlock.app import App
    from rowlock.clock import ManualClock
    from rowlock.context import Cancel, Context, Fail, Release, Throttled, TimedOut
    from rowlock.errors import (
        FieldError,
        Forbidden,
        InvalidTransition,
        LeaseLost,
        MigrationNeeded,
        NotFound,
        OptionInvalid,
        PayloadInvalid,
        RowlockError,
        StoreRefused,
        StoreUnavailable,
        UnsupportedStore,
    )
    from rowlock.job import (
        Beat,
        BulkResult,
        BulkRetry,
        Cancellation,
        CancelOutcome,
        Count,
        Job,
        JobError,
        JobState,
        Lease,
        LogLine,
        Page,
        Progress,
        QueueStats,
        WorkerInfo,
    )
    from rowlock.limit_info import LimitInfo, LimitKeyInfo, LimitKeys, LimitRules
    from rowlock.limits import TENANT, Limit, Rate
    from rowlock.schedule import Fired, MissedTicks, Schedule, ScheduleSource
    from rowlock.store import NewJob, Store
    from rowlock.store.options import TypedJob
    from rowlock.task import Task, TaskCall, Tasks
    from rowlock.why import WaitedFor, Why, WhyCode
    from rowlock.worker.instrumentation import Middleware
    from rowlock.workflow import Group, Growth, Node, Workflow
    from rowlock.workflow_info import WorkflowGraph, WorkflowInfo, WorkflowPage, WorkflowStack
    from rowlock.workflow_rules import WorkflowState

_HOMES = {
    "rowlock.app": ("App",),
    "rowlock.clock": ("ManualClock",),
    "rowlock.context": ("Cancel", "Context", "Fail", "Release", "Throttled", "TimedOut"),
    "rowlock.errors": (
        "FieldError",
        "Forbidden",
        "InvalidTransition",
        "LeaseLost",
        "MigrationNeeded",
        "NotFound",
        "OptionInvalid",
        "PayloadInvalid",
        "RowlockError",
        "StoreRefused",
        "StoreUnavailable",
        "UnsupportedStore",
    ),
    "rowlock.job": (
        "Beat",
        "BulkResult",
        "BulkRetry",
        "CancelOutcome",
        "Cancellation",
        "Count",
        "Job",
        "JobError",
        "JobState",
        "Lease",
        "LogLine",
        "Page",
        "Progress",
        "QueueStats",
        "WorkerInfo",
    ),
    "rowlock.limit_info": ("LimitInfo", "LimitKeyInfo", "LimitKeys", "LimitRules"),
    "rowlock.limits": ("TENANT", "Limit", "Rate"),
    "rowlock.schedule": ("Fired", "MissedTicks", "Schedule", "ScheduleSource"),
    "rowlock.store": ("NewJob", "Store"),
    "rowlock.task": ("Task", "TaskCall", "Tasks"),
    "rowlock.store.options": ("TypedJob",),
    "rowlock.why": ("WaitedFor", "Why", "WhyCode"),
    "rowlock.worker.instrumentation": ("Middleware",),
    "rowlock.workflow": ("Group", "Growth", "Node", "Workflow"),
    "rowlock.workflow_info": ("WorkflowGraph", "WorkflowInfo", "WorkflowPage", "WorkflowStack"),
    "rowlock.workflow_rules": ("WorkflowState",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "TENANT",
    "App",
    "Beat",
    "BulkResult",
    "BulkRetry",
    "Cancel",
    "CancelOutcome",
    "Cancellation",
    "Context",
    "Count",
    "Fail",
    "FieldError",
    "Fired",
    "Forbidden",
    "Group",
    "Growth",
    "InvalidTransition",
    "Job",
    "JobError",
    "JobState",
    "Lease",
    "LeaseLost",
    "Limit",
    "LimitInfo",
    "LimitKeyInfo",
    "LimitKeys",
    "LimitRules",
    "LogLine",
    "ManualClock",
    "Middleware",
    "MigrationNeeded",
    "MissedTicks",
    "NewJob",
    "Node",
    "NotFound",
    "OptionInvalid",
    "Page",
    "PayloadInvalid",
    "Progress",
    "QueueStats",
    "Rate",
    "Release",
    "RowlockError",
    "Schedule",
    "ScheduleSource",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Task",
    "TaskCall",
    "Tasks",
    "Throttled",
    "TimedOut",
    "TypedJob",
    "UnsupportedStore",
    "WaitedFor",
    "Why",
    "WhyCode",
    "WorkerInfo",
    "Workflow",
    "WorkflowGraph",
    "WorkflowInfo",
    "WorkflowPage",
    "WorkflowStack",
    "WorkflowState",
    "__version__",
    "retry",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "retry":
        return import_module("rowlock.retry")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'rowlock' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
