"""Tokens: who may ask the server for what. Records and the form of a secret; no I/O.

A token is shown once, when it is made, and stored as its SHA-256: of 256 random bits nothing can be
guessed, so that a slow hash would add nothing but time to every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from urllib.parse import quote

import msgspec

from rowlock.errors import OptionInvalid

# `rwl_`, the id that may be shown, and the secret.
_FORM: Final = re.compile(r"rwl_([a-z2-7]{12})_[A-Za-z0-9_-]{43}")
_ID: Final = re.compile(r"[a-z2-7]{12}")
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 12
_WORKER_OF: Final = "tenant:"


class Scope(StrEnum):
    """What a token is for. `admin` is all of them, and what changes or removes; no other implies
    another."""

    ENQUEUE = "enqueue"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored, without its secret. `id` is the part of it that may be shown."""

    id: str
    name: str
    scopes: list[Scope]
    tenant: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Secret:
    """The text of a token; its repr shows no more than the id."""

    id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def matches(self, digest: str) -> bool:
        """Whether this is the token of a stored digest; it takes as long for a yes as for a no."""
        return hmac.compare_digest(self.digest, digest)


def new_secret() -> Secret:
    """A token that nobody has: 256 random bits behind an id."""
    id = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
    return Secret(id, f"rwl_{id}_{secrets.token_urlsafe(32)}")


def read_secret(text: str) -> Secret | None:
    """The token in a text of a caller; None if it has not the form of one."""
    found = _FORM.fullmatch(text)
    return None if found is None else Secret(found[1], text)


def is_token_id(text: str) -> bool:
    """Whether a text has the form of the id of a token."""
    return _ID.fullmatch(text) is not None


def worker_of(tenant: str, name: str) -> str:
    """The name of a worker whose token is bound to a tenant: no other can have the same."""
    return f"{_WORKER_OF}{quote(tenant, safe='')}/{name}"


def takes_jobs_of(worker: str, tenant: str | None) -> bool:
    """Whether a worker of that name may be given jobs of a tenant."""
    if not worker.startswith(_WORKER_OF):
        return True
    return tenant is not None and worker.startswith(worker_of(tenant, ""))


def scopes_of(values: Collection[str]) -> list[Scope]:
    """Check the scopes of a token: one at least, each once, in the order of their definition."""
    unknown = sorted(set(values) - set(Scope))
    if unknown or not values or isinstance(values, str):
        problem = f"must be some of {', '.join(Scope)}"
        raise OptionInvalid("scopes", f"{problem}, not {unknown[0]!r}" if unknown else problem)
    return [scope for scope in Scope if scope in values]
