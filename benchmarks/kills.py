"""Processes are killed, stopped and failed over while jobs run: what is lost, and for how long?

python -m benchmarks.kills [sqlite|postgres ...] [DRILL ...]

Without a store both, without a drill all; `--help` lists them. The tests run most, shorter.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.drills.failover import failover
from benchmarks.drills.losses import child, machine
from benchmarks.drills.misbehaviour import interpreter, poison
from benchmarks.drills.move import move
from benchmarks.drills.pause import FATES, pause
from benchmarks.drills.pooler import PoolerNotInstalled, pooled
from benchmarks.drills.scene import Scene
from benchmarks.drills.stop import stop
from benchmarks.drills.storm import storm
from benchmarks.drills.transfers import transfers
from rowlock.testing import ThrowAwayPostgres

STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
CHILD_KILLS = 50
MACHINE_KILLS = 10
PAUSES = 3
TRANSFERS = 2_000
HOLDERS = 20
BYSTANDERS = 1_000
STOPS = 200
STOP_WITHIN_SECONDS = 2.0
STORM_JOBS = 20_000
KILL_SECONDS = 0.5
CRASHES = 5
FAILOVERS = 5
# And how many seconds of work each lacks when it takes over.
STANDBYS = {"synchronous": 0.0, "asynchronous": 0.0, "asynchronous, half a second behind": 0.5}
POOLED_JOBS = 5_000
MOVED_JOBS = 200_000
MOVE_KILLS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kills", description=(__doc__ or "").partition("\n")[0]
    )
    choice = f"stores: {', '.join(STORES)}; drills: {', '.join(DRILLS)}; default: all"
    parser.add_argument("words", nargs="*", metavar="WORD", help=choice)
    words: list[str] = parser.parse_args().words
    if unknown := set(words).difference(STORES, DRILLS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; {choice}")
    # By default it would end this process without its blocks, and leave workers running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    stores = [word for word in words if word in STORES] or list(STORES)
    drills = [word for word in words if word in DRILLS] or list(DRILLS)
    for store, drill in itertools.product(stores, drills):
        if store == "sqlite" and drill in POSTGRES_ONLY:
            continue
        with tempfile.TemporaryDirectory() as directory:
            report(Stage(store, Path(directory)), drill)


class Stage:
    """Where the scenes of a drill are set, each with a database of its own."""

    def __init__(self, store: str, place: Path) -> None:
        self.store = store
        self._place = place
        self._numbers = itertools.count()

    def place(self) -> Path:
        """A new directory."""
        place = self._place / str(next(self._numbers))
        place.mkdir()
        return place

    @contextmanager
    def scene(self) -> Iterator[Scene]:
        """A new scene, on a PostgreSQL of its own or in a file."""
        place = self.place()
        if self.store == "sqlite":
            with Scene(f"sqlite:///{place / 'jobs.db'}", place) as scene:
                yield scene
        else:
            with (
                ThrowAwayPostgres(durable=True) as server,
                Scene(server.url, place, server) as scene,
            ):
                yield scene


def report(stage: Stage, drill: str) -> None:
    start = time.monotonic()
    for found in DRILLS[drill](stage):
        print(f"{STORES[stage.store]}, {drill}: {found}", flush=True)
    seconds, load = time.monotonic() - start, os.getloadavg()[1]
    print(f"    {seconds:.0f} s, load average {load:.1f} on {os.cpu_count()} cores", flush=True)


Found = Iterator[object]


def kill_children(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield child(scene, times=CHILD_KILLS)


def kill_machines(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield machine(scene, times=MACHINE_KILLS)


def pause_workers(stage: Stage) -> Found:
    """Each fate alone, then all together, in both orders of going on."""
    for fate, supervisor_first in itertools.product(FATES, (False, True)):
        with stage.scene() as scene:
            yield f"{fate}: {pause(scene, fates=(fate,), supervisor_first=supervisor_first)}"
    for supervisor_first in (False, True) * PAUSES:
        with stage.scene() as scene:
            yield f"all: {pause(scene, supervisor_first=supervisor_first)}"


def transfer(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield transfers(scene, count=TRANSFERS, every_seconds=KILL_SECONDS, crashes=CRASHES)


def hold_interpreters(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield interpreter(scene, jobs=HOLDERS)


def spread_poison(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield poison(scene, bystanders=BYSTANDERS)


def stop_workers(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield stop(scene, stops=STOPS, within_seconds=STOP_WITHIN_SECONDS)


def raise_storm(stage: Stage) -> Found:
    with stage.scene() as scene:
        yield storm(scene, jobs=STORM_JOBS, every_seconds=KILL_SECONDS, crashes=CRASHES)


def fail_over(stage: Stage) -> Found:
    for standby, _ in itertools.product(STANDBYS, range(FAILOVERS)):
        found = failover(
            stage.place(),
            before_seconds=3,
            away_seconds=1,
            after_seconds=3,
            is_synchronous=standby == "synchronous",
            behind_seconds=STANDBYS[standby],
        )
        yield f"{standby} standby: {found}"


def go_through_pooler(stage: Stage) -> Found:
    try:
        with ThrowAwayPostgres(durable=True) as server:
            yield pooled(server, stage.place(), jobs=POOLED_JOBS)
    except PoolerNotInstalled as error:
        yield f"NOT RUN: {error}"


def move_on(stage: Stage) -> Found:
    """To a PostgreSQL, while both are worked on."""
    with (
        stage.scene() as old,
        ThrowAwayPostgres(durable=True) as server,
        Scene(server.url, old.place, server) as new,
    ):
        yield move(old, new, jobs=MOVED_JOBS, kills=MOVE_KILLS, pause=6.0)


DRILLS: dict[str, Callable[[Stage], Found]] = {
    "child": kill_children,
    "machine": kill_machines,
    "pause": pause_workers,
    "transfers": transfer,
    "interpreter": hold_interpreters,
    "poison": spread_poison,
    "stop": stop_workers,
    "storm": raise_storm,
    "failover": fail_over,
    "pooler": go_through_pooler,
    "move": move_on,
}
POSTGRES_ONLY = ("failover", "pooler")


if __name__ == "__main__":
    main()
