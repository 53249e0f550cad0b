"""Log lines of our own commands on stderr, for people (`console`) or programs (`json`).

A library does not configure logging. So only processes of ours call `configure`: `rowlock worker`,
`rowlock up` and their children.

1. One record is one line, or in `console` one line with indented lines below it. Whatever a text
   contains, it can't start a line of its own, nor act on a terminal.
2. Records from inside a handler carry its job's fields, whichever library logs them.
3. We log no passwords. Text that looks like a password in a URL is masked nevertheless.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, get_args

from rowlock import config
from rowlock.codec import escaped
from rowlock.store.url import SECRET_PARAMETERS
from rowlock.worker.report import DETAILS, FIELDS, jobs_logger, running_fields

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["console", "json"]

LEVEL_VARIABLE: Final = "ROWLOCK_LOG_LEVEL"
FORMAT_VARIABLE: Final = "ROWLOCK_LOG_FORMAT"
JOBS_VARIABLE: Final = "ROWLOCK_LOG_JOBS"
LEVEL_DEFAULT: Final[Level] = "info"
FORMAT_DEFAULT: Final[Format] = "console"

# The fields of a job that a person looks for. The others are long.
_SHOWN: Final = ("job_id", "kind", "attempt")
_COLOURS: Final = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
# `://user:password@`, up to the last @ before a slash, and `password=...` of a query or a DSN, also
# as the end of another word.
_URL_PASSWORD: Final = re.compile(r"(://[^\s:/@]*):[^\s/]+@")
_NAMED_SECRET: Final = re.compile(
    rf"((?:{'|'.join(SECRET_PARAMETERS)})\s?=\s?)('[^']*'|[^\s&'\"]+)", re.IGNORECASE
)


def configure(
    level: Level, format: Format, *, has_jobs: bool = True, stream: TextIO | None = None
) -> None:
    """Write the log records of this process to `stream` (stderr), replacing earlier handlers.

    Args:
        has_jobs: Write a line for every job that ends, not only for those that fail.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.addFilter(add_job_fields)
    handler.setFormatter(
        JsonFormatter() if format == "json" else ConsoleFormatter(has_colours=_has_colours(stream))
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    jobs_logger.setLevel(logging.NOTSET if has_jobs else logging.WARNING)


def configure_here_and_in_children(level: Level, format: Format, *, has_jobs: bool) -> None:
    """As `configure`, also for the processes that this one starts: by the environment."""
    os.environ[LEVEL_VARIABLE] = level
    os.environ[FORMAT_VARIABLE] = format
    os.environ[JOBS_VARIABLE] = "1" if has_jobs else "0"
    configure(level, format, has_jobs=has_jobs)


def configure_from_environment() -> None:
    """Configure a child process from the environment that its parent has set."""
    level = os.environ.get(LEVEL_VARIABLE, "").lower()
    format = os.environ.get(FORMAT_VARIABLE, "").lower()
    configure(
        next((known for known in get_args(Level) if known == level), LEVEL_DEFAULT),
        next((known for known in get_args(Format) if known == format), FORMAT_DEFAULT),
        has_jobs=os.environ.get(JOBS_VARIABLE) != "0",
    )


def add_job_fields(record: logging.LogRecord) -> bool:
    """Add the fields of the current job to a record. A filter that drops nothing."""
    for name, value in running_fields().items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def masked(text: str) -> str:
    """Return the text without anything that looks like a database's password or other secret."""
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1:***@", text)
    return _NAMED_SECRET.sub(r"\1***", text) if "=" in text else text


class ConsoleFormatter(logging.Formatter):
    """Formats `TIME LEVEL LOGGER: TEXT`, and the job's fields unless the text names the job.

    Details and tracebacks follow on lines of their own.
    """

    def __init__(self, *, has_colours: bool) -> None:
        super().__init__()
        self._has_colours = has_colours
        # The last second that was formatted, and its text: a worker may log thousands in one.
        self._second, self._time = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            time = datetime.fromtimestamp(second, UTC)
            self._second, self._time = second, time.strftime("%Y-%m-%d %H:%M:%SZ")
        level = self._coloured(f"{record.levelname:<7}", _COLOURS.get(record.levelname, "0"))
        text = escaped(_text_of(record))
        line = f"{self._time} {level} {escaped(record.name)}: {text}"
        fields = _fields_of(record)
        if str(fields.get("job_id", "")) not in text:
            shown = " ".join(
                f"{name}={escaped(str(fields[name]))}" for name in _SHOWN if name in fields
            )
            line = f"{line}  {self._coloured(shown, '2')}"
        below = "".join(f"\n    {escaped(each)}" for each in self._below(record))
        return f"{line}{below}"

    def _below(self, record: logging.LogRecord) -> list[str]:
        details = _details_of(record)
        if not details and not record.exc_info and not record.exc_text and not record.stack_info:
            return []
        widest = max(map(len, details), default=0)
        shown = [f"{name:<{widest}}  {_joined(value)}" for name, value in details.items()]
        return [*shown, *_traceback_of(record).splitlines()]

    def _coloured(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._has_colours else text


class JsonFormatter(logging.Formatter):
    """One object per line: `time`, `level`, `logger`, `message`, the job's fields, `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text_of(record),
            **_fields_of(record),
            **_details_of(record),
        }
        if traceback := _traceback_of(record):
            line["traceback"] = traceback
        # ASCII only, so that nothing acts on a terminal or a collector. DEL is ASCII, too.
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")


def _has_colours(stream: TextIO) -> bool:
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_plain


def _text_of(record: logging.LogRecord) -> str:
    return _cut(masked(record.getMessage()))


def _traceback_of(record: logging.LogRecord) -> str:
    """Return the traceback of a record: frames and lines of code, never values of variables."""
    parts: list[str] = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(logging.Formatter().formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return _cut(masked("\n".join(parts)))


def _cut(text: str) -> str:
    most = config.LOGGED_CHARACTERS_MAX
    return text if len(text) <= most else f"{text[:most]} [... {len(text) - most} more]"


def _details_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record of ours says beside its text, with one line or field for each."""
    found: dict[str, Any] | None = record.__dict__.get(DETAILS)
    if found is None:
        return {}
    return {
        name: masked(value) if isinstance(value, str) else value for name, value in found.items()
    }


def _joined(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found = record.__dict__
    return {name: found[name] for name in FIELDS if found.get(name) is not None}
