"""`rowlock workers`: list the workers, what they serve, and when each last announced itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from rowlock import config
from rowlock.cli import Target, show
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.job import WorkerInfo

# A cell lists at most this many names, then the number of the others.
NAMES_MAX: Final = 3


@click.command()
@json_option("a list of workers with all their fields, and the ids of the jobs they hold")
@click.pass_obj
def workers(target: Target, *, as_json: bool) -> None:
    """List the workers and what they serve.

    Also shows where each runs, how many of its slots are taken, and when it last announced itself.
    """
    with target.open_app() as app:
        found = app.workers()
    if as_json:
        show.print_json([document(worker) for worker in found])
    else:
        show.print_tables(workers_table(found, now=now()))


def document(worker: WorkerInfo) -> dict[str, Any]:
    """Return a worker as JSON, as the HTTP API does."""
    fields = {name: getattr(worker, name) for name in worker.__struct_fields__ if name != "vitals"}
    vitals = worker.vitals
    return {**fields, **{name: getattr(vitals, name) for name in vitals.__struct_fields__}}


def workers_table(found: Sequence[WorkerInfo], *, now: datetime, title: str = "") -> show.TextTable:
    """Return a table with one row per worker."""
    columns = show.columns(
        *("worker", "host", "pid", "queues", "kinds", "slots", "up", "last beat"),
        right=["pid", "slots", "up", "last beat"],
        flexible=["host", "queues", "kinds"],
    )
    dropped = ("up", "host", "pid", "kinds")
    table = show.TextTable(columns, title=title, empty="no workers", dropped=dropped)
    for worker in found:
        silent = _seconds(worker.last_beat_at, now)
        is_silent = silent is not None and silent > config.WORKER_SILENT_SECONDS
        table.add(
            worker.id,
            worker.host or "-",
            str(worker.pid or "-"),
            names(worker.queues),
            names(worker.kinds),
            slots(worker),
            show.age(_seconds(worker.started_at, now)),
            show.Cell(f"{show.age(silent)} ago", "bold red" if is_silent else "green"),
        )
    return table


def slots(worker: WorkerInfo) -> str:
    """Return how many slots are taken, as last announced, and how many jobs are claimed ahead."""
    vitals = worker.vitals
    if vitals.slots is None or vitals.busy is None:
        return show.number(len(worker.running))
    ahead = f" +{vitals.ahead:,}" if vitals.ahead else ""
    return f"{vitals.busy:,} of {vitals.slots:,}{ahead}"


def names(listed: Sequence[str]) -> str:
    """Return a few names, and the number of the others."""
    if not listed:
        return "-"
    more = len(listed) - NAMES_MAX
    return ", ".join(listed[:NAMES_MAX]) + (f" +{more}" if more > 0 else "")


def now() -> datetime:
    """Return the time on this machine."""
    from rowlock.clock import SystemClock, from_us

    return from_us(SystemClock().now_us())


def _seconds(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else (now - since).total_seconds()
