"""`rowlock jobs`: list, show, explain, cancel, retry, move, delete and wait for jobs."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

import click

from rowlock import config
from rowlock.cli import EXIT_FAILED, HintingGroup, Target, exit_code, show
from rowlock.cli.options import (
    filters,
    json_lines_option,
    json_object,
    json_option,
    seconds,
    time_to_come,
)
from rowlock.cli.progress import progress
from rowlock.errors import NotFound, RowlockError

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.app import App
    from rowlock.filters import FilterOptions
    from rowlock.job import Count, Job, Page
    from rowlock.store.ops.bulk import Selection
    from rowlock.why import Why

STATES = (
    "waiting",
    "scheduled",
    "ready",
    "running",
    "retrying",
    "succeeded",
    "dead",
    "cancelled",
)
BULK_ACTIONS = ("cancel", "retry", "run-now", "reschedule", "reroute", "run-again", "delete")
LIMIT_DEFAULT = 50
LIMIT_MAX = config.LIST_LIMIT_MAX


@click.group(cls=HintingGroup)
def jobs() -> None:
    """List, show, cancel, retry, move, run again, delete and wait for jobs."""


def page_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a page of a list."""
    limit = click.option(
        "--limit",
        type=click.IntRange(1, LIMIT_MAX),
        default=LIMIT_DEFAULT,
        show_default=True,
        help="Most jobs to list.",
    )
    cursor = click.option(
        "--cursor",
        metavar="TEXT",
        help="Continue after the previous page. Its cursor is printed on stderr, and is `next` in"
        " JSON.",
    )
    return limit(cursor(command))


@jobs.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@filters
@page_options
@json_lines_option(
    "one line per job, and a last one with `next`, the cursor of the following page or null"
)
@click.pass_obj
def list_jobs(
    target: Target,
    *,
    state: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    **chosen: Unpack[FilterOptions],
) -> None:
    """List jobs, newest first. Dead jobs are ordered by their failure."""
    with target.open_app() as app:
        page = app.list(state=state, limit=limit, cursor=cursor, full=as_json, **chosen)
    print_page(page, as_json=as_json)


def print_page(page: Page, *, as_json: bool, has_state: bool = True) -> None:
    """Print a page as a table or as JSON lines, and the cursor of the next page on stderr."""
    from rowlock.cli.workers import now

    if as_json:
        for job in page:
            click.echo(show.as_json(show.job_document(job)))
        click.echo(show.as_json({"next": page.next}))
        return
    show.print_tables(jobs_table(page.jobs, now=now(), has_state=has_state))
    if page.next is not None:
        click.echo(f"more: --cursor {page.next}", err=True)


def jobs_table(
    listed: Sequence[Job], *, now: datetime, title: str = "", has_state: bool = True
) -> show.TextTable:
    """Return a table with one row per job: state, time, and a note.

    Args:
        has_state: False if all jobs are in one state.
    """
    names = ("id", "state", "kind", "queue", "attempt", "when", "note")
    columns = show.columns(*names, right=["attempt"], flexible=["kind", "queue", "note"])
    dropped = ("note", "attempt", "queue")
    table = show.TextTable(columns, title=title, empty="no jobs", dropped=dropped)
    for job in listed:
        table.add(
            job.id,
            show.state_cell(job.state),
            show.Cell(job.kind, "bold"),
            job.queue,
            f"{job.attempt}/{job.max_attempts}",
            when(job, now=now),
            show.Cell(note(job), "dim"),
        )
    return table if has_state else table.without("state")


def note(job: Job) -> str:
    """Return what is worth a glance: progress, the last error, a cancel request, the key."""
    parts: list[str] = []
    if job.cancel_requested and not job.state.is_terminal:
        parts.append("cancel requested")
    if job.progress is not None and job.state == "running":
        parts.append(f"{job.progress.fraction:.0%} {job.progress.text}".strip())
    if job.last_error is not None and job.state != "succeeded":
        parts.append(job.last_error)
    if job.key is not None and not parts:
        parts.append(f"key {job.key}")
    return "; ".join(parts)


