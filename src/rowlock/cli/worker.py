"""`rowlock worker`: run an app's jobs in child processes, under a supervisor."""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowlock import config
from rowlock.cli import Target
from rowlock.cli.options import log_options, shown_seconds

if TYPE_CHECKING:
    from rowlock.observe.log import Format, Level
    from rowlock.worker.supervisor import Supervisor


@click.command(context_settings={"auto_envvar_prefix": "ROWLOCK"})
@click.option(
    "-q",
    "--queues",
    metavar="NAME[:SLOTS],...",
    help="Which queues, and how many jobs of each at once at most; default all.",
)
@click.option(
    "-c",
    "--concurrency",
    type=int,
    default=config.WORKER_CONCURRENCY_DEFAULT,
    show_default=True,
    metavar="N",
    help="Slots of a child: jobs that it runs at once.",
)
@click.option(
    "-p", "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Children."
)
@click.option("--kinds", metavar="KIND,...", help="Only jobs of these kinds.")
@click.option(
    "--lease",
    type=float,
    default=shown_seconds(config.LEASE_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="How long a job is held without a beat.",
)
@click.option(
    "--grace",
    type=float,
    default=shown_seconds(config.WORKER_GRACE_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="How long running jobs may go on after a signal.",
)
@click.option(
    "--start-timeout",
    type=float,
    default=shown_seconds(config.WORKER_START_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="How long to wait at the start for a database that is not migrated yet, or refuses"
    " the role; then exit with 5.",
)
@click.option(
    "--orphans",
    type=click.Choice(["leave", "retry", "park"]),
    default="leave",
    show_default=True,
    help="At the start: what to do with running jobs of the named queues that nobody was heard of.",
)
@click.option(
    "--orphans-older-than",
    type=float,
    default=shown_seconds(config.ORPHANS_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="For so long.",
)
@click.option("--no-cron", is_flag=True, help="Leave schedules to other workers.")
@click.option("--drain", is_flag=True, help="Run what is ready, then end.")
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a child after so many jobs.")
@click.option(
    "--max-memory",
    type=click.IntRange(1),
    metavar="MB",
    help="Replace a child that has grown larger.",
)
@click.option(
    "--order",
    type=click.Choice(["strict", "weighted"]),
    default="weighted",
    show_default=True,
    help="Between queues: in turns, weighted by their slots, so that none starves; or strictly"
    " as given.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Answer /metrics, /healthz and /readyz there; 0 is any free port.",
)
@click.option(
    "--metrics-host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="From where they can be asked: 0.0.0.0 is from everywhere.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: replace the children when a .py file below the working directory "
    "changes.",
)
@log_options
@click.pass_obj
@click.pass_context
def worker(
    ctx: click.Context,
    target: Target,
    *,
    queues: str | None,
    concurrency: int,
    processes: int,
    kinds: str | None,
    lease: float,
    grace: float,
    start_timeout: float,
    orphans: str,
    orphans_older_than: float,
    no_cron: bool,
    drain: bool,
    max_jobs: int | None,
    max_memory: int | None,
    order: str,
    metrics_port: int | None,
    metrics_host: str,
    reload: bool,
    log_level: Level,
    log_format: Format,
) -> None:
    """Run jobs until interrupted: SIGTERM or Ctrl-C ends it politely, a second one at once.

    Needs --app. Exit code 0 if all children ended well, 5 if the database is not one that this
    worker can work on, else 1. Each option can also be given in the
    environment, as ROWLOCK_ and its name: ROWLOCK_CONCURRENCY=50.
    """
    from rowlock.worker.settings import parse_queues, worker_settings
    from rowlock.worker.supervisor import Supervisor

    app = target.check_app()
    prepare_children(target, log_level=log_level, log_format=log_format)
    settings = worker_settings(
        queues=None if queues is None else parse_queues(queues),
        kinds=None if kinds is None else [kind.strip() for kind in kinds.split(",")],
        concurrency=concurrency,
        lease=lease,
        grace=grace,
        start_timeout=start_timeout,
        orphans=orphans,  # type: ignore[arg-type]  # click has checked the choice
        orphans_older_than=orphans_older_than,
        drain=drain,
        max_jobs=max_jobs,
        cron=not no_cron,
        order=order,  # type: ignore[arg-type]  # click has checked the choice
    )
    supervisor = Supervisor(
        app=app,
        processes=processes,
        settings=settings,
        max_memory_mb=max_memory,
        reload_from=Path.cwd() if reload else None,
        has_metrics=metrics_port is not None,
    )
    with _port(supervisor, metrics_host, metrics_port):
        code = supervisor.run()
    ctx.exit(code)


def _port(supervisor: Supervisor, host: str, port: int | None) -> AbstractContextManager[object]:
    if port is None:
        return nullcontext()
    try:
        from rowlock.observe.port import WorkerPort
    except ModuleNotFoundError as error:
        raise click.UsageError(f"--metrics-port: {error}; install rowlock[metrics]") from error
    answering = WorkerPort(supervisor.snapshot, host=host, port=port)
    logging.getLogger("rowlock.worker").info("metrics are at %s/metrics", answering.address)
    return answering


def prepare_children(target: Target, *, log_level: Level, log_format: Format) -> None:
    """Log from here on, and have the children do the same, on the same database.

    By the environment: arguments, and with them a URL's password, can be seen by every user.
    """
    from rowlock.app import DATABASE_URL_VARIABLE
    from rowlock.observe import log

    os.environ[log.LEVEL_VARIABLE] = log_level
    os.environ[log.FORMAT_VARIABLE] = log_format
    if target.database_url is not None:
        os.environ[DATABASE_URL_VARIABLE] = target.database_url
    log.configure(log_level, log_format)
