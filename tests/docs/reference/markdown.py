"""Markdown in the style of the other pages: tables, and prose of one sentence a line."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_NEXT_SENTENCE = re.compile(r"(?<=[\w`)\]*…\"][.!?]) (?=[A-Z0-9`*\"])")


def code(text: object) -> str:
    """As code."""
    return f"`{text}`"


def codes(names: Iterable[object]) -> str:
    """Names as code, one after the other."""
    return ", ".join(map(code, names))


def one_line(text: str) -> str:
    """A text that was broken into lines, as one."""
    return " ".join(text.split())


def prose(text: str) -> str:
    """Paragraphs of one sentence a line."""
    paragraphs = [one_line(each) for each in re.split(r"\n\s*\n", text.strip())]
    return "\n\n".join(_NEXT_SENTENCE.sub("\n", each) for each in paragraphs)


def as_cell(text: str) -> str:
    """A sentence as it stands in a table: without its full stop, and without a line of its own."""
    line = one_line(text)
    is_single = not _NEXT_SENTENCE.search(line)
    return line.removesuffix(".") if is_single and not line.endswith("..") else line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a column that says nothing is left out."""
    listed = [[_escaped(one_line(cell)) for cell in row] for row in rows]
    assert all(len(row) == len(head) for row in listed), head
    shown = [place for place in range(len(head)) if any(row[place] for row in listed)]
    lines = [_row([head[place] for place in shown]), "|" + "---|" * len(shown)]
    return "\n".join([*lines, *(_row([row[place] for place in shown]) for row in listed)])


def _escaped(cell: str) -> str:
    # In code, some renderers need a bar to be escaped, and others then show how it was.
    def entity(match: re.Match[str]) -> str:
        return f"<code>{html.escape(match[1], quote=False).replace('|', '&#124;')}</code>"

    return re.sub(r"`([^`]*\|[^`]*)`", entity, cell).replace("|", r"\|")


def _row(cells: Sequence[str]) -> str:
    return re.sub(r"\|  (?=\|)", "| ", "| " + " | ".join(cells) + " |")


def fenced(text: str, language: str) -> str:
    """A block of text. Code in `py` is to be read; what is in `python` is run by the tests."""
    return f"```{language}\n{text.rstrip()}\n```"


def joined(*parts: str) -> str:
    """Parts of a page, with a line between; empty ones are left out."""
    return "\n\n".join(part for part in parts if part)


def anchor(heading: str) -> str:
    """Where a heading can be found."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