@jobs.command("show")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--log", "with_log", is_flag=True, help="Also show the lines that its handler logged."
)
@json_option("every field, one document per job")
@click.pass_obj
def show_jobs(target: Target, *, ids: tuple[str, ...], with_log: bool, as_json: bool) -> None:
    """Show all fields of jobs: payload, times, errors with tracebacks, result."""
    from rowlock.cli.workers import now

    with target.open_app() as app:

        def act(id: str) -> None:
            job = _found(app, id)
            lines = app.store.read_log(job.id) if with_log else []
            if as_json:
                log = [{"time": line.time, "text": line.text} for line in lines]
                extra = {"log": log} if with_log else {}
                show.print_json({**show.job_document(job), **extra})
                return
            show.print_fields(
                [
                    *job_details(job, now=now()),
                    *(("log", f"{line.time:%Y-%m-%d %H:%M:%S}  {line.text}") for line in lines),
                ]
            )
            if id != ids[-1]:
                click.echo()

        each(ids, act)


def _found(app: App, id: str) -> Job:
    job = app.get(id)
    if job is None:
        raise NotFound(f"there is no job {id}, or its retention has expired")
    return job


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_lines_option("one line per job, with the fields of rowlock.Why")
@click.pass_obj
def why(target: Target, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Explain why jobs are not running: what blocks each of them first, and what to do."""
    import msgspec

    with target.open_app() as app:

        def act(id: str) -> None:
            answer = app.why(id)
            if as_json:
                click.echo(show.as_json(msgspec.to_builtins(answer)))
                return
            click.echo(f"{answer.id} {answer.state}")
            show.print_wrapped(f"  {show.escaped(answer.text)}", indent=2)
            if (advice := what_to_do(answer)) is not None:
                show.print_wrapped(f"  → {show.escaped(advice)}", indent=4, style="dim")

        each(ids, act)


_ADVICE: Final = {
    "no_worker": "start one with: rowlock --app MODULE:APP worker",
    "unknown_kind": "see which worker serves which queues with: rowlock workers",
    "full": "see what runs longest with: rowlock top",
}


def what_to_do(why: Why) -> str | None:
    """Return the command that helps, or None if you can only wait."""
    match why.code:
        case "paused":
            return f"resume it with: rowlock queues resume {shlex.quote(why.queue)}"
        case "finished" if why.state != "succeeded":
            return f"run it again with: rowlock jobs retry {why.id}"
        case "not_due" | "backoff":
            return f"make it due with: rowlock jobs run-now {why.id}"
        case "no_worker" | "unknown_kind" | "full":
            return _ADVICE[why.code]
        case "unserved_queue":
            queue = shlex.quote(why.nearest[0]) if why.nearest else "QUEUE"
            return f"move it to a served queue with: rowlock jobs reroute {why.id} --to {queue}"
        case "stuck" | "waits_for_jobs":
            return _what_to_do_after(why)
        case _:
            return None if why.limit is None else _what_to_do_at(why.limit, why)


def _what_to_do_after(why: Why) -> str | None:
    """Return the command that helps a job that waits for others."""
    if why.waits_for is not None:
        return f"retry that job with: rowlock jobs retry {why.waits_for}"
    if why.jobs:
        return f"see what the first of them waits for with: rowlock jobs why {why.jobs[0].id}"
    return None


def _what_to_do_at(limit: str, why: Why) -> str | None:
    """Return the command that helps a job that waits for its limit."""
    match why.code:
        case "limit_unknown":
            return "start a worker whose code declares it: rowlock --app MODULE:APP worker"
        case "limit_closed":
            key = "" if why.limit_key is None else f" --key {shlex.quote(why.limit_key)}"
            return f"resume it with: rowlock limits resume {shlex.quote(limit)}{key}"
        case "limit_order":
            return f"see what that job does with: rowlock jobs why {why.waits_for}"
        case "limit_full" | "limit_rate" | "limit_turn":
            return f"see what runs and waits with: rowlock limits show {shlex.quote(limit)}"
        case _:
            return None


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_lines_option("one line per job: `id`, `outcome`, `state`")
@click.pass_obj
def cancel(target: Target, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Cancel jobs: at once if they are waiting, otherwise through their worker.

    Prints the outcome of each: `cancelled`, `pending_on_worker` or, if it has already ended,
    `already_terminal`.
    """
    with target.open_app() as app:

        def act(id: str) -> None:
            answer = app.cancel(id)
            if as_json:
                values = {"id": id, "outcome": answer.outcome, "state": answer.state}
                click.echo(show.as_json(values))
            else:
                click.echo(f"{show.escaped(id)} {answer.outcome} ({answer.state})")

        each(ids, act)


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--payload", metavar="JSON", help="Run it with this payload instead. Takes a single job."
)
@json_lines_option("one line per job")
@click.pass_obj
def retry(target: Target, *, ids: tuple[str, ...], payload: str | None, as_json: bool) -> None:
    """Move dead or cancelled jobs back to ready."""
    if payload is not None and len(ids) > 1:
        raise click.UsageError("--payload takes a single job")
    changed = None if payload is None else json_object(payload, option="payload")
    with target.open_app() as app:
        each(ids, lambda each_id: _print_state(app.retry(each_id, changed), as_json=as_json))


