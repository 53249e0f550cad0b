"""Assertions name what was found first, then what was expected: pytest shows them in this order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.source import ROOT


def is_literal(node: ast.expr) -> bool:
    """Return whether an expression is written out: `3`, `"a"`, `[]`, `(1, "b")`, `-1`."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return is_literal(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return all(map(is_literal, items))
        case ast.Dict(keys=keys, values=values):
            return all(each is not None and is_literal(each) for each in [*keys, *values])
    return False


def backward_asserts(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of assertions whose left side alone is a literal."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert(
                test=ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right])
            ) if is_literal(left) and not is_literal(right):
                yield node.lineno


def test_the_expected_value_comes_last():
    """`assert actual == expected`: the difference then reads forward."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line in backward_asserts(ast.parse(path.read_text("utf-8")))
    ]

    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("assert 3 == count()", [1]),
        ("assert [] == found", [1]),
        ("assert ('a', -1) == pair", [1]),
        ("assert {'a': 1} != fields", [1]),
        ("assert count() == 3", []),
        ("assert [1, 2] == [1, 2]", []),
        ("assert [each for each in found] == []", []),
        ("assert 'text' in shown", []),
    ],
)
def test_the_rule_catches_what_it_forbids(text, lines):
    """A literal on the left is found, unless the right side is one as well."""
    assert list(backward_asserts(ast.parse(text))) == lines
