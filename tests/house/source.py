"""The source tree as the house tests read it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rowlock"
# Of Python and of the dashboard's sources alike.
FILE_LINES_MAX = 800
LINE_CHARACTERS_MAX = 100


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the package: `name` is how it is imported."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        """Where to look, as editors understand it."""
        return str(self.path.relative_to(ROOT))


@cache
def read_modules() -> tuple[Module, ...]:
    """Read and parse every module of the package, in one order."""
    modules = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules.append(Module(name=name, path=path, text=text, tree=ast.parse(text, str(path))))
    assert modules, f"no source in {PACKAGE}"
    return tuple(modules)


@dataclass(frozen=True, slots=True)
class Import:
    """`importer` imports `imported` at run time."""

    importer: Module
    imported: str
    line: int
    is_deferred: bool

    def __str__(self) -> str:
        return f"{self.importer.place}:{self.line} imports {self.imported}"


def is_type_checking(node: ast.If) -> bool:
    return ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def walk_runtime(node: ast.AST, deferred: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield import statements, and whether they run only when a function is called."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, deferred
        elif isinstance(child, ast.If) and is_type_checking(child):
            for other in child.orelse:
                yield from walk_runtime(ast.Module([other], []), deferred)
        else:
            in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk_runtime(child, deferred or in_function)


def resolve(module: Module, statement: ast.stmt, names: frozenset[str]) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    assert isinstance(statement, ast.ImportFrom)
    base = statement.module or ""
    if statement.level:
        is_package = module.path.name == "__init__.py"
        parts = module.name.split(".")
        parents = parts[: len(parts) - statement.level + is_package]
        base = ".".join([*parents, *filter(None, [base])])
    # `from rowlock.store import sqlite` names a module, `from rowlock.job import Job` does not.
    inside = [f"{base}.{alias.name}" for alias in statement.names]
    return [name if name in names else base for name in inside]


@cache
def read_imports(modules: tuple[Module, ...]) -> list[Import]:
    names = frozenset(module.name for module in modules)
    return [
        Import(importer=module, imported=imported, line=statement.lineno, is_deferred=deferred)
        for module in modules
        for statement, deferred in walk_runtime(module.tree)
        for imported in dict.fromkeys(resolve(module, statement, names))
    ]


def room_of(name: str) -> str | None:
    """The room a module is in: `store` for `rowlock.store.sqlite.engine`; None outside of it."""
    parts = name.split(".")
    return parts[1] if parts[0] == "rowlock" and len(parts) > 1 else None


def make_module(name: str, text: str) -> Module:
    return Module(name=name, path=PACKAGE / "made_up.py", text=text, tree=ast.parse(text))