def _print_state(job: Job, *, as_json: bool) -> None:
    if as_json:
        click.echo(show.as_json(show.job_document(job)))
    else:
        click.echo(f"{job.id} {job.state}")


@jobs.command("run-now")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_lines_option("one line per job")
@click.pass_obj
def run_now(target: Target, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Make scheduled or retrying jobs due now."""
    with target.open_app() as app:
        each(ids, lambda each_id: _print_state(app.run_now(each_id), as_json=as_json))


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--run-at", type=time_to_come, metavar="TIME", help="Run them no earlier than this time."
)
@click.option(
    "--delay", type=seconds, metavar="DURATION", help="Run them no earlier than this long from now."
)
@json_lines_option("one line per job")
@click.pass_obj
def reschedule(
    target: Target,
    *,
    ids: tuple[str, ...],
    run_at: datetime | None,
    delay: float | None,
    as_json: bool,
) -> None:
    """Change when jobs that wait are due. Give --run-at or --delay."""
    if (run_at is None) == (delay is None):
        raise click.UsageError("give either --run-at or --delay")
    with target.open_app() as app:

        def act(id: str) -> None:
            _print_state(app.reschedule(id, run_at, delay=delay), as_json=as_json)

        each(ids, act)


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--to", required=True, metavar="QUEUE", help="The queue that they move to.")
@json_lines_option("one line per job")
@click.pass_obj
def reroute(target: Target, *, ids: tuple[str, ...], to: str, as_json: bool) -> None:
    """Move jobs that wait to another queue."""
    with target.open_app() as app:
        each(ids, lambda each_id: _print_state(app.reroute(each_id, to), as_json=as_json))


@jobs.command("run-again")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--payload", metavar="JSON", help="Run it with this payload instead. Takes a single job."
)
@json_lines_option("one line per new job")
@click.pass_obj
def run_again(target: Target, *, ids: tuple[str, ...], payload: str | None, as_json: bool) -> None:
    """Enqueue ended jobs again, as new jobs with the same payloads. Prints the new ids."""
    if payload is not None and len(ids) > 1:
        raise click.UsageError("--payload takes a single job")
    changed = None if payload is None else json_object(payload, option="payload")
    with target.open_app() as app:
        each(ids, lambda each_id: _print_state(app.run_again(each_id, changed), as_json=as_json))


@jobs.command()
@click.argument("action", type=click.Choice(BULK_ACTIONS), metavar="ACTION")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@filters
@click.option("--to", metavar="QUEUE", help="With reroute: the queue that they move to.")
@click.option(
    "--run-at", type=time_to_come, metavar="TIME", help="With reschedule: when they are due."
)
@click.option("--dry-run", is_flag=True, help="Only count the jobs that match.")
@click.option(
    "--yes", is_flag=True, help="Don't ask for confirmation. Required without a terminal."
)
@json_option("how many jobs were `done`, and the ids of those `skipped`")
@click.pass_obj
def bulk(
    target: Target,
    *,
    action: str,
    state: str | None,
    to: str | None,
    run_at: datetime | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **chosen: Unpack[FilterOptions],
) -> None:
    """Act on all jobs that match: cancel, retry, run-now, reschedule, reroute, run-again, delete.

    All actions but cancel and retry need --state. On a terminal it shows how many jobs match and
    asks for confirmation. Each transaction changes up to 500 jobs.
    """
    from rowlock.job import JobState
    from rowlock.store.ops.bulk import BulkAction, count_bulk, selection
    from rowlock.store.ops.manage import job_filter

    wanted = selection(
        BulkAction(action.replace("-", "_")),
        None if state is None else JobState(state),
        job_filter(**chosen),
        to=to,
        run_at=run_at,
    )
    if not dry_run and not yes:
        check_terminal()
    with target.open_app() as app:
        if dry_run or not yes:
            found = app.store.run(count_bulk(wanted))
            if dry_run:
                print_count(found, as_json=as_json)
                return
            confirm(f"{matching(found)}. Continue with {action}?")
        done, skipped = walk(app, wanted, label=action)
    if as_json:
        show.print_json({"done": done, "skipped": skipped})
        return
    for id in skipped:
        click.echo(f"skipped {id}: another job with its key is in flight", err=True)
    click.echo(f"{action}: {show.plural(done, 'job')}, skipped {len(skipped):,}")


def print_count(found: Count, *, as_json: bool) -> None:
    """Print what --dry-run has counted."""
    shown = {"matching": found.value, "exact": found.exact}
    click.echo(show.as_json(shown) if as_json else matching(found))


def matching(found: Count) -> str:
    """Return how many jobs match, as a sentence."""
    noun = "job matches" if found.exact and found.value == 1 else "jobs match"
    return f"{show.number(found.value, exact=found.exact)} {noun}"


def check_terminal() -> None:
    """Refuse to go on if nobody can be asked."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for confirmation: add --yes")


