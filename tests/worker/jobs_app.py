"""The app that supervised workers of the tests run; its database comes from the environment."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import rowlock

app = rowlock.App()


@app.task
async def noop(number: int = 0) -> int:
    return number


@app.task
async def noted(number: int, note: str, deadly: int = -1, stuck: int = -1) -> None:
    """Note the run of a job of a block. One of them kills its process, or holds up its loop, once.

    All of that without suspending.
    """
    _note(number, Path(note), deadly=deadly, stuck=stuck)


def _note(number: int, note: Path, *, deadly: int, stuck: int) -> None:
    known = note.read_text() if note.exists() else ""
    is_first = f"({number}) " not in known
    with note.open("a") as file:
        file.write(f"({number}) {os.getpid()}\n")
    if is_first and number == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    while is_first and number == stuck and not note.with_suffix(".go").exists():
        time.sleep(0.01)


@app.task
def plain(number: int = 0) -> int:
    return number


@app.task
def fails(text: str = "no") -> None:
    raise ValueError(text)


@app.task
def spread(count: int, key: str) -> None:
    """Enqueue by many, with a key, and with the same key again."""
    app.enqueue_many([noop.using(delay=60).job(number=number) for number in range(count)])
    noop.using(delay=60).enqueue()
    for _ in range(2):
        noop.using(delay=60, key=key).enqueue()


@app.task
def where() -> int:
    return os.getpid()


@app.task
def kill_group() -> None:
    """Take down the supervisor and all its children, as the end of a container does."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


@app.task(max_attempts=5)
def kill_myself(signal_number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), signal_number)


@app.task
def claim_and_die(ctx: rowlock.Context, queue: str) -> None:
    """Lease a job in its worker's name, which nobody here knows of, and die, once."""
    if ctx.job.crashes == 0:
        assert ctx.job.worker is not None
        assert app.store.claim(worker=ctx.job.worker, queues=[queue], lease=3600)
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(max_attempts=5, max_crashes=2)
def end_process(code: int) -> None:
    os._exit(code)


@app.task(max_attempts=3, max_crashes=2, retry=rowlock.retry.fixed(0))
def take_memory() -> None:
    """Wait for a limit to be set, then take more than that."""
    while resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        time.sleep(0.01)
    taken = []
    while True:
        taken.append(bytearray(64 * 1024 * 1024))


@app.task(max_attempts=5, max_crashes=2)
async def end_loop(how: str) -> None:
    """End the loop that the worker runs on."""
    if how == "stop":
        asyncio.get_running_loop().stop()
    elif how == "cancel":
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    else:
        await asyncio.create_task(_exit())


async def _exit() -> None:
    sys.exit(3)


def _leave(error: str) -> None:
    raise {"SystemExit": SystemExit, "GeneratorExit": GeneratorExit}[error]("bye")


@app.task(max_attempts=1)
def leave_thread(error: str) -> None:
    _leave(error)


@app.task(max_attempts=1)
async def leave_coroutine(error: str) -> None:
    _leave(error)


@app.task(max_attempts=1, executor="process")
def leave_slot(error: str) -> None:
    _leave(error)


@app.task
def fork_thread() -> int:
    return os.fork()


@app.task
async def fork_coroutine() -> int:
    return os.fork()


@app.task(executor="process")
def fork_slot() -> int:
    return os.fork()


@app.task
def print_and_look(note: str) -> None:
    """Print, and tell what this process has open as its standard streams."""
    for stream in (sys.stdout, sys.stderr):
        stream.write("printed\n")
        stream.flush()
    opened = [f"{number} {Path(f'/proc/self/fd/{number}').readlink()}\n" for number in range(3)]
    Path(note).write_text("".join(opened))


@app.task(max_attempts=1)
def start_and_terminate(how: str) -> int | None:
    """Start a process, terminate it, and tell how it ended."""
    if how == "fork":
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=[60])
        forked.start()
        forked.terminate()
        forked.join(20)
        return forked.exitcode
    with subprocess.Popen(["sleep", "60"]) as started:
        started.terminate()
        return started.wait(20)


@app.task
def wait_for_file(path: str, note: str) -> str:
    """Say that it runs, and wait until a file is there."""
    _note_process(note)
    while not Path(path).exists():
        time.sleep(0.01)
    return "seen"


@app.task
async def block_loop(path: str, note: str) -> None:
    """As `wait_for_file`, and keep the event loop from doing anything meanwhile."""
    wait_for_file.function(path, note)


