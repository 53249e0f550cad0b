"""Settings: variables of the environment, and the limits that nobody can set."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rowlock import config
from rowlock.cli import main
from tests.docs.reference.commands import all_commands, option_text, variables_of
from tests.docs.reference.docstrings import attribute_texts
from tests.docs.reference.markdown import as_cell, code, codes, table

# The limits of the server are those whose names begin like this.
SERVER_PREFIXES = ("HTTP_", "AUTH_", "TOKEN", "EVENTS_")
# What a limit holds for is the last sentence of its text, such as `Per token.`
_SCOPE = re.compile(r"\s*\bPer ([a-z ]+)\.$")
# The narrowest first. Others follow.
_SCOPES = ("request", "connection", "stream", "address", "token", "tenant", "server")
_WITHIN = re.compile(rf"\bper ({'|'.join(_SCOPES)})\b")


def sections() -> dict[str, str]:
    """A table of variables, one of limits, and one of the limits of the server."""
    return {
        "environment": _environment(),
        "limits": _limits(),
        "limits of the server": _server_limits(),
    }


def server_limits(texts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Each limit of the server: what it holds for, its name, and its text without that."""
    found = []
    for name, text in texts.items():
        if name.startswith(SERVER_PREFIXES):
            scope = _SCOPE.search(text) or _WITHIN.search(text)
            found.append((scope[1] if scope else "", name, _SCOPE.sub("", text)))
    ranks = {scope: rank for rank, scope in enumerate(_SCOPES)}
    return sorted(found, key=lambda each: (ranks.get(each[0], len(ranks)), each[0]))


def _server_limits() -> str:
    return table(
        ["per", "limit", "value", ""],
        [
            (scope, code(name), _with_unit(name), as_cell(text))
            for scope, name, text in server_limits(attribute_texts(config))
        ],
    )


def _with_unit(name: str) -> str:
    value = getattr(config, name)
    if "_BYTES" in name:
        for size, unit in ((1024**2, "MiB"), (1024, "KiB")):
            if value % size == 0:
                return f"{value // size:,} {unit}"
        return f"{value:,} bytes"
    return f"{_number(value)} s" if "_SECONDS" in name else _number(value)


def _environment() -> str:
    """Each variable with the option that it stands for, and whose that is."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, command in [("rowlock", main), *all_commands()]:
        for option in command.params:
            for variable in variables_of(command, option):
                key = (variable, option.opts[-1], option_text(option))
                found.setdefault(key, []).append(name)
    return table(
        ["variable", "option", "command", ""],
        [
            (code(variable), code(option), codes(commands), text)
            for (variable, option, text), commands in found.items()
        ],
    )


def _limits() -> str:
    texts = attribute_texts(config)
    return table(
        ["limit", "value", ""],
        [
            (code(name), _number(getattr(config, name)), as_cell(text))
            for name, text in texts.items()
        ],
    )


def _number(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return " / ".join(map(_number, value))
    return f"{value:,}".removesuffix(".0")
