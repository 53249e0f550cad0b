"""The tasks of a run, and the app that workers and producers load.

Every handler records its begin before it does anything, and its end before it returns. A kill may
use up an attempt only of a job that ran alone (`attempts`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

from rowlock import retry
from rowlock.app import App
from rowlock.chaos.journal import DIRECTORY_VARIABLE, Journal, Word
from rowlock.chaos.worker import live_by_wrong_clock
from rowlock.context import Cancel, Context, Throttled
from rowlock.ids import new_id
from rowlock.limits import Limit, Rate
from rowlock.task import Tasks

SPEC: Final = f"{__name__}:app"
# The URL comes from the environment, as for every app.
SCHEMA_VARIABLE: Final = "ROWLOCK_CHAOS_SCHEMA"
JOURNALS: Final = "journals"
# The table in which handlers write rows that must exist exactly once.
EFFECTS: Final = "chaos_effect"

PATIENT: Final = 1_000
# The attempts of a job that does not fail by itself. They are few, so that one that is counted
# without need matters.
INNOCENT: Final = 5
DOOMED_ATTEMPTS: Final = 2
LINGER_SECONDS: Final = 4.0
_LOOK_SECONDS: Final = 0.02
# How long a key is closed after a handler was throttled.
THROTTLED_SECONDS: Final = 0.1

# Narrow enough that jobs wait, and wide enough that they do not hold up a run.
LIMITS: Final = {
    "pool": Limit("pool", concurrency=6, per="lane", concurrency_per_key=2),
    "meter": Limit("meter", rate=Rate(60, burst=6), per="lane", rate_per_key=Rate(20, burst=2)),
    "line": Limit("line", per="lane", ordered=True),
}

tasks: Tasks = Tasks()


@cache
def journal() -> Journal:
    """Return the journal of this process."""
    return Journal(Path(os.environ[DIRECTORY_VARIABLE]) / JOURNALS, "worker")


def _begin(ctx: Context) -> None:
    job = ctx.job
    journal().note(Word.START, job.id, ctx.token, f"{job.attempt} {job.kind} {job.tenant or '-'}")


def _end(ctx: Context, how: str = "ok") -> None:
    journal().note(Word.END, ctx.job.id, ctx.token, how)


@tasks.task(max_attempts=INNOCENT, max_crashes=PATIENT)
async def brief(ctx: Context, seconds: float) -> None:
    """Sleep, as most jobs do."""
    _begin(ctx)
    await asyncio.sleep(seconds)
    _end(ctx)


@tasks.task(max_attempts=INNOCENT, max_crashes=PATIENT)
def plain(ctx: Context, seconds: float) -> None:
    """Do as `brief`, in a thread."""
    _begin(ctx)
    threading.Event().wait(seconds)
    _end(ctx)


@tasks.task(max_attempts=1)
async def once(ctx: Context, seconds: float) -> None:
    """Run at most once."""
    _begin(ctx)
    await asyncio.sleep(seconds)
    _end(ctx)


@tasks.task(max_attempts=INNOCENT, max_crashes=PATIENT, keep=0)
async def fleeting(ctx: Context, seconds: float) -> None:
    """Do as `brief`, but the job is not kept."""
    _begin(ctx)
    await asyncio.sleep(seconds)
    _end(ctx)


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT, retry=retry.fixed(0.2))
async def falter(ctx: Context, failures: int) -> None:
    """Fail `failures` times, then succeed."""
    _begin(ctx)
    if ctx.attempt <= failures:
        _end(ctx, "fail")
        raise ValueError(f"attempt {ctx.attempt}")
    _end(ctx)


@tasks.task(max_attempts=DOOMED_ATTEMPTS, max_crashes=PATIENT, retry=retry.fixed(0.1))
async def doom(ctx: Context) -> None:
    """Fail until the job is dead."""
    _begin(ctx)
    _end(ctx, "fail")
    raise ValueError("as ever")


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT, retry=retry.fixed(1.0))
async def linger(ctx: Context) -> None:
    """Wait to be cancelled, then fail: the process that wanted to cancel it may be killed."""
    _begin(ctx)
    end = time.monotonic() + LINGER_SECONDS
    try:
        while time.monotonic() < end and not ctx.cancel_requested:  # noqa: ASYNC110  # as users do
            await asyncio.sleep(_LOOK_SECONDS)
    except asyncio.CancelledError:
        _end(ctx, "cancel" if ctx.cancel_requested else "stop")
        raise
    if ctx.cancel_requested:
        _end(ctx, "cancel")
        raise Cancel("seen")
    _end(ctx, "fail")
    raise TimeoutError("the job was not cancelled in time")


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT, retry=retry.fixed(0.1))
def book(ctx: Context, seconds: float) -> None:
    """Write a row in the transaction that records its success."""
    _begin(ctx)
    threading.Event().wait(seconds)
    with ctx.transaction() as tx:
        is_postgres = hasattr(tx.connection, "pgconn")
        table = f"{os.environ[SCHEMA_VARIABLE]}.{EFFECTS}" if is_postgres else EFFECTS
        tx.connection.execute(f"INSERT INTO {table} VALUES ('{ctx.job.id}', {ctx.token})")  # noqa: S608  # ours
        _end(ctx)


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT)
async def lead(ctx: Context, seconds: float) -> None:
    """Enqueue another job if, and only if, this one succeeds."""
    _begin(ctx)
    follower = new_id()
    journal().note(Word.FOLLOW, follower, ctx.token, ctx.job.id)
    ctx.enqueue_on_success(brief.using(id=follower), seconds=seconds)
    await asyncio.sleep(seconds)
    _end(ctx)


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT)
async def grow(ctx: Context, seconds: float) -> None:
    """Add two jobs to its workflow if, and only if, this one succeeds."""
    _begin(ctx)
    flow = ctx.workflow
    first = flow.add(brief.job(seconds=seconds))
    last = flow.add(brief.job(seconds=seconds), after=first)
    for added in (first, last):
        journal().note(Word.FOLLOW, added.id, ctx.token, ctx.job.id)
    journal().note(Word.NODE, last.id, ctx.token, f"{flow.id} wait {first.id}")
    journal().note(Word.SINK, last.id, ctx.token, ctx.job.id)
    await asyncio.sleep(seconds)
    _end(ctx)


@tasks.task(max_attempts=INNOCENT, max_crashes=PATIENT, limit=LIMITS["pool"])
async def pooled(ctx: Context, seconds: float, lane: int) -> None:
    """Do as `brief`, but only a few at once."""
    _begin(ctx)
    await asyncio.sleep(seconds)
    _end(ctx)


@tasks.task(max_attempts=INNOCENT, max_crashes=PATIENT, limit=LIMITS["meter"])
def metered(ctx: Context, seconds: float, lane: int, throttled: bool) -> None:
    """Do as `plain`, at a rate. Some are throttled in one of three runs, on average."""
    _begin(ctx)
    threading.Event().wait(seconds)
    if throttled and ctx.token % 3 == 0:
        _end(ctx, "throttled")
        raise Throttled(THROTTLED_SECONDS, "429")
    _end(ctx)


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT, retry=retry.fixed(0.1), limit=LIMITS["line"])
async def lined(ctx: Context, seconds: float, lane: int, failures: int) -> None:
    """Do as `falter`, in the order in which the jobs were enqueued."""
    _begin(ctx)
    await asyncio.sleep(seconds)
    if ctx.attempt <= failures:
        _end(ctx, "fail")
        raise ValueError(f"attempt {ctx.attempt}")
    _end(ctx)


@tasks.task(max_attempts=PATIENT)
def poison(ctx: Context) -> None:
    """Crash its process in every run."""
    _begin(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(max_attempts=PATIENT, max_crashes=PATIENT)
async def tick(ctx: Context) -> None:
    """Do nothing: a schedule enqueues this job."""
    _begin(ctx)
    _end(ctx)


def chaos_app(url: str | None, *, schema: str) -> App:
    """Return the app of a run. Without `url`, the environment's is used."""
    app = App(url, schema=schema)
    app.include(tasks)
    return app


def __getattr__(name: str) -> Any:
    """Create `app` when a child of a worker asks for it, not on import."""
    if name == "app":
        journal()  # Before there are threads, because two of them would open two.
        live_by_wrong_clock()
        return chaos_app(None, schema=os.environ[SCHEMA_VARIABLE])
    raise AttributeError(name)
