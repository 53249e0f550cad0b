"""The command line: every command with its usage, its help and its options, as click knows them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from rowlock.cli import COMMANDS, main
from tests.docs.reference.markdown import as_cell, code, codes, fenced, joined, prose, table

# What is typed, in a text that is also read on a terminal, where nothing is quoted.
_TYPED = re.compile(
    r"(?<![\w`-])("
    r"--[a-z][a-z-]+(?: --[a-z-]+)*"
    r"|ROWLOCK_[A-Z_]*(?:=\w+)?"
    r"|rowlock\.\w+|rowlock\[[a-z-]+\]"
    rf"|rowlock (?:{'|'.join(COMMANDS)})(?: [a-z]+ --[a-z]+)?"
    r"|@app\.task\([^)]*\)"
    r'|\{"kind".*?\}\}'
    r"|/[a-z]+(?=[ ,])"
    r"|sqlite:///FILE|postgresql://\.\.\."
    r")"
)


def sections() -> dict[str, str]:
    """The options of all commands, and a section for each of them."""
    return {
        "options of all commands": options_table(main),
        **{name: _section(command, name) for name, command in all_commands()},
    }


def all_commands(
    command: click.Command = main, name: str = "rowlock"
) -> Iterator[tuple[str, click.Command]]:
    """Every command, but for groups, by its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    with click.Context(command) as context:
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from all_commands(found, f"{name} {child}")


def _section(command: click.Command, name: str) -> str:
    usage = fenced(_usage(command, name), "text")
    return joined(f"## {name}", usage, _help(command), options_table(command))


def _usage(command: click.Command, name: str) -> str:
    with click.Context(command) as context:
        return " ".join([name, *command.collect_usage_pieces(context)])


def _help(command: click.Command) -> str:
    assert command.help, f"{command.name} has no help"
    return prose(_TYPED.sub(r"`\1`", inspect.cleandoc(command.help)))


def options_table(command: click.Command) -> str:
    """What may be given to a command, but for its arguments."""
    options = [
        each for each in command.params if isinstance(each, click.Option) and not each.hidden
    ]
    rows = [
        (_names(each), _default(each), codes(variables_of(command, each)), option_text(each))
        for each in options
    ]
    return table(["option", "default", "environment", ""], rows) if rows else ""


def variables_of(command: click.Command, option: click.Parameter) -> list[str]:
    """By which variables an option can be given."""
    if not isinstance(option, click.Option) or option.hidden:
        return []
    prefix = command.context_settings.get("auto_envvar_prefix")
    if isinstance(option.envvar, str):
        return [option.envvar]
    return [f"{prefix}_{option.name}".upper()] if prefix and not option.envvar else []


def _names(option: click.Option) -> str:
    *short, long = option.opts
    if isinstance(option.type, click.Choice):
        return f"{codes(option.opts)} {' or '.join(map(code, option.type.choices))}"
    value = "" if option.is_flag else f" {_metavar(option)}"
    return codes([*short, f"{long}{value}", *option.secondary_opts])


def _metavar(option: click.Option) -> str:
    is_number = option.type.name.startswith("integer")
    assert option.metavar or is_number, f"{option.opts} needs a metavar"
    return option.metavar or "N"


def _default(option: click.Option) -> str:
    if not option.show_default:
        return ""
    if option.secondary_opts:
        return code((option.opts if option.default else option.secondary_opts)[0])
    number = isinstance(option.default, float)
    return code(f"{option.default:g}" if number else option.default)


def option_text(option: click.Option) -> str:
    """What an option is for, and what it takes."""
    assert option.help, f"{option.opts} has no help"
    told = as_cell(_TYPED.sub(r"`\1`", option.help))
    needed = " (required)" if option.required else ""
    return f"{told}{_range(option)}{needed}"


def _range(option: click.Option) -> str:
    match option.type:
        case click.IntRange(min=int(low), max=int(high)):
            return f" ({low:,} to {high:,})"
        case click.IntRange(min=int(low)):
            return f" ({low:,} or more)"
    return ""
