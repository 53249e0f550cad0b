"""The settings of a Django project: `ROWLOCK`, the URL of its database, and the checks.

`manage.py check` runs `check_settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.store import options
from rowlock.store.statements import check_schema
from rowlock.suggest import nearest

# OPTIONS that Django and psycopg handle themselves. All others are libpq parameters.
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


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """A problem with a setting. `code` is the id of the system check."""

    code: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class RowlockSettings:
    """`ROWLOCK`, with its defaults."""

    # The alias in DATABASES of the database with the jobs.
    database: str = "default"
    schema: str = "rowlock"
    strict: bool = False
    keep_dead: float | timedelta | None = config.KEEP_DEAD_SECONDS_DEFAULT
    # Whether an enqueue on PostgreSQL wakes the workers at once.
    notify: bool = True
    # Modules with tasks beyond the `tasks` modules of the installed apps.
    imports: tuple[str, ...] = ()
    # The target of the admin's link. None for no link.
    dashboard_url: str | None = None


def read_settings(raw: Mapping[str, Any]) -> RowlockSettings:
    """Return the settings of a mapping in which `problems_of` finds nothing."""
    chosen = {name.lower(): value for name, value in raw.items()}
    if "imports" in chosen:
        chosen["imports"] = tuple(chosen["imports"])
    return RowlockSettings(**chosen)


def problems_of(raw: object) -> Iterator[SettingsProblem]:
    """Yield every problem of the setting itself."""
    if not isinstance(raw, Mapping):
        yield SettingsProblem(
            "E001",
            f"ROWLOCK must be a dict, not {type(raw).__name__}.",
            "Leave it out, or write ROWLOCK = {'DATABASE': 'default'}.",
        )
        return
    for name, value in raw.items():
        check = _CHECKS.get(name)
        if check is None:
            close = nearest(str(name), _CHECKS)
            hint = (
                f"Did you mean {close[0]!r}?" if close else f"The options are {', '.join(_CHECKS)}."
            )
            yield SettingsProblem("E002", f"ROWLOCK has no option {name!r}.", hint)
        elif refusal := check(value):
            yield SettingsProblem("E003", f"ROWLOCK[{name!r}] can't be {value!r}.", refusal)


def _a_text(value: object) -> str | None:
    return None if isinstance(value, str) and value else "It must be a non-empty string."


def _a_flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "It must be True or False."


def _texts(value: object) -> str | None:
    is_right = isinstance(value, list | tuple) and all(
        isinstance(each, str) and each for each in value
    )
    return None if is_right else "It must be a list of the dotted names of modules."


def _text_or_none(value: object) -> str | None:
    return None if value is None else _a_text(value)


def _a_schema(value: Any) -> str | None:
    return _a_text(value) or _refused(check_schema, value)


def _a_duration(value: Any) -> str | None:
    return _refused(options.keep_us, value)


def _refused(check: Callable[[Any], object], value: Any) -> str | None:
    try:
        check(value)
    except OptionInvalid as error:
        return str(error)
    return None


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "DATABASE": _a_text,
    "SCHEMA": _a_schema,
    "STRICT": _a_flag,
    "KEEP_DEAD": _a_duration,
    "NOTIFY": _a_flag,
    "IMPORTS": _texts,
    "DASHBOARD_URL": _text_or_none,
}
KEYS = tuple(_CHECKS)


def database_url(wrapper: Any) -> str:
    """Return the URL of a connection's database. It holds the password: don't log it.

    Raises:
        ImproperlyConfigured: A worker can't open it: it is in memory, or not supported.
    """
    if wrapper.vendor == "sqlite":
        return sqlite_url(wrapper.settings_dict)
    if wrapper.vendor == "postgresql":
        return postgres_url(wrapper.get_connection_params())
    raise ImproperlyConfigured(
        f"rowlock works on SQLite and PostgreSQL, not on {wrapper.vendor}; set ROWLOCK['DATABASE']"
    )


def sqlite_url(database: Mapping[str, Any]) -> str:
    """Return the URL of a file, from the `NAME` of DATABASES."""
    name = str(database["NAME"])
    if is_in_memory(name):
        raise ImproperlyConfigured(
            "rowlock's worker can't share a SQLite database in memory; name a file"
        )
    return f"sqlite:///{name}"


def is_in_memory(name: str) -> bool:
    """Return whether a `NAME` of SQLite is in memory, as for the test runner."""
    return name == ":memory:" or name.startswith("file:") or not name


def postgres_url(params: Mapping[str, Any]) -> str:
    """Return the URL for the parameters that Django passes to psycopg."""
    given = {
        name: str(value)
        for name, value in params.items()
        if name not in _NOT_LIBPQ and value not in (None, "")
    }
    name = given.pop("dbname", "")
    host = given.pop("host", "")
    netloc = ""
    # A directory of sockets, and several hosts, are passed as parameters.
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


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """Return all problems, with a hint for each."""
    raw = getattr(settings, "ROWLOCK", {})
    found: list[checks.CheckMessage] = [
        checks.Error(problem.text, hint=problem.hint, id=f"rowlock.{problem.code}")
        for problem in problems_of(raw)
    ]
    if found:
        return found
    chosen = read_settings(raw)
    return [*_check_database(chosen.database), *_check_imports(chosen.imports)]


def check_backends(**_: Any) -> list[checks.CheckMessage]:
    """Return the problems of rowlock's backends, unless Django itself asks them.

    Not every version does.
    """
    theirs = ("django.tasks.checks", "django_tasks.checks")
    if any(check.__module__ in theirs for check in checks.registry.registry.get_checks()):
        return []
    if not has_tasks():
        return []
    from rowlock.contrib.django.backend import rowlock_backends

    return [message for backend in rowlock_backends() for message in backend.check()]


@cache
def has_tasks() -> bool:
    """Return whether this Django has tasks: its own from 6.0 on, or those of `django-tasks`."""
    return any(find_spec(name) is not None for name in ("django.tasks", "django_tasks"))


def _check_imports(names: tuple[str, ...]) -> Iterator[checks.CheckMessage]:
    for name in names:
        try:
            is_there = find_spec(name) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            yield checks.Error(
                f"ROWLOCK['IMPORTS'] names {name!r}, and there is no such module.",
                hint="Name a module with tasks, such as 'orders.more_tasks'.",
                id="rowlock.E009",
            )


def _check_database(alias: str) -> Iterator[checks.CheckMessage]:
    if alias not in settings.DATABASES:
        known = ", ".join(map(repr, sorted(settings.DATABASES)))
        yield checks.Error(
            f"ROWLOCK['DATABASE'] is {alias!r}, which is not in DATABASES.",
            hint=f"The aliases are {known}.",
            id="rowlock.E004",
        )
        return
    wrapper = connections[alias]
    if wrapper.vendor == "sqlite":
        yield from _check_sqlite(alias, wrapper.settings_dict)
    elif wrapper.vendor != "postgresql":
        yield checks.Error(
            f"rowlock works on SQLite and PostgreSQL, not on {wrapper.vendor}, which"
            f" DATABASES[{alias!r}] names.",
            hint="Name another alias in ROWLOCK['DATABASE'], for example of a SQLite file.",
            id="rowlock.E005",
        )
    elif find_spec("psycopg") is None:
        yield checks.Error(
            "rowlock's worker needs psycopg 3 for PostgreSQL.",
            hint='Run pip install "rowlock[postgres]". Django will use it, too.',
            id="rowlock.E006",
        )


def _check_sqlite(alias: str, database: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    name = str(database["NAME"])
    if name.startswith("file:"):
        return  # The test runner's, which no worker needs to see.
    if is_in_memory(name):
        yield checks.Warning(
            f"DATABASES[{alias!r}] is in memory, where no worker can see it.",
            hint="Name a file. In tests, app.drain() works nevertheless.",
            id="rowlock.W001",
        )
    elif database.get("OPTIONS", {}).get("transaction_mode", "").upper() != "IMMEDIATE":
        yield checks.Warning(
            f"Transactions of DATABASES[{alias!r}] may fail with 'database is locked' when they "
            "read before they write.",
            hint="Add 'OPTIONS': {'transaction_mode': 'IMMEDIATE', 'timeout': 20}.",
            id="rowlock.W002",
        )


def moment(time: datetime | None) -> datetime | None:
    """Convert a time to this project's form: aware, or naive and local."""
    if time is None or settings.USE_TZ:
        return time
    naive: datetime = timezone.make_naive(time)
    return naive


def aware(time: datetime | None) -> datetime | None:
    """Convert a time of this project to an aware one."""
    if time is None or timezone.is_aware(time):
        return time
    made: datetime = timezone.make_aware(time)
    return made
