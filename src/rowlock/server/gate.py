"""Authentication and authorization: tokens, sessions, scopes, tenants, and foreign pages.

1. Default deny: a route names the scopes that suffice, and whether it reaches beyond a tenant.
2. The tenant comes from the credential. If a token is bound to a tenant, no other can be named.
3. A valid token or session is looked up again after a second. So a revoked one ends at once on this
   server, and within that second on others.
4. Requests without a credential are served only if the application that mounts this asked for it,
   or by `--open`. Then the Host must be a name of this machine: a foreign name that points to
   127.0.0.1 is refused. And the request must not have come through a proxy: whoever may use the
   proxy would be an administrator.
5. A browser sends a cookie by itself. So a cookie counts only for requests that a page of this
   server has made, and changes also need a header that no form can send. `Authorization` wins over
   a cookie.
6. A valid token is never refused because of invalid ones: every token is looked up, and only those
   that turn out to be invalid are throttled.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, auto
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from rowlock import config
from rowlock.errors import Forbidden
from rowlock.server.problems import Refusal
from rowlock.server.proxies import Proxies, texts_of, was_forwarded
from rowlock.server.request import Headers
from rowlock.store import Store
from rowlock.store.ops.audit import Actor, Deed, audited
from rowlock.store.ops.tokens import LOGIN_NAME, NewSession, find_session, find_token
from rowlock.store.steps import Op
from rowlock.tokens import Scope, Token, digest_of, is_code, new_secret, read_secret

logger: logging.Logger = logging.getLogger("rowlock.server")

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_CHALLENGE = {"www-authenticate": 'Bearer realm="rowlock"'}
_INVALID = {"www-authenticate": 'Bearer realm="rowlock", error="invalid_token"'}
_INVALID_TOKEN = "the token is unknown, expired or revoked"  # noqa: S105  # a message
_USED_LINK = (
    "the login link was used already, or the server was restarted since; create a token with "
    "`rowlock tokens create`"
)
# The header by which the dashboard marks its requests. No form can send it.
MARK = "x-rowlock-request"
# The key in the ASGI scope of the check that an application's guard made, and can make again.
GUARD = "rowlock.guard"


class Openness(Enum):
    """Whether requests without a token are served."""

    CLOSED = auto()
    # By `--open`, on loopback.
    OPEN = auto()
    # The application that mounts this authenticates requests.
    GUARDED = auto()


class Reach(Enum):
    """Whether a route concerns one tenant, or the whole installation."""

    TENANT = auto()
    SYSTEM = auto()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and the scopes they hold."""

    actor: Actor
    scopes: frozenset[Scope]
    can_create_tokens: bool = True
    # The digest of the session by which they came, if they came by one.
    session: str | None = None

    @property
    def holder(self) -> str:
        """Whose share of the server's places the caller uses. See `shares`."""
        return f"tenant {self.tenant}" if self.tenant is not None else self.actor.token_id or ""

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
# What a guard that only says yes allows: all but to make tokens, which outlast its consent.
GUARDED = Caller(Actor("anybody"), frozenset(Scope), can_create_tokens=False)

# Asks an application's guard, and raises `Forbidden` if it says no.
Guarding = Callable[[], Awaitable[Caller]]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a lookup found, and until when it need not be repeated. None: no valid credential."""

    caller: Caller | None
    until: float


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session that has begun: its cookie's value, and its remaining seconds."""

    code: str = field(repr=False)
    seconds: int


@dataclass(frozen=True, slots=True)
class Access:
    """How a server was started: whether it is open, and whom it believes.

    `hosts` are the names of this server, which an open one checks. `login` is the digest of the
    code in its login link, if it has one.
    """

    openness: Openness
    hosts: frozenset[str] | None = None
    proxies: Proxies = field(default_factory=Proxies)
    login: str | None = None


