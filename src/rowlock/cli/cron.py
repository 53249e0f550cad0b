"""`rowlock cron`: list, run, pause, resume and delete schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rowlock.cli import HintingGroup, Target, show
from rowlock.cli.jobs import each
from rowlock.cli.options import json_lines_option, json_option

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.schedule import Schedule


@click.group(cls=HintingGroup)
def cron() -> None:
    """List, run, pause, resume and delete schedules."""


@cron.command("list")
@json_option("all fields of each schedule")
@click.pass_obj
def list_schedules(target: Target, *, as_json: bool) -> None:
    """List the schedules by name.

    Shows whether each is paused, when it is due, and when it last ran.
    """
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
    """Return a schedule as JSON: its fields by name, times as ISO 8601."""
    return {name: getattr(schedule, name) for name in schedule.__struct_fields__}


def _table(found: list[Schedule]) -> show.TextTable:
    names = ("schedule", "status", "cron", "timezone", "kind", "next", "last")
    table = show.TextTable(
        show.columns(*names, flexible=["schedule", "kind"]), empty="no schedules"
    )
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
    """Enqueue a schedule's job now and print the job's id.

    This works for paused schedules too, and does not change when the schedule is next due.
    """
    with target.open_app() as app:
        job = app.store.run_schedule_now(name)
    if as_json:
        show.print_json(show.job_document(job))
    elif job.created:
        click.echo(f"enqueued {job.id}")
    else:
        click.echo(f"already in flight: {job.id}")


@cron.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_lines_option("one line per schedule")
@click.pass_obj
def pause(target: Target, *, names: tuple[str, ...], as_json: bool) -> None:
    """Pause schedules: they don't fire until they are resumed."""
    with target.open_app() as app:

        def act(name: str) -> None:
            schedule = app.store.pause_schedule(name)
            _print(document(schedule), f"paused {show.escaped(name)}", as_json=as_json)

        each(names, act)


@cron.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_lines_option("one line per schedule")
@click.pass_obj
def resume(target: Target, *, names: tuple[str, ...], as_json: bool) -> None:
    """Resume schedules from their next tick. Ticks during the pause are skipped."""
    with target.open_app() as app:

        def act(name: str) -> None:
            schedule = app.store.resume_schedule(name)
            text = f"resumed {show.escaped(name)}, next {_shown(schedule.next_at)}"
            _print(document(schedule), text, as_json=as_json)

        each(names, act)


@cron.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_lines_option("one line per schedule: `name` and `deleted`")
@click.pass_obj
def delete(target: Target, *, names: tuple[str, ...], as_json: bool) -> None:
    """Delete schedules permanently. Jobs that they enqueued stay.

    A schedule that is declared in code (@app.task(cron=...)) is created again when a worker with
    that code starts. Remove it from the code, or pause it.
    """
    with target.open_app() as app:

        def act(name: str) -> None:
            app.store.delete_schedule(name)
            gone = {"name": name, "deleted": True}
            _print(gone, f"deleted {show.escaped(name)}", as_json=as_json)

        each(names, act)


def _print(document: dict[str, object], text: str, *, as_json: bool) -> None:
    click.echo(show.as_json(document) if as_json else text)