def confirm(question: str) -> None:
    """Ask on the terminal, and abort unless the answer is yes."""
    check_terminal()
    click.confirm(question, abort=True, err=True)


def walk(
    app: App, wanted: Selection, *, label: str, per_second: int | None = None
) -> tuple[int, list[str]]:
    """Go through all matching jobs, one transaction per step. Return the count and ids skipped."""
    from rowlock.store.ops.bulk import bulk_step, step_limit

    pause = 0.0 if per_second is None else step_limit(per_second) / per_second
    done, skipped = 0, list[str]()
    with progress(label, noun="job") as moved:
        place = None
        while True:
            answer = app.store.run(bulk_step(wanted, place, per_second=per_second))
            done += answer.done
            skipped += answer.skipped
            if answer.next is None:
                return done, skipped
            place = answer.next
            moved(done)
            threading.Event().wait(pause)


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--cascade",
    is_flag=True,
    help="Also delete jobs that others wait for. Those that need their success are cancelled.",
)
@click.pass_obj
def delete(target: Target, *, ids: tuple[str, ...], cascade: bool) -> None:
    """Delete jobs permanently. Cancel a running job first."""
    with target.open_app() as app:

        def act(id: str) -> None:
            app.delete(id, cascade=cascade)
            click.echo(f"{show.escaped(id)} deleted")

        each(ids, act)