class Gate:
    """Admits requests, or raises `Refusal` or `Forbidden`.

    Args:
        used: Called with the id of each token that was looked up and found valid.
    """

    def __init__(self, store: Store, access: Access, *, used: Callable[[str], None]) -> None:
        self._store = store
        self._openness = access.openness
        self._hosts = access.hosts
        # Works once.
        self._login = access.login
        self._used = used
        self.proxies: Proxies = access.proxies
        self._throttle = Throttle()
        self._lookups: _Lookups | None = None
        # Apart, so that invalid ones don't displace valid ones.
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._unknown: OrderedDict[str, _Known] = OrderedDict()
        # Incremented with every change of tokens here: a lookup from before is not remembered.
        self._changes = 0
        self._failures = 0
        self._silent_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether requests without a token are served."""
        return self._openness is not Openness.CLOSED

    async def admit(
        self, asked: Mapping[str, Any], headers: Headers, *, scopes: frozenset[Scope] | None
    ) -> Caller:
        """The caller of a request, by its ASGI scope. If `scopes` is None, the route is public."""
        method: str = asked["method"]
        _refuse_foreign_pages(headers, method)
        if scopes is None:
            return ANYBODY
        if self._openness is Openness.GUARDED:
            self._check_host(headers)
            guarding: Guarding | None = asked.get(GUARD)
            return GUARDED if guarding is None else await guarding()
        given = headers.get("authorization")
        if given is not None:
            return await self._by_token(given, self.proxies.client(asked))
        if self._openness is Openness.OPEN:
            self._check_host(headers)
            _refuse_forwarded(asked)
            return EVERYTHING
        code = cookie_of(asked, headers)
        if code is not None:
            _check_own_page(headers, method)
            return await self._by_session(code, self.proxies.client(asked))
        raise Refusal("unauthorized", "send Authorization: Bearer TOKEN", headers=_CHALLENGE)

    async def sign_in(self, text: str, *, address: str) -> SignedIn:
        """Start a session, by a token or by the code of the login link."""
        session = NewSession()
        if self._login is not None and hmac.compare_digest(digest_of(text), self._login):
            return await self._use_login(session, address)
        if is_code(text):
            raise self._failed(address, None, detail=_USED_LINK)
        caller = await self._by_token(f"Bearer {text}", address)
        assert caller.actor.token_id is not None
        op = session.of_token(caller.actor.token_id)
        return await self._start(session, op, caller.actor, address)

    async def _use_login(self, session: NewSession, address: str) -> SignedIn:
        # Taken before the database is asked, so that it works once even for two at the same time.
        login, self._login = self._login, None
        token_id = new_secret().id
        try:
            actor = Actor(LOGIN_NAME, token_id)
            return await self._start(session, session.of_login(token_id), actor, address)
        except BaseException:
            # Nobody got a cookie, so the link still works.
            self._login = login
            raise

    async def _start(
        self, session: NewSession, op: Op[timedelta], actor: Actor, address: str
    ) -> SignedIn:
        assert actor.token_id is not None
        deed = Deed(actor, "session.create", actor.token_id, address)
        left = await self._store.arun(audited(op, deed))
        return SignedIn(session.code, ceil(left.total_seconds()))

    def forget(self, id: str) -> None:
        """Look up a token, by its id, or a session, by its digest, again: it was changed here."""
        self._changes += 1
        self._unknown.clear()
        for digest, known in list(self._known.items()):
            is_token = known.caller is not None and known.caller.actor.token_id == id
            if is_token or digest == id:
                del self._known[digest]

    async def _by_token(self, given: str, address: str) -> Caller:
        scheme, _, text = given.partition(" ")
        secret = read_secret(text.strip()) if scheme.lower() == "bearer" else None
        if secret is None:
            raise self._failed(address, None)
        is_suspect = self._wait(address, secret.id) > 0
        caller = await self._look_up(secret.digest, find_token(secret), is_suspect=is_suspect)
        if caller is None:
            raise self._failed(address, secret.id)
        return caller

    async def _by_session(self, code: str, address: str) -> Caller:
        digest, key, now = digest_of(code), f"session {address}", time.monotonic()
        caller = None
        if is_code(code):
            is_suspect = self._throttle.seconds_left(key, now=now) > 0
            caller = await self._look_up(digest, find_session(digest), is_suspect=is_suspect)
        if caller is None:
            # Counted apart, and never 429: pages that were left open send it until they notice.
            self._throttle.fail(key, now=now)
            raise Refusal("unauthorized", "the session is over; sign in again", headers=_CHALLENGE)
        return replace(caller, session=digest)

    async def _look_up(
        self, digest: str, op: Op[Token | None], *, is_suspect: bool
    ) -> Caller | None:
        known = self._remembered(digest)
        if known is not None:
            return known.caller
        # One that was valid a moment ago does not wait behind the invalid ones of its neighbours.
        is_suspect = is_suspect and digest not in self._known
        async with self._own_lookups().turn(digest, is_suspect=is_suspect):
            # Another request with the same credential may have looked meanwhile.
            known = self._remembered(digest)
            if known is not None:
                return known.caller
            changes = self._changes
            token = await self._store.arun(op)
            caller = None
            if token is not None:
                self._used(token.id)
                actor = Actor(token.name, token.id, token.tenant)
                caller = Caller(actor, frozenset(token.scopes))
            if changes == self._changes:
                self._remember(digest, caller)
        return caller

    def _own_lookups(self) -> _Lookups:
        # They belong to a loop: tests may run a mounted application on another one each time.
        loop = asyncio.get_running_loop()
        if self._lookups is None or self._lookups.loop is not loop:
            self._lookups = _Lookups(loop)
        return self._lookups

    def _remembered(self, digest: str) -> _Known | None:
        known = self._known.get(digest) or self._unknown.get(digest)
        return None if known is None or time.monotonic() >= known.until else known

    def _remember(self, digest: str, caller: Caller | None) -> None:
        found = _Known(caller, time.monotonic() + config.TOKEN_KNOWN_SECONDS)
        self._known.pop(digest, None)
        self._unknown.pop(digest, None)
        place = self._unknown if caller is None else self._known
        place[digest] = found
        if len(place) > config.TOKENS_KNOWN_MAX:
            place.popitem(last=False)

    def _wait(self, address: str, token_id: str | None) -> float:
        now = time.monotonic()
        by_id = 0.0 if token_id is None else self._throttle.seconds_left(f"id {token_id}", now=now)
        return max(by_id, self._throttle.seconds_left(f"from {address}", now=now))

    def _failed(
        self, address: str, token_id: str | None, *, detail: str = _INVALID_TOKEN
    ) -> Refusal:
        """Count an invalid token, log it, and return the refusal."""
        now = time.monotonic()
        wait = self._wait(address, token_id)
        self._throttle.fail(f"from {address}", now=now)
        if token_id is not None:
            self._throttle.fail(f"id {token_id}", now=now)
        self._failures += 1
        if now >= self._silent_until:
            self._silent_until = now + config.AUTH_LOG_SECONDS
            logger.warning(
                "invalid tokens refused: %d; the last one came from %s, token id %s",
                self._failures,
                address or "an unknown address",
                token_id or "none",
            )
            self._failures = 0
        return _too_many(wait) if wait else Refusal("unauthorized", detail, headers=_INVALID)

    def _check_host(self, headers: Headers) -> None:
        if self._hosts is None:
            return
        name = _host_name(headers.get("host", ""))
        if name not in self._hosts:
            raise Refusal("misdirected", "an open server has only its own host names")


def cookie_name(headers: Headers) -> str:
    """The name of the session's cookie.

    Browsers send the cookies of a host to all its ports. So the port is part of the name, or two
    servers on one machine would sign each other's users out.
    """
    try:
        port = urlsplit(f"//{headers.get('host', '')}").port
    except ValueError:
        port = None
    return "rowlock_session" if port is None else f"rowlock_session_{port}"


def cookie_of(asked: Mapping[str, Any], headers: Headers) -> str | None:
    """The value of the session's cookie, or None."""
    name = cookie_name(headers)
    for text in texts_of(asked, b"cookie"):
        for pair in text.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name and value:
                return value
    return None


