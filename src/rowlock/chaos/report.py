"""What a run has shown: figures, and a verdict. Pure.

A run is good if nothing was found and everything was reached that makes it hard; void if it was
not hard enough to show anything; bad if anything was found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from rowlock.chaos.plan import ChaosPlan, Fault


class Verdict(StrEnum):
    """What a run has come to."""

    GOOD = "good"
    VOID = "void"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class QualityGate:
    """Something that must have happened so often, or the run has shown nothing."""

    name: str
    reached: int
    wanted: int

    @property
    def is_open(self) -> bool:
        return self.reached >= self.wanted


@dataclass(frozen=True, slots=True)
class Durations:
    """Of some durations: half, all but a hundredth, and all were within so many seconds."""

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
    # For the chart: when jobs succeeded and what struck when, since the start.
    ended: Sequence[float] = field(repr=False)
    struck: Sequence[tuple[float, Fault]] = field(repr=False)

    @property
    def verdict(self) -> Verdict:
        if self.violations:
            return Verdict.BAD
        return Verdict.GOOD if all(gate.is_open for gate in self.gates) else Verdict.VOID

    def document(self) -> dict[str, Any]:
        """As JSON, without what only the chart shows."""
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


# Of what was asked for, so much must have come of it.
_SHARE: Final = 0.5
# Of fewer jobs, it is chance how many are of which kind.
_MANY: Final = 2_000


def gates_of(plan: ChaosPlan, counts: Mapping[str, int]) -> list[QualityGate]:
    """What must have been reached, by the size of the run."""
    wanted = {
        # There was somebody whom the kills and pauses could befall.
        "struck": math.ceil((plan.kills + plan.pauses) * _SHARE),
        # Of what lost workers held, something was taken over.
        "rescues": plan.pauses // 2 + plan.kills // 12,
        # Who stood still came back, and wanted to end what was another's.
        "late ends": (plan.pauses + 3) // 4,
        # A client was not told, even after the tries that the store makes by itself.
        "unknown": plan.others.get(Fault.SWALLOW, 0) * _SHARE / 10,
        "swallowed": plan.others.get(Fault.SWALLOW, 0) * _SHARE,
        "poisoned": min(3, plan.jobs // 5_000),
        "repeats": plan.jobs // 5_000,
        "ticks": 1,
        "effects": plan.jobs // 200 if plan.jobs >= _MANY else 0,
    }
    return [
        QualityGate(name, counts.get(name, 0), round(number)) for name, number in wanted.items()
    ]
