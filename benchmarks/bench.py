"""One run: its contestants, its places, its sizes; and where its figures go."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import SubprocessError

from benchmarks.contestants import AdapterFailed, Contestant, StoreName
from benchmarks.places import Database, Place
from benchmarks.results import Figures, Measurement, Results
from benchmarks.sizes import Sizes


class Unfinished(Exception):
    """A worker stopped, or stood still, before its jobs were done."""


@dataclass(slots=True)
class Bench:
    """What every workload needs."""

    sizes: Sizes
    directory: Path
    places: Mapping[StoreName, Place]
    contestants: Sequence[Contestant]
    results: Results
    output: Path
    started: float = field(default_factory=time.monotonic)

    def ours(self) -> list[Contestant]:
        """rowlock, on each store of this run."""
        return [each for each in self.contestants if each.is_ours]

    def fresh(self, contestant: Contestant) -> AbstractContextManager[Database]:
        """An empty queue for a contestant."""
        return self.places[contestant.store].fresh(contestant)

    @property
    def log(self) -> Path:
        """Where workers write."""
        return self.directory / "workers.log"

    def note(self, measurement: Measurement) -> None:
        """Keep a measurement, on disk as well: a long run may be cut short."""
        self.results.add(measurement)
        self.results.write(self.output / "results.json")
        shown = {
            name: round(value, 2) if isinstance(value, float) else value
            for name, value in measurement.figures.items()
            if not isinstance(value, list) or len(value) <= 12
        }
        text = ", ".join(f"{name} {value}" for name, value in shown.items())
        variant = measurement.variant and f" {measurement.variant}"
        self.say(f"{measurement.workload}{variant}: {measurement.name} {measurement.store}: {text}")

    def say(self, text: str) -> None:
        """How far it is, for whoever waits."""
        print(f"{time.monotonic() - self.started:6.0f} s  {text}", file=sys.stderr, flush=True)

    @contextmanager
    def turn(self, workload: str, contestant: Contestant, variant: str = "") -> Iterator[Figures]:
        """One measurement; the block fills in its figures.

        A peer that fails must not stop the others: its error is its figure. Ours must not fail.
        """
        figures: Figures = {}
        try:
            yield figures
        except (AdapterFailed, Unfinished, SubprocessError) as error:
            if contestant.is_ours:
                raise
            figures["error"] = str(error)
        self.note(Measurement(workload, contestant.name, contestant.store, figures, variant))
