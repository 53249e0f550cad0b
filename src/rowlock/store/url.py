"""Database URLs: which store, with which options, and how to show one without its password."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from rowlock import config
from rowlock.errors import OptionInvalid, UnsupportedStore

POSTGRES_SCHEMES = ("postgresql", "postgres")
# Parameters of libpq that hold a secret themselves, not the name of a file with one.
SECRET_PARAMETERS: Final = (
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
)
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
    """A parsed PostgreSQL URL. Its repr shows no secret."""

    conninfo: str = field(repr=False)
    shown: str
    secrets: tuple[str, ...] = field(repr=False)
    # None: statements are prepared if no pooler stands between us and the server.
    prepare: Literal["always", "never"] | None
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
        prepare = query.pop("prepare", None)
        call_timeout = query.pop("call_timeout", None)
        secrets = [unquote(parts.password or ""), *(query.get(key) for key in SECRET_PARAMETERS)]
        return cls(
            conninfo=_with_query(url, query),
            shown=masked(url),
            secrets=tuple(each for each in secrets if each),
            prepare=None if prepare is None else _prepare(prepare),
            call_seconds=config.POSTGRES_CALL_SECONDS
            if call_timeout is None
            else _seconds(call_timeout),
            defaults={name: value for name, value in _DEFAULTS.items() if name not in query},
        )

    def mask(self, text: str) -> str:
        """The text without the secrets of this URL, in case a library included one."""
        for secret in self.secrets:
            text = text.replace(secret, _MASK)
        return text


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


def _prepare(text: str) -> Literal["always", "never"]:
    match text:
        case "always" | "never":
            return text
        case _:
            raise OptionInvalid("prepare", f"must be always or never, not {text!r}")


def masked(url: str) -> str:
    """The URL as it may be shown and logged."""
    if url.startswith("sqlite:"):
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}{colon and ':' + _MASK}{at}{host}"
    query = [
        (key, _MASK if key in SECRET_PARAMETERS else value)
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    shown = f"{parts.scheme}://{netloc}{parts.path}"
    return f"{shown}?{urlencode(query, safe='*')}" if query else shown
