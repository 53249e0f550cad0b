"""On what it was measured: the machine, its disk, and the versions of everything."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.contestants import ROOT, Contestant
from benchmarks.results import quantile
from rowlock.version import __version__

SYNC_TIMES = 200
_INSTALLED = (
    "import importlib.metadata as m, json, platform;"
    "print(json.dumps({'python': platform.python_version()}"
    " | {d.metadata['Name'].lower(): d.version for d in m.distributions()}))"
)


def machine(directory: Path) -> dict[str, Any]:
    """What the figures depend on most."""
    return {
        "cores": os.cpu_count(),
        "processor": _line_of("/proc/cpuinfo", "model name"),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "file_system": _file_system(directory),
        "load_average": os.getloadavg()[0],
        **sync_times(directory),
    }


def versions(contestants: Sequence[Contestant]) -> dict[str, Any]:
    """Of rowlock and what it runs on, and of all that is installed for each peer."""
    found: dict[str, Any] = {
        "rowlock": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "psycopg": psycopg.__version__,
    }
    for each in contestants:
        if not each.is_ours:
            said = subprocess.run([each.python, "-c", _INSTALLED], capture_output=True, check=True)
            found[each.name] = json.loads(said.stdout)
    return found


def sync_times(directory: Path) -> dict[str, float]:
    """How long the disk takes to keep 8 KiB, in milliseconds."""
    path = directory / "sync"
    times: list[float] = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNC_TIMES):
            file.write(bytes(8192))
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1000 * (time.perf_counter() - start))
    path.unlink()
    return {"sync_p50_ms": quantile(times, 0.5), "sync_p99_ms": quantile(times, 0.99)}


class Bystanders:
    """How many cores were busy with something else, from now on: other processes, other guests."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._busy, self._stolen = _machine_seconds()
        self._own = _own_seconds()

    def document(self) -> dict[str, float]:
        """Once all processes of ours have ended; cores on average."""
        took = time.monotonic() - self._start
        busy, stolen = _machine_seconds()
        others = busy - self._busy - (_own_seconds() - self._own)
        return {
            "others_cores": round(max(0.0, others) / took, 3),
            "stolen_cores": round((stolen - self._stolen) / took, 3),
        }


def _machine_seconds() -> tuple[float, float]:
    """CPU seconds of all processes since the start of the machine, and those taken by its host."""
    fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
    user, nice, system, _idle, _wait, hard, soft, stolen = map(int, fields)
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + hard + soft) / ticks, stolen / ticks


def _own_seconds() -> float:
    """CPU seconds of this process and of all that it started and that have ended."""
    return sum(os.times()[:4])


def _line_of(file: str, name: str) -> str:
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def _file_system(directory: Path) -> str:
    """The type of the mount that a directory is on: the longest that it begins with."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    above = [mount for mount in mounts if directory.resolve().is_relative_to(mount[0])]
    return max(above, key=lambda mount: len(mount[0]))[1]


def _commit() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, check=False
    )
    return said.stdout.decode().strip()
