"""Processes that a test finds and ends, from /proc on Linux."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the children of a process, or none if it has ended."""
    try:
        path = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(child) for child in path.read_text("ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pid: int) -> int:
    """Send SIGKILL. Return how many processes it ended."""
    return send(signal.SIGKILL, [pid])


def send(number: signal.Signals, pids: Iterable[int]) -> int:
    """Send a signal. Return how many processes got it."""
    sent = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        sent += 1
    return sent
