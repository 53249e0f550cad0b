"""Processes that a test looks for and ends, as Linux tells of them in /proc."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The children of a process; none of one that is gone."""
    try:
        path = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(child) for child in path.read_text("ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def kill(pid: int) -> int:
    """SIGKILL; how many processes that has ended."""
    return send(signal.SIGKILL, [pid])


def send(number: signal.Signals, pids: Iterable[int]) -> int:
    """Send a signal; how many processes were there to get it."""
    sent = 0
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
        sent += 1
    return sent