def _host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _refuse_forwarded(asked: Mapping[str, Any]) -> None:
    if was_forwarded(asked):
        raise Refusal(
            "forwarded",
            "this server was started with --open, and takes no requests that come through a proxy: "
            "start it without --open, and make a token with `rowlock tokens create`",
        )


def _refuse_foreign_pages(headers: Headers, method: str) -> None:
    """Refuse changes by pages of other sites, which may send simple requests to this server."""
    if method in _SAFE_METHODS:
        return
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_foreign = site in ("cross-site", "same-site")
    if site is None and origin is not None:
        is_foreign = not _is_own_origin(headers, origin)
    if is_foreign:
        raise Forbidden("requests from pages of other sites are refused")


def _check_own_page(headers: Headers, method: str) -> None:
    """Refuse a request with a cookie unless a page of this server made it."""
    site = headers.get("sec-fetch-site")
    if method in _SAFE_METHODS:
        # A page on another port of this host is of the same site, so it has the cookie.
        if site in ("cross-site", "same-site"):
            raise Forbidden("requests from pages of other sites are refused")
        return
    origin = headers.get("origin")
    is_own = site == "same-origin" if site is not None else _is_own_origin(headers, origin or "")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not is_own or not (MARK in headers or media_type == "application/json"):
        raise Forbidden(
            "a session only allows changes by pages of this server; other programs send a token as "
            "Authorization: Bearer TOKEN"
        )


