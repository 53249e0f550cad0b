"""What a family of processes takes, as Linux tells it in /proc."""

from __future__ import annotations

import os
from pathlib import Path

from rowlock.testing.processes import family


def private_mib(pid: int) -> float:
    """The memory of a process and its family that no file backs and nobody shares."""
    return sum(map(_anonymous_kib, family(pid))) / 1024


def descriptors(pid: int) -> int:
    """The files that a process and its family have open."""
    return sum(map(_open_files, family(pid)))


def machine_load() -> dict[str, float]:
    """What the whole machine is busy with: whatever shares it is felt in every other measure.

    The load average of a minute, and for how many seconds since the start everybody has waited for
    the disk, where the kernel counts that.
    """
    found = {"load": os.getloadavg()[0]}
    try:
        pressure = Path("/proc/pressure/io").read_text("ascii")
    except OSError:
        return found
    full = [line for line in pressure.splitlines() if line.startswith("full")]
    return found | {"waited_seconds": int(full[0].rpartition("=")[2]) / 1e6}


def _anonymous_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:  # It has just ended.
        return 0
    lines = (line.split() for line in status.splitlines())
    return sum(int(words[1]) for words in lines if words[:1] == ["RssAnon:"])


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
