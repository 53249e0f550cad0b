"""`rowlock completion`: print the script that makes a shell complete commands and options."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell. Source it in that shell's startup file."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, f"click completes {shell}"
    root = ctx.find_root().command
    click.echo(found(root, {}, "rowlock", "_ROWLOCK_COMPLETE").source())
