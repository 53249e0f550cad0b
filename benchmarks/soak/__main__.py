"""`python -m benchmarks.soak`: a steady load on each store, sampled every second, and a verdict.

Writes samples (JSON) and a plot (SVG) of each store into the output directory; the exit code is 1
if something grew, fell, or was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.charts import Panel, panels
from benchmarks.machine import machine
from benchmarks.soak.jobs import MARKS_VARIABLE
from benchmarks.soak.stage import stage
from benchmarks.soak.verdict import Finding, judge, thinned
from benchmarks.soak.watch import Soaked, soak

ROOT = Path(__file__).parents[2]
STORES = ("postgres", "sqlite")
# Enough for a plot of this width, and a file that can be kept beside it.
POINTS = 240


@dataclass(frozen=True, slots=True)
class Judged:
    """A soak and what is to be said of it."""

    store: str
    about: dict[str, Any]
    soaked: Soaked
    findings: list[Finding]

    @property
    def is_well(self) -> bool:
        # A job may be begun again when its lease was lost; never less than once.
        is_complete = self.soaked.run >= self.soaked.made and self.soaked.left == 0
        return is_complete and all(finding.is_flat for finding in self.findings)

    def document(self) -> dict[str, Any]:
        soaked = self.soaked
        return {
            **self.about,
            "held": soaked.held,
            "made": soaked.made,
            "run": soaked.run,
            "left": soaked.left,
            "refused": soaked.refused,
            "is_well": self.is_well,
            "verdict": {
                finding.measure.name: {
                    "early": round(finding.early, 2),
                    "held": round(finding.held, 2),
                    "last": round(finding.last, 2),
                    "is_flat": finding.is_flat,
                }
                for finding in self.findings
            },
            "samples": thinned(soaked.samples, POINTS),
        }

    def plot(self) -> str:
        samples = thinned(self.soaked.samples, POINTS)
        minutes = [second / 60 for second in samples["seconds"]]
        title = f"{self.about['version']}, {self.about['rate']:,.0f} jobs a second"
        drawn = [
            Panel(f"{each.measure.title}{_unit(each)}", samples[each.measure.name])
            for each in self.findings
        ]
        held = (self.soaked.held[0] / 60, self.soaked.held[1] / 60)
        note = "shaded: a transaction of somebody else is held open"
        return panels(title, drawn, places=minutes, below="minutes", shaded=held, note=note)

    def __str__(self) -> str:
        soaked = self.soaked
        counts = (
            f"made {soaked.made:,}, begun {soaked.run:,} times, left {soaked.left}, "
            f"refused and sent again {soaked.refused}"
        )
        lines = [f"{self.about['version']}, {self.about['minutes']:g} minutes: {counts}"]
        return "\n  ".join([*lines, *map(str, self.findings)])


def _unit(finding: Finding) -> str:
    unit = finding.measure.unit.strip()
    return f", {unit}" if unit and unit != "/s" else ""


def main() -> None:
    asked = parse(sys.argv[1:])
    asked.output.mkdir(parents=True, exist_ok=True)
    # By default it would end this process without its blocks, and leave workers running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    is_well = True
    for store in asked.stores:
        judged = soak_on(store, asked)
        is_well = is_well and judged.is_well
        name = asked.output / f"soak-{store}"
        name.with_suffix(".json").write_text(json.dumps(judged.document()) + "\n", "utf-8")
        name.with_suffix(".svg").write_text(judged.plot(), "utf-8")
        print(judged, flush=True)
    print(f"written to {asked.output}", file=sys.stderr)
    sys.exit(0 if is_well else 1)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("stores", nargs="*", choices=[*STORES, []], help="default: both")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1_000.0, help="jobs a second")
    parser.add_argument("--postgres-version", type=int, help="major version of the server")
    parser.add_argument("--directory", type=Path, help="where databases go: the disk to try")
    parser.add_argument("--output", type=Path, default=ROOT / ".cache" / "soak")
    asked = parser.parse_args(words)
    asked.stores = asked.stores or list(STORES)
    return asked


def soak_on(store: str, asked: argparse.Namespace) -> Judged:
    """Soak one store in a directory of its own."""
    place = Path(tempfile.mkdtemp(prefix="rowlock-soak-", dir=asked.directory))
    place.chmod(0o755)
    try:
        log = asked.output / f"soak-{store}-server.log"
        with stage(store, place, version=asked.postgres_version, log=log) as staged:
            about = {
                "store": store,
                "version": staged.version,
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "minutes": asked.minutes,
                "rate": asked.rate,
                "machine": machine(place),
            }
            marks = place / "marks"
            marks.touch()
            environment = {
                **os.environ,
                "ROWLOCK_DATABASE_URL": staged.url,
                MARKS_VARIABLE: str(marks),
            }
            with worker(environment, asked.output / f"soak-{store}.log") as process:
                soaked = soak(
                    staged,
                    worker=process,
                    environment=environment,
                    marks=marks,
                    rate=asked.rate,
                    seconds=60 * asked.minutes,
                )
            about["load_average"] = os.getloadavg()[2]
    finally:
        shutil.rmtree(place)
    return Judged(store, about, soaked, judge(soaked.samples, soaked.held))


@contextmanager
def worker(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command that users run, with one child; in a session of its own."""
    words = ["-m", "rowlock", "--app", "benchmarks.soak.jobs:app", "worker", "-c", "100"]
    words.append("--no-log-jobs")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        yield process
        process.terminate()
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    main()
