"""Database URLs: which store, with which options, and how to show one without its password."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from rowlock import config
from rowlock.errors import OptionInvalid, UnsupportedStore

POSTGRES_SCHEMES = ("postgresql", "postgres")
_MASK = "***"

# Client-side only, so that a pooler in between has nothing to refuse. A dead peer is noticed within
# half a minute instead of hours.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": config.POSTGRES_CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "rowlock",
}


def scheme_of(url: str) -> str:
    """`sqlite` or `postgresql`. Raises `UnsupportedStore` for everything else."""
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return scheme
    if scheme in POSTGRES_SCHEMES:
        return "postgresql"
    problem = f"no store for a URL that starts with {scheme[:40]!r}"
    if not url:
        problem = "the URL of the database is empty"
    raise UnsupportedStore(f"{problem}: use sqlite:///FILE or postgresql://USER@HOST/DATABASE")


@dataclass(frozen=True, slots=True)
class PostgresUrl:
    """A parsed PostgreSQL URL. Its repr shows no password."""

    conninfo: str = field(repr=False)
    shown: str
    password: str | None = field(repr=False)
    # None: statements are prepared if no pooler stands between us and the server.
    prepare_threshold: int | Literal["never"] | None
    # How long an answer may take, and how long a new connection may take.
    call_seconds: float
    defaults: dict[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> PostgresUrl:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise UnsupportedStore(f"the URL of the database can't be read: {error}") from None
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        threshold = query.pop("prepare_threshold", None)
        call_timeout = query.pop("call_timeout", None)
        password = query.get("password") or (unquote(parts.password) if parts.password else None)
        return cls(
            conninfo=_with_query(url, query),
            shown=masked(url),
            password=password,
            prepare_threshold=None if threshold is None else _threshold(threshold),
            call_seconds=config.POSTGRES_CALL_SECONDS
            if call_timeout is None
            else _seconds(call_timeout),
            defaults={name: value for name, value in _DEFAULTS.items() if name not in query},
        )

    def mask(self, text: str) -> str:
        """The text without the password, in case a library included it."""
        return text.replace(self.password, _MASK) if self.password else text


def hurried(url: str, seconds: float) -> str:
    """The URL with a call timeout of at most `seconds`. A URL of SQLite is unchanged."""
    if scheme_of(url) == "sqlite":
        return url
    query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    query["call_timeout"] = f"{min(PostgresUrl.parse(url).call_seconds, seconds):g}"
    return _with_query(url, query)


def _with_query(url: str, query: Mapping[str, str]) -> str:
    # By hand: urlunsplit drops the slashes of an empty host, which is how a socket is named. And
    # not encoded like a form: libpq reads a plus sign literally.
    base = url.partition("#")[0].partition("?")[0]
    return f"{base}?{urlencode(query, quote_via=quote)}" if query else base


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= config.DURATION_SECONDS_MAX:
        raise OptionInvalid("call_timeout", f"must be a number of seconds above 0, not {text!r}")
    return seconds


def _threshold(text: str) -> int | Literal["never"]:
    if text == "never":
        return "never"
    if not text.isdecimal():
        raise OptionInvalid("prepare_threshold", f"must be a whole number or never, not {text!r}")
    return int(text)


def masked(url: str) -> str:
    """The URL as it may be shown and logged."""
    if url.startswith("sqlite:"):
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}{colon and ':' + _MASK}{at}{host}"
    query = [
        (key, _MASK if key == "password" else value)
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    shown = f"{parts.scheme}://{netloc}{parts.path}"
    return f"{shown}?{urlencode(query, safe='*')}" if query else shown
