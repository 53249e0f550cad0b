"""Signals that the caller of the tests ignores or blocks, as `nohup` and `&` do."""

from __future__ import annotations

import signal
from types import FrameType

NUMBERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def keep_ignored_signals_here() -> None:
    """Go on ignoring them in this process, but start other programs with the default actions.

    SIG_IGN and a mask would be inherited by every program that a test starts, a handler isn't.
    """
    for number in NUMBERS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
