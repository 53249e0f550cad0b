"""The tables of faults and of security as the tests read them: each row, and what proves it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house.source import ROOT

# The pages, with the letter of their numbers and how many there are.
PAGES = {"faults": ("F", 74), "security": ("S", 46)}
NOT_HERE = "Does not apply: "

_ROW = re.compile(r"\| ([A-Z]\d\d) \| .* \| (.+) \|")
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
_FILE = re.compile(r"`((?:benchmarks|src|docs|examples)/[\w/.-]+|[A-Z]+\.md)`")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its number, and its last cell."""

    number: str
    proof: str

    @property
    def tests(self) -> list[str]:
        """As pytest names them: `tests/store/test_claim.py::test_every_queue`."""
        return _TEST.findall(self.proof)

    @property
    def files(self) -> list[str]:
        """Drills, and other files that it names."""
        return _FILE.findall(self.proof)

    @property
    def is_told_why(self) -> bool:
        return bool(self.tests) or len(self.proof.removeprefix(NOT_HERE)) < len(self.proof)


def read_rows(text: str) -> list[Row]:
    """The rows of all tables of a page whose first cell is a number."""
    found = (_ROW.fullmatch(line) for line in text.splitlines())
    return [Row(match[1], match[2]) for match in found if match]


@cache
def rows_of(page: str) -> tuple[Row, ...]:
    return tuple(read_rows((ROOT / "docs" / "internals" / f"{page}.md").read_text("utf-8")))


@cache
def numbers_by_test() -> dict[str, frozenset[str]]:
    """Which rows a test proves, so that `pytest -k F13` runs those of one row."""
    pairs = [(test, row.number) for page in PAGES for row in rows_of(page) for test in row.tests]
    return {test: frozenset(n for other, n in pairs if other == test) for test, _ in pairs}


@cache
def functions_of(file: str) -> frozenset[str]:
    """The functions at the top of a file of tests; none if there is no such file."""
    path = Path(ROOT / file)
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text("utf-8"), file).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in body if isinstance(node, kinds))
