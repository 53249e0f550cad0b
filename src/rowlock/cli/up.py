"""`rowlock up`: the whole system on one machine: a worker with its scheduler, for a first look."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowlock.cli import Target, show
from rowlock.cli.choose import log_options

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.observe.log import Format, Level


@click.command()
@click.option("-p", "--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--drain", is_flag=True, help="Run what is ready, then end.")
@log_options
@click.pass_obj
@click.pass_context
def up(
    ctx: click.Context,
    target: Target,
    *,
    processes: int,
    drain: bool,
    log_level: Level,
    log_format: Format,
) -> None:
    """Run a worker and the scheduler here until interrupted.

    An app whose state has a method `on_up` gets it called once, to enqueue some jobs. There is no
    server, and so no dashboard, in this version: look with `rowlock top`, from another terminal.
    """
    from rowlock.cli.pulse import Pulse
    from rowlock.cli.worker import prepare_children
    from rowlock.worker.settings import worker_settings
    from rowlock.worker.supervisor import Supervisor

    prepare_children(target, log_level=log_level, log_format=log_format)
    app = target.open_named_app()
    pulse = Pulse(app)
    on_up = getattr(app.state, "on_up", None)
    if on_up is not None:
        on_up()
    supervisor = Supervisor(
        app=target.app_spec or "",
        processes=processes,
        settings=worker_settings(drain=drain),
    )
    # A machine that reads gets nothing but log lines.
    if log_format == "console":
        click.echo(_greeting(app, target))
    with app, pulse:
        code = supervisor.run()
    ctx.exit(code)


def _greeting(app: App, target: Target) -> str:
    """What runs here, and what to type next."""
    from rowlock.app import DATABASE_URL_VARIABLE
    from rowlock.store.url import masked

    rowlock = "rowlock"
    if Path(sys.argv[0]).name == "rowlock" and shutil.which("rowlock") is None:
        rowlock = shlex.quote(sys.argv[0])  # As it was typed, by `make up`.
    url = show.escaped(masked(app.url))
    lines = [
        f"rowlock up on {url}",
        f"tasks: {', '.join(show.escaped(kind) for kind in app.kinds) or 'none'}",
        "",
        "In another terminal, in this directory:",
        f"  export ROWLOCK_APP={shlex.quote(target.app_spec or '')}",
        f"  {rowlock} top                 watch it",
        f"  {rowlock} jobs list           see the jobs; one of them: jobs show ID",
        f"  {rowlock} enqueue KIND JSON   add a job",
        "Ctrl-C ends it, once what runs has finished.",
        "",
    ]
    if DATABASE_URL_VARIABLE in os.environ:
        lines.insert(5, f"  export {DATABASE_URL_VARIABLE}={shlex.quote(url)}")
    return "\n".join(lines)
