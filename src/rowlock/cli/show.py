"""Output of the commands: tables, JSON and ages, with every stored text escaped.

On a terminal, rich draws tables in colour if it is installed. In a pipe, with NO_COLOR or without
rich they are plain text. This module never reads the store.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from rowlock import codec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Cells of a plain table are cut here, except the last one: an aligned table must stay readable.
CELL_CHARACTERS_MAX: Final = 60
# On a narrow terminal flexible columns shrink, but no further than this.
FLEXIBLE_CHARACTERS_MIN: Final = 8
# The last column holds errors and the like. `show` and `--json` print the whole text.
NOTE_CHARACTERS_MAX: Final = 200
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))

STATE_STYLES: Final = {
    "waiting": "bright_black",
    "scheduled": "blue",
    "ready": "cyan",
    "running": "yellow",
    "retrying": "magenta",
    "succeeded": "green",
    "dead": "bold red",
    "cancelled": "dim",
}
_NOT_PRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


def escaped(text: str) -> str:
    """Return the text with control characters escaped, as in the logs."""
    return codec.escaped(text)


def escaped_lines(text: str) -> str:
    """Escape a text but keep its line breaks, for tracebacks."""
    return "\n".join(map(escaped, text.split("\n")))


def as_json(value: object, *, indent: int | None = None) -> str:
    """Return JSON text. Characters that a terminal would act on are escaped, all others stay."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    return _NOT_PRINTABLE.sub(_json_code, text)


def _json_code(match: re.Match[str]) -> str:
    character = match.group()
    # Line breaks stand between values only: those inside strings are already escaped.
    if character == "\n" or character.isprintable():
        return character
    return json.dumps(character)[1:-1]


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(value: object) -> None:
    """Print one JSON document: indented on a terminal, on one line in a pipe."""
    click.echo(as_json(value, indent=2 if is_terminal() else None))


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def is_rich() -> bool:
    """Return whether to print in colour: on a terminal that wants it, with rich installed."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if not is_terminal():
        return False
    try:
        import rich  # noqa: F401  # only to see whether it is installed
    except ImportError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Cell:
    """A text as it was stored, and its style on terminals."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column's name, its alignment, and whether its cells may be cut to fit a terminal."""

    name: str
    is_right: bool = False
    is_flexible: bool = False


def columns(
    *names: str, right: Iterable[str] = (), flexible: Iterable[str] = ()
) -> list[TextColumn]:
    """Return columns in this order. Align numbers to the right, and let free texts be cut."""
    to_right, cut_first = set(right), set(flexible)
    return [TextColumn(name, name in to_right, name in cut_first) for name in names]


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows below column names.

    `dropped` names the columns that are left out on a narrow terminal, in this order. `empty` is
    printed if there are no rows.
    """

    columns: Sequence[TextColumn]
    rows: list[Sequence[Cell | str]] = field(default_factory=list[Sequence[Cell | str]])
    title: str = ""
    empty: str = "nothing"
    dropped: Sequence[str] = ()

    def add(self, *cells: Cell | str) -> None:
        assert len(cells) == len(self.columns)
        self.rows.append(cells)

    def without(self, name: str) -> TextTable:
        """Return the table without a column."""
        kept = [place for place, column in enumerate(self.columns) if column.name != name]
        rows: list[Sequence[Cell | str]] = [[row[place] for place in kept] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in kept], rows=rows)


def state_cell(state: str) -> Cell:
    """Return the name of a state in its colour."""
    return Cell(state, STATE_STYLES.get(state, ""))


def print_tables(*tables: TextTable) -> None:
    """Print tables one below the other."""
    if is_rich():
        console = rich_console()
        for place, table in enumerate(tables):
            console.print(*([""] if place else []), rich_table(table, room=console.width), sep="\n")
    else:
        click.echo("\n\n".join(map(plain_table, tables)))


def plain_table(table: TextTable) -> str:
    """Return an aligned table without any control character."""
    title = [table.title] if table.title else []
    if not table.rows:
        return "\n".join([*title, table.empty])
    rows = [_heads(table), *(list(_cells(row)) for row in table.rows)]
    widths = _widths(rows)
    lines = (_aligned(row, table.columns, widths) for row in rows)
    return "\n".join([*title, *lines])


def _heads(table: TextTable) -> list[str]:
    return [column.name.upper() for column in table.columns]


def _cells(row: Sequence[Cell | str]) -> Iterator[str]:
    first, *between, last = [escaped(_text(cell)) for cell in row]
    yield first  # It is copied and pasted, so it is never cut.
    for text in between:
        yield cut(text, CELL_CHARACTERS_MAX)
    yield cut(last, NOTE_CHARACTERS_MAX)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(text_width, column)) for column in zip(*rows, strict=True)]


def _aligned(row: Iterable[str], columns: Sequence[TextColumn], widths: Sequence[int]) -> str:
    cells = [
        _padded(text, width, is_right=column.is_right)
        for text, column, width in zip(row, columns, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _padded(text: str, width: int, *, is_right: bool) -> str:
    space = " " * (width - text_width(text))
    return f"{space}{text}" if is_right else f"{text}{space}"


def narrowed(table: TextTable, *, room: int) -> TextTable:
    """Return the table without the columns that don't fit."""
    for name in table.dropped:
        rows = [_heads(table), *(list(_cells(row)) for row in table.rows)]
        least = [
            min(width, FLEXIBLE_CHARACTERS_MIN) if column.is_flexible else width
            for width, column in zip(_widths(rows), table.columns, strict=True)
        ]
        if _total(least) <= room:
            break
        table = table.without(name)
    return table


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def fitted(widths: Sequence[int], columns: Sequence[TextColumn], *, room: int) -> list[int]:
    """Return the widths, with the widest flexible columns reduced until all fit, if possible."""
    fits = list(widths)
    excess = _total(fits) - room
    for _ in range(max(0, excess)):
        wide = [
            place
            for place, column in enumerate(columns)
            if column.is_flexible and fits[place] > FLEXIBLE_CHARACTERS_MIN
        ]
        if not wide:
            break
        fits[max(wide, key=lambda place: fits[place])] -= 1
    return fits


