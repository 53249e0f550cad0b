"""Authentication and authorization: tokens, scopes, tenants, and requests of foreign pages.

1. Default deny: a route names the scopes that suffice, and whether it reaches beyond a tenant.
2. The tenant comes from the credential. If a token is bound to a tenant, no other can be named.
3. A valid token is looked up again after a second. So a revoked one ends at once on this server,
   and within that second on others.
4. Requests without a token are served only if the application that mounts this asked for it, or on
   loopback until the first token is made. Then the Host must be a name of this machine: a foreign
   name that points to 127.0.0.1 is refused.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil
from urllib.parse import urlsplit

from rowlock import config
from rowlock.errors import Forbidden
from rowlock.server.problems import Refusal
from rowlock.server.request import Headers
from rowlock.store import Store
from rowlock.store.ops.audit import Actor
from rowlock.store.ops.tokens import find_token, token_state
from rowlock.tokens import Scope, read_secret

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_CHALLENGE = {"www-authenticate": 'Bearer realm="rowlock"'}


class Openness(Enum):
    """Whether requests without a token are served."""

    CLOSED = auto()
    # On loopback: open until the first token is made.
    UNTIL_TOKENS = auto()
    # The application that mounts this authenticates requests.
    OPEN = auto()


class Reach(Enum):
    """Whether a route concerns one tenant, or the whole installation."""

    TENANT = auto()
    SYSTEM = auto()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and the scopes they hold."""

    actor: Actor
    scopes: frozenset[Scope]

    @property
    def tenant(self) -> str | None:
        """The tenant that the credential is bound to, or None."""
        return self.actor.tenant

    def tenant_of(self, asked: str | None) -> str | None:
        """The tenant of a call that may name one. Raises `Forbidden` for another tenant."""
        if self.tenant is None or asked is None or asked == self.tenant:
            return self.tenant or asked
        raise Forbidden("this token is bound to another tenant")

    def check(self, scopes: frozenset[Scope], reach: Reach) -> None:
        """Raise `Forbidden` unless the caller has one of the scopes, and that reach."""
        if scopes and not self.scopes & (scopes | {Scope.ADMIN}):
            needed = " or ".join(scope for scope in Scope if scope in scopes)
            raise Forbidden(f"this token lacks the scope that is needed: {needed}")
        if reach is Reach.SYSTEM and self.tenant is not None:
            raise Forbidden("this call concerns all tenants, but the token is bound to one")


ANYBODY = Caller(Actor("anybody"), frozenset())
EVERYTHING = Caller(Actor("anybody"), frozenset(Scope))


@dataclass(frozen=True, slots=True)
class _Known:
    """A valid token, and until when it need not be looked up again."""

    caller: Caller
    until: float


