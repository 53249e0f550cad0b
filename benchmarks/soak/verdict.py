"""Whether a soak was flat: its last tenth beside an early one. Pure.

The first tenth is warm-up: rows are kept for a minute, and pruned every minute. The early tenth is
the second, before anything is held open. Of what fills up first, the tables by what a held
transaction keeps in them and PostgreSQL's log up to its bound, the early tenth is the eighth, after
the hold: from then on they must stay. What the machine is busy with is not ours to judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

Samples = Mapping[str, Sequence[float]]

TENTHS: Final = 10
BEFORE_THE_HOLD: Final = 1
AFTER_THE_HOLD: Final = 7


@dataclass(frozen=True, slots=True)
class Measure:
    """A thing that is sampled, and how far its mean may move from the early tenth to the last."""

    name: str
    title: str
    unit: str
    ratio: float
    slack: float
    early: int = BEFORE_THE_HOLD
    # Throughput must not fall; everything else must not rise.
    is_good: bool = False
    fills_up: bool = False
    is_judged: bool = True

    def is_flat(self, early: float, last: float) -> bool:
        if not self.is_judged:
            return True
        if self.is_good:
            return last >= early * self.ratio - self.slack
        return last <= early * self.ratio + self.slack


# The slack is what a busy neighbour, a checkpoint or a turn of autovacuum makes of a mean: a turn
# that comes a minute late doubles the dead rows.
MEASURES: Final = (
    Measure("per_s", "jobs a second", "/s", 0.98, 0, is_good=True),
    Measure("p50_ms", "from enqueue to start, median", " ms", 1.25, 5),
    Measure("p99_ms", "from enqueue to start, 99th percentile", " ms", 1.5, 50),
    Measure("worker_mib", "memory of the worker", " MiB", 1.1, 8),
    Measure("producer_mib", "memory of the producer", " MiB", 1.1, 8),
    Measure("server_mib", "memory of the server's processes", " MiB", 1.1, 16),
    Measure("descriptors", "open files of worker and producer", "", 1.0, 4),
    Measure(
        "wal_mib",
        "write-ahead log on the disk",
        " MiB",
        1.1,
        64,
        early=AFTER_THE_HOLD,
        fills_up=True,
    ),
    Measure("dead_rows", "dead rows in all tables", "", 2.0, 20_000, fills_up=True),
    Measure("job_mib", "table of live jobs", " MiB", 1.1, 8, early=AFTER_THE_HOLD, fills_up=True),
    Measure(
        "finished_mib",
        "table of finished jobs",
        " MiB",
        1.1,
        8,
        early=AFTER_THE_HOLD,
        fills_up=True,
    ),
    Measure("file_mib", "the file", " MiB", 1.1, 8, early=AFTER_THE_HOLD, fills_up=True),
    Measure("load", "load average of the machine", "", 1, 0, is_judged=False),
    Measure("disk_waits", "time in which all wait for the disk", " %", 1, 0, is_judged=False),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One measure of one soak."""

    measure: Measure
    early: float
    # The mean while the transaction was held; of what fills up meanwhile, the most.
    held: float
    last: float

    @property
    def is_flat(self) -> bool:
        return self.measure.is_flat(self.early, self.last)

    def __str__(self) -> str:
        word = "flat" if self.is_flat else "NOT FLAT"
        if not self.measure.is_judged:
            word = "beside it"
        unit = self.measure.unit
        return (
            f"{word}: {self.measure.title}: {self.early:,.1f}{unit}, "
            f"while held {self.held:,.1f}{unit}, in the end {self.last:,.1f}{unit}"
        )


def judge(samples: Samples, held: tuple[float, float]) -> list[Finding]:
    """Judge every measure that was sampled; `held` says from when to when, as `seconds` does."""
    seconds = samples["seconds"]
    end = seconds[-1]
    found: list[Finding] = []
    for measure in MEASURES:
        if measure.name not in samples:
            continue
        pairs = list(zip(seconds, samples[measure.name], strict=True))
        inside = [value for at, value in pairs if held[0] <= at < held[1]]
        held_value = max(inside) if measure.fills_up else fmean(inside)
        found.append(
            Finding(
                measure,
                early=_tenth(pairs, measure.early, end),
                held=held_value,
                last=_tenth(pairs, TENTHS - 1, end),
            )
        )
    return found


def _tenth(pairs: Sequence[tuple[float, float]], number: int, end: float) -> float:
    low, high = end * number / TENTHS, end * (number + 1) / TENTHS
    inside = [value for at, value in pairs if low <= at <= high]
    assert inside, "a soak has samples in every tenth"
    return fmean(inside)


def thinned(samples: Samples, points: int) -> dict[str, list[float]]:
    """Means of consecutive samples, so that no more than so many are left."""
    size = -(-len(samples["seconds"]) // points)
    return {
        name: [round(fmean(values[at : at + size]), 3) for at in range(0, len(values), size)]
        for name, values in samples.items()
    }
