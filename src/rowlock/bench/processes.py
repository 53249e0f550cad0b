"""What processes use, as Linux tells it in /proc."""

from __future__ import annotations

import os
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all that it started, as far as they live."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text("ascii").split())
            except OSError:  # It has just ended.
                continue
    return found


def cpu_seconds(pid: int) -> float | None:
    """What a process and its family have used, with those that ended; None where none can tell."""
    ticks = [used for each in family(pid) if (used := _ticks(each)) is not None]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # In user and in kernel mode, its own and of the children that it has waited for.
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))
