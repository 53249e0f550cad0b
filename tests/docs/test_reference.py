"""The reference is what the code says: its generated sections are those that the code gives now."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.docs.reference.docstrings import read_docstring
from tests.docs.reference.markdown import prose, table
from tests.docs.reference.sections import filled, names_in, read_reference
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
    assert [] == [name for name, text in made_sections().items() if " at 0x" in text]


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

    assert "Do it." == told.promise
    assert "Do it.\n\nMore.\nMuch more." == prose(told.prose)
    assert {"first": "One thing.", "second": "Another: this."} == told.arguments
    assert {"NotFound": "It is not there."} == told.errors
    assert "do(1)" == told.example


def test_tables_are_made_rightly():
    """A bar is escaped, in code for all renderers, and an empty column is left out."""
    assert "| a | c |\n|---|---|\n| <code>x &#124; y</code> | |\n| x \\| y | z |" == table(
        ["a", "b", "c"], [("`x | y`", "", ""), ("x | y", "", "z")]
    )
