"""`rowlock worker` as it is, but that it dies with whoever started it, and what its clock says."""

from __future__ import annotations

import runpy

from rowlock.chaos.machine import live_by_wrong_clock
from rowlock.worker.title import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    live_by_wrong_clock()
    runpy.run_module("rowlock", run_name="__main__", alter_sys=True)
