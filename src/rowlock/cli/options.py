"""Options that several commands share: filters, durations, times, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import click

from rowlock.errors import OptionInvalid
from rowlock.filters import FILTERS

Command = TypeVar("Command", bound=Callable[..., Any])

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?")
_UNIT_SECONDS: Final = {
    "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0,
}  # fmt: skip


def seconds(text: str) -> float:
    """A duration: seconds, or a number and a unit (`90`, `5m`, `2h`, `1d`)."""
    found = _seconds(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 90, 5m, 2h or 1d")
    return found


def _seconds(text: str) -> float | None:
    match = _DURATION.fullmatch(str(text).strip())
    return None if match is None else float(match[1]) * _UNIT_SECONDS[match[2] or "s"]


def shown_seconds(default: float) -> float:
    """Return a default as `--help` shows it: 30 rather than 30.0."""
    return int(default) if default.is_integer() else default


def time_to_come(text: str) -> datetime:
    """A time: ISO 8601 with a zone."""
    try:
        return moment(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


def time_past(text: str) -> datetime:
    """A time: ISO 8601 with a zone, or a duration before now (`2h`)."""
    from rowlock.clock import SystemClock, from_us

    ago = _seconds(text)
    try:
        if ago is None:
            return moment(text)
        return from_us(SystemClock().now_us()) - timedelta(seconds=ago)
    except ValueError as error:
        hint = "or give a duration such as 2h, for two hours ago"
        raise click.BadParameter(f"{text!r} {error}; {hint}") from None
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long ago") from None


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time with a zone. The ValueError says what is missing."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not an ISO 8601 time such as 2030-01-31T12:00Z") from None
    if parsed.tzinfo is None:
        raise ValueError("has no time zone; add Z for UTC, or an offset such as +02:00")
    return parsed


def filters(command: Command) -> Command:
    """Add the options that select jobs. They are passed on under their names."""
    for name, filter in reversed([*FILTERS.items()]):
        option = click.option(
            f"--{name}",
            type=time_past if filter.is_time else None,
            metavar=filter.metavar,
            help=f"{filter.description}{' 2h means two hours ago.' if filter.is_time else ''}",
        )
        command = option(command)
    return command


def json_option(content: str) -> Callable[[Command], Command]:
    """Add `--json`, to every command that reads. `content` says what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print JSON: {content}.")


def json_lines_option(content: str) -> Callable[[Command], Command]:
    """As `json_option`, for a command that prints one document per line.

    The whole is not valid JSON, but a reader has the first document before the last is known.
    """
    return click.option("--json", "as_json", is_flag=True, help=f"Print JSON lines: {content}.")


def log_options(command: Command) -> Command:
    """Add `--log-level` and `--log-format`, to commands that run jobs."""
    level = click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        show_default=True,
        envvar="ROWLOCK_LOG_LEVEL",
        show_envvar=True,
        help="Lowest level that is logged.",
    )
    format = click.option(
        "--log-format",
        type=click.Choice(["console", "json"], case_sensitive=False),
        default="console",
        show_default=True,
        envvar="ROWLOCK_LOG_FORMAT",
        show_envvar=True,
        help="Log lines for people, or as JSON.",
    )
    return level(format(command))


def job_log_option(command: Command) -> Command:
    """Add `--log-jobs`, to commands that start workers."""
    return click.option(
        "--log-jobs/--no-log-jobs",
        default=True,
        show_default=True,
        envvar="ROWLOCK_LOG_JOBS",
        show_envvar=True,
        help="Log a line for every job that ends, or only for those that fail.",
    )(command)


def address_options(command: Command) -> Command:
    """Add `--host`, `--port`, `--open` and `--trusted-proxy`, to commands that serve."""
    host = click.option(
        "--host",
        metavar="HOST",
        default="127.0.0.1",
        show_default=True,
        envvar="ROWLOCK_HOST",
        show_envvar=True,
        help="Address to listen on. Beyond loopback, a token must exist.",
    )
    port = click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8765,
        show_default=True,
        envvar="ROWLOCK_PORT",
        show_envvar=True,
        help="Port to listen on. 0 picks a free one.",
    )
    is_open = click.option(
        "--open",
        "is_open",
        is_flag=True,
        envvar="ROWLOCK_OPEN",
        show_envvar=True,
        help="Serve everyone on this machine without a token. Only on loopback, and not behind a "
        "proxy.",
    )
    proxies = click.option(
        "--trusted-proxy",
        "trusted_proxies",
        multiple=True,
        callback=_listed,
        metavar="ADDRESS",
        envvar="ROWLOCK_TRUSTED_PROXY",
        show_envvar=True,
        help="Address or network of a proxy whose X-Forwarded-For or Forwarded names the client. "
        "Can be repeated, or a list with commas.",
    )
    return host(port(is_open(proxies(command))))


def _listed(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """Split values at commas, as they are in an environment variable."""
    parts = [part.strip() for value in values for part in value.split(",")]
    return [part for part in parts if part]


def json_object(text: str, *, option: str) -> dict[str, object]:
    """Parse a JSON object. Raise `OptionInvalid` for anything else."""
    from rowlock import codec

    try:
        value = codec.decode(text)
    except ValueError as error:
        raise OptionInvalid(option, str(error)) from None
    if not isinstance(value, dict):
        raise OptionInvalid(option, f"must be a JSON object such as {{}}, not {_called(value)}")
    return value


def _called(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