def _text(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text


def text_width(text: str) -> int:
    """Return how many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, characters_max: int) -> str:
    """Return the text, or its beginning and an ellipsis."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def rich_console(*, stderr: bool = False) -> Console:
    """Return a console that prints our texts unchanged: no markup, emoji codes or highlights."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, stderr=stderr)


def rich_table(table: TextTable, *, room: int) -> RenderableType:
    """Return the table for a terminal of that width."""
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(table.title, style="bold") if table.title else None
    if not table.rows:
        empty = Text(table.empty, style="dim")
        return Text("\n").join([title, empty]) if title else empty
    table = narrowed(table, room=room)
    rows = [list(_cells(row)) for row in table.rows]
    widths = fitted(_widths([_heads(table), *rows]), table.columns, room=room)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    drawn.title, drawn.title_justify = title, "left"
    for head, column, width in zip(_heads(table), table.columns, widths, strict=True):
        drawn.add_column(
            head,
            justify="right" if column.is_right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row, texts in zip(table.rows, rows, strict=True):
        styles = map(_style, row)
        drawn.add_row(*(Text(text, style) for text, style in zip(texts, styles, strict=True)))
    return drawn


def _style(cell: Cell | str) -> str:
    return "" if isinstance(cell, str) else cell.style


def print_fields(fields: Iterable[tuple[str, Cell | str]]) -> None:
    """Print names and values, one per line. Values may have several lines."""
    listed = list(fields)
    width = max(len(name) for name, _ in listed)
    for name, cell in listed:
        text = escaped_lines(_text(cell)).replace("\n", "\n" + " " * (width + 2))
        if is_rich():
            from rich.text import Text

            line = Text.assemble((f"{name:<{width}}  ", "dim"), (text, _style(cell)))
            rich_console().print(line, soft_wrap=True)
        else:
            click.echo(f"{name:<{width}}  {text}")


def styled(text: str, style: str) -> None:
    """Print one line of our own, in colour where it is wanted."""
    if is_rich():
        rich_console().print(text, style=style, soft_wrap=True)
    else:
        click.echo(text)


def print_wrapped(text: str, *, indent: int, style: str = "", head: int | None = None) -> None:
    """Print a text without control characters, wrapped on a terminal, with indented lines after it.

    Args:
        style: The style of the first `head` characters, or by default of the whole text.
    """
    if is_terminal():
        room = shutil.get_terminal_size().columns
        rest = " " * indent
        text = textwrap.fill(
            text, room, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )
    if is_rich():
        from rich.text import Text

        line = Text(text)
        line.stylize(style, 0, head)
        rich_console().print(line, soft_wrap=True)
    else:
        click.echo(text)


def age(seconds: float | None) -> str:
    """Return a length of time in its two largest units: `3d 4h`, `12m 5s`, `0.4s`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}s"
    left, parts = round(seconds), list[str]()
    for length, unit in (*_UNITS, (1, "s")):
        if left >= length or parts:
            parts.append(f"{left // length}{unit}")
            left %= length
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def short_age(seconds: float) -> str:
    """Return a length of time in one unit, below two of the next: `70s`, `90m`, `30h`, `3d`."""
    seconds = max(0.0, seconds)
    for length, unit in _UNITS:
        # The unit must not change at exactly two hours.
        if seconds >= 1.99 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"


def number(value: int, *, exact: bool = True) -> str:
    """Return a count, with a plus if it is only a lower bound: 10,000+."""
    return f"{value:,}" if exact else f"{value:,}+"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def complain(problem: object) -> None:
    """Print an error on one line of stderr, whatever its text holds."""
    click.echo(f"error: {escaped(str(problem))}", err=True)


def fail(problem: object, *, exit_code: int) -> NoReturn:
    """Print an error and exit with that code."""
    complain(problem)
    raise click.exceptions.Exit(exit_code)


def give_up_output() -> None:
    """Discard the output that stdout can't take, if there is any.

    Otherwise the interpreter would try again at exit, and report an error that was already printed.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def job_document(job: Any) -> dict[str, object]:
    """Return a job as JSON: its fields by name, times as ISO 8601. Listed jobs have fewer."""
    from rowlock.job import Job, ListedJob

    progress = job.progress and {"fraction": job.progress.fraction, "text": job.progress.text}
    common = {"progress": progress, "last_error": job.last_error}
    if isinstance(job, ListedJob):
        known = [name for name in Job.__struct_fields__ if name not in ListedJob.LEFT_OUT]
        return {**{name: getattr(job, name) for name in known}, **common}
    fields = {name: getattr(job, name) for name in job.__struct_fields__}
    errors = [
        {
            "attempt": error.attempt,
            "time": error.time,
            "type": error.type,
            "message": error.message,
            "traceback": error.traceback,
        }
        for error in job.errors
    ]
    return {**fields, **common, "errors": errors}
