"""Tokens of the HTTP API: their records, and the format of a secret. No I/O.

A token is shown once, when it is created, and stored as its SHA-256. It has 256 random bits, which
can't be guessed, so a slow hash would only make every request slower.
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

from rowlock import config
from rowlock.errors import OptionInvalid

# `rwl_`, the id, which may be shown, and the secret.
_FORM: Final = re.compile(r"rwl_([a-z2-7]{12})_[A-Za-z0-9_-]{43}")
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_ID: Final = re.compile(r"[a-z2-7]{12}")
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 12
WORKER_OF_TENANT: Final = "tenant:"
# In hexadecimal digits: 128 bits.
_DIGEST_LENGTH: Final = 32


class Scope(StrEnum):
    """What a token allows.

    `admin` includes all scopes, and calls that change or remove things. No other scope includes
    another.
    """

    ENQUEUE = "enqueue"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored, without its secret. `id` is the part that may be shown."""

    id: str
    name: str
    scopes: list[Scope]
    tenant: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    # Accurate to about a minute.
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Secret:
    """The text of a token. Its repr shows only the id."""

    id: str
    text: str = field(repr=False)

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    def matches(self, digest: str) -> bool:
        """Return whether this is the token of a stored digest, in constant time."""
        return hmac.compare_digest(self.digest, digest)


def new_secret() -> Secret:
    """Return a new token: an id and 256 random bits."""
    id = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
    return Secret(id, f"rwl_{id}_{new_code()}")


def new_code() -> str:
    """Return 256 random bits as text: the value of a session's cookie, or of a login link."""
    return secrets.token_urlsafe(32)


def is_code(text: str) -> bool:
    """Return whether a text has the format of such a code."""
    return _CODE.fullmatch(text) is not None


def digest_of(text: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_secret(text: str) -> Secret | None:
    """Parse the token that a caller sent. None if it does not have the format of a token."""
    found = _FORM.fullmatch(text)
    return None if found is None else Secret(found[1], text)


def is_token_id(text: str) -> bool:
    """Return whether a text has the format of a token's id."""
    return _ID.fullmatch(text) is not None


def worker_of(tenant: str, name: str) -> str:
    """Return the unique name of a worker whose token is bound to a tenant.

    It is a valid name, however long the tenant's and the worker's own names are.
    """
    prefix = _worker_prefix(tenant)
    room = config.NAME_CHARACTERS_MAX - len(prefix)
    if len(name) > room:
        name = f"{name[: room - _DIGEST_LENGTH - 1]}~{_digest(name)}"
    return prefix + name


def _worker_prefix(tenant: str) -> str:
    quoted = quote(tenant, safe="")
    if len(quoted) > config.WORKER_TENANT_CHARACTERS_MAX:
        # No quoted name has a colon, so this can't be the name of another tenant.
        quoted = f"sha256:{_digest(tenant)}"
    return f"{WORKER_OF_TENANT}{quoted}/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]


def takes_jobs_of(worker: str, tenant: str | None) -> bool:
    """Return whether a worker of that name may run jobs of a tenant."""
    if not worker.startswith(WORKER_OF_TENANT):
        return True
    return tenant is not None and worker.startswith(_worker_prefix(tenant))


def scopes_of(values: Collection[str]) -> list[Scope]:
    """Check the scopes of a token: at least one, each once, in the order of their definition."""
    unknown = sorted(set(values) - set(Scope))
    if unknown or not values or isinstance(values, str):
        problem = f"must be one or more of {', '.join(Scope)}"
        raise OptionInvalid("scopes", f"{problem}, not {unknown[0]!r}" if unknown else problem)
    return [scope for scope in Scope if scope in values]
