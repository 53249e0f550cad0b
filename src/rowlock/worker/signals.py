"""The signals that ask to stop: who obeys them, and who leaves that to another.

Loaded by the command before everything else, so it leans on next to nothing.
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
    """Tells what each of the signals that ask to stop means."""

    def __init__(self) -> None:
        self._first: float | None = None

    def hear(self) -> Wish:
        """Another one has come."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            return Wish.STOP
        # Within a moment it is the same wish, sent to the process and to its group.
        is_new = now - self._first >= config.SECOND_SIGNAL_SECONDS
        return Wish.STOP_AT_ONCE if is_new else Wish.ECHO


def heeded() -> list[signal.Signals]:
    """Those that are to be heard here: whom `nohup` started goes on after a hang-up."""
    return [
        number
        for number in STOP_SIGNALS
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]


def obey(handler: Handler) -> None:
    """Have a handler called for each that is to be heard."""
    for number in heeded():
        signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """A process that is started in the block gets none of them before it calls `leave_to_parent`.

    A terminal and a service manager signal the whole family at once, also those who are still
    loading. The mask is inherited; what came meanwhile is delivered here at the end of the block.
    """
    held = _hold_back()
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


def _hold_back() -> set[signal.Signals]:
    """Block them in this thread; which were not blocked before."""
    return set(STOP_SIGNALS) - signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def leave_to_parent() -> None:
    """Shrug them off: the process that started this one says when to stop.

    By empty handlers, since SIG_IGN would be inherited by what the user's code starts: nobody
    could terminate it. What the user's code forks gets its usual handlers back.
    """
    obey(_shrug)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    # Held back around a fork: one that comes at once must not meet the empty handlers.
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
    """It is not for us."""


def _as_usual() -> None:
    for number in STOP_SIGNALS:
        usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
        # Not where the user's code has put a handler of its own.
        if signal.getsignal(number) is _shrug:
            signal.signal(number, usual)
