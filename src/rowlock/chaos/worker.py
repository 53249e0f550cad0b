"""`rowlock worker`, except that it dies with its parent and that its clock may be wrong.

A preloaded library could set the clock of a whole process, but `faketime` makes `time.sleep` fail.
So the processes of a run read their clock through this module.
"""

from __future__ import annotations

import os
import runpy
import time
from pathlib import Path
from typing import Final

from rowlock.worker.process import die_with_parent

CLOCK_VARIABLE: Final = "ROWLOCK_CHAOS_CLOCK"
# How often a process checks how wrong its clock is.
_LOOK_SECONDS: Final = 0.5


class WrongClocks:
    """The clocks of some processes, each off by the seconds in a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def environment(self, number: int) -> dict[str, str]:
        """Return the environment for the processes of this number. The clock is right at first."""
        path = self._path(number)
        if not path.exists():
            self.set(number, 0)
        return {CLOCK_VARIABLE: str(path)}

    def set(self, number: int, seconds: int) -> None:
        """Set a clock wrong by this many seconds from now on."""
        path = self._path(number)
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{seconds}\n", "ascii")
        fresh.replace(path)

    def _path(self, number: int) -> Path:
        return self._directory / f"clock-{number}"


def live_by_wrong_clock() -> None:
    """Make the clock of this process wrong, if its environment says so."""
    if path := os.environ.get(CLOCK_VARIABLE):
        _set_clock(Path(path))


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


if __name__ == "__main__":
    die_with_parent()
    live_by_wrong_clock()
    runpy.run_module("rowlock", run_name="__main__", alter_sys=True)
