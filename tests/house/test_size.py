"""Files and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
import re

from tests.house.source import FILE_LINES_MAX, LINE_CHARACTERS_MAX, read_modules

FUNCTION_LINES_MAX = 70
# As the linter counts: a comment for a tool must stand on its line, however long that gets.
PRAGMA = re.compile(r"\s*# (?:type: ignore|noqa|pyright:).*")


def test_files_are_short():
    """A file this long has a wall inside it: find it."""
    lengths = {module.place: module.text.count("\n") for module in read_modules()}

    assert {place: length for place, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_functions_are_short():
    """No function is longer than a screen, its docstring included."""
    lengths = {
        f"{module.place}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module in read_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}


def test_lines_are_short():
    """No source line needs scrolling sideways, SQL included."""
    files = {module.place: module.text for module in read_modules()}
    root = read_modules()[0].path.parent
    files |= {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*.sql")}

    assert [
        f"{place}:{number}"
        for place, text in files.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if len(PRAGMA.sub("", line)) > LINE_CHARACTERS_MAX
    ] == []
