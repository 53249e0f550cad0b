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
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 if something is missing.")
@click.option("--sql", is_flag=True, help="Change nothing; print the SQL of what is missing.")
@click.option(
    "--roles",
    is_flag=True,
    help="With --sql: also the SQL of four roles: migrator, worker, producer, reader (PostgreSQL).",
)
@click.option(
    "--row-security",
    is_flag=True,
    help="With --sql --roles: also the SQL that binds producers and readers to a tenant.",
)
@click.option(
    "--schema",
    metavar="NAME",
    default="rowlock",
    show_default=True,
    help="The schema of the tables; with --app the app's own.",
)
@json_option("what was applied, and what is missing")
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
    """Create or upgrade rowlock's tables. Safe to run again, and from many places at once."""
    from rowlock.store import migrate as migrations

    if (roles and not sql) or (row_security and not roles):
        raise click.UsageError("--roles goes with --sql, and --row-security with --sql --roles")
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
    """Who may do what, in a transaction of its own."""
    from rowlock.store import roles
    from rowlock.store.statements import Dialect

    if engine.dialect is not Dialect.POSTGRES:
        raise click.UsageError("SQLite has no roles: whoever can open the file can do all")
    scripts = [roles.roles(engine.schema)]
    if row_security:
        scripts.append(roles.row_security(engine.schema))
    return "\n\n".join(["", "BEGIN;", *scripts, "COMMIT;"])


def _shown(applied: list[int], missing: list[int], *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"applied": applied, "missing": missing, "up_to_date": not missing})
    lines = [f"applied {number:04}" for number in applied]
    listed = ", ".join(f"{number:04}" for number in missing)
    return "\n".join([*lines, f"missing: {listed}" if missing else "up to date"])
