"""Exceptions that are raised in a thread from outside, in the user's function that runs there.

CPython raises such an exception between two lines of Python, whatever they do, and not before a
call into C returns. So it has to be kept away from every line that is not the user's:

1. It is put only while the function is on its thread's stack. `call` opens and closes that time
   under a lock, which is also held by whoever puts one. What was put and has not surfaced when the
   function ends is withdrawn.
2. It is not put while rowlock's own code works on the function's behalf (`shielded`). It waits for
   the end of that, and is raised there.
3. There is at most one for a guard. So once one has surfaced, none can follow: whatever it left
   half done in these lines is done again, undisturbed.
4. The thread that is interrupted never waits for the one that interrupts it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, TracebackType
from typing import Any

from rowlock import config

_local = threading.local()
_OPEN: nullcontext[None] = nullcontext()
# Locks that all threads share are taken there, in a way that an exception could leave them taken.
_UNSAFE = frozenset({"logging", "importlib"})


class Guard:
    """Around one call of a function, which others may interrupt once."""

    __slots__ = ("_depth", "_is_over", "_is_spared", "_is_spent", "_lock", "_thread", "_wanted")

    def __init__(self, *, is_spared: Callable[[], bool]) -> None:
        """`is_spared`: whether it is too late to interrupt it, though it still runs."""
        self._is_spared = is_spared
        # One that can be taken again by the thread that has it: see the third rule.
        self._lock = threading.RLock()
        self._thread: int | None = None
        # How many shields its thread stands behind.
        self._depth = 0
        self._wanted: type[BaseException] | None = None
        self._is_spent = False
        self._is_over = False

    # In the function's thread

    def call(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call it; what it returns or raises is not touched by an interruption that comes late."""
        try:
            self._open()
            return function(**arguments)
        finally:
            try:
                self._close()
            except BaseException:  # noqa: BLE001  # the one that was on its way; it is too late
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
        """Enter what must not be interrupted; one that was put before surfaces here."""
        with self._lock:
            self._depth += 1
        if self._is_spent:
            _surface()

    def unshield(self, *, raises: bool) -> None:
        """Leave it; with `raises`, one that came meanwhile is raised now."""
        due = None
        with self._lock:
            self._depth -= 1
            if raises and not self._depth and not self._is_spared():
                due = self._take()
        if due is not None:
            raise due

    def _take(self) -> type[BaseException] | None:
        """The exception that is due, for the function's own thread to raise; under the lock."""
        if self._is_spent or self._wanted is None:
            return None
        self._is_spent = True
        return self._wanted

    # In any other thread

    def interrupt(self, kind: type[BaseException], *, after: float = 0.0) -> None:
        """Raise an exception in the function as soon as may be; the first one counts.

        Returns at once. Before the call of the function, the call raises it.

        Args:
            kind: Its class.
            after: Seconds that the function has to end by itself.
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
        """Whether nothing more needs to be done."""
        if self._wanted is None:
            self._wanted = kind
        return self._wanted is not kind or self._try()

    def _try(self) -> bool:
        """Whether it was put, or needs not be any more."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            # Before it begins, `call` looks by itself.
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
        """Whether it logs or imports: a lock that stays taken would be everybody's.

        A look, and no lock: it may have begun since. But the window is of some microseconds.
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
    """A block of ours, called by a user's function, that is not interrupted.

    What comes meanwhile is raised at its end; without `raises`, a moment after it.
    """
    guard: Guard | None = getattr(_local, "guard", None)
    return _OPEN if guard is None else _Shield(guard, raises=raises)


def _surface() -> None:
    """Nothing; but the interpreter looks at the start of a function for what was put."""


def _put(thread: int, kind: type[BaseException] | None) -> None:
    """Have an exception raised in a thread; None withdraws one that has not surfaced yet."""
    # Most processes never need it.
    import ctypes

    value = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
