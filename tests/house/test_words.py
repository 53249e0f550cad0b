"""What people read is plain English: help, limits, messages, and the first lines of docstrings.

The list is short on purpose. It holds words that came up again and again, and made people read a
sentence twice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import click
import pytest

from rowlock import config
from rowlock.cli import main
from tests.docs.reference.commands import all_commands
from tests.docs.reference.docstrings import attribute_texts
from tests.house.source import Module, make_module, read_modules

# What not to write, as a pattern, and what to write instead.
WORDS = {
    r"\bso (?:many|much|long|often)\b(?! as\b)": "the number, or `this many`, `this long`",
    r"\bin so long a time\b": "name the window",
    r"\Aand at (?:last|most)\b": "a row stands on its own: name what is limited",
    r"\btold\b": "returned, reported, logged",
    r"\bwho(?:m|se)?ever\b": "name the person or the thing",
    r"\bfor ever\b": "forever",
    r"\bby turns\b": "in turn",
    r"\bby choice\b": "optionally",
    r"\ball the same\b": "nevertheless",
    r"\botherwise than\b": "differently from",
    r"\bgo(?:es)? on with\b": "continue",
    r"\(any more\)": "say what happened to it",
    r"\b(?<!there )is no (?!longer\b|more\b)": "is not a",
    r"\bcan't be had\b": "is not available",
    r"\btaken for dead\b": "considered dead",
    r"\buncounted\b": "isn't counted as an attempt",
    r"\bbefalls?\b": "happens to",
}
PATTERN = re.compile("|".join(f"(?:{each})" for each in WORDS), re.IGNORECASE)


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every text of several words that is not a docstring, with its line."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings and " " in text:
                yield node.lineno, text


def first_lines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first line of every docstring, and of every text below an attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text.strip().partition("\n")[0]


def found_in(module: Module) -> list[str]:
    """Return each word of the list in a module's texts, and what to write instead."""
    return [
        f"{module.place}:{line}: {match.group()!r}: {instead_of(match.group())}"
        for line, text in sorted({*messages(module.tree), *first_lines(module.tree)})
        for match in PATTERN.finditer(text)
    ]


def instead_of(found: str) -> str:
    return next(instead for word, instead in WORDS.items() if re.search(word, found, re.IGNORECASE))


def helps() -> Iterator[tuple[str, str]]:
    for name, command in [("rowlock", main), *all_commands()]:
        with click.Context(command, info_name=name) as context:
            yield name, command.get_help(context)


def test_no_text_uses_these_words():
    """Messages, log lines, and what docstrings promise in their first line."""
    assert [found for module in read_modules() for found in found_in(module)] == []


def test_no_help_uses_these_words():
    """Nor does any command's `--help`, to its last line."""
    assert [
        (name, match.group()) for name, text in helps() for match in PATTERN.finditer(text)
    ] == []


def test_every_limit_stands_on_its_own():
    """A row of the table of limits is read without its neighbours."""
    rows = attribute_texts(config)

    assert [name for name, text in rows.items() if PATTERN.search(text)] == []
    assert [name for name, text in rows.items() if len(text.split()) < 3] == []


def test_a_docstring_begins_with_one_sentence():
    """A semicolon in the first line joins two thoughts where a reader expects the promise."""
    found = [
        f"{module.place}:{line}: {text}"
        for module in read_modules()
        for line, text in first_lines(module.tree)
        if ";" in text
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('raise ValueError("it failed so often")', "so often"),
        ('log.info("%s was told", name)', "told"),
        ('f"{name} is no duration"', "is no "),
        ('"""Kept for ever."""', "for ever"),
        ('LIMIT = 3\n"""And at most."""', "And at most"),
    ],
)
def test_the_rule_catches_what_it_forbids(text, word):
    """In messages, in pieces of messages, and in docstrings."""
    found = found_in(make_module("rowlock.cli.made_up", text))

    assert [each.split(": ")[1] for each in found] == [repr(word)]


@pytest.mark.parametrize(
    "text",
    ['"there is no job"', '"as long as it runs"', '"""One.\n\nFor ever."""', 'x = "told"'],
)
def test_the_rule_leaves_the_rest_alone(text):
    """Idioms, later lines of docstrings, and single words that are values."""
    assert found_in(make_module("rowlock.cli.made_up", text)) == []
