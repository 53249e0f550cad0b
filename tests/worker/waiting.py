"""Waiting for what other threads and processes do, with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# A look often asks a database or a server: many of them would slow down what is waited for.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.01, 0.04


def wait_until(condition: Callable[[], T], *, seconds: float = 60.0) -> T:
    """What a condition gives once it is true; fail if that does not come to pass."""
    end = time.monotonic() + seconds
    pause, pause_seconds = threading.Event(), PAUSE_SECONDS_MIN
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        pause.wait(pause_seconds)
        pause_seconds = min(PAUSE_SECONDS_MAX, 1.2 * pause_seconds)
    return found
