"""Imports point down: each layer knows the ones below it, and none knows the ones above."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

from tests.house.source import (
    Import,
    make_module,
    read_imports,
    read_modules,
    room_of,
)

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
    | {"suggest", "why", "misfits", "interrupts", "filters", "limit_info"}
    | {"inputs", "result_types", "workflow_info", "workflow_rules"},
    {"store"},
    {"task", "task_options", "context", "limits", "workflow"},
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


def sorted_cycle(cycle: list[str]) -> list[str]:
    start = min(cycle)
    at = cycle.index(start)
    around = cycle[at:-1] + cycle[:at]
    return [*around, start]