@jobs.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--timeout", type=seconds, metavar="DURATION", help="Give up after this long, for all jobs."
)
@json_lines_option("one line per job")
@click.pass_obj
def wait(target: Target, *, ids: tuple[str, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until jobs have ended.

    The exit code is 1 unless all succeeded, and if --timeout is over.
    """
    end = None if timeout is None else time.monotonic() + timeout
    states: list[str] = []
    with target.open_app() as app:

        def act(id: str) -> None:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                job = app.wait(id, timeout=left)
            except TimeoutError:
                raise RowlockError(
                    f"job {id} is not finished after {timedelta(seconds=timeout or 0)}"
                ) from None
            states.append(job.state)
            _print_state(job, as_json=as_json)

        each(ids, act)
    if any(state != "succeeded" for state in states):
        raise click.exceptions.Exit(EXIT_FAILED)


def each(ids: Sequence[str], act: Callable[[str], None]) -> None:
    """Act on each id, even after one failed. Then exit with the code of the first failure."""
    failed: list[RowlockError] = []
    for id in ids:
        try:
            act(id)
        except RowlockError as error:
            show.complain(error)
            failed.append(error)
    if failed:
        raise click.exceptions.Exit(exit_code(failed[0]))


if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.job import Job

Detail = tuple[str, show.Cell | str]


def job_details(job: Job, *, now: datetime) -> Iterator[Detail]:
    """Yield the fields of a job: state, identity, times, options, errors and result."""
    yield "id", show.Cell(job.id, "bold")
    yield "state", show.Cell(f"{job.state} {when(job, now=now)}", show.STATE_STYLES[job.state])
    yield from _identity(job)
    yield from _times(job, now=now)
    yield from _rules(job)
    yield from _results(job)


def when(job: Job, *, now: datetime) -> str:
    """Return the time that matters most in a job's state."""
    if job.finished_at is not None:
        return f"{show.short_age((now - job.finished_at).total_seconds())} ago"
    if job.state == "running" and job.started_at is not None:
        return f"for {show.short_age((now - job.started_at).total_seconds())}"
    if job.state == "waiting":
        return f"for {show.plural(job.waits_for, 'job')}"
    if job.state == "ready":
        return f"since {show.short_age((now - job.run_at).total_seconds())}"
    return f"in {show.short_age((job.run_at - now).total_seconds())}"


def _identity(job: Job) -> Iterator[Detail]:
    yield "kind", job.kind
    yield "queue", job.queue
    if job.priority:
        yield "priority", str(job.priority)
    for name, value in (("tenant", job.tenant), ("key", job.key)):
        if value is not None:
            yield name, value
    if job.workflow is not None:
        yield "workflow", job.workflow
    if job.limit is not None:
        yield "limit", f"{job.limit}/{job.limit_key}" if job.limit_key else job.limit
    if job.tags:
        yield "tags", ", ".join(job.tags)
    if job.meta:
        yield "meta", show.as_json(job.meta)
    yield "payload", show.as_json(job.payload)


def _times(job: Job, *, now: datetime) -> Iterator[Detail]:
    yield "created", _moment(job.created_at, now=now)
    if job.run_at > job.created_at:
        yield "due", _moment(job.run_at, now=now)
    if job.started_at is not None:
        yield "started", _moment(job.started_at, now=now)
    if job.finished_at is not None:
        ran = ""
        if job.started_at is not None and job.started_at <= job.finished_at:
            ran = f", after {show.age((job.finished_at - job.started_at).total_seconds())}"
        yield "finished", f"{_moment(job.finished_at, now=now)}{ran}"
    if job.worker is not None:
        until = job.lease_expires_at
        yield "worker", job.worker + (f", until {_moment(until, now=now)}" if until else "")


def _moment(moment: datetime, *, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    near = f"{show.short_age(seconds)} ago" if seconds >= 0 else f"in {show.short_age(-seconds)}"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z ({near})"


def _rules(job: Job) -> Iterator[Detail]:
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    if job.crashes:
        yield "crashes", f"{job.crashes} of {job.max_crashes}"
    if job.cancel_requested:
        yield "cancel", "requested"
    if job.timeout is not None:
        yield "timeout", show.age(job.timeout)
    if job.retry:
        yield "retry", f"{job.retry[0]}({', '.join(map(str, job.retry[1:]))})"
    if job.state not in ("dead", "cancelled"):
        yield "keep", "forever" if job.keep is None else show.age(job.keep)


def _results(job: Job) -> Iterator[Detail]:
    if job.progress is not None:
        yield "progress", f"{job.progress.fraction:.0%} {job.progress.text}".strip()
    if job.result is not None:
        yield "result", show.as_json(job.result)
    for error in job.errors:
        title = f"attempt {error.attempt}, {error.time:%Y-%m-%d %H:%M:%S}Z: {error}"
        yield "error", show.Cell(f"{title}\n{error.traceback}".rstrip(), "red")
