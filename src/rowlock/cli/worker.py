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
from rowlock.cli.options import job_log_option, log_options, shown_seconds

if TYPE_CHECKING:
    from rowlock.observe.log import Format, Level
    from rowlock.worker.supervisor import Supervisor


@click.command(context_settings={"auto_envvar_prefix": "ROWLOCK"})
@click.option(
    "-q",
    "--queues",
    metavar="NAME[:SLOTS],...",
    help="Queues to work on, each with an optional limit of jobs to run at once (default: all).",
)
@click.option(
    "-c",
    "--concurrency",
    type=int,
    default=config.WORKER_CONCURRENCY_DEFAULT,
    show_default=True,
    metavar="N",
    help="Slots per child process: jobs that it runs at once.",
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Child processes to start.",
)
@click.option("--kinds", metavar="KIND,...", help="Run only jobs of these kinds.")
@click.option(
    "--lease",
    type=float,
    default=shown_seconds(config.LEASE_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="Time without a heartbeat after which other workers may take over a running job.",
)
@click.option(
    "--grace",
    type=float,
    default=shown_seconds(config.WORKER_GRACE_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="Time that running jobs get to finish after a signal.",
)
@click.option(
    "--start-timeout",
    type=float,
    default=shown_seconds(config.WORKER_START_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="Time to wait at startup for a database that is not migrated yet or refuses the role."
    " After that, exit with code 5.",
)
@click.option(
    "--orphans",
    type=click.Choice(["leave", "retry", "park"]),
    default="leave",
    show_default=True,
    help="What to do at startup with orphans: running jobs of the --queues without a heartbeat.",
)
@click.option(
    "--orphans-older-than",
    type=float,
    default=shown_seconds(config.ORPHANS_SECONDS_DEFAULT),
    show_default=True,
    metavar="SECONDS",
    help="Treat only jobs without a heartbeat for at least this long as orphans.",
)
@click.option("--no-cron", is_flag=True, help="Don't fire schedules. Leave them to other workers.")
@click.option("--drain", is_flag=True, help="Run the jobs that are ready, then exit.")
@click.option(
    "--max-jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a child process after it ran this many jobs.",
)
@click.option(
    "--max-memory",
    type=click.IntRange(1),
    metavar="MB",
    help="Replace a child process that uses more memory than this.",
)
@click.option(
    "--order",
    type=click.Choice(["strict", "weighted"]),
    default="weighted",
    show_default=True,
    help="How to choose between queues: weighted takes turns by their slots, so that none starves."
    " strict prefers the queues named first.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics, /healthz and /readyz on this port. 0 picks a free one.",
)
@click.option(
    "--metrics-host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address on which --metrics-port listens. 0.0.0.0 listens on every interface.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: restart the child processes when a .py file below the working"
    " directory changes.",
)
@log_options
@job_log_option
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
    log_jobs: bool,
) -> None:
    """Run jobs until interrupted.

    SIGTERM or Ctrl-C lets running jobs finish. A second one stops the worker at once.

    Needs --app. The exit code is 0 if all child processes ended well, 5 if this worker can't work
    on the database, else 1. Each option can also be set in the environment, as ROWLOCK_ and its
    name: ROWLOCK_CONCURRENCY=50.
    """
    from rowlock.worker.settings import parse_queues, worker_settings
    from rowlock.worker.supervisor import Supervisor

    app = target.check_app()
    prepare_children(target, log_level=log_level, log_format=log_format, log_jobs=log_jobs)
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
        schedules=not no_cron,
        order=order,  # type: ignore[arg-type]  # click has checked the choice
        warns=True,
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
    logging.getLogger("rowlock.worker").info("metrics are served at %s/metrics", answering.address)
    return answering


def prepare_children(
    target: Target, *, log_level: Level, log_format: Format, log_jobs: bool
) -> None:
    """Set up logging here, and pass it and the database to the child processes.

    They get both in the environment: every user of the machine can see the arguments of a process,
    and a URL may hold a password.
    """
    from rowlock.app import DATABASE_URL_VARIABLE
    from rowlock.observe import log

    if target.database_url is not None:
        os.environ[DATABASE_URL_VARIABLE] = target.database_url
    log.configure_here_and_in_children(log_level, log_format, has_jobs=log_jobs)
