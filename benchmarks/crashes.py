"""A SQLite queue whose process, disk or power fails at every single write and sync.

python -m benchmarks.crashes [DRILL ...] [--calls FIRST:LAST] [--points N] [--seed S] ...

Without a drill all; without --points or --calls, every call. The tests run each at a few calls.
What is written is small, and a directory in memory (TMPDIR=/dev/shm) makes it much faster: what
counts is which calls are made, and that is watched.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drills.crashes import FAULTS, cut_power, strike, tell_story
from benchmarks.drills.deeds import DEEDS, PLANTS
from benchmarks.drills.hammer import hammer

DRILLS = ("story", *FAULTS, "power", "hammer")
BLOWS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crashes", description=(__doc__ or "").partition("\n")[0]
    )
    drills = ", ".join(DRILLS)
    parser.add_argument("drills", nargs="*", metavar="DRILL", help=f"{drills}; default: all")
    parser.add_argument("--points", type=int, help="at how many calls, chosen at random")
    parser.add_argument("--calls", default=":", help="only these, such as 0:300")
    parser.add_argument("--deed", help="only the calls of this one, such as succeed_all")
    parser.add_argument("--jobs", type=int, default=BLOWS, help="how many the hammer works on")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--plant", choices=PLANTS, help="a bug, to see that it is found")
    parser.add_argument("--json", action="store_true", help="an object for each drill")
    words = parser.parse_args()
    if unknown := set(words.drills).difference(DRILLS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {drills}")
    print(f"seed {words.seed}", file=sys.stderr)
    if words.plant:
        PLANTS[words.plant]()
    is_good = True
    for drill in words.drills or DRILLS:
        start = time.monotonic()
        found = run(drill, words)
        wrong = [str(each) for each in getattr(found, "wrong", getattr(found, "damage", []))]
        is_good = is_good and not wrong
        if words.json:
            print(json.dumps({"drill": drill} | told(found)), flush=True)
            continue
        print(f"{found} ({time.monotonic() - start:.0f} s)", flush=True)
        print("".join(f"    {each}\n" for each in wrong[:20]), end="", flush=True)
    sys.exit(0 if is_good else 1)


def run(drill: str, words: argparse.Namespace) -> Any:
    if drill == "hammer":
        with tempfile.TemporaryDirectory(prefix="rowlock-hammer-") as directory:
            return hammer(Path(directory) / "jobs.db", jobs=words.jobs)
    story = tell_story()
    if drill == "story":
        return story
    first, last = (int(end) if end else None for end in words.calls.split(":"))
    calls: Sequence[int] = range(len(story.calls))[first:last]
    if words.deed:
        deed = [each.__name__ for each in DEEDS].index(words.deed)
        calls = [number for number in calls if story.calls[number][0] == deed]
    if words.points:
        calls = sorted(random.Random(words.seed).sample(calls, words.points))
    if drill == "power":
        return cut_power(story, calls, seed=words.seed)
    return strike(story, drill, calls)


def told(found: Any) -> dict[str, Any]:
    """The fields of a result that are plain."""
    fields = {each.name: getattr(found, each.name) for each in dataclasses.fields(found)}
    if "calls" in fields:
        fields = {"opened": found.opened, "connected": found.connected, "syncs": found.syncs}
    return fields


if __name__ == "__main__":
    main()
