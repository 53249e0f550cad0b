"""Settings: variables of the environment, and the limits that nobody can set."""

from __future__ import annotations

from rowlock import config
from rowlock.cli import main
from tests.docs.reference.commands import all_commands, option_text, variables_of
from tests.docs.reference.docstrings import attribute_texts
from tests.docs.reference.markdown import as_cell, code, codes, table


def sections() -> dict[str, str]:
    """A table of variables, and one of limits."""
    return {"environment": _environment(), "limits": _limits()}


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
