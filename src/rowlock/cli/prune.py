"""`rowlock prune`: remove expired finished jobs now."""

from __future__ import annotations

import click

from rowlock.cli import Target, show
from rowlock.cli.options import json_option


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
