"""`rowlock top`: watch queues, workers and running jobs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from rowlock import config
from rowlock.cli import Target, show
from rowlock.cli.options import json_lines_option, seconds

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.app import App
    from rowlock.job import Job, QueueStats, WorkerInfo
    from rowlock.store.ops.history import Flow

# A screen has no room for more.
QUEUES_MAX: Final = 10
WORKERS_MAX: Final = 8
RUNNING_MAX: Final = 10
# The longest-running jobs are picked from this many of the newest running jobs.
LOOKED_AT_MAX: Final = 100
INTERVAL_SECONDS_MIN: Final = 0.1
# A thread can't wait for some thousand years, and nobody watches a screen for a day.
INTERVAL_SECONDS_MAX: Final = config.DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Frame:
    """The queues, workers and running jobs at one moment."""

    at: datetime
    database: str
    queues: Sequence[QueueStats]
    workers: Sequence[WorkerInfo]
    running: Sequence[Job]
    flow: Flow


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option(
    "--interval",
    type=seconds,
    default=1.0,
    show_default=True,
    metavar="DURATION",
    help="Time between two frames, at most one day.",
)
@json_lines_option("one line per frame")
@click.pass_obj
def top(target: Target, *, once: bool, interval: float, as_json: bool) -> None:
    """Watch queues, workers and the longest-running jobs until interrupted.

    On a terminal the frame is refreshed. In a pipe, frames follow each other. Of more than ten
    queues, the ten with the most to do are shown, but the sums count all. "in/s" and "out/s" are
    the jobs enqueued and ended per second, over the last half minute.
    """
    if interval > INTERVAL_SECONDS_MAX:
        raise click.BadParameter("must be a day or less", param_hint="--interval")
    pause = max(interval, INTERVAL_SECONDS_MIN)
    over = threading.Event()

    def end(*_: object) -> None:
        # The first signal takes effect between two frames: raised anywhere, it could interrupt a
        # cleanup. The second one is raised.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        over.set()

    before = signal.signal(signal.SIGINT, end)
    try:
        with target.open_app() as app, suppress(KeyboardInterrupt):
            frames = _frames(app, once=once, interval=pause, over=over)
            _show(frames, is_live=show.is_terminal() and not once, as_json=as_json)
    finally:
        signal.signal(signal.SIGINT, before)


def _frames(app: App, *, once: bool, interval: float, over: threading.Event) -> Iterator[Frame]:
    from rowlock.store.ops.history import read_flow

    while True:
        yield _frame(app, app.stats(), app.store.run(read_flow()))
        if once or over.wait(interval):
            return


def _frame(app: App, queues: Sequence[QueueStats], flow: Flow) -> Frame:
    from rowlock.cli.workers import now

    at = now()
    running = app.list(state="running", limit=LOOKED_AT_MAX).jobs
    longest = sorted(running, key=lambda job: job.started_at or at)[:RUNNING_MAX]
    name = repr(app).removeprefix("<App ").removesuffix(">")
    return Frame(at, name, queues, app.workers(), longest, flow)


def _show(frames: Iterator[Frame], *, is_live: bool, as_json: bool) -> None:
    if as_json:
        for frame in frames:
            click.echo(show.as_json(document(frame)))
    elif is_live and show.is_rich():
        _show_live(frames)
    else:
        for frame in frames:
            if is_live:
                click.clear()
            show.styled(header(frame), "bold")
            click.echo()
            show.print_tables(*tables(frame))
            if not is_live:
                click.echo()


def _show_live(frames: Iterator[Frame]) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    console = show.rich_console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for frame in frames:
            parts: list[Any] = [Text(header(frame), style="bold"), ""]
            for table in tables(frame):
                parts += [show.rich_table(table, room=console.width), ""]
            live.update(Group(*parts, Text("Ctrl-C ends", style="dim")), refresh=True)


def header(frame: Frame) -> str:
    """Return the first line: the database, the time, the workers and the rates."""
    return (
        f"{show.escaped(frame.database)}  {frame.at:%H:%M:%S}Z  "
        f"{show.plural(len(frame.workers), 'worker')}  "
        f"{_rate(frame.flow.enqueued)} in/s  {_rate(frame.flow.finished)} out/s"
    )


def _rate(per_second: float) -> str:
    """Return a rate. A slow one has two digits, so that one job per minute is not shown as 0."""
    return f"{per_second:,.0f}" if per_second >= 10 or not per_second else f"{per_second:.2g}"


def tables(frame: Frame) -> tuple[show.TextTable, ...]:
    """Return the tables of queues, workers and running jobs."""
    from rowlock.cli.jobs import jobs_table
    from rowlock.cli.queues import stats_table
    from rowlock.cli.workers import workers_table

    workers = frame.workers[:WORKERS_MAX]
    more = len(frame.workers) - len(workers)
    return (
        stats_table(frame.queues, title="Queues", most=QUEUES_MAX),
        workers_table(workers, now=frame.at, title=f"Workers{f' ({more:,} more)' if more else ''}"),
        jobs_table(frame.running, now=frame.at, title="Running, longest first", has_state=False),
    )


def document(frame: Frame) -> dict[str, object]:
    """Return a frame as JSON."""
    from rowlock.cli import queues, workers

    return {
        "at": frame.at,
        "database": frame.database,
        "enqueued_per_second": frame.flow.enqueued,
        "finished_per_second": frame.flow.finished,
        "succeeded_per_second": frame.flow.succeeded,
        "queues": [queues.document(queue) for queue in frame.queues],
        "workers": [workers.document(worker) for worker in frame.workers],
        "running": [show.job_document(job) for job in frame.running],
    }
