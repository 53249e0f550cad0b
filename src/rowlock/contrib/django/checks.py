"""What `manage.py check` says of `ROWLOCK` and of the database that it names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections

from rowlock.contrib.django.address import is_in_memory
from rowlock.contrib.django.settings import problems_of, read_settings


def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """All that is wrong, and a hint for each."""
    raw = getattr(settings, "ROWLOCK", {})
    found: list[checks.CheckMessage] = [
        checks.Error(problem.text, hint=problem.hint, id=f"rowlock.{problem.code}")
        for problem in problems_of(raw)
    ]
    return found or list(_check_database(read_settings(raw).database))


def _check_database(alias: str) -> Iterator[checks.CheckMessage]:
    if alias not in settings.DATABASES:
        known = ", ".join(map(repr, sorted(settings.DATABASES)))
        yield checks.Error(
            f"ROWLOCK['DATABASE'] is {alias!r}, which is not in DATABASES.",
            hint=f"There are {known}.",
            id="rowlock.E004",
        )
        return
    wrapper = connections[alias]
    if wrapper.vendor == "sqlite":
        yield from _check_sqlite(alias, wrapper.settings_dict)
    elif wrapper.vendor != "postgresql":
        yield checks.Error(
            f"rowlock works on SQLite and PostgreSQL; DATABASES[{alias!r}] is {wrapper.vendor}.",
            hint="Name another alias in ROWLOCK['DATABASE']; a SQLite file will do.",
            id="rowlock.E005",
        )
    elif find_spec("psycopg") is None:
        yield checks.Error(
            "rowlock's worker needs psycopg 3 for PostgreSQL.",
            hint='pip install "rowlock[postgres]"; Django uses it too, where it is there.',
            id="rowlock.E006",
        )


def _check_sqlite(alias: str, database: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    name = str(database["NAME"])
    if name.startswith("file:"):
        return  # Of the test runner, which nobody else needs to see.
    if is_in_memory(name):
        yield checks.Warning(
            f"DATABASES[{alias!r}] is in memory, where no worker can see it.",
            hint="Name a file. In tests, app.drain() works all the same.",
            id="rowlock.W001",
        )
    elif database.get("OPTIONS", {}).get("transaction_mode", "").upper() != "IMMEDIATE":
        yield checks.Warning(
            f"Transactions of DATABASES[{alias!r}] may fail with 'database is locked' when they "
            "read before they write.",
            hint="Add 'OPTIONS': {'transaction_mode': 'IMMEDIATE', 'timeout': 20}.",
            id="rowlock.W002",
        )
