"""`python -m tests.simulation`: many seeds, one after the other or in several processes.

Exits with 1 if a seed has failed; what repeats it is printed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import perf_counter

from tests.mutants import SIMULATED
from tests.simulation.plan import DISASTERS, THEMES, theme_of
from tests.simulation.run import Report, simulate_one
from tests.simulation.seeds import failed_before

# What many seeds must have reached, or they have shown nothing.
REACHED = (
    *("rescued", "leases lost", "answers lost", "started stale", "revived", "pruned"),
    *("failed", "away", "full", "slow", "dead", "cancelled", *DISASTERS),
)
REACHED_SEEDS = 50
SHOWN = ("claims", "rescued", "leases lost", "answers lost", "revived", "ticks")


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts is drawn by the interpreter, unless it is told not to.
        words = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        return subprocess.run(words, env=env, check=False).returncode
    if options.seed is not None:
        return _tell(simulate_one(options.seed, options.mutant), options)
    known = [] if options.mutant or options.theme else failed_before()
    return _run_all([*known, *_chosen(options)], options)


def _chosen(options: argparse.Namespace) -> Iterable[int]:
    seeds = itertools.count(options.first)
    wanted = (seed for seed in seeds if options.theme in (None, theme_of(seed)))
    return itertools.islice(wanted, options.seeds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--theme", choices=THEMES, help="only those of this theme")
    parser.add_argument("--seed", type=int, help="only this one, with its journal")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--until-bad", action="store_true", help="stop at the first that fails")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--mutant", choices=list(SIMULATED), help="with a planted bug")
    return parser.parse_args()


def _run_all(seeds: list[int], options: argparse.Namespace) -> int:
    began, done, status = perf_counter(), list[Report](), 0
    for report in _reports(seeds, options):
        done.append(report)
        if report.problem is not None:
            status = _tell(report, options)
        if status and options.until_bad:
            break
        if perf_counter() - began > options.minutes * 60:
            break
    counts = _sum_up(done, perf_counter() - began)
    missed = [name for name in REACHED if not counts[name]]
    if len(done) >= REACHED_SEEDS and missed:
        print(f"void: nothing was {', '.join(missed)}")
        return 1
    return status


def _reports(seeds: list[int], options: argparse.Namespace) -> Iterator[Report]:
    if options.processes == 1:
        for seed in seeds:
            yield simulate_one(seed, options.mutant)
        return
    pool = ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"))
    try:
        yield from pool.map(simulate_one, seeds, [options.mutant] * len(seeds))
    finally:
        # What is not wanted any more is not begun.
        pool.shutdown(cancel_futures=True)


def _tell(report: Report, options: argparse.Namespace) -> int:
    seed = report.plan.seed
    if report.problem is None:
        print(f"seed {seed}: good, {report.digest}")
        print(report.plan)
        print(dict(sorted(report.counts.items())))
        return 0
    mutant = f" --mutant '{options.mutant}'" if options.mutant else ""
    print("\n".join(report.journal[-200:] if options.seed is not None else ()))
    print(f"seed {seed}: {report.problem}")
    print(f"  repeat it: python -m tests.simulation --seed {seed}{mutant}", flush=True)
    return 1


def _sum_up(reports: list[Report], took: float) -> Counter[str]:
    hours = sum(report.seconds for report in reports) / 3600
    counts: Counter[str] = Counter()
    for report in reports:
        counts += report.counts
    bad = sum(report.problem is not None for report in reports)
    spent = sum(report.took for report in reports)
    busy = counts["busy minutes"] / 60
    print(
        f"{len(reports)} seeds, {bad} bad; {hours:,.0f} simulated hours in {took:.0f} s, "
        f"{hours / took * 60:,.0f} a minute ({hours / spent * 60:,.0f} a minute of a core)"
    )
    # An hour in which nothing happens shows nothing, however many there are.
    print(f"{busy:,.0f} of them with work; in each of those, on average:")
    print(", ".join(f"{counts[name] / max(busy, 1):,.1f} {name}" for name in SHOWN))
    print(", ".join(f"{counts[name]:,} {name}" for name in SHOWN))
    return counts


if __name__ == "__main__":
    sys.exit(main())
