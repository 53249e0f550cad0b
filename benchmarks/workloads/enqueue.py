"""Enqueue: one by one and in bulk, beside a bare INSERT and a bare COPY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from benchmarks import limits
from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.places import Database
from benchmarks.results import Measurement

BARE_INSERT = "bare INSERT"
BARE_COPY = "bare COPY"

Way = Literal["enqueue_one", "enqueue_bulk"]


def enqueue_one(bench: Bench) -> None:
    """Each job in a transaction of its own, awaited."""
    _by_turns(bench, "enqueue_one", bench.sizes.enqueue_one)


def enqueue_bulk(bench: Bench) -> None:
    """A thousand jobs a transaction."""
    _by_turns(bench, "enqueue_bulk", bench.sizes.enqueue_bulk)


def _by_turns(bench: Bench, way: Way, count: int) -> None:
    for _ in range(bench.sizes.repeats):
        for contestant in bench.contestants:
            if contestant.is_ours:
                _measure_limit(bench, contestant, way, count)
            with (
                bench.turn(way, contestant) as figures,
                bench.fresh(contestant) as database,
            ):
                figures.update(contestant.call(database, way, count))


def _measure_limit(bench: Bench, contestant: Contestant, way: Way, count: int) -> None:
    is_bulk = way == "enqueue_bulk"
    insert: Callable[[Database, int], float] = (
        limits.insert_in_bulk if is_bulk else limits.insert_one_by_one
    )
    name = BARE_COPY if is_bulk and contestant.store == "postgres" else BARE_INSERT
    with bench.fresh(contestant) as database:
        figures = {"n": count, "per_s": insert(database, count)}
    bench.note(Measurement(way, name, contestant.store, figures))
