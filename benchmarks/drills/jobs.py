"""The app whose workers the drills trouble; every run writes to a journal.

One write(2) a line to a file opened with O_APPEND: what a process wrote survives its death.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import time
from datetime import timedelta
from pathlib import Path

import rowlock

app = rowlock.App()

LOOK_SECONDS = 0.005


def note(journal: str, word: str, ctx: rowlock.Context) -> None:
    line = f"{word} {ctx.job.id} {os.getpid()} {time.time()} {ctx.job.token}\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(LOOK_SECONDS)


@app.task
async def noop() -> None: ...


@app.task(max_crashes=1_000, max_attempts=10_000)
def hold(ctx: rowlock.Context, journal: str) -> None:
    """Run until told to end."""
    note(journal, "start", ctx)
    wait_for(Path(journal).with_name(f"end-{ctx.job.id}"))


@app.task(max_crashes=1_000, max_attempts=10_000)
async def append(ctx: rowlock.Context, journal: str, seconds: float = 0.005) -> None:
    """Say when it began and when it ended."""
    note(journal, "start", ctx)
    await asyncio.sleep(seconds)
    note(journal, "end", ctx)


@app.task(max_crashes=1_000, max_attempts=10_000)
def append_plainly(ctx: rowlock.Context, journal: str, seconds: float = 0.005) -> None:
    """As `append`, in a thread."""
    note(journal, "start", ctx)
    time.sleep(seconds)
    note(journal, "end", ctx)


@app.task(retry=rowlock.retry.fixed(timedelta(hours=1)))
def outlive(ctx: rowlock.Context, journal: str, fate: str, way: str) -> str:
    """The first run goes on only when it was resumed, and then tries to end as `way` says.

    By then the second one, elsewhere, has met its fate, once that was called for.
    """
    note(journal, "start", ctx)
    place = Path(journal).parent
    if ctx.token == 1:
        wait_for(place / "resumed")
        return _end_late(ctx, way)
    while not (place / f"end-{fate}").exists():
        if ctx.cancel_requested:
            raise rowlock.Cancel("second")
        time.sleep(LOOK_SECONDS)
    if fate == "retrying":
        raise ValueError("second")
    if fate == "dead":
        raise rowlock.Fail("second")
    return "second"


def _end_late(ctx: rowlock.Context, way: str) -> str:
    if way == "fail":
        raise ValueError("first")
    if way == "commit":
        with ctx.transaction() as tx:
            tx.connection.execute("INSERT INTO effect VALUES (1)")
    return "first"


def _statements(job: str, *, first: int, second: int, cents: int) -> tuple[str, ...]:
    # The lower account first: two transfers wait for each other, and never in a circle.
    low, high = sorted([(first, -cents), (second, cents)])
    return (
        f"INSERT INTO ledger VALUES ('{job}', {first}, {second}, {cents})",
        f"UPDATE account SET cents = cents + {low[1]} WHERE id = {low[0]}",
        f"UPDATE account SET cents = cents + {high[1]} WHERE id = {high[0]}",
    )


@app.task(max_crashes=1_000, max_attempts=10_000, retry=rowlock.retry.fixed(0))
def pay(ctx: rowlock.Context, *, first: int, second: int, cents: int) -> None:
    """A transfer from the first account to the second, in a thread."""
    time.sleep(random.uniform(0, 0.2))
    with ctx.transaction() as tx:
        for sql in _statements(ctx.job.id, first=first, second=second, cents=cents):
            tx.connection.execute(sql)
            time.sleep(random.uniform(0, 0.002))


@app.task(max_crashes=1_000, max_attempts=10_000, retry=rowlock.retry.fixed(0))
async def apay(ctx: rowlock.Context, *, first: int, second: int, cents: int) -> None:
    """As `pay`, in a coroutine."""
    await asyncio.sleep(random.uniform(0, 0.2))
    async with ctx.transaction() as tx:
        for sql in _statements(ctx.job.id, first=first, second=second, cents=cents):
            done = tx.connection.execute(sql)
            if asyncio.iscoroutine(done):
                await done
            await asyncio.sleep(random.uniform(0, 0.002))


@app.task
def hold_the_interpreter(ctx: rowlock.Context, journal: str, seconds: float) -> None:
    """Sleep without giving up the interpreter lock."""
    note(journal, "start", ctx)
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    note(journal, "end", ctx)


@app.task
def die(ctx: rowlock.Context, journal: str, signal_number: int) -> None:
    """Take the whole process down."""
    note(journal, "start", ctx)
    os.kill(os.getpid(), signal_number)


@app.task
async def stroll(ctx: rowlock.Context, journal: str, seconds: float = 0.02) -> None:
    """Like `append`, with the patience that jobs have by default."""
    note(journal, "start", ctx)
    await asyncio.sleep(seconds)
    note(journal, "end", ctx)
