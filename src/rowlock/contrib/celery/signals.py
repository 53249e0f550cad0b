"""Celery's signals. Those that have a meaning here are sent, the others can't be connected.

1. A receiver that raises is logged, and changes nothing else, as in Celery.
2. Signals of a worker are sent in each of its processes that run jobs. The supervisor runs no code
   of yours.
3. The ends of a task are sent before the end is stored. If the lease was lost meanwhile, or the
   process dies at that moment, the job runs again.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable
from typing import Any

from rowlock.contrib.compat import Unsupported

logger: logging.Logger = logging.getLogger("rowlock.contrib.celery")

Receiver = Callable[..., Any]


class Signal:
    """A list of functions that are called when something happens.

    Args:
        name: As in Celery.
        instead: Why it is never sent, and what to do. None: it is sent.
    """

    def __init__(self, name: str, instead: str | None = None) -> None:
        self.name = name
        self._instead = instead
        self._receivers: list[tuple[object, object, Callable[[], Receiver | None]]] = []

    @property
    def receivers(self) -> list[Receiver]:
        """The functions that are connected."""
        return [found for _, _, get in self._receivers if (found := get()) is not None]

    def connect(self, *args: Any, **kwargs: Any) -> Any:
        """Connect a function, or decorate one: `@signal.connect` and `@signal.connect(sender=x)`.

        Args:
            args: The function.
            kwargs: `sender` to hear of one sender only, `weak=False` to keep the function alive,
                `dispatch_uid` to connect it once.
        """
        unknown = set(kwargs) - {"sender", "weak", "dispatch_uid", "retry"}
        if unknown:
            raise TypeError(f"connect() got an unexpected argument {min(unknown)!r}")
        if self._instead is not None:
            raise Unsupported(f"signal {self.name}", self._instead)

        def add(function: Receiver) -> Receiver:
            self._add(function, **{name: kwargs[name] for name in kwargs if name != "retry"})
            return function

        return add(*args) if args else add

    def _add(
        self,
        function: Receiver,
        *,
        sender: object = None,
        weak: bool = True,
        dispatch_uid: object = None,
    ) -> None:
        key = (dispatch_uid, _key(sender)) if dispatch_uid else (_identity(function), _key(sender))
        if all(known != key for known, _, _ in self._receivers):
            self._receivers.append((key, sender, _reference(function, weak=weak)))

    def disconnect(
        self,
        receiver: Receiver | None = None,
        sender: object = None,
        weak: bool | None = None,
        dispatch_uid: object = None,
    ) -> bool:
        """Disconnect a function. Returns whether it was connected."""
        key = (dispatch_uid or _identity(receiver), _key(sender))
        kept = [each for each in self._receivers if each[0] != key]
        was_connected = len(kept) < len(self._receivers)
        self._receivers = kept
        return was_connected

    def has_listeners(self, sender: object = None) -> bool:
        """Return whether any function is connected."""
        return bool(self.receivers)

    def send(self, sender: object, **named: Any) -> list[tuple[Receiver, Any]]:
        """Call the functions, and return what each returned, or the exception that it raised."""
        answers: list[tuple[Receiver, Any]] = []
        for _, wanted, get in list(self._receivers):
            function = get()
            if function is None or (wanted is not None and not _is_same(wanted, sender)):
                continue
            try:
                answer = function(signal=self, sender=sender, **named)
            except Exception as error:
                logger.exception("signal %s: its receiver %r raised", self.name, function)
                answer = error
            answers.append((function, answer))
        return answers

    send_robust = send

    def __repr__(self) -> str:
        return f"<Signal: {self.name}>"


def _identity(function: object) -> object:
    if inspect.ismethod(function):
        return (id(function.__self__), id(function.__func__))
    return id(function)


def _key(sender: object) -> object:
    return None if sender is None else getattr(sender, "name", None) or id(sender)


def _is_same(wanted: object, sender: object) -> bool:
    """A task may be named: by itself, or by its name, which publishing has as the sender."""
    return wanted is sender or _key(wanted) == sender or wanted == _key(sender)


def _reference(function: Receiver, *, weak: bool) -> Callable[[], Receiver | None]:
    """Celery keeps functions alive only if asked to. Here a function of a module always lives."""
    if not weak:
        return lambda: function
    try:
        return weakref.WeakMethod(function) if inspect.ismethod(function) else weakref.ref(function)
    except TypeError:  # A builtin has no weak reference.
        return lambda: function


_USE_PROCESS = "use worker_process_init, which is sent in each process that runs jobs"
_NO_BEAT = "every worker is a scheduler; use worker_ready"
_NO_EVENTLET = "tasks run in threads or processes; use worker_process_init"

# Around an enqueue by this process. Schedules enqueue in the database, without these.
before_task_publish: Signal = Signal("before_task_publish")
after_task_publish: Signal = Signal("after_task_publish")
task_sent: Signal = Signal("task_sent", "use after_task_publish, as in Celery 5")

task_received: Signal = Signal("task_received")
task_prerun: Signal = Signal("task_prerun")
task_postrun: Signal = Signal("task_postrun")
task_success: Signal = Signal("task_success")
task_retry: Signal = Signal("task_retry")
task_failure: Signal = Signal("task_failure")
# For jobs that a worker had begun, or found expired. A waiting job is cancelled in the database.
task_revoked: Signal = Signal("task_revoked")
task_internal_error: Signal = Signal(
    "task_internal_error", "errors of rowlock itself are in the worker's log and its metrics"
)
task_rejected: Signal = Signal("task_rejected", "use task_postrun, whose state is then REJECTED")
task_unknown: Signal = Signal(
    "task_unknown", "a job that no worker knows waits; `rowlock jobs why ID` says so"
)

celeryd_init: Signal = Signal(
    "celeryd_init", "use worker_init; options are those of `rowlock worker`"
)
celeryd_after_setup: Signal = Signal(
    "celeryd_after_setup", "use worker_init; queues are those of `rowlock worker -q`"
)
import_modules: Signal = Signal("import_modules")
worker_init: Signal = Signal("worker_init")
worker_before_create_process: Signal = Signal("worker_before_create_process", _USE_PROCESS)
worker_process_init: Signal = Signal("worker_process_init")
worker_process_shutdown: Signal = Signal("worker_process_shutdown")
worker_ready: Signal = Signal("worker_ready")
worker_shutting_down: Signal = Signal("worker_shutting_down")
worker_shutdown: Signal = Signal("worker_shutdown")
heartbeat_sent: Signal = Signal(
    "heartbeat_sent", "probe the worker's metrics port, or look at `rowlock workers`"
)

setup_logging: Signal = Signal("setup_logging")
after_setup_logger: Signal = Signal("after_setup_logger")
after_setup_task_logger: Signal = Signal("after_setup_task_logger")

beat_init: Signal = Signal("beat_init", _NO_BEAT)
beat_embedded_init: Signal = Signal("beat_embedded_init", _NO_BEAT)

eventlet_pool_started: Signal = Signal("eventlet_pool_started", _NO_EVENTLET)
eventlet_pool_preshutdown: Signal = Signal("eventlet_pool_preshutdown", _NO_EVENTLET)
eventlet_pool_postshutdown: Signal = Signal("eventlet_pool_postshutdown", _NO_EVENTLET)
eventlet_pool_apply: Signal = Signal("eventlet_pool_apply", "use task_prerun")

user_preload_options: Signal = Signal(
    "user_preload_options", "read your own options from the environment; `rowlock` has none"
)
