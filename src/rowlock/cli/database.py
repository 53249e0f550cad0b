"""Commands that work on a whole database: `rowlock migrate`, `rowlock move`, `rowlock prune`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rowlock.cli import EXIT_FAILED, Target, show
from rowlock.cli.options import json_option

if TYPE_CHECKING:
    from rowlock.move import Moved
    from rowlock.store.engine import Engine


@click.command()
@click.option(
    "--check", is_flag=True, help="Change nothing. Exit with 1 if a migration is missing."
)
@click.option("--sql", is_flag=True, help="Change nothing. Print the SQL of missing migrations.")
@click.option(
    "--roles",
    is_flag=True,
    help="With --sql: also print the SQL of four PostgreSQL roles: migrator, worker, producer,"
    " reader.",
)
@click.option(
    "--row-security",
    is_flag=True,
    help="With --sql --roles: also print the SQL that restricts producers and readers to a tenant.",
)
@click.option(
    "--schema",
    metavar="NAME",
    default="rowlock",
    show_default=True,
    help="PostgreSQL schema of the tables. With --app, the app's own is used.",
)
@json_option("the migrations that were applied, and those missing")
@click.pass_obj
@click.pass_context
def migrate(
    ctx: click.Context,
    target: Target,
    *,
    check: bool,
    sql: bool,
    roles: bool,
    row_security: bool,
    schema: str,
    as_json: bool,
) -> None:
    """Create or upgrade rowlock's tables.

    It is safe to run this again, and from several machines at once.
    """
    from rowlock.store import migrate as migrations

    if (roles and not sql) or (row_security and not roles):
        raise click.UsageError("--roles needs --sql, and --row-security needs --sql --roles")
    store = target.open_store(schema=schema)
    engine = store.engine
    try:
        missing = migrations.pending(engine.dialect, engine.applied())
        if sql:
            click.echo(migrations.by_hand(missing, dialect=engine.dialect, schema=engine.schema))
            if roles:
                click.echo(_rights(engine, row_security=row_security))
            return
        applied = [] if check else store.migrate()
        left = [migration.number for migration in missing] if check else []
        click.echo(_migrations(applied, left, as_json=as_json))
        ctx.exit(EXIT_FAILED if left else 0)
    finally:
        store.close()


def _rights(engine: Engine, *, row_security: bool) -> str:
    """Return the SQL of the roles, in a transaction of its own."""
    from rowlock.store import migrate
    from rowlock.store.statements import Dialect

    if engine.dialect is not Dialect.POSTGRES:
        raise click.UsageError("SQLite has no roles: everyone who can open the file has all rights")
    scripts = [migrate.roles(engine.schema)]
    if row_security:
        scripts.append(migrate.row_security(engine.schema))
    return "\n\n".join(["", "BEGIN;", *scripts, "COMMIT;"])


def _migrations(applied: list[int], missing: list[int], *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"applied": applied, "missing": missing, "up_to_date": not missing})
    lines = [f"applied {number:04}" for number in applied]
    listed = ", ".join(f"{number:04}" for number in missing)
    return "\n".join([*lines, f"missing: {listed}" if missing else "up to date"])


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
    from dataclasses import asdict

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
    _show(as_json, asdict(mover.moved), _moved(mover.moved))


def _show(as_json: bool, document: dict[str, Any], words: str) -> None:
    if as_json:
        show.print_json(document)
    else:
        click.echo(words)


def _moved(moved: Moved) -> str:
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


@click.command()
@json_option("how many jobs were `removed`")
@click.pass_obj
def prune(target: Target, *, as_json: bool) -> None:
    """Remove finished jobs whose retention has expired.

    Workers and servers do this by themselves, every minute.
    """
    with target.open_app() as app:
        removed = app.store.prune()
    if as_json:
        show.print_json({"removed": removed})
    else:
        click.echo(f"removed {show.plural(removed, 'job')}")
