"""`rowlock dead`: list, retry, purge and export dead jobs."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, Unpack

import click

from rowlock import config
from rowlock.cli import HintingGroup, Target, show
from rowlock.cli.jobs import (
    check_terminal,
    confirm,
    matching,
    page_options,
    print_count,
    print_page,
    walk,
)
from rowlock.cli.options import filters, json_lines_option, json_option
from rowlock.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rowlock.app import App
    from rowlock.filters import FilterOptions
    from rowlock.store import JobFilter
    from rowlock.store.ops.bulk import Selection
    from rowlock.store.ops.dead import DeadGroup

# Before a purge, at most this many jobs are counted, a page at a time. Beyond it says "more than".
COUNT_MAX: Final = 1_000
# Payloads can be large, so a page is small.
PAGE_JOBS: Final = 100


@click.group(cls=HintingGroup)
def dead() -> None:
    """List, retry, purge and export dead jobs."""


@dead.command("list")
@filters
@click.option(
    "--groups",
    is_flag=True,
    help="Show one line per group of jobs with the same kind, error type and location.",
)
@page_options
@json_lines_option(
    "one line per job, and a last one with `next`, the cursor of the following page or null;"
    " with --groups one line per group"
)
@click.pass_obj
def list_dead(
    target: Target,
    *,
    groups: bool,
    limit: int,
    cursor: str | None,
    as_json: bool,
    **chosen: Unpack[FilterOptions],
) -> None:
    """List dead jobs, newest failure first.

    --groups reads the newest 50,000 jobs, and takes only the filters --kind, --queue and --tenant.
    """
    with target.open_app() as app:
        if groups:
            if cursor is not None:
                raise click.UsageError(
                    "--groups takes no --cursor: there is only one page of groups"
                )
            _print_groups(app, chosen, limit=limit, as_json=as_json)
            return
        page = app.list(state="dead", limit=limit, cursor=cursor, full=as_json, **chosen)
    print_page(page, as_json=as_json, has_state=False)


def _print_groups(app: App, chosen: FilterOptions, *, limit: int, as_json: bool) -> None:
    from rowlock.store.ops.dead import dead_groups

    given = {name for name, value in chosen.items() if value is not None}
    if given - {"kind", "queue", "tenant"}:
        raise click.UsageError("--groups takes no filters but --kind, --queue and --tenant")
    found = app.store.run(
        dead_groups(
            kind=chosen.get("kind"),
            queue=chosen.get("queue"),
            tenant=chosen.get("tenant"),
            limit=min(limit, config.DEAD_GROUPS_MAX),
        )
    )
    if as_json:
        for group in found.groups:
            click.echo(show.as_json(_group_document(group)))
    else:
        show.print_tables(_groups_table(found.groups))
    if found.is_cut:
        click.echo("there are more", err=True)


def _groups_table(groups: Sequence[DeadGroup]) -> show.TextTable:
    from rowlock.cli.workers import now

    heads = ("COUNT", "KIND", "ERROR", "PLACE", "LAST", "FINGERPRINT")
    return show.TextTable(
        columns=show.columns(*heads, right=["COUNT"], flexible=["ERROR", "PLACE"]),
        rows=[_group_row(group, now()) for group in groups],
        empty="no dead jobs",
    )


def _group_row(group: DeadGroup, now: datetime) -> list[str]:
    return [
        show.number(group.count.value, exact=group.count.exact),
        group.kind,
        f"{group.error}: {group.message}".partition("\n")[0],
        group.place,
        show.age((now - group.last_at).total_seconds()),
        group.fingerprint,
    ]


def _group_document(group: DeadGroup) -> dict[str, object]:
    return {
        "fingerprint": group.fingerprint,
        "kind": group.kind,
        "error": group.error,
        "message": group.message,
        "place": group.place,
        "count": {"value": group.count.value, "exact": group.count.exact},
        "first_at": group.first_at,
        "last_at": group.last_at,
        "sample_id": group.sample.id,
    }


@dead.command()
@filters
@click.option("--dry-run", is_flag=True, help="Only count the jobs that match.")
@click.option(
    "--per-second",
    type=click.IntRange(1),
    metavar="N",
    help="Retry at most this many jobs per second, to spare what they call (default: no limit).",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Don't ask before all dead jobs are retried. Required without a filter and a terminal.",
)
@json_option("how many jobs were `retried`, and the ids of those `skipped`")
@click.pass_obj
def retry(
    target: Target,
    *,
    dry_run: bool,
    per_second: int | None,
    yes: bool,
    as_json: bool,
    **chosen: Unpack[FilterOptions],
) -> None:
    """Move all matching dead jobs back to ready. Without a filter, this means all dead jobs.

    Without a filter, it shows their number and asks for confirmation. Jobs whose key is in flight
    again are skipped and named on stderr. Each transaction retries up to 500 jobs.
    """
    from rowlock.store.ops.bulk import count_bulk
    from rowlock.store.ops.manage import job_filter

    wanted = _dead("retry", job_filter(**chosen))
    must_ask = not yes and all(value is None for value in chosen.values())
    if must_ask and not dry_run:
        check_terminal()
    with target.open_app() as app:
        if dry_run:
            print_count(app.store.run(count_bulk(wanted)), as_json=as_json)
            return
        if must_ask:
            confirm(f"{matching(app.store.run(count_bulk(wanted)))}. Retry all dead jobs?")
        retried, skipped = walk(app, wanted, label="retrying", per_second=per_second)
    if as_json:
        show.print_json({"retried": retried, "skipped": skipped})
        return
    for id in skipped:
        click.echo(f"skipped {id}: another job with its key is in flight", err=True)
    click.echo(f"retried {show.plural(retried, 'job')}, skipped {len(skipped):,}")


@dead.command()
@filters
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Purge all dead jobs. Either this or a filter is required.",
)
@click.option(
    "--yes", is_flag=True, help="Don't ask for confirmation. Required without a terminal."
)
@json_option("how many jobs were `removed`")
@click.pass_obj
def purge(
    target: Target, *, every: bool, yes: bool, as_json: bool, **chosen: Unpack[FilterOptions]
) -> None:
    """Delete all matching dead jobs permanently, with their logs.

    On a terminal it shows their number and asks for confirmation. Each transaction deletes up to
    500 jobs.
    """
    from rowlock.store.ops.manage import job_filter

    wanted = job_filter(**chosen)
    is_filtered = any(value is not None for value in chosen.values())
    if is_filtered == every:
        raise click.UsageError("give a filter such as --queue, or --all")
    with target.open_app() as app:
        if not yes:
            _confirm(app, chosen)
        removed, _ = walk(app, _dead("delete", wanted), label="removing")
    if as_json:
        show.print_json({"removed": removed})
    else:
        click.echo(f"removed {show.plural(removed, 'job')}")


def _dead(action: Literal["retry", "delete"], wanted: JobFilter) -> Selection:
    from rowlock.job import JobState
    from rowlock.store.ops.bulk import BulkAction, Selection

    return Selection(BulkAction(action), JobState.DEAD, wanted)


def _confirm(app: App, chosen: FilterOptions) -> None:
    check_terminal()
    count = _count(app, chosen)
    shown = f"more than {COUNT_MAX:,} dead jobs"
    if count <= COUNT_MAX:
        shown = show.plural(count, "dead job")
    confirm(f"Remove {shown} permanently?")


def _count(app: App, chosen: FilterOptions) -> int:
    """Count the matching dead jobs, up to just beyond the bound."""
    count, cursor = 0, None
    while True:
        page = app.list(state="dead", limit=PAGE_JOBS, cursor=cursor, **chosen)
        count, cursor = count + len(page), page.next
        if cursor is None or count > COUNT_MAX:
            return count


@dead.command()
@filters
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write to this file instead of stdout. Only you can read it.",
)
@click.option("--force", is_flag=True, help="Replace the file of --output if it exists.")
@click.pass_obj
def export(
    target: Target, *, output: str | None, force: bool, **chosen: Unpack[FilterOptions]
) -> None:
    """Write dead jobs as JSON lines, newest failure first, with the fields of `jobs show`."""
    is_file = output not in {None, "-"}
    to_stdout = click.open_file("-", "w", encoding="utf-8")
    opened = _private_file(Path(str(output)), force=force) if is_file else to_stdout
    with target.open_app() as app, opened as file:
        count = _export(app, file, chosen)
    if is_file:
        click.echo(f"exported {show.plural(count, 'job')}", err=True)


@contextmanager
def _private_file(path: Path, *, force: bool) -> Iterator[IO[str]]:
    """Write a file that only its owner can read. It appears when the block has ended well.

    It is written beside its place and moved there. So no link is followed that somebody planted,
    and whoever has an older file of that name open does not see this one.
    """
    try:
        _check_place(path, force=force)
        descriptor, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            yield file
        _check_place(path, force=force)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink()
        raise


def _check_place(path: Path, *, force: bool) -> None:
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_file():
        raise click.ClickException(f"{path} is not a regular file; choose another name")
    if not force:
        raise click.ClickException(
            f"{path} exists; choose another name, or pass --force to replace it"
        )


def _export(app: App, file: IO[str], chosen: FilterOptions) -> int:
    count, cursor = 0, None
    with progress("exporting", noun="job") as moved:
        while True:
            page = app.list(state="dead", limit=PAGE_JOBS, cursor=cursor, full=True, **chosen)
            file.writelines(f"{show.as_json(show.job_document(job))}\n" for job in page)
            count, cursor = count + len(page), page.next
            if cursor is None:
                return count
            moved(count)
