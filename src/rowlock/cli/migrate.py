"""`rowlock migrate`: bring the database's schema up to date."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from rowlock.cli import EXIT_FAILED, Target
from rowlock.cli.options import json_option

if TYPE_CHECKING:
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
        click.echo(_shown(applied, left, as_json=as_json))
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


def _shown(applied: list[int], missing: list[int], *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"applied": applied, "missing": missing, "up_to_date": not missing})
    lines = [f"applied {number:04}" for number in applied]
    listed = ", ".join(f"{number:04}" for number in missing)
    return "\n".join([*lines, f"missing: {listed}" if missing else "up to date"])
