"""`rowlock up`: run server, worker and scheduler on one machine, for a first look."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowlock.cli import Target, show
from rowlock.cli.options import address_options, log_options

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.observe.log import Format, Level
    from rowlock.server.serve import HttpServer


@click.command()
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Worker processes to start.",
)
@click.option("--drain", is_flag=True, help="Run the jobs that are ready, then exit. No server.")
@address_options
@log_options
@click.pass_obj
@click.pass_context
def up(
    ctx: click.Context,
    target: Target,
    *,
    processes: int,
    drain: bool,
    host: str,
    port: int,
    log_level: Level,
    log_format: Format,
) -> None:
    """Run a server, a worker and the scheduler until interrupted.

    Prints the server's address. Needs --app. If the app's state has a method `on_up`, it is called
    once, for example to enqueue some jobs.
    """
    from rowlock.cli.up_status import UpStatus
    from rowlock.cli.worker import prepare_children
    from rowlock.worker.settings import worker_settings
    from rowlock.worker.supervisor import Supervisor

    prepare_children(target, log_level=log_level, log_format=log_format)
    app = target.open_named_app()
    status = UpStatus(app)
    on_up = getattr(app.state, "on_up", None)
    if on_up is not None:
        on_up()
    supervisor = Supervisor(
        app=target.app_spec or "",
        processes=processes,
        settings=worker_settings(drain=drain),
    )
    server = None if drain else _server(app, host=host, port=port)
    # With --log-format json, a program reads the output: print nothing but log lines.
    if log_format == "console":
        click.echo(_greeting(app, target, server))
    with app, status, server or nullcontext():
        code = supervisor.run()
    ctx.exit(code)


def _server(app: App, *, host: str, port: int) -> HttpServer | None:
    """Return the server, or None if it is not installed."""
    try:
        from rowlock.server.serve import HttpServer
    except ModuleNotFoundError as error:
        click.echo(f"running without a server: {error}", err=True)
        return None
    return HttpServer(app, host=host, port=port)


def _greeting(app: App, target: Target, server: HttpServer | None) -> str:
    """Return what runs here, and what to type next."""
    from rowlock.app import DATABASE_URL_VARIABLE
    from rowlock.cli.serve import OPEN
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
        "Ctrl-C stops it once the running jobs have finished.",
        "",
    ]
    if DATABASE_URL_VARIABLE in os.environ:
        lines.insert(5, f"  export {DATABASE_URL_VARIABLE}={shlex.quote(url)}")
    if server is not None:
        addresses = [f"dashboard: {server.address}/  API: {server.address}/docs"]
        lines[2:2] = [*addresses, OPEN] if server.is_open else addresses
    return "\n".join(lines)
