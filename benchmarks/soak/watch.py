"""Run the load and look at it once a second; nothing is judged here."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import quantile
from benchmarks.soak.jobs import MARK_BYTES
from benchmarks.soak.stage import Stage
from benchmarks.soak.usage import descriptors, machine_load, private_mib

ROOT = Path(__file__).parents[2]
SAMPLE_SECONDS = 1.0
# Of a short one, too, there are enough samples to judge.
SAMPLES_MIN = 50
# The transaction is held for the middle third.
HELD = (1 / 3, 2 / 3)
END_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Soaked:
    """What was seen."""

    samples: Mapping[str, list[float]]
    held: tuple[float, float]
    made: int
    run: int
    left: int
    # Enqueues that raised `StoreUnavailable`, and were sent again.
    refused: int


class Marks:
    """The delays that jobs append, read from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.count: int = 0

    def read(self) -> list[float]:
        """New delays in milliseconds."""
        found = array("I")
        assert found.itemsize == MARK_BYTES
        # A mark is appended by one write(2): there is never a part of one.
        found.frombytes(self._file.read())
        if sys.byteorder == "big":
            found.byteswap()
        self.count += len(found)
        return [late / 1000 for late in found]

    def close(self) -> None:
        self._file.close()


def soak(
    stage: Stage,
    *,
    worker: subprocess.Popen[bytes],
    environment: Mapping[str, str],
    marks: Path,
    rate: float,
    seconds: float,
) -> Soaked:
    """So many jobs a second for so long; then wait until all of them have run."""
    seen = Marks(marks)
    held = (seconds * HELD[0], seconds * HELD[1])
    every = min(SAMPLE_SECONDS, seconds / SAMPLES_MIN)
    samples: dict[str, list[float]] = {}
    holder: Any = None
    with producer(environment, rate) as process:
        # Both have loaded their modules when the first job has run.
        _wait_for_the_first(seen, worker)
        start = looked = time.monotonic()
        while (at := time.monotonic() - start) < seconds:
            if holder is None and held[0] <= at < held[1]:
                holder = stage.hold()
            elif holder is not None and at >= held[1]:
                holder.close()
                holder = None
            time.sleep(max(0.0, looked + every - time.monotonic()))
            took, looked = time.monotonic() - looked, time.monotonic()
            found = _sample(stage, seen, worker=worker.pid, producer=process.pid, took=took)
            for name, value in {"seconds": looked - start, **found}.items():
                samples.setdefault(name, []).append(value)
            assert worker.poll() is None and process.poll() is None, "a process ended"
        process.terminate()
        counts = json.loads(process.communicate(timeout=END_SECONDS_MAX)[0])
    left = _drain(stage)
    seen.read()
    run = seen.count
    seen.close()
    if "waited_seconds" in samples:
        samples["disk_waits"] = _shares(samples.pop("waited_seconds"), samples["seconds"])
    return Soaked(samples, held, counts["made"], run, left, counts["refused"])


def _sample(
    stage: Stage, seen: Marks, *, worker: int, producer: int, took: float
) -> dict[str, float]:
    late = seen.read()
    return {
        "per_s": len(late) / took,
        "p50_ms": quantile(late, 0.5) if late else 0.0,
        "p99_ms": quantile(late, 0.99) if late else 0.0,
        "worker_mib": private_mib(worker),
        "producer_mib": private_mib(producer),
        "descriptors": float(descriptors(worker) + descriptors(producer)),
        **stage.look(),
        **machine_load(),
    }


def _shares(total: list[float], seconds: list[float]) -> list[float]:
    """How much of the time between two looks was added to a total, in percent."""
    steps = zip(itertools.pairwise(total), itertools.pairwise(seconds), strict=True)
    return [0.0, *(100 * (later - early) / (end - start) for (early, later), (start, end) in steps)]


def _wait_for_the_first(seen: Marks, worker: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + END_SECONDS_MAX
    while not seen.read():
        assert worker.poll() is None, "the worker ended"
        assert time.monotonic() < deadline, "no job was run"
        time.sleep(0.05)


def _drain(stage: Stage) -> int:
    deadline = time.monotonic() + END_SECONDS_MAX
    while (left := stage.left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


@contextmanager
def producer(environment: Mapping[str, str], rate: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that enqueues until it is told to end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak.produce", str(rate)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
