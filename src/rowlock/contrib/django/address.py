"""The URL of a database of Django's: what a worker, which has connections of its own, opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured

# What Django and psycopg make of OPTIONS themselves; all others are words of libpq.
_NOT_LIBPQ = frozenset(
    {
        "assume_role",
        "client_encoding",
        "context",
        "cursor_factory",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "server_side_binding",
    }
)


def database_url(wrapper: Any) -> str:
    """The URL of a connection's database, with its password: not for logs.

    Raises:
        ImproperlyConfigured: Nobody else can open it: it is in memory, or of another kind.
    """
    if wrapper.vendor == "sqlite":
        return sqlite_url(wrapper.settings_dict)
    if wrapper.vendor == "postgresql":
        return postgres_url(wrapper.get_connection_params())
    raise ImproperlyConfigured(
        f"rowlock works on SQLite and PostgreSQL, not on {wrapper.vendor}: see ROWLOCK['DATABASE']"
    )


def sqlite_url(settings: Mapping[str, Any]) -> str:
    """The URL of a file, by the `NAME` of DATABASES."""
    name = str(settings["NAME"])
    if is_in_memory(name):
        raise ImproperlyConfigured(
            "rowlock's worker can't share a SQLite database in memory: name a file"
        )
    return f"sqlite:///{name}"


def is_in_memory(name: str) -> bool:
    """Whether a `NAME` of SQLite is no file: the test runner makes such ones."""
    return name == ":memory:" or name.startswith("file:") or not name


def postgres_url(params: Mapping[str, Any]) -> str:
    """The URL of what Django passes to psycopg."""
    given = {
        name: str(value)
        for name, value in params.items()
        if name not in _NOT_LIBPQ and value not in (None, "")
    }
    name = given.pop("dbname", "")
    host = given.pop("host", "")
    netloc = ""
    # A directory of sockets, or several hosts, are given as parameters.
    if host and "/" not in host and "," not in host:
        user, password = given.pop("user", ""), given.pop("password", "")
        secret = f":{quote(password, safe='')}" if password else ""
        login = f"{quote(user, safe='')}{secret}@" if user else ""
        shown = f"[{host}]" if ":" in host else quote(host)
        port = given.pop("port", "")
        netloc = f"{login}{shown}{f':{port}' if port else ''}"
    elif host:
        given["host"] = host
    query = f"?{urlencode(given, quote_via=quote)}" if given else ""
    return f"postgresql://{netloc}/{quote(name, safe='')}{query}"
