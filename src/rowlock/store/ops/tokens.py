"""Tokens, and the sessions of browsers. Only the digest of a secret is ever stored.

A session belongs to a token, and is valid only as long as that token is. The token of a login link
has no digest: it exists so that its sessions can be listed and revoked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec

from rowlock import config
from rowlock.clock import duration_us, from_us, maybe_from_us
from rowlock.errors import NotFound, OptionInvalid
from rowlock.store import options
from rowlock.store.steps import Begin, Op, Row, Statement, Steps, reading, writing
from rowlock.tokens import (
    Scope,
    Secret,
    Token,
    digest_of,
    is_token_id,
    new_code,
    new_secret,
    scopes_of,
)

LOGIN_NAME: Final = "login link"
_SESSION_US: Final = int(config.SESSION_SECONDS) * config.SECOND_US
_TRIM: Final = {"kept": config.SESSIONS_PER_TOKEN_MAX - 1, "limit": config.MAINTENANCE_BATCH_ROWS}

# Later than any stored time.
_END_OF_TIME = 2**62
# The place of `created_at` in a row.
_CREATED_AT = 4


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
        *_, digest, now = rows[0]
        is_right = digest is not None and secret.matches(digest)
        return _token(rows[0]) if is_right and _is_live(rows[0], now) else None

    return reading("find_token", steps)


@dataclass(frozen=True, slots=True)
class TokenPage:
    """A page of tokens, newest first. `next` is None on the last page."""

    tokens: list[Token]
    next: str | None


def list_tokens(
    *,
    tenant: str | None = None,
    limit: int = config.LIST_LIMIT_MAX,
    cursor: str | None = None,
) -> Op[TokenPage]:
    """A page of tokens, of a tenant if one is given, including revoked and expired ones."""
    after, _, after_id = (cursor or f"{_END_OF_TIME} ").partition(" ")
    values = {"tenant": tenant, "limit": limit, "after": int(after), "after_id": after_id}

    def steps() -> Steps[TokenPage]:
        rows = yield Statement("token_list", values)
        is_full = len(rows) == limit
        return TokenPage(
            [_token(row) for row in rows],
            f"{rows[-1][_CREATED_AT]} {rows[-1][0]}" if is_full else None,
        )

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
    """Decides whether a server prints a login link, and whether it may start beyond loopback.

    Tokens of login links don't count.
    """

    def steps() -> Steps[TokenState]:
        ((made, live),) = yield Statement("token_state")
        return TokenState(bool(made), bool(live))

    return reading("token_state", steps)


def use_tokens(ids: Sequence[str]) -> Op[None]:
    """Note that tokens were used now. Each is written at most once a minute."""
    pause = int(config.TOKEN_USE_SECONDS * config.SECOND_US)

    def steps() -> Steps[None]:
        yield Statement("token_use", {"ids": sorted(ids), "pause": pause})

    return writing("use_tokens", steps, repeat=steps)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to start. `code` is the value of its cookie, and only its digest is stored."""

    code: str = field(repr=False, default_factory=new_code)

    def of_token(self, token_id: str) -> Op[timedelta]:
        """Start a session of a token. Returns how long it is valid.

        If the token has too many sessions, the oldest one ends.
        """

        def steps() -> Steps[timedelta]:
            yield Begin()
            return (yield from self._start(token_id))

        return writing("start_session", steps, repeat=steps)

    def of_login(self, token_id: str) -> Op[timedelta]:
        """Make the token of a login link, and start its session. Returns how long it is valid."""
        token = {
            "id": token_id,
            "digest": None,
            "name": LOGIN_NAME,
            "scopes_json": msgspec.json.encode([Scope.ADMIN]).decode(),
            "tenant": None,
            "lifetime": _SESSION_US,
        }

        def steps() -> Steps[timedelta]:
            yield Begin()
            yield Statement("token_add", token)
            return (yield from self._start(token_id))

        return writing("start_login", steps, repeat=steps)

    def _start(self, token_id: str) -> Steps[timedelta]:
        digest = digest_of(self.code)
        values = {"digest": digest, "token_id": token_id, "lifetime": _SESSION_US}
        yield Statement("session_add", values)
        yield Statement("session_trim", {"digest": digest, "token_id": token_id, **_TRIM})
        *_, expires_at, now = (yield Statement("session_find", {"digest": digest}))[0]
        return timedelta(microseconds=expires_at - now)


def find_session(digest: str) -> Op[Token | None]:
    """The token of a session, if both are valid."""

    def steps() -> Steps[Token | None]:
        rows = yield Statement("session_find", {"digest": digest})
        if not rows:
            return None
        *_, expires_at, now = rows[0]
        return _token(rows[0]) if expires_at > now and _is_live(rows[0], now) else None

    return reading("find_session", steps)


def end_session(digest: str) -> Op[bool]:
    """End a session. Returns whether there was one."""

    def steps() -> Steps[bool]:
        return bool((yield Statement("session_end", {"digest": digest})))

    return writing("end_session", steps, repeat=steps)


def _is_live(row: Row, now: int) -> bool:
    expires_at, revoked_at = row[5:7]
    return revoked_at is None and (expires_at is None or expires_at > now)


def _token(row: Row) -> Token:
    id, name, scopes, tenant, created_at, expires_at, revoked_at, last_used_at = row[:8]
    return Token(
        id=id,
        name=name,
        scopes=msgspec.json.decode(scopes, type=list[Scope]),
        tenant=tenant,
        created_at=from_us(created_at),
        expires_at=maybe_from_us(expires_at),
        revoked_at=maybe_from_us(revoked_at),
        last_used_at=maybe_from_us(last_used_at),
    )
