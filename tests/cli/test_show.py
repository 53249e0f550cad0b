"""What is printed is aligned, honest about its length, and can do nothing to a terminal."""

from __future__ import annotations

import json

import pytest

from rowlock.cli import show
from tests.cli.conftest import HOSTILE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Ünïcode 漢字", "plain Ünïcode 漢字"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b5m", "\\x9b5m"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_control_characters_are_written_out(text, shown):
    """Controls, escapes and direction marks are shown as codes, all others as they are."""
    assert show.escaped(text) == shown


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_safe_and_exact(indent):
    """JSON holds no character that a terminal acts on, and reads back equal."""
    value = {HOSTILE: ["\U000e0041", "漢", 10**4000]}
    text = show.as_json(value, indent=indent)

    assert value == json.loads(text)
    assert "漢" in text
    assert all(character.isprintable() for character in text.replace("\n", ""))


def test_plain_table_is_aligned():
    """Columns stand below their names, wide characters counted as two."""
    table = show.TextTable(show.columns("name", "count", "note", right=["count"]))
    table.add("漢字", "1", "x")
    table.add("abc", show.Cell("1,000", "red"), "")

    assert show.plain_table(table).splitlines() == [
        "NAME  COUNT  NOTE",
        "漢字      1  x",
        "abc   1,000",
    ]


def test_long_cells_are_cut_but_the_first():
    """Free text is cut with an ellipsis; what one copies and pastes is whole."""
    table = show.TextTable(show.columns("id", "kind", "note"))
    table.add("i" * 300, "k" * 300, "n" * 300)
    _, line = show.plain_table(table).splitlines()

    assert line == f"{'i' * 300}  {'k' * 59}…  {'n' * 199}…"


def test_narrow_terminals_lose_columns_in_order():
    """What does not fit even when cut is left out, the least important first."""
    columns = show.columns("id", "kind", "note", flexible=["kind", "note"])
    table = show.TextTable(columns, dropped=("note", "kind"))
    table.add("i" * 20, "k" * 20, "n" * 20)

    def names(room: int) -> list[str]:
        return [column.name for column in show.narrowed(table, room=room).columns]

    assert names(40) == ["id", "kind", "note"]
    assert names(39) == ["id", "kind"]
    assert names(29) == ["id"]
    assert show.fitted([20, 20, 20], columns, room=50) == [20, 13, 13]
    assert show.fitted([20, 20, 20], columns, room=10) == [20, 8, 8]


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (-1.0, "0.0s", "0.0s"),
        (0.44, "0.4s", "0.4s"),
        (59, "59s", "59s"),
        (61, "1m 1s", "61s"),
        (3600, "1h", "60m"),
        (90061, "1d 1h", "25h"),
        (864000, "10d", "10d"),
    ],
)
def test_ages(seconds, long, short):
    """A length of time is told in the units that people use."""
    assert (show.age(seconds), show.short_age(seconds)) == (long, short)
