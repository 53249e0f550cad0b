"""The app of the soak: a job says how late it began, four bytes a run."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

import rowlock

MARKS_VARIABLE: Final = "SOAK_MARKS"
MARK_BYTES: Final = 4
# Short, so that retention has its part in the load from the second minute on.
KEEP_SECONDS: Final = 60

app = rowlock.App()


@app.task(keep=KEEP_SECONDS)
async def mark(sent_us: int, to: str, template: str, lang: str) -> None:
    """Append how many microseconds passed since the enqueue."""
    late_us = max(0, time.time_ns() // 1000 - sent_us)
    # One write(2) to a file opened with O_APPEND: two runs never mix.
    os.write(_marks(), min(late_us, 2**32 - 1).to_bytes(MARK_BYTES, "little"))


@cache
def _marks() -> int:
    return os.open(os.environ[MARKS_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
