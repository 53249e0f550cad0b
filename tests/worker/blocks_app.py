"""Tasks with `ctx.transaction()` in process slots; the database comes from the environment.

What a run does before, inside and after its block is told by words of its payload. Deaths are for
the first attempt only, so that a job succeeds in the end.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import rowlock
from rowlock.worker.run import Run

app = rowlock.App()
tell_settled = Run.settled


@app.task
def follow_up(number: int) -> int:
    return number


def note_transfer(number: int) -> str:
    return f"INSERT INTO transfer VALUES ({number})"


async def send(connection, sql: str) -> None:
    """Execute on either store's connection: SQLite has one for both colours."""
    done = connection.execute(sql)
    if asyncio.iscoroutine(done):
        await done


def speak(ctx: rowlock.Context, place: str, number: int) -> None:
    ctx.log(f"line {place}")
    ctx.progress({"before": 0.1, "inside": 0.5, "after": 0.9}[place], place)
    try:
        ctx.enqueue_on_success(follow_up, number=number)
    except rowlock.InvalidTransition:
        # Nothing can go with a success that is committed.
        assert place == "after"
    else:
        assert place != "after"


def open_another(ctx: rowlock.Context) -> None:
    """Another block is refused, inside an open one and after one that was committed."""
    block = ctx.transaction()
    is_coroutine = ctx.job.kind.startswith("a")
    try:
        block.__aenter__().send(None) if is_coroutine else block.__enter__()
    except rowlock.InvalidTransition:
        return
    raise AssertionError("a second block")


def tell_slowly(run: Run, success: object, *, note: str) -> None:
    """The block is committed, and the worker not told."""
    Path(note).write_text(f"{os.getpid()}")
    while not Path(f"{note}.go").exists():
        time.sleep(0.01)
    tell_settled(run, success)


def act(word: str, *, ctx: rowlock.Context, place: str, note: str) -> bool:
    """Do as the word says; whether it is to be waited on."""
    number = signal.Signals[word].value if word.startswith("SIG") else 0
    if number and ctx.attempt == 1:
        os.kill(os.getpid(), number)
    match word:
        case "fail":
            raise ValueError("made up")
        case "speak":
            speak(ctx, place, {"before": 1, "inside": 2, "after": 3}[place])
        case "enqueue":
            follow_up.enqueue(number=5)
        case "again":
            open_another(ctx)
        case "lose" if not Path(note).exists():
            Path(note).touch()
            assert app.store.release_worker(ctx.job.worker) == 1
        case "die_untold":
            Run.settled = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        case "tell_slowly":
            Run.settled = functools.partialmethod(tell_slowly, note=note)
        case "outlast":
            # Somebody else's write comes through once the block was undone.
            rowlock.App(app.url).enqueue("another")
        case "linger":
            time.sleep(1)
            Path(note).write_text("it went on")
        case "wait" | "cancel" | "defy":
            with Path(note).open("a") as notes:
                notes.write(f"{os.getpid()}\n")
    return word in ("wait", "see_cancel", "cancel", "defy")


def is_waiting(word: str, *, ctx: rowlock.Context, note: str) -> bool:
    if word in ("wait", "defy"):
        return not Path(f"{note}.go").exists()
    if ctx.cancel_requested and word == "cancel":
        raise rowlock.Cancel("as you wish")
    return not ctx.cancel_requested


def do(words: str, *, ctx: rowlock.Context, place: str, note: str) -> None:
    for word in words.split():
        if act(word, ctx=ctx, place=place, note=note):
            while is_waiting(word, ctx=ctx, note=note):
                with suppress(rowlock.Cancel) if word == "defy" else nullcontext():
                    time.sleep(0.01)


async def ado(words: str, *, ctx: rowlock.Context, place: str, note: str) -> None:
    for word in words.split():
        if act(word, ctx=ctx, place=place, note=note):
            while is_waiting(word, ctx=ctx, note=note):  # noqa: ASYNC110  # for other processes
                await asyncio.sleep(0.01)


def work(
    ctx: rowlock.Context,
    *,
    number: int,
    before: str = "",
    inside: str = "",
    after: str = "",
    note: str = "",
) -> str:
    do(before, ctx=ctx, place="before", note=note)
    with ctx.transaction() as tx:
        tx.connection.execute(note_transfer(number))
        command = Path("/proc/self/cmdline").read_text().replace("\0", " ")
        tx.result = {"number": number, "command": command}
        if "speak" in inside:
            follow_up.using(conn=tx.connection).enqueue(number=4)
        do(inside, ctx=ctx, place="inside", note=note)
    do(after, ctx=ctx, place="after", note=note)
    return "returned"


async def awork(
    ctx: rowlock.Context,
    *,
    number: int,
    before: str = "",
    inside: str = "",
    after: str = "",
    note: str = "",
) -> str:
    await ado(before, ctx=ctx, place="before", note=note)
    async with ctx.transaction() as tx:
        await send(tx.connection, note_transfer(number))
        tx.result = {"number": number}
        if "speak" in inside:
            call = follow_up.using(conn=tx.connection)
            if app.url.startswith("sqlite"):
                call.enqueue(number=4)
            else:
                await call.aenqueue(number=4)
        await ado(inside, ctx=ctx, place="inside", note=note)
    await ado(after, ctx=ctx, place="after", note=note)
    return "returned"


again_at_once = rowlock.retry.fixed(0)
app.task(executor="process", retry=again_at_once)(work)
app.task(executor="process", retry=again_at_once)(awork)
app.task(name="limited", executor="process", max_attempts=1, timeout=3)(work)
app.task(name="alimited", executor="process", max_attempts=1, timeout=3)(awork)


def transfer(*, number: int, first: int, second: int, amount: int) -> tuple[str, ...]:
    return (
        note_transfer(number),
        f"UPDATE account SET balance = balance - {amount} WHERE id = {first}",
        f"UPDATE account SET balance = balance + {amount} WHERE id = {second}",
    )


def die_soon(ctx: rowlock.Context, *, deadly: bool) -> None:
    """At a moment of its own in the first attempt, be it in the middle of the COMMIT."""
    if deadly and ctx.attempt == 1:
        moment = random.uniform(0.0, 0.1)
        threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()


@app.task(executor="process", retry=again_at_once, max_crashes=10)
def pay(
    ctx: rowlock.Context, *, number: int, first: int, second: int, amount: int, deadly: bool
) -> None:
    die_soon(ctx, deadly=deadly)
    with ctx.transaction() as tx:
        for sql in transfer(number=number, first=first, second=second, amount=amount):
            tx.connection.execute(sql)
            time.sleep(0.002)
    # After the block too there is something to do, and to die in.
    time.sleep(0.04)


@app.task(executor="process", retry=again_at_once, max_crashes=10)
async def apay(
    ctx: rowlock.Context, *, number: int, first: int, second: int, amount: int, deadly: bool
) -> None:
    die_soon(ctx, deadly=deadly)
    async with ctx.transaction() as tx:
        for sql in transfer(number=number, first=first, second=second, amount=amount):
            await send(tx.connection, sql)
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.04)
