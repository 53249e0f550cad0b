"""The signals that ask to stop: which process obeys them, and which ignores them.

The command loads this before everything else, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from types import FrameType

from rowlock import config

Handler = Callable[[int, FrameType | None], object]

# A terminal that is closed asks no less politely than one whose user presses Ctrl-C.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Wish(Enum):
    """What a signal means to a process that stops politely, and then at once."""

    STOP = auto()
    ECHO = auto()
    STOP_AT_ONCE = auto()


class Wishes:
    """Decides what each signal means, the first and those after it."""

    def __init__(self) -> None:
        self._first: float | None = None

    def hear(self) -> Wish:
        """Note another signal, and return what it means."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            return Wish.STOP
        # Within a moment it is the same request, sent to the process and to its group.
        is_new = now - self._first >= config.SECOND_SIGNAL_SECONDS
        return Wish.STOP_AT_ONCE if is_new else Wish.ECHO


def heeded() -> list[signal.Signals]:
    """The signals to obey here. A process that `nohup` started ignores a hang-up."""
    return [
        number
        for number in STOP_SIGNALS
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]


def obey(handler: Handler) -> None:
    """Install a handler for each signal to obey."""
    for number in heeded():
        signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """A process that is started in the block gets none of them before it calls `leave_to_parent`.

    A terminal and a service manager signal all processes at once, also those that are still
    loading. The mask is inherited. Signals that came meanwhile are delivered at the block's end.
    """
    held = _hold_back()
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def _hold_back() -> set[signal.Signals]:
    """Block them in this thread. Returns those that were not blocked before."""
    return set(STOP_SIGNALS) - signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def leave_to_parent() -> None:
    """Ignore them: the process that started this one says when to stop.

    By empty handlers: processes that the user's code starts would inherit SIG_IGN, and could not be
    terminated. A fork of the user's code gets its usual handlers back.
    """
    obey(_shrug)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    # Blocked around a fork: an early signal must not meet the empty handlers.
    forking = threading.local()

    def before() -> None:
        forking.held = _hold_back()

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, forking.held)

    def after_in_child() -> None:
        _as_usual()
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)


def _shrug(_: int, __: FrameType | None) -> None:
    """Do nothing."""


def _as_usual() -> None:
    for number in STOP_SIGNALS:
        usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        # Not where the user's code has put a handler of its own.
        if signal.getsignal(number) is _shrug:
            signal.signal(number, usual)
