"""Processes that a test or a measurement finds, ends and measures, from /proc on Linux."""

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


def family(pid: int) -> list[int]:
    """Return a process and all living processes that it started."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text("ascii").split())
            except OSError:  # It has just ended.
                continue
    return found


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process and its family, ended ones included. None if unknown."""
    ticks = [used for each in family(pid) if (used := _ticks(each)) is not None]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # In user and in kernel mode, its own and that of the children it has waited for.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))
