"""Signatures as users write them: types by their names, defaults as values."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cache
from typing import Any, get_overloads

from rowlock import app, limits, task, task_options
from rowlock.store import options
from rowlock.testing import app as app_under_test
from rowlock.testing import expect

_LINE = 96
# Modules that types are named by in our code, and what users call them.
_MODULES = {"builtins": "", "options": "", "retries": "rowlock.retry.", "msgspec": "msgspec."}


# The class of a constant.
_CONSTANTS = {"_Tenant": "TENANT"}
# Names of ours for types that users spell out.
_ALIASES = {
    options: {"IfHeld", "KeyHold"},
    app: {"Answers"},
    limits: {"Key", "OnDead", "Per"},
    task: {"Wrap"},
    task_options: {"Duration", "ErrorClasses", "Executor", "RetryOption"},
    expect: {"_Wanted"},
    app_under_test: {"Point"},
}


@cache
def _aliases() -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for module, names in _ALIASES.items():
        for statement in ast.parse(inspect.getsource(module)).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in names:
                    found[name] = value
    assert found.keys() == set().union(*_ALIASES.values())
    return found


class _AsUsersWrite(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = _aliases().get(node.id)
        if known is None:
            return ast.Name(_CONSTANTS.get(node.id, node.id))
        return self.visit(known)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in _MODULES:
            return self.visit(ast.Name(f"{_MODULES[node.value.id]}{node.attr}"))
        return node


def type_text(annotation: Any) -> str:
    """An annotation, which is a text, with the names that users know."""
    assert isinstance(annotation, str), annotation
    tree = _AsUsersWrite().visit(ast.parse(annotation, mode="eval").body)
    # What a task takes and returns is its function's business.
    return re.sub(r"\b(Task|TaskCall)\[[^]]*\]", r"\1", ast.unparse(tree)).replace("'", '"')


def default_text(default: Any) -> str:
    """A default as a value."""
    match default:
        case float() if default.is_integer():
            return str(int(default))
        case datetime():
            return repr(default).replace("datetime.datetime", "datetime").replace(
                "datetime.timezone.utc", "UTC"
            )  # fmt: skip
        case None | bool() | int() | float() | str() | tuple():
            return repr(default).replace("'", '"')
    raise AssertionError(f"{default!r} can't be shown")


def signature_text(name: str, function: Callable[..., Any]) -> str:
    """A call of a function with all that it takes, in one line or one for each parameter."""
    signature = inspect.signature(function)
    parts = list(_parameters(signature))
    statement, answer = ("", "") if isinstance(function, type) else _answer(function)
    line = f"{statement}{name}({', '.join(parts)}){answer}"
    if len(line) <= _LINE:
        return line
    listed = "".join(f"    {part},\n" for part in parts)
    return f"{statement}{name}(\n{listed}){answer}"


def _answer(function: Callable[..., Any]) -> tuple[str, str]:
    """The statement for what a block is made with, and what a call answers."""
    told = [inspect.signature(each) for each in get_overloads(function) or [function]]
    texts = dict.fromkeys(type_text(each.return_annotation) for each in told)
    text = " | ".join(texts)
    if found := re.fullmatch(r"(Async)?Iterator\[(.+)\]", text):
        statement = "async with " if found[1] else "with "
        return statement, "" if found[2] == "None" else f" as {found[2]}"
    return "", f" -> {text}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """The parameters without `self`, with the bars between those by place and by name."""
    before: inspect.Parameter | None = None
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if before and before.kind is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            yield "/"
        is_starred = before and before.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        if each.kind is each.KEYWORD_ONLY and not is_starred:
            yield "*"
        yield _parameter(each)
        before = each


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.annotation in ("P.args", "P.kwargs"):
        return f"{stars}{parameter.name}"
    typed = f"{stars}{parameter.name}: {type_text(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return typed
    return f"{typed} = {default_text(parameter.default)}"
