"""`rowlock queues`: list, pause and resume queues."""

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
    """List, pause and resume queues."""


@queues.command("list")
@json_option("all counts, as in rowlock stats")
@click.pass_obj
def list_queues(target: Target, *, as_json: bool) -> None:
    """List the queues: whether each is paused, its jobs, and the age of its oldest ready job."""
    from rowlock.cli.stats import document

    with target.open_app() as app:
        found = app.stats()
    if as_json:
        show.print_json([document(queue) for queue in found])
    else:
        show.print_tables(queues_table(found))


def queues_table(found: Sequence[QueueStats], *, title: str = "") -> show.TextTable:
    """Return a table with one row per queue: the jobs to be done, not those finished."""
    from rowlock.cli.stats import count_cell
    from rowlock.job import Count, JobState

    numbers = [*COLUMNS, "oldest ready"]
    columns = show.columns("queue", "status", *numbers, right=numbers, flexible=["queue"])
    table = show.TextTable(columns, title=title, empty="no queues yet")
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
    """Pause queues: workers claim no jobs from them until they are resumed.

    Jobs can still be enqueued, and jobs that workers have already claimed still run. A few of these
    may start after this command has returned: usually within 0.1 seconds, rarely up to 3.
    """
    with target.open_app() as app:
        each(names, _printing(app.pause, done="paused"))


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@click.pass_obj
def resume(target: Target, *, names: tuple[str, ...]) -> None:
    """Resume paused queues: workers claim jobs from them again."""
    with target.open_app() as app:
        each(names, _printing(app.resume, done="resumed"))


def _printing(act: Callable[[str], None], *, done: str) -> Callable[[str], None]:
    def act_and_tell(name: str) -> None:
        act(name)
        click.echo(f"{done} {show.escaped(name)}")

    return act_and_tell
