"""The tests that use PostgreSQL, in every cell that this machine has; it says which it has not.

python -m tests.matrix [CELL ...] [-- WORDS FOR PYTEST]

Without a cell all, without words the whole suite. The exit code is 1 if a cell that could be run
has failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drills.pooler import PoolerNotInstalled, find_pgbouncer
from rowlock.testing.postgres import PostgresNotAvailable, find_binaries

ROOT = Path(__file__).parents[1]
CELLS: Mapping[str, Mapping[str, str]] = {
    "postgres-15": {"POSTGRES": "15"},
    "postgres-16": {"POSTGRES": "16"},
    "postgres-18": {"POSTGRES": "18"},
    "pgbouncer": {"POOLER": "pgbouncer"},
    "serializable": {"ISOLATION": "serializable"},
    "worker-role": {"ROLE": "worker"},
}
WORDS = ("-n", "2", "--dist", "worksteal", "--every-combination")


@dataclass(frozen=True, slots=True)
class Run:
    """What a cell came to."""

    cell: str
    code: int
    seconds: float
    said: Sequence[str]

    def __str__(self) -> str:
        failed = [line for line in self.said if line.startswith(("FAILED", "ERROR"))]
        return "\n  ".join([f"{self.cell}: {self.said[-1].strip('= ')}", *failed])


def what_is_missing(cell: str) -> str | None:
    """What this machine lacks for a cell; None if nothing."""
    wanted = CELLS[cell]
    try:
        if "POSTGRES" in wanted:
            binaries = find_binaries(int(wanted["POSTGRES"]))
            if not (binaries / "postgres").exists():
                return f"no server in {binaries.name}"
        if "POOLER" in wanted:
            find_pgbouncer()
    except (PostgresNotAvailable, PoolerNotInstalled) as error:
        return str(error)
    return None


def run(cell: str, words: Sequence[str]) -> Run:
    """The tests of one cell, in a process of their own; their words go on to the terminal."""
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--postgres-only", *words]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(cell), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = list(_shown(process.stdout))
    return Run(cell, process.returncode, time.monotonic() - start, said)


def environment(cell: str) -> dict[str, str]:
    """Ours, with the cell's variables and no other cell's; pytest may be what started us."""
    foreign = ("ROWLOCK_TEST_", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {f"ROWLOCK_TEST_{name}": value for name, value in CELLS[cell].items()}


def _shown(stream: Iterator[str]) -> Iterator[str]:
    for line in stream:
        sys.stderr.write(line)
        yield line.rstrip()


def main() -> None:
    words = sys.argv[1:]
    if "--" in words:
        at = words.index("--")
        words, for_pytest = words[:at], words[at + 1 :]
    else:
        for_pytest = []
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("cells", nargs="*", help=f"of {', '.join(CELLS)}")
    cells: list[str] = parser.parse_args(words).cells or list(CELLS)
    if unknown := set(cells).difference(CELLS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CELLS)}")
    lines: list[str] = []
    codes: set[int] = set()
    for cell in cells:
        missing = what_is_missing(cell)
        if missing is not None:
            lines.append(f"{cell}: NOT RUN: {missing}")
            continue
        done = run(cell, for_pytest or WORDS)
        codes.add(done.code)
        lines.append(str(done))
    sys.stdout.write("\n".join(["", *lines, ""]))
    sys.exit(1 if codes - {0} else 0)


if __name__ == "__main__":
    main()
