"""`rowlock tokens`: create, list and revoke the tokens of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rowlock.cli import HintingGroup, Target, show
from rowlock.cli.jobs import each
from rowlock.cli.options import json_option, seconds

if TYPE_CHECKING:
    from datetime import datetime

    from rowlock.store.ops.audit import Actor
    from rowlock.tokens import Token

SCOPES: Final = ("enqueue", "read", "work", "admin")


@click.group(cls=HintingGroup)
def tokens() -> None:
    """Create, list and revoke the tokens of the HTTP API."""


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What the token allows. Can be repeated. admin allows everything.",
)
@click.option("--tenant", metavar="TENANT", help="Restrict the token to one tenant.")
@click.option(
    "--expires",
    type=seconds,
    metavar="DURATION",
    help="Time after which the token expires (default: never).",
)
@json_option("the token and its fields")
@click.pass_obj
def create(
    target: Target,
    *,
    name: str,
    scopes: tuple[str, ...],
    tenant: str | None,
    expires: float | None,
    as_json: bool,
) -> None:
    """Create a token and print it. It can't be shown again, because only its hash is stored."""
    from rowlock.store.ops.audit import Deed, audited
    from rowlock.store.ops.tokens import new_token

    new = new_token(name=name, scopes=scopes, tenant=tenant, expires=expires)
    deed = Deed(_actor(tenant), "token.create", new.secret.id)
    with target.open_app(creates=True) as app:
        token = app.store.run(audited(new.add(), deed, detail=lambda made: {"name": made.name}))
    if as_json:
        show.print_json({**document(token), "token": new.secret.text})
        return
    click.echo(new.secret.text)
    click.echo("It is not shown again. Send it as: Authorization: Bearer TOKEN", err=True)


@tokens.command("list")
@json_option("all fields of each token")
@click.pass_obj
def list_tokens(target: Target, *, as_json: bool) -> None:
    """List the tokens, newest first, without their secrets."""
    from rowlock.store.ops.tokens import list_tokens as listed

    with target.open_app() as app:
        page = app.store.run(listed())
        found = page.tokens
        while page.next is not None:
            page = app.store.run(listed(cursor=page.next))
            found += page.tokens
    if as_json:
        show.print_json([document(token) for token in found])
    else:
        show.print_tables(_table(found))


@tokens.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def revoke(target: Target, *, ids: tuple[str, ...]) -> None:
    """Revoke tokens by the ids that `list` shows."""
    from rowlock.store.ops.audit import Deed, audited
    from rowlock.store.ops.tokens import revoke_token

    with target.open_app() as app:

        def act(id: str) -> None:
            app.store.run(audited(revoke_token(id), Deed(_actor(None), "token.revoke", id)))
            click.echo(f"revoked {show.escaped(id)}")

        each(ids, act)


def _actor(tenant: str | None) -> Actor:
    from rowlock.store.ops.audit import Actor

    return Actor("the command line", tenant=tenant)


def document(token: Token) -> dict[str, object]:
    """Return a token as JSON, without its secret."""
    return {name: getattr(token, name) for name in token.__struct_fields__}


def _table(found: list[Token]) -> show.TextTable:
    names = ("id", "name", "scopes", "tenant", "created", "used", "expires", "revoked")
    table = show.TextTable(show.columns(*names, flexible=["name", "tenant"]), empty="no tokens yet")
    for token in found:
        table.add(
            show.Cell(token.id, "bold"),
            token.name,
            ",".join(token.scopes),
            token.tenant or "-",
            _shown(token.created_at),
            _shown(token.last_used_at),
            _shown(token.expires_at),
            _shown(token.revoked_at),
        )
    return table


def _shown(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}Z"
