"""The setting `ROWLOCK` of a Django project: read, and what is wrong with it. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.store import options
from rowlock.store.statements import check_schema


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a setting: `code` is the id of the system check."""

    code: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class RowlockSettings:
    """`ROWLOCK`, with its defaults."""

    # The alias in DATABASES of the database that jobs live in.
    database: str = "default"
    schema: str = "rowlock"
    strict: bool = False
    keep_dead: float | timedelta | None = config.KEEP_DEAD_SECONDS_DEFAULT
    # Whether an enqueue on PostgreSQL wakes the workers at once.
    notify: bool = True
    # Modules with tasks beyond the `tasks` modules of the installed apps.
    imports: tuple[str, ...] = ()
    # Where the link of the admin leads; None: there is no link.
    dashboard_url: str | None = None


def read_settings(raw: Mapping[str, Any]) -> RowlockSettings:
    """The settings of a mapping in which `problems_of` finds nothing wrong."""
    chosen = {name.lower(): value for name, value in raw.items()}
    if "imports" in chosen:
        chosen["imports"] = tuple(chosen["imports"])
    return RowlockSettings(**chosen)


def problems_of(raw: object) -> Iterator[Problem]:
    """Everything that is wrong with the setting by itself."""
    if not isinstance(raw, Mapping):
        yield Problem(
            "E001",
            f"ROWLOCK must be a dict, not {type(raw).__name__}.",
            "Leave it out, or write ROWLOCK = {'DATABASE': 'default'}.",
        )
        return
    for name, value in raw.items():
        check = _CHECKS.get(name)
        if check is None:
            close = difflib.get_close_matches(str(name), _CHECKS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(_CHECKS)}."
            yield Problem("E002", f"ROWLOCK has no option {name!r}.", hint)
        elif refusal := check(value):
            yield Problem("E003", f"ROWLOCK[{name!r}] can't be {value!r}.", refusal)


def _a_text(value: object) -> str | None:
    return None if isinstance(value, str) and value else "It must be a text that is not empty."


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
