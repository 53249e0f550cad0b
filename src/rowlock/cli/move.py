"""`rowlock move`: move a live queue to another database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rowlock.cli import Target, show
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from rowlock.move import Moved


@click.command()
@click.argument("url")
@click.option(
    "--follow", is_flag=True, help="Continue until Ctrl-C, for producers that switch late."
)
@click.option(
    "--give-back",
    is_flag=True,
    help="Undo the unfinished part of a stopped move: jobs that have not arrived in the new"
    " database become available in the old one again.",
)
@json_option(
    "how many `jobs`, `finished` jobs and `schedules` were moved, how many were `known` there "
    "already, and how many were `stopped` because their key was held"
)
@click.pass_obj
def move(target: Target, *, url: str, follow: bool, give_back: bool, as_json: bool) -> None:
    """Move all jobs from the database of --database-url (or of --app) to the one at URL.

    Jobs, schedules, dead jobs, logs, held keys, tokens and the audit log arrive unchanged, with
    their ids. Producers and workers can keep running on both databases: each job runs on one of
    them, never on both. You can stop the move at any time, and the same command continues it.
    It ends when the old database is empty.
    """
    from rowlock.app import App
    from rowlock.cli.progress import progress
    from rowlock.move import Mover

    with target.open_app() as old, App(url, schema=old.store.engine.schema) as new:
        if give_back:
            returned = Mover(old.store, new.store).give_back()
            _show(as_json, {"given_back": returned}, f"gave back {show.plural(returned, 'job')}")
            return
        live, finished = Mover(old.store, new.store).counts()
        with progress("moving", noun="job", total=live + finished) as bar:
            mover = Mover(
                old.store, new.store, on_progress=lambda moved: bar(moved.jobs + moved.finished)
            )
            try:
                mover.run(follow=follow)
            except KeyboardInterrupt:
                if not follow:
                    raise
    _show(as_json, _document(mover.moved), _words(mover.moved))


def _show(as_json: bool, document: dict[str, Any], words: str) -> None:
    if as_json:
        show.print_json(document)
    else:
        click.echo(words)


def _document(moved: Moved) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(moved)


def _words(moved: Moved) -> str:
    jobs, schedules = show.plural(moved.jobs, "job"), show.plural(moved.schedules, "schedule")
    lines = [f"moved {jobs}, {moved.finished:,} finished, {schedules}"]
    if moved.known:
        lines.append(f"{moved.known:,} were already there")
    if moved.stopped:
        lines.append(
            f"{moved.stopped:,} arrived as cancelled, because another job holds their key "
            "(rowlock jobs list --state cancelled)"
        )
    return "\n".join(lines)
