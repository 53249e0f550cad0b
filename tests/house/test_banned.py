"""Calls that make a queue wrong or untestable are not made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.source import PACKAGE, Module, read_modules

# What is banned, and what is used instead.
BANNED = {
    "datetime.now": "the clock is injected",
    "datetime.today": "the clock is injected",
    "datetime.utcnow": "the clock is injected, and times are aware",
    "date.today": "the clock is injected",
    "time.sleep": "wait on an event, so that a stop wakes it",
    "print": "emit an event, log, or click.echo",
    "pickle": "payloads are JSON",
    "marshal": "payloads are JSON",
    "shelve": "payloads are JSON",
}

# (module, name) -> why it is right there.
ALLOWED: dict[tuple[str, str], str] = {
    ("rowlock.app", "time.sleep"): "app.wait() is for scripts; nothing of ours could wake it",
    (
        "rowlock.store.postgres.engine",
        "time.sleep",
    ): "a few milliseconds before a lost race is run again",
}


def canonical_names(tree: ast.AST) -> dict[str, str]:
    """Map what a module calls a thing to what the thing is called: `import time as t` and so on."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.partition(".")[0]: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every line and qualified name that is used or imported."""
    names = canonical_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute | ast.Name):
            head, *rest = dotted(node)
            yield node.lineno, ".".join([names.get(head, head), *rest])


def dotted(node: ast.expr) -> list[str]:
    """The parts of `a.b.c`; what stands before the names, such as a call, is a question mark."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "?", *reversed(parts)]


def matches(name: str, banned: str) -> bool:
    """Whether `datetime.datetime.now` or `pickle.loads` is `datetime.now` or `pickle`."""
    if "." in banned:
        return f".{banned}." in f".{name}."
    return name == banned or name.startswith(f"{banned}.")


def find_banned(module: Module) -> set[tuple[int, str]]:
    return {
        (line, banned)
        for line, name in uses(module.tree)
        for banned in BANNED
        if matches(name, banned) and (module.name, banned) not in ALLOWED
    }


def test_nothing_banned_is_used():
    """The source reads no clock of its own, never sleeps, prints or unpickles."""
    found = [
        f"{module.place}:{line} uses {name}: {BANNED[name]}"
        for module in read_modules()
        for line, name in sorted(find_banned(module))
    ]

    assert found == []


def test_the_exceptions_are_needed():
    """An exception that is no longer used is removed."""
    modules = {module.name: module for module in read_modules()}
    needed = {
        (name, banned)
        for name, banned in ALLOWED
        if name in modules and any(matches(used, banned) for _, used in uses(modules[name].tree))
    }

    assert needed == set(ALLOWED)


@pytest.mark.parametrize(
    ("text", "banned"),
    [
        ("import datetime\ndatetime.datetime.now()", "datetime.now"),
        ("from datetime import datetime as dt\ndt.utcnow()", "datetime.utcnow"),
        ("from datetime import date\ndate.today()", "date.today"),
        ("import time as t\nt.sleep(1)", "time.sleep"),
        ("from time import sleep", "time.sleep"),
        ("def f():\n    print(1)", "print"),
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle"),
    ],
)
def test_the_rules_catch_what_they_forbid(text, banned):
    """Each banned call is found under the names that it can be given."""
    path = PACKAGE / "made_up.py"
    module = Module(name="rowlock.made_up", path=path, text=text, tree=ast.parse(text))

    assert {name for _, name in find_banned(module)} == {banned}
