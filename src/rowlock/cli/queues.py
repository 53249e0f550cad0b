"""`rowlock queues`: what waits in each, and to stop and start one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from rowlock.cli import Target, show
from rowlock.cli.jobs import each
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from rowlock.job import QueueStats

COLUMNS = ("ready", "scheduled", "retrying", "running", "dead")


@click.group()
def queues() -> None:
    """Look at queues, pause and resume them."""


@queues.command("list")
@json_option("all counts, as rowlock stats")
@click.pass_obj
def list_queues(target: Target, *, as_json: bool) -> None:
    """List the queues: whether each is paused, and what it holds.

    Also how long its oldest ready job waits.
    """
    from rowlock.cli.stats import document

    with target.open_app() as app:
        found = app.stats()
    if as_json:
        show.print_json([document(queue) for queue in found])
    else:
        show.print_tables(queues_table(found))


def queues_table(found: Sequence[QueueStats], *, title: str = "") -> show.Table:
    """One row a queue: what there is to do, not what is done."""
    from rowlock.cli.stats import count_cell
    from rowlock.job import Count, JobState

    numbers = [*COLUMNS, "oldest ready"]
    columns = show.columns("queue", "status", *numbers, right=numbers, flexible=["queue"])
    table = show.Table(columns, title=title, empty="no queues yet")
    for queue in found:
        status = show.Cell("paused", "yellow") if queue.is_paused else show.Cell("open", "green")
        cells = [
            count_cell(state, queue.counts.get(JobState(state), Count(0))) for state in COLUMNS
        ]
        oldest = show.age(queue.oldest_ready_seconds)
        table.add(show.Cell(queue.queue, "bold"), status, *cells, oldest)
    return table


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@click.pass_obj
def pause(target: Target, *, names: tuple[str, ...]) -> None:
    """Let nothing of these queues be claimed until they are resumed.

    Enqueues go on, and jobs that workers have already claimed run to their end. A few of these may
    begin after this command has returned: usually within 0.1 seconds, rarely up to 3.
    """
    with target.open_app() as app:
        each(names, _told(app.pause, done="paused"))


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@click.pass_obj
def resume(target: Target, *, names: tuple[str, ...]) -> None:
    """Claim from paused queues again."""
    with target.open_app() as app:
        each(names, _told(app.resume, done="resumed"))


def _told(act: Callable[[str], None], *, done: str) -> Callable[[str], None]:
    def act_and_tell(name: str) -> None:
        act(name)
        click.echo(f"{done} {show.escaped(name)}")

    return act_and_tell
