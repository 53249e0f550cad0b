"""The nemesis: keeps workers running, and kills their processes, all the time.

Mostly a child; now and then a supervisor alone, whose children must end by themselves, or a whole
worker at once, as the loss of a machine would. Whoever was lost is replaced. A child that has not
come to work yet is spared: one that dies so early is replaced later and later, and on a busy
machine there would be nothing left to strike.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Self

from benchmarks.drills.scene import END_SECONDS_MAX, Scene
from rowlock.testing.processes import children_of, kill

# Of so many strikes one hits a supervisor, and every other of those its children too.
SUPERVISOR_EVERY = 8
# PostgreSQL is crashed with every third strike, until it has been often enough.
CRASH_EVERY = 3


class Nemesis:
    """Strikes when told to; its workers end with the block."""

    def __init__(self, scene: Scene, *words: str, workers: int, crashes: int, seed: int) -> None:
        self._scene = scene
        self._words = words
        self._crashes_left: int = 0 if scene.server is None else crashes
        self._chance = random.Random(seed)
        self._workers = [scene.start(*words) for _ in range(workers)]
        self.strikes: int = 0
        self.struck: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait(END_SECONDS_MAX)

    def strike(self) -> None:
        """Kill somebody, if anybody is at work, and crash the server if its time has come."""
        children = self._children_at_work()
        if not children:
            return
        self.strikes = number = self.strikes + 1
        place = self._chance.randrange(len(self._workers))
        if number % (2 * SUPERVISOR_EVERY) == 0:
            self._kill_worker(place, with_children=True)
        elif number % SUPERVISOR_EVERY == 0:
            self._kill_worker(place, with_children=False)
        else:
            self.struck["children"] += kill(self._chance.choice(children))
        if self._crashes_left and number % CRASH_EVERY == 0:
            assert self._scene.server is not None
            self._scene.server.restart(immediate=True)
            self.struck["servers"] += 1
            self._crashes_left -= 1
        assert all(worker.poll() is None for worker in self._workers), "a supervisor ended"

    def _children_at_work(self) -> list[int]:
        announced = {worker.pid for worker in self._scene.app.workers()}
        children = [child for worker in self._workers for child in children_of(worker.pid)]
        return sorted(announced.intersection(children))

    def _kill_worker(self, place: int, *, with_children: bool) -> None:
        worker = self._workers[place]
        children = children_of(worker.pid) if with_children else []
        kill(worker.pid)
        for child in children:
            kill(child)
        worker.wait()
        self.struck["whole workers" if with_children else "supervisors"] += 1
        self._workers[place] = self._scene.start(*self._words)

    def __str__(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in sorted(self.struck.items()))
