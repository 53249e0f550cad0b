"""`rowlock up`: the whole system on one machine, in one process, for a first look."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import click

from rowlock.cli import Target

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import QueueStats

LOOK_AGAIN_SECONDS = 0.5


@click.command()
@click.option("--drain", is_flag=True, help="Run what is ready, then end.")
@click.pass_obj
def up(target: Target, *, drain: bool) -> None:
    """Run the app's jobs here until interrupted.

    The example app enqueues some jobs at its start. There is no server, and so no dashboard, in
    this version: this prints what happens.
    """
    app = target.load_app()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    start = getattr(app.state, "on_up", None)
    if start is not None:
        start()
    click.echo(f"rowlock up on {app!r}; tasks: {', '.join(app.kinds)}")
    while not stopped.is_set():
        app.store.prune()
        ran = app.drain()
        if ran or drain:
            _show(app, ran)
        if drain:
            break
        stopped.wait(LOOK_AGAIN_SECONDS)
    app.close()


def _show(app: App, ran: int) -> None:
    click.echo(f"ran {ran} jobs")
    for queue in app.stats():
        click.echo(f"  {queue.queue:<12} {_counts(queue)}")


def _counts(queue: QueueStats) -> str:
    shown = (
        f"{state} {count.value}{'' if count.exact else '+'}"
        for state, count in queue.counts.items()
        if count.value
    )
    return ", ".join(shown)
