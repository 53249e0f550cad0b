"""`rowlock serve`: serve the HTTP API and the dashboard."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

import click

from rowlock import config
from rowlock.cli import Target
from rowlock.cli.options import address_options, log_options, seconds

if TYPE_CHECKING:
    from rowlock.observe.log import Format, Level
    from rowlock.server.serve import HttpServer


OPEN: Final = "open: everyone on this machine has access, without a token"
CLOSED: Final = "no valid token exists; create one with `rowlock tokens create`"

logger: logging.Logger = logging.getLogger("rowlock.server")


@click.command()
@address_options
@click.option(
    "--no-dashboard",
    is_flag=True,
    envvar="ROWLOCK_NO_DASHBOARD",
    show_envvar=True,
    help="Serve only the API, without the dashboard.",
)
@click.option(
    "--alert-url",
    metavar="URL",
    envvar="ROWLOCK_ALERT_URL",
    show_envvar=True,
    help="Address to call when something needs you. ROWLOCK_ALERT_SECRET signs the calls.",
)
@click.option(
    "--alert-age",
    type=seconds,
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="Send an alert if the oldest ready job of a queue has waited this long.",
)
@click.option(
    "--alert-dead",
    type=click.IntRange(min=1),
    metavar="N",
    default=config.ALERT_DEAD,
    show_default=True,
    help="Send an alert if this many jobs of a queue died in ten minutes.",
)
@click.option(
    "--environment",
    metavar="NAME[:COLOR]",
    envvar="ROWLOCK_ENVIRONMENT",
    show_envvar=True,
    help="Name in the frame of the dashboard, such as production:red. Colors: grey, red, amber, "
    "green, blue, violet.",
)
@log_options
@click.pass_obj
def serve(
    target: Target,
    *,
    host: str,
    port: int,
    is_open: bool,
    trusted_proxies: list[str],
    no_dashboard: bool,
    alert_url: str | None,
    alert_age: float,
    alert_dead: int,
    environment: str | None,
    log_level: Level,
    log_format: Format,
) -> None:
    """Serve the HTTP API and the dashboard until interrupted.

    SIGTERM or Ctrl-C gives running requests 25 seconds to finish. A second signal stops it at once.

    With --app, payloads are checked against the tasks. Without it, every kind is accepted. If no
    valid token exists, it prints a link that signs one browser in. Needs rowlock[server].
    """
    from rowlock.observe import log

    try:
        from rowlock.server.alerts import AlertSettings
        from rowlock.server.serve import HttpServer
    except ModuleNotFoundError as error:
        raise click.UsageError(str(error)) from error
    log.configure(log_level, log_format)
    alerts = None
    if alert_url is not None:
        alerts = AlertSettings(
            url=alert_url,
            secret=os.environ.get("ROWLOCK_ALERT_SECRET"),
            age_seconds=alert_age,
            dead=alert_dead,
        )
    with target.open_app(creates=True) as app:
        server = HttpServer(
            app,
            host=host,
            port=port,
            is_open=is_open,
            # The link must not be in a log, so it is printed only for people.
            has_login=log_format == "console" and not no_dashboard,
            trusted_proxies=trusted_proxies,
            has_dashboard=not no_dashboard,
            alerts=alerts,
            environment=environment,
        )
        if log_format == "console":
            address = server.address
            click.echo(f"rowlock is serving at {address}/ (API reference: {address}/docs)")
            for line in access_lines(server):
                click.echo(line)
        elif server.has_token is False and not server.is_open:
            logger.warning("%s", CLOSED)
        server.run()


def access_lines(server: HttpServer) -> list[str]:
    """Return how to get in, as lines to print at startup."""
    if server.is_open:
        return [OPEN]
    if server.login_link is not None:
        return [f"sign in: {server.login_link} (works once)"]
    return [CLOSED] if server.has_token is False else []