class Gate:
    """Admits requests, or raises `Refusal` or `Forbidden`."""

    def __init__(
        self, store: Store, *, openness: Openness, hosts: frozenset[str] | None = None
    ) -> None:
        self._store = store
        self._openness = openness
        self._hosts = hosts
        self._throttle = Throttle()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._has_tokens = False
        self._open_until = 0.0
        # Incremented with every change of tokens here: a lookup from before is not remembered.
        self._changes = 0

    async def admit(
        self, headers: Headers, *, method: str, address: str, scopes: frozenset[Scope] | None
    ) -> Caller:
        """The caller of a request. If `scopes` is None, the route is public."""
        _refuse_foreign_pages(headers, method)
        if scopes is None:
            return ANYBODY
        if self._openness is Openness.OPEN:
            self._check_host(headers)
            return EVERYTHING
        given = headers.get("authorization")
        if given is not None:
            return await self._recognise(given, address)
        if self._openness is Openness.UNTIL_TOKENS and await self.is_open():
            self._check_host(headers)
            return EVERYTHING
        raise Refusal("unauthorized", "send Authorization: Bearer TOKEN", headers=_CHALLENGE)

    async def is_open(self) -> bool:
        """Whether requests without a token are served now."""
        if self._openness is not Openness.UNTIL_TOKENS:
            return self._openness is Openness.OPEN
        now = time.monotonic()
        # Once closed it stays closed: a token is revoked, but never deleted.
        if not self._has_tokens and now >= self._open_until:
            self._has_tokens = (await self._store.arun(token_state())).any_made
            self._open_until = now + config.TOKEN_KNOWN_SECONDS
        return not self._has_tokens

    def forget(self, token_id: str) -> None:
        """Look a token up again, because it was made or revoked here."""
        self._changes += 1
        self._open_until = 0.0
        for digest, known in list(self._known.items()):
            if known.caller.actor.token_id == token_id:
                del self._known[digest]

    async def _recognise(self, given: str, address: str) -> Caller:
        scheme, _, text = given.partition(" ")
        secret = read_secret(text.strip()) if scheme.lower() == "bearer" else None
        now = time.monotonic()
        known = None if secret is None else self._known.get(secret.digest)
        if known is not None and now < known.until:
            return known.caller
        wait = self._throttle.seconds_left(address, now=now)
        # A token that was valid a moment ago is looked up even so: others may share its address.
        if wait and known is None:
            raise _too_many(wait)
        changes = self._changes
        token = None if secret is None else await self._store.arun(find_token(secret))
        if secret is None or token is None:
            self._throttle.fail(address, now=now)
            if secret is not None:
                self._known.pop(secret.digest, None)
            raise Refusal(
                "unauthorized", "the token is unknown, expired or revoked", headers=_CHALLENGE
            )
        caller = Caller(Actor(token.name, token.id, token.tenant), frozenset(token.scopes))
        if changes == self._changes:
            self._remember(secret.digest, _Known(caller, now + config.TOKEN_KNOWN_SECONDS))
        return caller

    def _remember(self, digest: str, known: _Known) -> None:
        self._known.pop(digest, None)
        self._known[digest] = known
        if len(self._known) > config.TOKENS_KNOWN_MAX:
            self._known.popitem(last=False)

    def _check_host(self, headers: Headers) -> None:
        if self._hosts is None:
            return
        name = _host_name(headers.get("host", ""))
        if name not in self._hosts:
            raise Refusal("misdirected", "an open server has only its own host names")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _refuse_foreign_pages(headers: Headers, method: str) -> None:
    """Refuse changes by pages of other sites, which may send simple requests to this server."""
    if method in _SAFE_METHODS:
        return
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_foreign = site in ("cross-site", "same-site")
    if site is None and origin is not None:
        is_foreign = _origin_host(origin) != headers.get("host", "").lower()
    if is_foreign:
        raise Forbidden("requests from pages of other sites are refused")


def _origin_host(origin: str) -> str:
    """The host and port of an Origin header, empty for `null`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _too_many(wait: float) -> Refusal:
    return Refusal(
        "too_many_requests",
        "too many invalid tokens came from this address",
        headers={"retry-after": str(ceil(wait))},
    )


@dataclass(slots=True)
class _FailureWindow:
    began: float
    failures: int


class Throttle:
    """Counts invalid tokens by address, and says when to refuse them without a query.

    Nobody guesses 256 bits: this keeps attempts from costing a query each. A bounded number of
    addresses is remembered. Times are of a monotonic clock.
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[str, _FailureWindow] = OrderedDict()

    def fail(self, address: str, *, now: float) -> None:
        """Count an invalid token from an address."""
        window = self._windows.pop(address, None)
        if window is None or now - window.began >= config.AUTH_FAILURES_SECONDS:
            window = _FailureWindow(now, 0)
        window.failures += 1
        self._windows[address] = window
        if len(self._windows) > config.AUTH_ADDRESSES_MAX:
            self._windows.popitem(last=False)

    def seconds_left(self, address: str, *, now: float) -> float:
        """For how long tokens from an address are refused, or 0."""
        window = self._windows.get(address)
        if window is None or window.failures < config.AUTH_FAILURES_MAX:
            return 0.0
        return max(0.0, window.began + config.AUTH_FAILURES_SECONDS - now)
