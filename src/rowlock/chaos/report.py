"""The report of a run: its figures and a verdict. Pure.

A run is good if the judge found nothing and all quality gates were reached. It is void if a gate
was missed, because then it proves nothing. It is bad if the judge found anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from rowlock.chaos.plan import ChaosPlan, Fault


class Verdict(StrEnum):
    """The verdict on a run."""

    GOOD = "good"
    VOID = "void"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class QualityGate:
    """Something that must have happened `wanted` times, or the run proves nothing."""

    name: str
    reached: int
    wanted: int

    @property
    def is_open(self) -> bool:
        return self.reached >= self.wanted


@dataclass(frozen=True, slots=True)
class Durations:
    """The median, the 99th percentile and the maximum of durations, in seconds."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Durations | None:
        if not seconds:
            return None
        ordered = sorted(seconds)
        index = min(len(ordered) - 1, int(0.99 * len(ordered)))
        return cls(len(ordered), ordered[len(ordered) // 2], ordered[index], ordered[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosReport:
    """The figures of one run. Times are seconds."""

    store: str
    version: str
    plan: ChaosPlan
    seconds: float
    drain_seconds: float
    judged_seconds: float
    faults: Mapping[Fault, int]
    counts: Mapping[str, int]
    recovery: Mapping[str, Durations]
    gates: Sequence[QualityGate]
    violations: Mapping[int, int]
    texts: Sequence[str]
    # For the chart: when jobs succeeded and when each fault struck, since the start.
    ended: Sequence[float] = field(repr=False)
    struck: Sequence[tuple[float, Fault]] = field(repr=False)

    @property
    def verdict(self) -> Verdict:
        if self.violations:
            return Verdict.BAD
        return Verdict.GOOD if all(gate.is_open for gate in self.gates) else Verdict.VOID

    def document(self) -> dict[str, Any]:
        """Return it as JSON, without the data of the chart."""
        return {
            "verdict": self.verdict,
            "seed": self.plan.seed,
            "store": self.store,
            "version": self.version,
            "jobs": self.plan.jobs,
            "seconds": round(self.seconds, 1),
            "drain_seconds": round(self.drain_seconds, 1),
            "judged_seconds": round(self.judged_seconds, 1),
            "faults": {str(fault): number for fault, number in sorted(self.faults.items())},
            "counts": dict(sorted(self.counts.items())),
            "recovery": {name: _rounded(durations) for name, durations in self.recovery.items()},
            "gates": [{**asdict(gate), "is_open": gate.is_open} for gate in self.gates],
            "violations": {f"I{number}": found for number, found in self.violations.items()},
            "texts": list(self.texts),
        }


def _rounded(durations: Durations) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(durations).items()}


# The share of the planned faults that must have had an effect.
_SHARE: Final = 0.5
# With fewer jobs, it is chance how many there are of each kind.
_MANY: Final = 2_000


def gates_of(plan: ChaosPlan, counts: Mapping[str, int]) -> list[QualityGate]:
    """Return the quality gates for the size of the run."""
    wanted = {
        # Kills and pauses hit processes that ran jobs.
        "struck": math.ceil((plan.kills + plan.pauses) * _SHARE),
        # Jobs of killed workers were taken over.
        "rescues": plan.pauses // 2 + plan.kills // 12,
        # A paused process continued, and tried to settle a job that another had taken over.
        "late ends": (plan.pauses + 3) // 4,
        # A client got no answer, even after the store's own retries.
        "unknown": plan.others.get(Fault.SWALLOW, 0) * _SHARE / 10,
        "swallowed": plan.others.get(Fault.SWALLOW, 0) * _SHARE,
        "poisoned": min(3, plan.jobs // 5_000),
        "repeats": plan.jobs // 5_000,
        "ticks": 1,
        # Jobs waited at their limits.
        "limits full": plan.jobs // 200 if plan.jobs >= _MANY else 0,
        # Jobs of workflows waited for others, and ran.
        "released": plan.jobs // 100 if plan.jobs >= _MANY else 0,
        "effects": plan.jobs // 200 if plan.jobs >= _MANY else 0,
    }
    return [
        QualityGate(name, counts.get(name, 0), round(number)) for name, number in wanted.items()
    ]
