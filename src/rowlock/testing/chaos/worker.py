"""`rowlock worker` as it is, but for one thing: it is killed with whoever started it."""

from __future__ import annotations

import runpy

from rowlock.worker.title import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    runpy.run_module("rowlock", run_name="__main__", alter_sys=True)
