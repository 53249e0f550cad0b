"""Names say what a thing is, and only one thing has each: classes, and modules with a reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.house.source import Module, make_module, read_imports, read_modules, room_of

# Names that two classes share for good, and why.
SHARED = {
    "Command": "Django looks for a class of this name",
    "Dashboard": "Django derives the permission `view_dashboard` from the name of its model",
    "Job": "the shim for RQ has RQ's names, and the admin shows the name of its model",
    "Meta": "Django looks for a class of this name",
    "Migration": "Django looks for a class of this name",
    "Retry": "the shims for Celery and RQ have their names",
    "Task": "the shim for Celery has Celery's names",
}
# The HTTP reference shows the server's schemas by name, and each has the name of its record in the
# library. So this room is not judged.
SCHEMAS = {"server"}
SMALL_LINES = 60
# Small modules with one importer in rooms that are judged, and why each is a module of its own.
SEAMS = {
    "rowlock.contrib.celery.utils.log": "Celery has a module of this name",
    "rowlock.contrib.django.models": "Django looks for models in this module",
    "rowlock.contrib.django.testing": "imported by tests only, and Django's settings are read then",
    "rowlock.contrib.rq.exceptions": "RQ has a module of this name",
    "rowlock.contrib.rq.results": "RQ has a module of this name",
    "rowlock.store.ops.measure": "only for a schema of its own, which `rowlock bench` makes",
}


def is_judged(module: Module) -> bool:
    return room_of(module.name) not in SCHEMAS


def classes_by_name(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return where each class name is used, in rooms that are judged."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in filter(is_judged, modules):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{module.place}:{node.lineno}")
    return dict(found)


def lonely_modules(modules: tuple[Module, ...]) -> Iterator[str]:
    """Yield the small modules of judged rooms that exactly one other module imports."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for arrow in read_imports(modules):
        importers[arrow.imported].add(arrow.importer.name)
    for module in filter(is_judged, modules):
        is_package = module.path.name == "__init__.py"
        is_small = module.text.count("\n") < SMALL_LINES
        if is_small and not is_package and len(importers[module.name]) == 1:
            yield module.name


def test_a_class_name_is_used_once():
    """A reader who finds a class by its name has found the right one."""
    found = classes_by_name(read_modules())

    assert {
        name: places for name, places in found.items() if len(places) > 1 and name not in SHARED
    } == {}


def test_a_small_module_with_one_importer_has_a_reason():
    """A closet with one door belongs to the room that it opens to."""
    assert [name for name in lonely_modules(read_modules()) if name not in SEAMS] == []


def test_the_exceptions_are_needed():
    """A module that is no longer small and lonely needs no excuse."""
    assert set(SEAMS) - set(lonely_modules(read_modules())) == set()


def test_the_rules_catch_what_they_forbid():
    """Made-up modules with one class twice, and with a closet, are judged rightly."""
    first = make_module("rowlock.cli.first", "class Row: pass\nclass Column: pass")
    second = make_module("rowlock.bench.second", "import rowlock.cli.first\nclass Row: pass")
    other = make_module("rowlock.store.other", "class Row: pass")
    found = classes_by_name((first, second, other))

    assert {name: len(places) for name, places in found.items()} == {"Row": 3, "Column": 1}
    assert list(lonely_modules((first, second, other))) == ["rowlock.cli.first"]
