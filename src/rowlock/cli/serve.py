"""`rowlock serve`: the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rowlock.cli import Target
from rowlock.cli.options import address_options, log_options

if TYPE_CHECKING:
    from rowlock.observe.log import Format, Level
    from rowlock.server.serve import HttpServer


OPEN: Final = (
    "open to everybody on this machine, because no token was made: `rowlock tokens create`"
)


@click.command()
@address_options
@click.option(
    "--no-dashboard",
    is_flag=True,
    envvar="ROWLOCK_NO_DASHBOARD",
    show_envvar=True,
    help="Serve nothing but the API.",
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
    """Serve the HTTP API until interrupted: SIGTERM or Ctrl-C lets it finish what it works on.

    With --app, payloads are checked against the tasks; without, any kind is accepted. On loopback
    it asks for no token as long as none was made. Running requests get 25 seconds to end in; a
    second signal ends it at once. Needs rowlock[server].
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
    """Where it is, and who may come in."""
    lines = [f"rowlock serves {server.address}/ (its calls: {server.address}/docs)"]
    if server.is_open:
        lines.append(OPEN)
    return "\n".join(lines)
