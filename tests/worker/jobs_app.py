"""The app that supervised workers of the tests run; its database comes from the environment."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import rowlock

app = rowlock.App()


@app.task
async def noop(number: int = 0) -> int:
    return number


@app.task
def plain(number: int = 0) -> int:
    return number


@app.task
def where() -> int:
    return os.getpid()


@app.task(max_attempts=5)
def kill_myself(signal_number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), signal_number)


@app.task
def wait_for_file(path: str, note: str) -> str:
    """Say that it runs, and wait until a file is there."""
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    while not Path(path).exists():
        time.sleep(0.01)
    return "seen"


@app.task(timeout=0.5, max_attempts=2, retry=rowlock.retry.fixed(0))
def never_ends() -> None:
    while True:
        time.sleep(0.1)


@app.task
def hold_the_interpreter(seconds: float, note: str) -> None:
    """Sleep without giving up the interpreter lock."""
    with Path(note).open("a") as notes:
        notes.write("run\n")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@app.task(cron="* * * * * *")
async def every_second() -> None: ...
