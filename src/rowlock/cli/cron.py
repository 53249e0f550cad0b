"""`rowlock cron`: the schedules, when they are due, and to run, pause, resume and delete them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rowlock.cli import Target, show
from rowlock.cli.jobs import each
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.schedule import Schedule


@click.group()
def cron() -> None:
    """Look at schedules; run, pause, resume and delete them."""


@cron.command("list")
@json_option("all that is known of each")
@click.pass_obj
def list_schedules(target: Target, *, as_json: bool) -> None:
    """List the schedules by name: whether each is paused, when it is due, and when it last ran."""
    with target.open_app() as app:
        found = list(_every(app))
    if as_json:
        show.print_json([document(schedule) for schedule in found])
    else:
        show.print_tables(_table(found))


def _every(app: App) -> Iterator[Schedule]:
    after = ""
    while page := app.store.list_schedules(after=after):
        yield from page
        after = page[-1].name


def document(schedule: Schedule) -> dict[str, object]:
    """A schedule as JSON: its fields by their names, times as ISO 8601."""
    return {name: getattr(schedule, name) for name in schedule.__struct_fields__}


def _table(found: list[Schedule]) -> show.Table:
    names = ("schedule", "status", "cron", "timezone", "kind", "next", "last")
    table = show.Table(show.columns(*names, flexible=["schedule", "kind"]), empty="no schedules")
    for schedule in found:
        status = show.Cell("paused", "yellow") if schedule.is_paused else show.Cell("on", "green")
        due = "-" if schedule.is_paused else _shown(schedule.next_at)
        table.add(
            show.Cell(schedule.name, "bold"),
            status,
            schedule.cron,
            schedule.timezone,
            schedule.kind,
            due,
            _shown(schedule.last_at),
        )
    return table


def _shown(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"


@cron.command()
@click.argument("name")
@json_option("the job")
@click.pass_obj
def run(target: Target, *, name: str, as_json: bool) -> None:
    """Enqueue a schedule's job now, paused or not, and print the job's id; its next time stays."""
    with target.open_app() as app:
        job = app.store.run_schedule_now(name)
    if as_json:
        show.print_json(show.job_document(job))
    elif job.created:
        click.echo(f"enqueued {job.id}")
    else:
        click.echo(f"in flight already: {job.id}")


@cron.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option("a line for each: the schedule")
@click.pass_obj
def pause(target: Target, *, names: tuple[str, ...], as_json: bool) -> None:
    """Fire nothing of these schedules until they are resumed."""
    with target.open_app() as app:

        def act(name: str) -> None:
            schedule = app.store.pause_schedule(name)
            _tell(document(schedule), f"paused {show.escaped(name)}", as_json=as_json)

        each(names, act)


@cron.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option("a line for each: the schedule")
@click.pass_obj
def resume(target: Target, *, names: tuple[str, ...], as_json: bool) -> None:
    """Go on with the next tick from now; those that fell into the pause are over."""
    with target.open_app() as app:

        def act(name: str) -> None:
            schedule = app.store.resume_schedule(name)
            text = f"resumed {show.escaped(name)}, next {_shown(schedule.next_at)}"
            _tell(document(schedule), text, as_json=as_json)

        each(names, act)


@cron.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option("a line for each: `name`, and `deleted`")
@click.pass_obj
def delete(target: Target, *, names: tuple[str, ...], as_json: bool) -> None:
    """Remove schedules for good; jobs that they enqueued stay.

    One that stands in the code (@app.task(cron=...)) is written again when a worker of that code
    starts: take it out of the code, or pause it.
    """
    with target.open_app() as app:

        def act(name: str) -> None:
            app.store.delete_schedule(name)
            gone = {"name": name, "deleted": True}
            _tell(gone, f"deleted {show.escaped(name)}", as_json=as_json)

        each(names, act)


def _tell(document: dict[str, object], text: str, *, as_json: bool) -> None:
    click.echo(show.as_json(document) if as_json else text)
