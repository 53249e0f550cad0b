"""Tokens: created, looked up, listed, revoked. Only the digest of a secret is ever stored."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from rowlock import config
from rowlock.clock import duration_us, from_us, maybe_from_us
from rowlock.errors import NotFound, OptionInvalid
from rowlock.store import options
from rowlock.store.steps import Op, Row, Statement, Steps, reading, writing
from rowlock.tokens import Scope, Secret, Token, is_token_id, new_secret, scopes_of


@dataclass(frozen=True, slots=True)
class NewToken:
    """A checked token to store. `secret.text` is shown once and then forgotten."""

    secret: Secret
    name: str
    scopes: list[Scope]
    tenant: str | None
    lifetime_us: int | None

    def add(self) -> Op[Token]:
        """Store it."""
        values = {
            "id": self.secret.id,
            "digest": self.secret.digest,
            "name": self.name,
            "scopes_json": msgspec.json.encode(self.scopes).decode(),
            "tenant": self.tenant,
            "lifetime": self.lifetime_us,
        }

        def steps() -> Steps[Token]:
            yield Statement("token_add", values)
            row = (yield Statement("token_find", {"id": self.secret.id}))[0]
            return _token(row)

        return writing("add_token", steps, repeat=steps)


def new_token(
    *,
    name: str,
    scopes: Collection[str],
    tenant: str | None = None,
    expires: float | timedelta | None = None,
) -> NewToken:
    """A new token. `expires` is how long it is valid. None: forever."""
    lifetime = None if expires is None else duration_us(expires, option="expires")
    if lifetime == 0:
        raise OptionInvalid("expires", "must be longer than 0 seconds")
    return NewToken(
        secret=new_secret(),
        name=options.name(name, option="name"),
        scopes=scopes_of(scopes),
        tenant=None if tenant is None else options.name(tenant, option="tenant"),
        lifetime_us=lifetime,
    )


def find_token(secret: Secret) -> Op[Token | None]:
    """The token of a secret if it is valid: neither unknown, nor expired, nor revoked."""

    def steps() -> Steps[Token | None]:
        rows = yield Statement("token_find", {"id": secret.id})
        if not rows:
            return None
        *_, expires_at, revoked_at, digest, now = rows[0]
        is_over = revoked_at is not None or (expires_at is not None and expires_at <= now)
        return _token(rows[0]) if secret.matches(digest) and not is_over else None

    return reading("find_token", steps)


def list_tokens(*, tenant: str | None = None) -> Op[list[Token]]:
    """All tokens, or those of a tenant, newest first, including revoked and expired ones."""
    values = {"tenant": tenant, "limit": config.LIST_LIMIT_MAX}

    def steps() -> Steps[list[Token]]:
        return [_token(row) for row in (yield Statement("token_list", values))]

    return reading("list_tokens", steps)


def revoke_token(id: str, *, tenant: str | None = None) -> Op[None]:
    """Revoke a token at once. Doing it again has no effect. Raises `NotFound`.

    Args:
        tenant: Only a token of this tenant; another tenant's is not found.
    """

    if not is_token_id(id):
        raise NotFound("there is no such token: its id is 12 letters and digits")

    def steps() -> Steps[None]:
        if not (yield Statement("token_revoke", {"id": id, "tenant": tenant})):
            raise NotFound(f"there is no token {id!r}")

    return writing("revoke_token", steps, repeat=steps)


@dataclass(frozen=True, slots=True)
class TokenState:
    """Whether a token was ever created, and whether one is still valid."""

    any_made: bool
    any_live: bool


def token_state() -> Op[TokenState]:
    """Decides whether a server on loopback is open, and whether one elsewhere may start."""

    def steps() -> Steps[TokenState]:
        ((made, live),) = yield Statement("token_state")
        return TokenState(bool(made), bool(live))

    return reading("token_state", steps)


def _token(row: Row) -> Token:
    id, name, scopes, tenant, created_at, expires_at, revoked_at = row[:7]
    return Token(
        id=id,
        name=name,
        scopes=msgspec.json.decode(scopes, type=list[Scope]),
        tenant=tenant,
        created_at=from_us(created_at),
        expires_at=maybe_from_us(expires_at),
        revoked_at=maybe_from_us(revoked_at),
    )
