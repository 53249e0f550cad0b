"""What was measured: every figure of a run as it came, and the medians read from it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of one workload: who, on which store, and the figures.

    `variant` tells runs of one workload apart: `2` processes, `1000000` waiting.
    """

    workload: str
    name: str
    store: str
    figures: Figures
    variant: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "name": self.name,
            "store": self.store,
            "variant": self.variant,
            **self.figures,
        }


@dataclass(slots=True)
class Results:
    """All measurements of a run, and what is to be known about it."""

    about: dict[str, Any]
    measurements: list[Measurement] = field(default_factory=list[Measurement])

    def add(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)

    def of(self, workload: str, name: str, store: str, variant: str = "") -> list[Figures]:
        """The figures of every repeat that succeeded."""
        wanted = (workload, name, store, variant)
        return [
            each.figures
            for each in self.measurements
            if (each.workload, each.name, each.store, each.variant) == wanted
            and "error" not in each.figures
        ]

    def median(
        self, workload: str, name: str, store: str, figure: str, variant: str = ""
    ) -> float | None:
        """The median of a figure over the repeats; None where it was never taken."""
        found = [each.get(figure) for each in self.of(workload, name, store, variant)]
        values = [value for value in found if value is not None]
        return statistics.median(values) if values else None

    def names(self, workload: str, store: str) -> list[str]:
        """Who took part in a workload, in the order of their first turn."""
        return list(
            dict.fromkeys(
                each.name
                for each in self.measurements
                if each.workload == workload and each.store == store
            )
        )

    def variants(self, workload: str, name: str, store: str) -> list[str]:
        """The variants of a workload, in the order of their first turn."""
        return list(
            dict.fromkeys(
                each.variant
                for each in self.measurements
                if (each.workload, each.name, each.store) == (workload, name, store)
            )
        )

    def write(self, path: Path) -> None:
        """Everything, as JSON, a measurement a line."""
        about = json.dumps(self.about, indent=1).removesuffix("\n}")
        measured = ",\n".join(f"  {json.dumps(each.document())}" for each in self.measurements)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{about},\n "measurements": [\n{measured}\n ]\n}}\n', encoding="utf-8")


def read_results(path: Path) -> Results:
    """What `write` wrote."""
    about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    labels = ("workload", "name", "store", "variant")
    measurements = [
        Measurement(
            **{label: each[label] for label in labels},
            figures={name: value for name, value in each.items() if name not in labels},
        )
        for each in about.pop("measurements")
    ]
    return Results(about, measurements)
