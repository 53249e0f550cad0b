"""Tasks for process slots; the database comes from the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import rowlock
from rowlock import config

app = rowlock.App()


@app.task
def thread_pid() -> int:
    return os.getpid()


@app.task(executor="process")
def slot_pid() -> int:
    return os.getpid()


@app.task(executor="process")
async def slot_pid_async() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@app.task
def follow_up(number: int) -> int:
    return number


@app.task(executor="process")
def talk(ctx: rowlock.Context) -> str:
    sys.stdout.write("{" * 100_000)
    sys.stderr.write("noise\n")
    ctx.progress(0.25, "a quarter")
    ctx.log("first")
    ctx.log("odd \x00 \ud800 line")
    ctx.enqueue_on_success(follow_up.using(priority=3), number=7)
    ctx.progress(1, "all")
    return f"{ctx.attempt} {ctx.job.kind}"


@app.task(executor="process")
def grow(ctx: rowlock.Context, number: int) -> int:
    added = ctx.workflow.map(follow_up.using(priority=4).job(number=each) for each in range(number))
    ctx.workflow.add(sum_up.job(numbers=added.results), after=added)
    return number


@app.task(executor="process")
def sum_up(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(executor="process", max_attempts=1)
def log_a_number(ctx: rowlock.Context) -> None:
    ctx.log("long " * config.SLOT_FRAME_BYTES_MAX)
    ctx.log(5)  # type: ignore[arg-type]  # it is turned into text


@app.task(executor="process")
def surroundings() -> dict[str, object]:
    """Signals that are not for us, and what this process was given."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    ignored = "import signal; print(int(signal.getsignal(signal.SIGTERM)))"
    inherited = subprocess.run([sys.executable, "-c", ignored], capture_output=True, check=True)
    open_here = Path("/proc/self/fd").iterdir()
    links = [str(path.readlink()) for path in open_here if path.is_symlink()]
    return {
        "sockets": sum(link.startswith("socket:") for link in links),
        "memory": sum("memfd" in link for link in links),
        "sigterm": int(inherited.stdout),
        "name": Path("/proc/self/comm").read_text().strip(),
    }


@app.task(executor="process", max_crashes=1)
def crash_and_leave_a_child(note: str) -> None:
    """A forked process keeps everything open that the slot had open."""
    if os.fork() == 0:
        Path(note).write_text(f"{os.getpid()}")
        time.sleep(60)
        os._exit(0)
    while not Path(note).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def large(text: str) -> str:
    return text


@app.task(executor="process", max_attempts=5, retry=rowlock.retry.fixed(0))
def crash(number: int = signal.SIGSEGV) -> None:
    os.kill(os.getpid(), number)


@app.task(executor="process", max_attempts=1)
def fail() -> None:
    raise ValueError("no good")


@app.task
def wait_in_thread(path: str, note: str) -> int:
    return _wait(path, note)


@app.task(executor="process")
def wait_in_slot(path: str, note: str) -> int:
    return _wait(path, note)


def _wait(path: str, note: str) -> int:
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    while not Path(path).exists():
        time.sleep(0.01)
    return os.getpid()


@app.task(executor="process", timeout=0.5, max_attempts=2, retry=rowlock.retry.fixed(0))
def never_ends() -> None:
    while True:
        time.sleep(60)


@app.task(executor="process", timeout=0.5, max_attempts=1)
async def never_ends_async() -> None:
    await asyncio.sleep(3600)


@app.task(executor="process")
def until_cancelled(ctx: rowlock.Context, note: str) -> None:
    Path(note).write_text(f"{os.getpid()}")
    while not ctx.cancel_requested:
        time.sleep(0.01)
    raise rowlock.Cancel("as you wish")


@app.task(executor="process")
async def until_cancelled_async(note: str) -> None:
    _write(note, f"{os.getpid()}")
    try:
        await asyncio.sleep(3600)
    finally:
        _write(note, "cleaned up")


def _write(note: str, text: str) -> None:
    Path(note).write_text(text)


@app.task(executor="process")
def until_stopping(ctx: rowlock.Context, note: str) -> str:
    Path(note).write_text(f"{os.getpid()}")
    while not ctx.stopping:
        time.sleep(0.01)
    return "stopped"


@app.task(executor="process")
def stubborn(note: str) -> None:
    Path(note).write_text(f"{os.getpid()}")
    while True:
        time.sleep(60)
