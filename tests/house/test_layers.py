"""Imports point down: each layer knows the ones below it, and none knows the ones above."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter

from tests.house.source import PACKAGE, Module, read_modules

VOCABULARY = 0
SURFACES = 5
# Surfaces that are there for the others: logs and metrics, the server that commands run, the
# throw-away database, measurements, runs of chaos.
SERVING = {"bench", "chaos", "move", "observe", "server", "testing"}
# Low to high; a room of the package belongs to exactly one layer.
LAYERS = (
    {"version", "errors", "chance", "clock", "ids", "columns", "job", "retry", "lifecycle"}
    | {"codec"}
    | {"signature", "events", "config", "cron", "schedule", "tokens", "tally", "fingerprint"}
    | {"why", "misfits", "roundtrip", "interrupts", "filters"},
    {"store"},
    {"task", "context"},
    {"worker", "scheduler"},
    {"app"},
    {"server", "dashboard", "cli", "bench", "chaos", "observe", "testing", "move"},
    # Inside other frameworks: they put all of it together, commands included.
    {"contrib"},
    {"__main__"},
)
LAYER_OF = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

# What the vocabulary may lean on: it is pure, and everything else leans on it.
# `annotationlib` is in the standard library from 3.14 on, and imported only there.
# `cronsim` is as pure: it reads the fields of cron expressions.
VOCABULARY_DEPENDENCIES = sys.stdlib_module_names | {
    "annotationlib",
    "cronsim",
    "msgspec",
    "rowlock",
}


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


def points_up(arrow: Import) -> bool:
    importer, imported = room_of(arrow.importer.name), room_of(arrow.imported)
    if importer is None or importer == imported:
        return False
    if imported is None:  # The package itself is the top; what is not ours is not judged here.
        return arrow.imported == "rowlock"
    high, low = LAYER_OF.get(imported, SURFACES), LAYER_OF.get(importer, SURFACES)
    if high == SURFACES >= low:
        return imported not in SERVING or low != SURFACES
    return high > low


def test_every_module_has_a_layer():
    """A new room of the package is given its place in the layers."""
    rooms = {room_of(module.name) for module in read_modules()} - {None}

    assert {room for room in rooms if room not in LAYER_OF} == set()


def test_no_arrow_points_up():
    """No module imports from a layer above its own, nor a surface one that does not serve it."""
    arrows = read_imports(read_modules())

    assert [str(arrow) for arrow in arrows if points_up(arrow)] == []


def test_vocabulary_is_pure():
    """The vocabulary imports the standard library, msgspec and cronsim, nothing else."""
    arrows = [
        arrow
        for arrow in read_imports(read_modules())
        if LAYER_OF.get(room_of(arrow.importer.name) or "") == VOCABULARY
    ]

    assert [
        str(arrow)
        for arrow in arrows
        if arrow.imported.partition(".")[0] not in VOCABULARY_DEPENDENCIES
    ] == []


def test_no_import_cycles():
    """Modules can be put in an order in which each imports only earlier ones."""
    graph: dict[str, set[str]] = {module.name: set() for module in read_modules()}
    for arrow in read_imports(read_modules()):
        if arrow.imported in graph and not arrow.is_deferred:
            graph[arrow.importer.name].add(arrow.imported)

    assert find_cycle(graph) == []


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_the_rules_catch_what_they_forbid():
    """Made-up modules with an arrow up, a cycle and a type-only import are judged rightly."""
    store = make_module("rowlock.store", "import rowlock.app")
    job = make_module("rowlock.job", "if TYPE_CHECKING:\n    from rowlock.app import App")
    dev = make_module("rowlock.cli.dev", "def run():\n    from rowlock.testing import postgres")
    top = make_module("rowlock.worker.runner", "from rowlock import App")
    arrows = read_imports((store, job, dev, top))

    assert [each.imported for each in arrows if points_up(each)] == ["rowlock.app", "rowlock"]
    assert [each.is_deferred for each in arrows if each.importer is dev] == [True]
    assert sorted_cycle(find_cycle({"a": {"b"}, "b": {"a"}})) == ["a", "b", "a"]


def make_module(name: str, text: str) -> Module:
    return Module(name=name, path=PACKAGE / "made_up.py", text=text, tree=ast.parse(text))


def sorted_cycle(cycle: list[str]) -> list[str]:
    start = min(cycle)
    at = cycle.index(start)
    around = cycle[at:-1] + cycle[:at]
    return [*around, start]
