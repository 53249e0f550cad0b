"""Who asks, and whether they may: tokens, scopes, tenants; and browsers that ask for others.

1. Default deny: a route names the scopes that suffice, and whether it reaches beyond a tenant.
2. The tenant comes from the credential. Where that has one, no other can be named.
3. A token that was good is looked up again after a second: so a revoked one ends at once here, and
   within that second on other servers.
4. Open, without tokens, is only what was told to be: below a prefix of somebody's own application,
   or on loopback for as long as no token was ever made. Then the name that a browser used must be
   one of this machine: a foreign name that was pointed at 127.0.0.1 is refused.
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
    # On loopback.
    UNTIL_TOKENS = auto()
    # Somebody else has checked who asks.
    OPEN = auto()


class Reach(Enum):
    """How far a route goes: within a tenant, or to what all tenants share."""

    TENANT = auto()
    SYSTEM = auto()


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks, and what for."""

    actor: Actor
    scopes: frozenset[Scope]

    @property
    def tenant(self) -> str | None:
        """The tenant that all is bound to; None: none."""
        return self.actor.tenant

    def tenant_of(self, asked: str | None) -> str | None:
        """The tenant of a call that names one, or none. Raises `Forbidden` for another's."""
        if self.tenant is None or asked is None or asked == self.tenant:
            return self.tenant or asked
        raise Forbidden("this token is bound to another tenant")

    def check(self, scopes: frozenset[Scope], reach: Reach) -> None:
        """Raise `Forbidden` unless one of the scopes is held, and the reach is."""
        if scopes and not self.scopes & (scopes | {Scope.ADMIN}):
            needed = " or ".join(scope for scope in Scope if scope in scopes)
            raise Forbidden(f"this token has not the scope that it takes: {needed}")
        if reach is Reach.SYSTEM and self.tenant is not None:
            raise Forbidden("this concerns all tenants, and the token is bound to one")


ANYBODY = Caller(Actor("anybody"), frozenset())
EVERYTHING = Caller(Actor("anybody"), frozenset(Scope))


@dataclass(frozen=True, slots=True)
class _Known:
    """A token that was good at a time."""

    caller: Caller
    until: float


class Gate:
    """Lets requests in, or raises `Refusal` or `Forbidden`."""

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
        # Grows with every change of tokens here: what was looked up before is not remembered.
        self._changes = 0

    async def admit(
        self, headers: Headers, *, method: str, address: str, scopes: frozenset[Scope] | None
    ) -> Caller:
        """Say who asks. `scopes` None: the route is anybody's."""
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
        """Whether requests without a token are served just now."""
        if self._openness is not Openness.UNTIL_TOKENS:
            return self._openness is Openness.OPEN
        now = time.monotonic()
        # Once closed it stays so: a token is revoked, but never unmade.
        if not self._has_tokens and now >= self._open_until:
            self._has_tokens = (await self._store.arun(token_state())).any_made
            self._open_until = now + config.TOKEN_KNOWN_SECONDS
        return not self._has_tokens

    def forget(self, token_id: str) -> None:
        """A token was made or revoked here: look again."""
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
        # What was good a moment ago is looked up even so: others may share its address.
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
            raise Refusal("misdirected", "without tokens, only names of this machine are served")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _refuse_foreign_pages(headers: Headers, method: str) -> None:
    """A page of another site may send simple requests to here; it must change nothing."""
    if method in _SAFE_METHODS:
        return
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_foreign = site in ("cross-site", "same-site")
    if site is None and origin is not None:
        is_foreign = _origin_host(origin) != headers.get("host", "").lower()
    if is_foreign:
        raise Forbidden("requests by pages of other sites are not served")


def _origin_host(origin: str) -> str:
    """The host and port of an Origin header; `null` has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _too_many(wait: float) -> Refusal:
    return Refusal(
        "too_many_requests",
        "too many bad tokens from this address",
        headers={"retry-after": str(ceil(wait))},
    )


@dataclass(slots=True)
class _FailureWindow:
    began: float
    failures: int


class Throttle:
    """Counts bad tokens by address, and says when to refuse them without a query.

    Nobody guesses 256 bits: this keeps attempts from costing a query each. A bounded number of
    addresses is remembered. Times are of any monotonic clock.
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[str, _FailureWindow] = OrderedDict()

    def fail(self, address: str, *, now: float) -> None:
        """One more bad token from there."""
        window = self._windows.pop(address, None)
        if window is None or now - window.began >= config.AUTH_FAILURES_SECONDS:
            window = _FailureWindow(now, 0)
        window.failures += 1
        self._windows[address] = window
        if len(self._windows) > config.AUTH_ADDRESSES_MAX:
            self._windows.popitem(last=False)

    def seconds_left(self, address: str, *, now: float) -> float:
        """How long bad tokens from there are refused; 0 if they are not."""
        window = self._windows.get(address)
        if window is None or window.failures < config.AUTH_FAILURES_MAX:
            return 0.0
        return max(0.0, window.began + config.AUTH_FAILURES_SECONDS - now)
