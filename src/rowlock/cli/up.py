"""`rowlock up`: run server, worker and scheduler on one machine, for a first look."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import click

from rowlock.cli import Target, show
from rowlock.cli.options import address_options, job_log_option, log_options
from rowlock.errors import StoreUnavailable
from rowlock.job import Count, JobState

if TYPE_CHECKING:
    from rowlock.app import App
    from rowlock.observe.log import Format, Level
    from rowlock.server.serve import HttpServer

# For a first look without any setup. All other commands need a database that is named.
DATABASE_URL_DEFAULT: Final = "sqlite:///rowlock.db"


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
@job_log_option
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
    is_open: bool,
    trusted_proxies: list[str],
    log_level: Level,
    log_format: Format,
    log_jobs: bool,
) -> None:
    """Run a server, a worker and the scheduler until interrupted.

    Prints the server's address, and a link that signs one browser in. Needs --app. If nothing names
    a database, it is the file rowlock.db in the working directory. If the app's state has a method
    `on_up`, it is called once, for example to enqueue some jobs.
    """
    from rowlock.cli.worker import prepare_children
    from rowlock.worker.settings import worker_settings
    from rowlock.worker.supervisor import Supervisor

    prepare_children(target, log_level=log_level, log_format=log_format, log_jobs=log_jobs)
    app = _open_app(target)
    status = UpStatus(app)
    on_up = getattr(app.state, "on_up", None)
    if on_up is not None:
        on_up()
    supervisor = Supervisor(
        app=target.app_spec or "",
        processes=processes,
        settings=worker_settings(drain=drain, warns=True),
        # On a terminal, our own greeting says all of it.
        has_banner=log_format == "json",
    )
    server = None
    if not drain:
        server = _server(
            app,
            host=host,
            port=port,
            is_open=is_open,
            has_login=log_format == "console",
            trusted_proxies=trusted_proxies,
        )
    # With --log-format json, a program reads the output: print nothing but log lines.
    if log_format == "console":
        click.echo(_greeting(app, target, server))
    with app, status, server or nullcontext():
        code = supervisor.run()
    ctx.exit(code)


def _open_app(target: Target) -> App:
    """Return the app. If nothing names a database, it and the child processes get the default."""
    from rowlock.app import DATABASE_URL_VARIABLE

    if target.database_url is None and not target.load_app().has_database:
        os.environ[DATABASE_URL_VARIABLE] = DATABASE_URL_DEFAULT
        target = replace(target, database_url=DATABASE_URL_DEFAULT)
    return target.open_named_app()


def _server(
    app: App,
    *,
    host: str,
    port: int,
    is_open: bool,
    has_login: bool,
    trusted_proxies: list[str],
) -> HttpServer | None:
    """Return the server, or None if it is not installed."""
    try:
        from rowlock.server.serve import HttpServer
    except ModuleNotFoundError as error:
        click.echo(f"running without a server: {error}", err=True)
        return None
    return HttpServer(
        app,
        host=host,
        port=port,
        is_open=is_open,
        has_login=has_login,
        trusted_proxies=trusted_proxies,
    )


def _greeting(app: App, target: Target, server: HttpServer | None) -> str:
    """Return what runs here, and what to type next."""
    from rowlock.app import DATABASE_URL_VARIABLE
    from rowlock.cli.serve import access_lines
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
        address = f"dashboard: {server.address}/  API: {server.address}/docs"
        lines[2:2] = [address, *access_lines(server)]
    return "\n".join(lines)


if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowlock.app import App

logger: logging.Logger = logging.getLogger("rowlock.up")

# Often enough to see progress, seldom enough to be read.
STATUS_SECONDS: Final = 2.0
_ENDED: Final = (JobState.SUCCEEDED, JobState.CANCELLED, JobState.DEAD)
_LIVE: Final = (
    JobState.RUNNING,
    JobState.READY,
    JobState.RETRYING,
    JobState.SCHEDULED,
    JobState.WAITING,
)


class UpStatus:
    """A context manager that logs how many jobs ended since it was created."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._before = self._count()
        self._said = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="rowlock-up-status", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._said = ""
        self._say(last=True)

    def _repeat(self) -> None:
        while not self._over.wait(STATUS_SECONDS):
            self._say()

    def _say(self, *, last: bool = False) -> None:
        try:
            now = self._count()
        except StoreUnavailable:
            return  # The worker logs it.
        text = status_line(self._before, now)
        if text != self._said:
            self._said = text
            logger.info("%s%s", "at the end: " if last else "", text)

    def _count(self) -> dict[JobState, Count]:
        return summed([queue.counts for queue in self._app.stats()])


def summed(counts: Sequence[dict[JobState, Count]]) -> dict[JobState, Count]:
    """Add up the counts of several queues."""
    return {
        state: Count(
            sum(each.get(state, Count(0)).value for each in counts),
            exact=all(each.get(state, Count(0)).exact for each in counts),
        )
        for state in JobState
    }


def status_line(before: dict[JobState, Count], now: dict[JobState, Count]) -> str:
    """Return the jobs that ended since `before`, and those that wait, as one line."""
    # If the count before was not exact, the number since then is unknown.
    since = [state for state in _ENDED if before[state].exact]
    ended = {
        # Retention may have removed some that were there before.
        state: Count(max(0, now[state].value - before[state].value), exact=now[state].exact)
        for state in since
    }
    ever = _listed({state: now[state] for state in _ENDED if state not in since})
    waiting = {state: now[state] for state in _LIVE}
    parts = [_listed(ended), f"{ever} in all" if ever else ""]
    done = ", ".join(filter(None, parts)) or "no job has ended yet"
    hint = (
        " (`rowlock dead list` says why)"
        if now[JobState.DEAD].value > before[JobState.DEAD].value
        else ""
    )
    rest = _listed(waiting)
    return f"{done}{hint}; {f'waiting: {rest}' if rest else 'none are waiting'}"


def _listed(counts: dict[JobState, Count]) -> str:
    return ", ".join(
        f"{show.number(count.value, exact=count.exact)} {state}"
        for state, count in counts.items()
        if count.value
    )