@app.task
async def note_process(note: str) -> None:
    """Say where it runs."""
    _note_process(note)


def _note_process(note: str) -> None:
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()}\n")


@app.task
def settle_and_die(ctx: rowlock.Context, path: str) -> None:
    """Succeed, and take the process down once a file is there."""
    with ctx.transaction():
        pass
    while not Path(path).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(timeout=2)
def wait_two_seconds_for_file(path: str, note: str) -> str:
    """As `wait_for_file`, with a limit."""
    return wait_for_file.function(path, note)


@app.task(timeout=6)
def wait_six_seconds_for_file(path: str, note: str) -> str:
    """The same, with a limit that a busy machine does not reach by itself."""
    return wait_for_file.function(path, note)


@app.task
def wait_for_stop(ctx: rowlock.Context, note: str) -> None:
    """Say when the worker has been told to stop."""
    while not ctx.stopping:
        time.sleep(0.01)
    Path(note).touch()


@app.task(timeout=0.5, max_attempts=2, retry=rowlock.retry.fixed(0))
def never_ends() -> None:
    while True:
        time.sleep(0.1)


@app.task(timeout=1, max_attempts=1)
def hang(note: str) -> None:
    """Sit in one call, where no exception reaches it, for longer than any test."""
    with Path(note).open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    time.sleep(3600)


@app.task(max_attempts=1)
def hang_without_limit(note: str) -> None:
    """As `hang`; only a request to cancel ends it."""
    hang.function(note)


@app.task(timeout=1, max_attempts=1)
async def block_the_loop(note: str) -> None:
    """As `hang`, where all coroutines of its child wait for it."""
    hang.function(note)


@app.task
def hold_the_interpreter(seconds: float, note: str) -> None:
    """Sleep without giving up the interpreter lock."""
    with Path(note).open("a") as notes:
        notes.write("run\n")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


@app.task(cron="* * * * * *")
async def every_second() -> None: ...


# Those that wait to end this process, by the number of their transfer.
_ends: dict[int, threading.Timer] = {}


def _die_at(place: str, *, ctx: rowlock.Context, number: int, deadly: bool) -> None:
    """Deadly transfers take down their process in their first two runs, each somewhere else."""
    places = ("before", "inside", "after", "somewhere")
    wanted = places[(number // 10 + ctx.job.crashes) % 4]
    if not deadly or ctx.job.crashes > 1:
        return
    if wanted == place:
        os.kill(os.getpid(), signal.SIGKILL)
    if wanted == "somewhere" and place == "before":
        # At a moment of its own, be it in the middle of the COMMIT.
        moment = random.uniform(0.0, 0.01)
        _ends[number] = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL))
        _ends[number].start()
    if wanted == "somewhere" and place == "after":
        # Too late: it would be the death of whoever runs next, and runs alone.
        _ends.pop(number).cancel()


def _transfer(*, number: int, first: int, second: int, amount: int) -> tuple[str, ...]:
    return (
        f"INSERT INTO transfer VALUES ({number})",
        f"UPDATE account SET balance = balance - {amount} WHERE id = {first}",
        f"UPDATE account SET balance = balance + {amount} WHERE id = {second}",
    )


@app.task(retry=rowlock.retry.fixed(0))
def pay(
    ctx: rowlock.Context, *, number: int, first: int, second: int, amount: int, deadly: bool
) -> None:
    _die_at("before", ctx=ctx, number=number, deadly=deadly)
    with ctx.transaction() as tx:
        for sql in _transfer(number=number, first=first, second=second, amount=amount):
            tx.connection.execute(sql)
        _die_at("inside", ctx=ctx, number=number, deadly=deadly)
    _die_at("after", ctx=ctx, number=number, deadly=deadly)


@app.task(retry=rowlock.retry.fixed(0))
async def apay(
    ctx: rowlock.Context, *, number: int, first: int, second: int, amount: int, deadly: bool
) -> None:
    _die_at("before", ctx=ctx, number=number, deadly=deadly)
    async with ctx.transaction() as tx:
        for sql in _transfer(number=number, first=first, second=second, amount=amount):
            done = tx.connection.execute(sql)
            if asyncio.iscoroutine(done):
                await done
        _die_at("inside", ctx=ctx, number=number, deadly=deadly)
    _die_at("after", ctx=ctx, number=number, deadly=deadly)
