"""Errors: classes, codes, fields, and how they show over HTTP and at the end of a command."""

from __future__ import annotations

import ast

import rowlock
from rowlock import RowlockError
from rowlock.cli import exit_code
from rowlock.contrib import compat
from rowlock.server.problems import KINDS
from tests.docs.reference.docstrings import class_tree, docstring_of
from tests.docs.reference.markdown import as_cell, code, fenced, joined, prose, table


def sections() -> dict[str, str]:
    """The tree of errors, each of them, and the problems that they are over HTTP."""
    return {
        "tree of errors": _tree(),
        "errors": _listed(_public()),
        "errors of shims": _listed(_of_shims()),
        "problems": _problems(),
    }


def _public() -> list[type[RowlockError]]:
    named = [getattr(rowlock, name) for name in rowlock.__all__]
    errors = [each for each in named if isinstance(each, type) and issubclass(each, RowlockError)]
    # In the order of the module: from what callers meet most to what they meet least.
    return sorted(errors, key=list(vars(rowlock.errors).values()).index)


def _of_shims() -> list[type[RowlockError]]:
    return [
        each
        for each in vars(compat).values()
        if isinstance(each, type) and each.__module__ == compat.__name__
        if issubclass(each, RowlockError)
    ]


def _tree() -> str:
    base, *errors = _public()
    width = max(len(each.__name__) for each in errors)
    code_width = max(len(each.code) for each in errors)
    lines = [base.__name__]
    for each in errors:
        branch = "└──" if each is errors[-1] else "├──"
        name, also = f"{each.__name__:{width}}", _other_bases(each)
        told = f"{branch} {name}   {each.code:{code_width}}   {f'also a {also}' if also else ''}"
        lines.append(told.rstrip())
    return fenced("\n".join(lines), "text")


def _other_bases(error: type[RowlockError]) -> str:
    others = [each for each in error.__bases__ if not issubclass(each, RowlockError)]
    return ", ".join(each.__name__ for each in others if each is not Exception)


def _listed(errors: list[type[RowlockError]]) -> str:
    return joined(*(joined(f"### {_name(each)}", _facts(each), _text(each)) for each in errors))


def _name(error: type[RowlockError]) -> str:
    is_public = error.__name__ in rowlock.__all__
    return error.__name__ if is_public else f"{error.__module__}.{error.__name__}"


def _facts(error: type[RowlockError]) -> str:
    """Its code, and how it shows elsewhere."""
    facts = [f"Code {code(error.code)}", f"exit code {exit_code(error.__new__(error))}"]
    if error.code in KINDS:
        facts.insert(1, f"HTTP status {KINDS[error.code].status}")
    if also := _other_bases(error):
        facts.append(f"also a {code(also)}")
    return f"{', '.join(facts)}."


def _text(error: type[RowlockError]) -> str:
    rows = [(code(name), code(kind)) for name, kind in fields_of(error).items()]
    return joined(prose(docstring_of(error).prose), table(["field", "type"], rows) if rows else "")


def fields_of(error: type) -> dict[str, str]:
    """What an error carries beside its text: what its `__init__` keeps, and of which types."""
    fields: dict[str, str] = {}
    for method in class_tree(error).body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            arguments = [*method.args.args, *method.args.kwonlyargs]
            known = {each.arg: each.annotation for each in arguments}
            for statement in method.body:
                match statement:
                    case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                        fields[name] = ast.unparse(annotation)
                    case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=source)):
                        fields[name] = ast.unparse(known[source])
    return fields


def _problems() -> str:
    return table(
        ["code", "status", "title", ""],
        [
            (code(name), str(kind.status), kind.title, as_cell(kind.when))
            for name, kind in sorted(KINDS.items(), key=lambda each: each[1].status)
        ],
    )
