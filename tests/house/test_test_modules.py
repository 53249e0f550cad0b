"""What tests share stands where it is looked for: no test module imports from another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.source import ROOT

TESTS = ROOT / "tests"


def is_test_module(name: str) -> bool:
    """Whether `tests.store.test_claim`, or something in it, is named."""
    first, *parts = name.split(".")
    return first == "tests" and any(part.startswith("test_") for part in parts)


def imported_tests(text: str) -> Iterator[tuple[int, str]]:
    """Yield each test module that is imported anywhere in a file, with its line."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["tests"] if node.level else []
            module = [*above, *filter(None, [node.module])]
            names = [".".join([*module, alias.name]) for alias in node.names]
        yield from ((node.lineno, name) for name in names if is_test_module(name))


def test_no_test_module_is_imported():
    """Fixtures and helpers are in a conftest.py, in tests/support or in a module of their own."""
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in imported_tests(path.read_text("utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "from tests.store.test_claim import made",
        "from tests.store import test_claim",
        "import tests.store.test_claim as claims",
        "def f():\n    from tests.test_cron import zone",
        "from .test_claim import made",
        "from . import test_claim",
    ],
)
def test_the_rule_catches_what_it_forbids(text):
    """However a test module is imported, wherever in the file."""
    assert [name for _, name in imported_tests(text)] != []


def test_the_rule_allows_what_is_shared():
    """Modules that hold no tests may be imported by all."""
    text = "from tests.store.jobs import made\nimport tests.conftest\nfrom rowlock import testing"

    assert [*imported_tests(text)] == []
