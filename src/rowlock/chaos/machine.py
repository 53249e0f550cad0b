"""What can go wrong with the machine itself: the clocks of its processes, and a disk.

A library that is preloaded could set the clock of a whole process; but the one there is makes
`time.sleep` fail. So the processes of a run look at their clock by way of this module.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CLOCK_VARIABLE: Final = "ROWLOCK_CHAOS_CLOCK"
# So often a process looks how wrong its clock is.
_LOOK_SECONDS: Final = 0.5
_ROOM_BYTES: Final = 2 * 1024**3
# What a full disk has left: less than a transaction needs.
_LEFT_BYTES: Final = 16 * 1024
# It may be written to while its size is changed.
_TRIES: Final = 20


class WrongClocks:
    """The clocks of some processes, each as wrong as a file says."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def environment(self, number: int) -> dict[str, str]:
        """For the processes of this number; right, until it is set."""
        path = self._path(number)
        if not path.exists():
            self.set(number, 0)
        return {CLOCK_VARIABLE: str(path)}

    def set(self, number: int, seconds: int) -> None:
        """Have it wrong by so much from now on."""
        path = self._path(number)
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{seconds}\n", "ascii")
        fresh.replace(path)

    def _path(self, number: int) -> Path:
        return self._place / f"clock-{number}"


def live_by_wrong_clock() -> None:
    """Have this process's clock as wrong as it was told to, if it was."""
    if told := os.environ.get(CLOCK_VARIABLE):
        _set_clock(Path(told))


def _set_clock(path: Path) -> None:
    right, right_ns, monotonic = time.time, time.time_ns, time.monotonic
    wrong_by, look_at = 0, 0.0

    def offset() -> int:
        nonlocal wrong_by, look_at
        if monotonic() >= look_at:
            look_at = monotonic() + _LOOK_SECONDS
            wrong_by = int(path.read_text("ascii"))
        return wrong_by

    time.time = lambda: right() + offset()
    time.time_ns = lambda: right_ns() + offset() * 1_000_000_000


class SmallDisk:
    """A file system in memory that can be full, and then not be full any more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no room for what comes next."""
        for tries_left in reversed(range(_TRIES)):
            found = os.statvfs(self.path)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                self._resize(used + _LEFT_BYTES)
            except DiskNotPossible:
                if not tries_left:
                    raise
            else:
                return

    def free(self) -> None:
        """Have room again."""
        self._resize(_ROOM_BYTES)

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.path))


class DiskNotPossible(RuntimeError):
    """No file system can be mounted here; the message says why."""


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount one there while the block runs; only root may."""
    path.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES},mode=0700", "rowlock-chaos", str(path))
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: who was killed a moment ago may not have let go of it yet.
        _run("umount", "-l", str(path))


def _run(program: str, *words: str) -> None:
    found = shutil.which(program)
    if found is None:
        raise DiskNotPossible(f"there is no {program} here")
    done = subprocess.run([found, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DiskNotPossible(f"{program} {' '.join(words)}: {done.stderr.strip()}")
