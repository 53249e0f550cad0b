"""Tasks under limits, which note in a directory what runs beside each other."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rowlock

# Long enough that a second run would begin meanwhile.
RUN_SECONDS = 0.02
tasks = rowlock.Tasks()
line = rowlock.Limit("line", per="key", concurrency_per_key=1)
booked = rowlock.Limit("booked", concurrency=1)
calls = rowlock.Limit("calls", per="key", concurrency_per_key=1)


@contextmanager
def alone(key: str, place: str) -> Iterator[None]:
    """Note the run, and whether another one of the same key goes on."""
    mark = Path(place) / f"{key}.running"
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        note(place, "overlaps", key)
    note(place, "runs", f"{key} {os.getpid()}")
    yield
    mark.unlink(missing_ok=True)


def note(place: str, name: str, text: str) -> None:
    with (Path(place) / name).open("a") as file:
        file.write(f"{text}\n")


def noted(place: Path, name: str) -> list[str]:
    path = place / name
    return path.read_text().splitlines() if path.exists() else []


@tasks.task(limit=line)
def in_thread(key: str, place: str) -> None:
    with alone(key, place):
        time.sleep(RUN_SECONDS)


@tasks.task(limit=line)
async def on_loop(key: str, place: str) -> None:
    with alone(key, place):
        await asyncio.sleep(RUN_SECONDS)


@tasks.task(limit=line, executor="process")
def in_process(key: str, place: str) -> None:
    with alone(key, place):
        time.sleep(RUN_SECONDS)


@tasks.task(limit=booked)
def book(ctx: rowlock.Context, number: int, place: str) -> None:
    """Succeed in a block, and go on until the next job has begun. The last one has none."""
    with ctx.transaction() as tx:
        tx.result = number
    (Path(place) / f"{number}.begun").touch()
    while number < 3 and not (Path(place) / f"{number + 1}.begun").exists():
        time.sleep(0.01)


@tasks.task(limit=calls)
def call(key: str, place: str) -> None:
    """Be throttled until there is a file `go`."""
    note(place, "runs", f"{key} {os.getpid()}")
    if key == "acme" and not (Path(place) / "go").exists():
        raise rowlock.Throttled(86_400, reason="429")


app = rowlock.App()
app.include(tasks)
