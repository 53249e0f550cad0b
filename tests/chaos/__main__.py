"""`python -m tests.chaos`: plants every bug, one after the other, and tells which promise it broke.

Exits with 1 if one was not found where it must be.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rowlock.chaos.processes import ProcessFailed
from tests.chaos.matrix import WHERE
from tests.chaos.runs import run

# One that is not found by a seed may be by the next.
SEEDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--mutant", choices=list(WHERE), help="only this one")
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only this one")
    parser.add_argument("--seed", type=int, default=1, help="the first of three")
    options = parser.parse_args()
    survived = 0
    for mutant, stores in WHERE.items():
        for store in stores:
            if options.mutant in (None, mutant) and options.store in (None, store):
                survived += not found(mutant, store, first=options.seed)
    return 1 if survived else 0


def found(mutant: str, store: str, *, first: int) -> bool:
    """Whether a planted bug is found; what is told of it is printed."""
    for seed in range(first, first + SEEDS):
        start = time.monotonic()
        told = tell(mutant, store, seed=seed)
        took = time.monotonic() - start
        print(f"{mutant}, {store}, seed {seed}, {took:.0f} s: {told or 'not found'}", flush=True)
        if told:
            return True
    return False


def tell(mutant: str, store: str, *, seed: int) -> str:
    """What a run says of a planted bug; nothing, if it was not found."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            report = run(store, Path(directory), seed=seed, mutant=mutant, drain_seconds=90.0)
        except ProcessFailed as error:
            return f"a process failed: {str(error).splitlines()[-1]}"
    numbers = ", ".join(f"I{number} ({count})" for number, count in report.violations.items())
    # What has not ended in time may only be slow: what says more is shown.
    texts = sorted(report.texts, key=lambda text: text.startswith(("I1:", "I16:")))
    return f"{numbers}: {texts[0]}" if texts else ""


if __name__ == "__main__":
    sys.exit(main())
