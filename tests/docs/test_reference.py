"""The reference is what the code says: its generated sections are those that the code gives now."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from rowlock import Job, Task, config
from rowlock.task_options import Duration
from tests.docs.reference.docstrings import attribute_texts, read_docstring
from tests.docs.reference.markdown import prose, table
from tests.docs.reference.sections import filled, names_in, read_reference
from tests.docs.reference.settings import server_limits
from tests.docs.reference.signatures import signature_text
from tests.docs.reference.sources import all_sections


@cache
def made_sections() -> dict[str, str]:
    return all_sections()


@pytest.mark.parametrize("path", read_reference(), ids=lambda path: path.name)
def test_pages_are_as_the_code_makes_them(path: Path):
    """What is checked in is what the generator gives."""
    text = read_reference()[path]

    assert filled(text, made_sections()) == text, f"{path.name} is out of date: run make reference"


def test_nothing_is_left_out():
    """Every section that the code gives stands in one page, once."""
    there = Counter(name for text in read_reference().values() for name in names_in(text))

    assert Counter(made_sections().keys()) == there, "a marker is missing, or there twice"


def test_the_same_again():
    """Nothing in it depends on when or where it is made."""
    assert made_sections() == all_sections()
    assert [name for name, text in made_sections().items() if " at 0x" in text] == []


def test_docstrings_are_read_rightly():
    """Prose, arguments over several lines, errors and an example are told apart."""
    told = read_docstring(
        """Do it.

        More. Much
        more.

        Args:
            first: One
                thing.
            second: Another: this.

        Raises:
            NotFound: It is not there.

        Example:
            do(1)
        """
    )

    assert told.promise == "Do it."
    assert prose(told.prose) == "Do it.\n\nMore.\nMuch more."
    assert told.arguments == {"first": "One thing.", "second": "Another: this."}
    assert told.errors == {"NotFound": "It is not there."}
    assert told.example == "do(1)"


def made_up(
    kind: str, /, *args: Any, keep: Duration | None = 30.0, name: Literal["a"] = "a", **rest: int
) -> builtins.list[Task[..., Any]]: ...


def block() -> Iterator[Job]: ...


def test_signatures_read_as_users_write_them():
    """Our own names for types are spelled out, defaults are values, and a block is one."""
    assert signature_text("made_up", made_up) == (
        "made_up(\n"
        "    kind: str,\n"
        "    /,\n"
        "    *args: Any,\n"
        "    keep: float | timedelta | None = 30,\n"
        '    name: Literal["a"] = "a",\n'
        "    **rest: int,\n"
        ") -> list[Task]"
    )
    assert signature_text("block", block) == "with block() as Job"


def test_a_page_is_filled_between_its_comments():
    """What is written by hand stays, and what is there twice or unknown is seen."""
    text = "A\n\n<!-- generated: x -->\nold\n<!-- /generated -->\n\nB\n"

    assert names_in(text) == ["x"]
    assert (
        filled(text, {"x": "new"})
        == "A\n\n<!-- generated: x -->\n\nnew\n\n<!-- /generated -->\n\nB\n"
    )
    with pytest.raises(KeyError):
        filled(text, {})


def test_limits_of_the_server_say_what_they_hold_for():
    """By a last sentence, which becomes a column, or in passing; new ones are found by name."""
    found = server_limits(
        {
            "HTTP_NEW_MAX": "Most new things at once. Per token.",
            "AUTH_NEW_SECONDS": "Longest time per address.",
            "TOKENS_NEW_MAX": "Most of them.",
            "WORKER_NEW_MAX": "Not of the server. Per request.",
            "HTTP_NEW_BYTES": "Most bytes. Per request.",
        }
    )

    assert found == [
        ("request", "HTTP_NEW_BYTES", "Most bytes."),
        ("address", "AUTH_NEW_SECONDS", "Longest time per address."),
        ("token", "HTTP_NEW_MAX", "Most new things at once."),
        ("", "TOKENS_NEW_MAX", "Most of them."),
    ]


def test_every_limit_of_the_server_says_what_it_holds_for():
    """Else a reader can't tell how often it may be used at once."""
    unsaid = [name for scope, name, _ in server_limits(attribute_texts(config)) if not scope]

    assert unsaid == [], "end their texts with what they hold for, such as `Per token.`"


def test_tables_are_made_rightly():
    """A bar is escaped, in code for all renderers, and an empty column is left out."""
    assert (
        table(["a", "b", "c"], [("`x | y`", "", ""), ("x | y", "", "z")])
        == "| a | c |\n|---|---|\n| <code>x &#124; y</code> | |\n| x \\| y | z |"
    )