def _is_own_origin(headers: Headers, origin: str) -> bool:
    try:
        own = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    return own != "" and own == headers.get("host", "").lower()


def _too_many(wait: float) -> Refusal:
    return Refusal(
        "too_many_requests",
        "too many invalid tokens came from this address, or with this token's id",
        headers={**_INVALID, "retry-after": str(ceil(wait))},
    )


@dataclass(slots=True)
class _Turn:
    """Requests with one credential, of which one looks it up and the others wait."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    requests: int = 0


class _Lookups:
    """Bounds lookups: one at a time per credential, few in all, and fewer of suspects."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._turns: dict[str, _Turn] = {}
        self._all = asyncio.Semaphore(config.TOKEN_LOOKUPS_MAX)
        self._suspects = asyncio.Semaphore(config.TOKEN_LOOKUPS_SUSPECT_MAX)

    @asynccontextmanager
    async def turn(self, digest: str, *, is_suspect: bool) -> AsyncIterator[None]:
        """Wait until this credential may be looked up."""
        turn = self._turns.setdefault(digest, _Turn())
        turn.requests += 1
        try:
            async with turn.lock, self._suspects if is_suspect else self._all:
                yield
        finally:
            turn.requests -= 1
            if turn.requests == 0:
                del self._turns[digest]


@dataclass(slots=True)
class _FailureWindow:
    began: float
    failures: int


class Throttle:
    """Counts invalid tokens by address and by id, and says how long to refuse further ones.

    Nobody guesses 256 bits: this tells clients with an old token to slow down, and confines their
    lookups to a lane of their own. A bounded number is remembered. Times are of a monotonic clock.
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[str, _FailureWindow] = OrderedDict()

    def fail(self, key: str, *, now: float) -> None:
        """Count an invalid token."""
        window = self._windows.pop(key, None)
        if window is None or now - window.began >= config.AUTH_FAILURES_SECONDS:
            window = _FailureWindow(now, 0)
        window.failures += 1
        self._windows[key] = window
        if len(self._windows) > config.AUTH_ADDRESSES_MAX:
            self._windows.popitem(last=False)

    def seconds_left(self, key: str, *, now: float) -> float:
        """For how long invalid tokens are answered with 429, or 0."""
        window = self._windows.get(key)
        if window is None or window.failures < config.AUTH_FAILURES_MAX:
            return 0.0
        return max(0.0, window.began + config.AUTH_FAILURES_SECONDS - now)
