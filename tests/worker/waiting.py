"""Waiting for what other threads and processes do, with a bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, seconds: float = 60.0) -> T:
    """What a condition gives once it is true; fail if that does not come to pass."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        pause.wait(0.01)
    return found
