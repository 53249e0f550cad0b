"""`rowlock queues` and `rowlock stats`: list, pause, resume and count queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rowlock.cli import HintingGroup, Target, show
from rowlock.cli.jobs import each
from rowlock.cli.options import json_option
from rowlock.errors import NotFound

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.job import Count, QueueStats

COLUMNS = ("ready", "scheduled", "waiting", "retrying", "running", "dead")


@click.group(cls=HintingGroup)
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list")
@json_option("all counts, as in rowlock stats")
@click.pass_obj
def list_queues(target: Target, *, as_json: bool) -> None:
    """List the queues: whether each is paused, its jobs, and the age of its oldest ready job."""
    with target.open_app() as app:
        found = app.stats()
    if as_json:
        show.print_json([document(queue) for queue in found])
    else:
        show.print_tables(queues_table(found))


def queues_table(found: Sequence[QueueStats], *, title: str = "") -> show.TextTable:
    """Return a table with one row per queue: the jobs to be done, not those finished."""
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
@click.option(
    "--new", is_flag=True, help="Also pause queues that no job, worker or task of --app has yet."
)
@click.pass_obj
def pause(target: Target, *, names: tuple[str, ...], new: bool) -> None:
    """Pause queues: workers claim no jobs from them until they are resumed.

    Jobs can still be enqueued, and jobs that workers have already claimed still run. A few of these
    may start after this command has returned: usually within 0.1 seconds, rarely up to 3.
    """
    with target.open_app() as app:
        known = None if new else known_queues(app)

        def act(name: str) -> None:
            if known is not None:
                check_queue(name, known, " To pause it anyway, add --new")
            app.pause(name)

        each(names, _printing(act, done="paused"))


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@click.pass_obj
def resume(target: Target, *, names: tuple[str, ...]) -> None:
    """Resume paused queues: workers claim jobs from them again."""
    with target.open_app() as app:
        known = known_queues(app)

        def act(name: str) -> None:
            check_queue(name, known)
            app.resume(name)

        each(names, _printing(act, done="resumed"))


def known_queues(app: App) -> set[str]:
    """Return the queues that a job, a pause, a worker or a task of the app names."""
    stored = {queue.queue for queue in app.stats()}
    served = {queue for worker in app.workers() for queue in worker.queues}
    return stored | served | {task.settings.queue for task in app}


def check_queue(name: str, known: set[str], advice: str = "") -> None:
    """Refuse a queue that nothing names: most likely it is misspelt."""
    from rowlock.store import options
    from rowlock.suggest import nearest

    if options.name(name, option="queue") in known:
        return
    close = nearest(name, known)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise NotFound(f"there is no queue {name!r}: no job, worker or task has it{hint}{advice}")


def _printing(act: Callable[[str], None], *, done: str) -> Callable[[str], None]:
    def act_and_tell(name: str) -> None:
        act(name)
        click.echo(f"{done} {show.escaped(name)}")

    return act_and_tell


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@json_option("all counts, each with `value` and `exact`")
@click.pass_obj
def stats(target: Target, *, queues: tuple[str, ...], as_json: bool) -> None:
    """Count the jobs of queues by state. Without names, all queues are counted.

    Queues that you name are listed even if they are empty. Counting stops at 10,000, so "10,000+"
    means that there are more. Succeeded jobs are counted among the newest 10,000 that have ended.
    """
    with target.open_app() as app:
        found = app.stats(list(queues) or None)
    if as_json:
        show.print_json([document(queue) for queue in found])
    else:
        show.print_tables(stats_table(found))


def document(queue: QueueStats) -> dict[str, Any]:
    """Return a queue as JSON. `exact` is false if there are at least `value` jobs."""
    return {
        "queue": queue.queue,
        "is_paused": queue.is_paused,
        "oldest_ready_seconds": queue.oldest_ready_seconds,
        "counts": {
            state: {"value": count.value, "exact": count.exact}
            for state, count in queue.counts.items()
        },
    }


def stats_table(
    found: Sequence[QueueStats], *, title: str = "", most: int | None = None
) -> show.TextTable:
    """Return a table with one row per queue, one column per state, and sums.

    Of more than `most` queues, those with the most jobs to do are shown. The sums count all.
    """
    from rowlock.job import Count, JobState

    states = list(JobState)
    numbers = [*states, "oldest ready"]
    columns = show.columns("queue", *numbers, right=numbers, flexible=["queue"])
    dropped = ("cancelled", "succeeded", "oldest ready", "waiting", "retrying")
    table = show.TextTable(columns, title=title, empty="no queues yet", dropped=dropped)
    for queue in _busiest(found, most):
        name = f"{queue.queue} (paused)" if queue.is_paused else queue.queue
        cells = [count_cell(state, queue.counts.get(state, Count(0))) for state in states]
        style = "yellow" if queue.is_paused else "bold"
        table.add(show.Cell(name, style), *cells, show.age(queue.oldest_ready_seconds))
    if len(found) > 1:
        sums = [count_cell(state, _summed(found, state)) for state in states]
        ages = [queue.oldest_ready_seconds for queue in found]
        oldest = max((age for age in ages if age is not None), default=None)
        table.add(show.Cell(_all(found, most), "dim"), *sums, show.age(oldest))
    return table


def _all(found: Sequence[QueueStats], most: int | None) -> str:
    return "all" if most is None or len(found) <= most else f"all {len(found):,} queues"


def _busiest(found: Sequence[QueueStats], most: int | None) -> Sequence[QueueStats]:
    """Return the `most` queues with the most waiting and running jobs, in the same order."""
    if most is None or len(found) <= most:
        return found
    from rowlock.job import JobState

    work = (JobState.READY, JobState.RUNNING, JobState.RETRYING)
    ordered = sorted(found, key=lambda queue: -sum(queue.counts[each].value for each in work))
    chosen = {queue.queue for queue in ordered[:most]}
    return [queue for queue in found if queue.queue in chosen]


def count_cell(state: str, count: Count) -> show.Cell:
    """Return a number in its state's colour, and a zero dimmed."""
    text = show.number(count.value, exact=count.exact)
    return show.Cell(text, show.STATE_STYLES[state] if count.value else "dim")


def _summed(found: Sequence[QueueStats], state: Any) -> Count:
    from rowlock.job import Count

    counts = [queue.counts.get(state, Count(0)) for queue in found]
    exact = all(count.exact for count in counts)
    return Count(sum(count.value for count in counts), exact=exact)
