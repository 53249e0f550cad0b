"""Raise exceptions from outside in a user's function that runs in another thread.

CPython raises such an exception between two lines of Python, whatever they do, and not before a
call into C returns. So it must never hit a line that is not the user's:

1. It is set only while the function is on its thread's stack. `call` opens and closes that time
   under a lock, and the interrupting thread sets the exception under the same lock. An exception
   that was set but not raised when the function ends is withdrawn.
2. It is not set while rowlock's own code works on the function's behalf (`shielded`). It waits for
   the end of that code, and is raised there.
3. A guard has at most one. So once it was raised, no other can follow: whatever it left half done
   in these lines is done again, undisturbed.
4. The interrupted thread never waits for the interrupting one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, TracebackType
from typing import Any, TypeVar

from rowlock import config

T = TypeVar("T")

_local = threading.local()
_OPEN: nullcontext[None] = nullcontext()
# These modules take locks that all threads share, and an exception could leave them locked.
_UNSAFE = frozenset({"logging", "importlib"})


class Guard:
    """Guards one call of a function, which other threads can interrupt once."""

    __slots__ = ("_depth", "_is_over", "_is_spared", "_is_spent", "_lock", "_thread", "_wanted")

    def __init__(self, *, is_spared: Callable[[], bool]) -> None:
        """`is_spared` returns whether it is too late to interrupt it, though it still runs."""
        self._is_spared = is_spared
        # Reentrant, because of the third rule.
        self._lock = threading.RLock()
        self._thread: int | None = None
        # How many shields its thread has entered.
        self._depth = 0
        self._wanted: type[BaseException] | None = None
        self._is_spent = False
        self._is_over = False

    # In the function's thread

    def call(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call the function. A late interruption changes neither its result nor its exception."""
        try:
            self._open()
            return function(**arguments)
        finally:
            try:
                self._close()
            except BaseException:  # noqa: BLE001  # the interruption, which came too late
                self._close()

    def _open(self) -> None:
        with self._lock:
            _local.guard = self
            self._thread = threading.get_ident()
            due = self._take()
        if due is not None:
            raise due

    def _close(self) -> None:
        with self._lock:
            self._is_over = True
        _local.guard = None
        if self._is_spent:
            _put(threading.get_ident(), None)

    def shield(self) -> None:
        """Enter code that must not be interrupted. An exception that was already set is raised."""
        with self._lock:
            self._depth += 1
        if self._is_spent:
            _surface()

    def unshield(self, *, raises: bool) -> None:
        """Leave that code. With `raises`, an interruption that came meanwhile is raised now."""
        due = None
        with self._lock:
            self._depth -= 1
            if raises and not self._depth and not self._is_spared():
                due = self._take()
        if due is not None:
            raise due

    def _take(self) -> type[BaseException] | None:
        """Return the exception that the function's own thread must raise. Needs the lock."""
        if self._is_spent or self._wanted is None:
            return None
        self._is_spent = True
        return self._wanted

    # In any other thread

    def interrupt(self, kind: type[BaseException], *, after: float = 0.0) -> None:
        """Raise an exception in the function as soon as possible. Only the first one counts.

        Returns at once. If the function has not been called yet, `call` raises it.

        Args:
            kind: The class of the exception.
            after: Seconds that the function gets to end by itself.
        """
        if after or not self._ask(kind):
            threading.Thread(
                target=self._insist, args=(kind, after), name="rowlock-interrupt", daemon=True
            ).start()

    def _insist(self, kind: type[BaseException], after: float) -> None:
        pause = threading.Event()
        pause.wait(after)
        while not self._ask(kind):
            pause.wait(config.INTERRUPT_SECONDS)

    def _ask(self, kind: type[BaseException]) -> bool:
        """Try to interrupt it, and return whether nothing more needs to be done."""
        if self._wanted is None:
            self._wanted = kind
        return self._wanted is not kind or self._try()

    def _try(self) -> bool:
        """Return whether the exception was set, or is no longer needed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            # Before the function begins, `call` checks by itself.
            if self._thread is None or self._is_over or self._is_spent:
                return True
            if self._depth or self._is_in_unsafe_code(self._thread):
                return False
            if not self._is_spared():
                self._is_spent = True
                assert self._wanted is not None
                _put(self._thread, self._wanted)
            return True
        finally:
            self._lock.release()

    def _is_in_unsafe_code(self, thread: int) -> bool:
        """Return whether it logs or imports: an exception could leave a shared lock taken.

        This is a look without a lock, so the code may begin just after it. The window is some
        microseconds.
        """
        frame: FrameType | None = sys._current_frames().get(thread)
        while frame is not None and frame.f_code is not Guard.call.__code__:
            if str(frame.f_globals.get("__name__")).partition(".")[0] in _UNSAFE:
                return True
            frame = frame.f_back
        return False


class _Shield:
    __slots__ = ("_guard", "_raises")

    def __init__(self, guard: Guard, *, raises: bool) -> None:
        self._guard = guard
        self._raises = raises

    def __enter__(self) -> None:
        self._guard.shield()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._guard.unshield(raises=self._raises and kind is None)


def shielded(*, raises: bool = True) -> AbstractContextManager[None]:
    """Enter a block of ours, called by a user's function, that must not be interrupted.

    An interruption meanwhile is raised at its end or, without `raises`, a moment later.
    """
    guard: Guard | None = getattr(_local, "guard", None)
    return _OPEN if guard is None else _Shield(guard, raises=raises)


def call_within(seconds: float, kind: type[Exception], function: Callable[[], T]) -> T:
    """Call a function, and raise an exception in it, once, if it takes longer than `seconds`.

    Inside a run it takes the place of the one interruption that the run's guard has: afterwards,
    only the end of the process can stop a function that ignores it.
    """
    outer: Guard | None = getattr(_local, "guard", None)
    guard = Guard(is_spared=lambda: False) if outer is None else outer
    alarm = threading.Timer(seconds, guard.interrupt, [kind])
    alarm.name, alarm.daemon = "rowlock-soft-limit", True
    alarm.start()
    try:
        if outer is not None:
            return function()
        result: T = guard.call(function, {})
        return result
    finally:
        alarm.cancel()


def _surface() -> None:
    """Do nothing: at the start of a function, the interpreter raises an exception that was set."""


def _put(thread: int, kind: type[BaseException] | None) -> None:
    """Set an exception to be raised in a thread. None withdraws one that was not raised yet."""
    # Most processes never need it.
    import ctypes

    value = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
