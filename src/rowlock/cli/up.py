"""`rowlock up`: the whole system on one machine: a worker with its scheduler, for a first look."""

from __future__ import annotations

import click

from rowlock.cli import Target


@click.command()
@click.option("-p", "--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--drain", is_flag=True, help="Run what is ready, then end.")
@click.pass_obj
@click.pass_context
def up(ctx: click.Context, target: Target, *, processes: int, drain: bool) -> None:
    """Run a worker and the scheduler here until interrupted.

    An app whose state has a method `on_up` gets it called once, to enqueue some jobs. There is no
    server, and so no dashboard, in this version: look with `rowlock top`, from another terminal.
    """
    from rowlock.cli.worker import log_to_console
    from rowlock.worker.settings import worker_settings
    from rowlock.worker.supervisor import Supervisor

    app = target.load_app()
    on_up = getattr(app.state, "on_up", None)
    if on_up is not None:
        on_up()
    click.echo(f"rowlock up on {app!r}; tasks: {', '.join(app.kinds)}")
    click.echo("Look with `rowlock top` or `rowlock stats`; end with Ctrl-C.")
    app.close()
    log_to_console()
    supervisor = Supervisor(
        app=target.app_spec or "",
        database_url=target.database_url,
        processes=processes,
        settings=worker_settings(drain=drain),
    )
    ctx.exit(supervisor.run())
