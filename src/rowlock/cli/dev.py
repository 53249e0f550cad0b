"""`rowlock dev`: tools for development, not for production."""

from __future__ import annotations

import signal
import threading

import click

from rowlock.cli import HintingGroup


@click.group(cls=HintingGroup)
def dev() -> None:
    """Tools for development."""


@dev.command()
@click.option(
    "--version", type=int, metavar="N", help="Major version: 16 (default), 18, or an installed one."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port on 127.0.0.1 (default: a free one)."
)
def postgres(version: int | None, port: int | None) -> None:
    """Run a throw-away PostgreSQL until interrupted, and print its URL.

    All its data is deleted when it stops. It listens on 127.0.0.1 only, and the URL holds a new
    random password. Needs rowlock[dev], or an installed PostgreSQL.
    """
    from rowlock.testing.postgres import PostgresNotAvailable, ThrowAwayPostgres

    try:
        with ThrowAwayPostgres(version=version, port=port) as server:
            stopped = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.set())
            click.echo(f"{server.url}\n")
            click.echo("In another terminal:\n")
            click.echo(f"    export ROWLOCK_DATABASE_URL={server.url}")
            click.echo("    rowlock migrate\n")
            click.echo("Ctrl-C stops it and deletes all its data.")
            while not stopped.wait(timeout=1.0):
                if not server.is_running:
                    raise click.ClickException("PostgreSQL stopped unexpectedly")
    except PostgresNotAvailable as error:
        raise click.ClickException(str(error)) from None
