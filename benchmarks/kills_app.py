"""The app whose workers `benchmarks.kills` kills; every run writes to a journal.

One write(2) a line to a file opened with O_APPEND: what a process wrote survives its death.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import rowlock

app = rowlock.App()


def note(journal: str, word: str, ctx: rowlock.Context) -> None:
    line = f"{word} {ctx.job.id} {os.getpid()} {time.time()} {ctx.job.token}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@app.task(max_crashes=1_000, max_attempts=10_000)
def hold(ctx: rowlock.Context, journal: str) -> None:
    """Run until told to end."""
    note(journal, "start", ctx)
    end = Path(journal).with_name(f"end-{ctx.job.id}")
    while not end.exists():
        time.sleep(0.005)


@app.task(max_crashes=1_000, max_attempts=10_000)
async def append(ctx: rowlock.Context, journal: str) -> None:
    """Say when it began and when it ended."""
    note(journal, "start", ctx)
    await asyncio.sleep(0.005)
    note(journal, "end", ctx)
