"""`rowlock serve`: serve the HTTP API and the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rowlock.cli import Target
from rowlock.cli.options import address_options, log_options

if TYPE_CHECKING:
    from rowlock.observe.log import Format, Level
    from rowlock.server.serve import HttpServer


OPEN: Final = (
    "no token exists, so everyone on this machine has access; create one: `rowlock tokens create`"
)


@click.command()
@address_options
@click.option(
    "--no-dashboard",
    is_flag=True,
    envvar="ROWLOCK_NO_DASHBOARD",
    show_envvar=True,
    help="Serve only the API, without the dashboard.",
)
@log_options
@click.pass_obj
def serve(
    target: Target,
    *,
    host: str,
    port: int,
    no_dashboard: bool,
    log_level: Level,
    log_format: Format,
) -> None:
    """Serve the HTTP API and the dashboard until interrupted.

    SIGTERM or Ctrl-C gives running requests 25 seconds to finish. A second signal stops it at once.

    With --app, payloads are checked against the tasks. Without it, every kind is accepted. On
    loopback no token is needed as long as none exists. Needs rowlock[server].
    """
    from rowlock.observe import log

    try:
        from rowlock.server.serve import HttpServer
    except ModuleNotFoundError as error:
        raise click.UsageError(str(error)) from error
    log.configure(log_level, log_format)
    with target.open_app() as app:
        server = HttpServer(app, host=host, port=port, has_dashboard=not no_dashboard)
        if log_format == "console":
            click.echo(greeting(server))
        server.run()


def greeting(server: HttpServer) -> str:
    """Return the lines to print at startup: the address, and whether it is open."""
    lines = [f"rowlock is serving at {server.address}/ (API reference: {server.address}/docs)"]
    if server.is_open:
        lines.append(OPEN)
    return "\n".join(lines)
