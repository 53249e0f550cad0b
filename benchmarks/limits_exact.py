"""Processes claim under limits, settle and are killed: does a limit ever let more run or start?

python -m benchmarks.limits_exact [sqlite|postgres ...] [--jobs N] [--kills N] [--processes N]

Four limits: a number at once, in total and per key, and per key alone; a rate, in total and per
key; an order. The triggers of `rowlock chaos` record every lease and its end in the transaction
that makes them, and `rowlock.chaos.limit_rules` judges them. All jobs are enqueued before the first
claim, so jobs wait at every limit until the end.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rowlock.chaos import witness
from rowlock.chaos.limit_rules import LimitFigures, LimitJudge
from rowlock.chaos.witness import CommittedChange, What
from rowlock.errors import LeaseLost
from rowlock.job import Lease, Policy
from rowlock.limits import Limit, Rate
from rowlock.store import Store, open_store
from rowlock.store.options import LimitPlace, new_job
from rowlock.testing import ThrowAwayPostgres

MODULE = "benchmarks.limits_exact"
SCHEMA = "rowlock"
KEYS = 6
LEASE_SECONDS = 1.0
CLAIMED_MAX = 10
ENQUEUED_AT_ONCE = 1_000
LOOK_SECONDS = 0.02
# If nothing ends for this long, jobs are stuck.
PATIENCE_SECONDS = 60.0
# Of all jobs, the share that has each limit. An order and a rate take their time.
SHARES: Mapping[str, float] = {"pool": 0.5, "keys": 0.3, "meter": 0.12, "line": 0.08}
# So slow that a busy machine can use it up, and so fast that it takes minutes at most.
STARTS_PER_SECOND_MIN = 10.0
METERED_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class Size:
    """How large a run is, and which share of its jobs has each limit."""

    jobs: int = 4_000
    processes: int = 8
    kills: int = 40
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)

    def of(self, name: str) -> int:
        """How many jobs have a limit."""
        return round(self.jobs * self.shares.get(name, 0.0))


def limits(size: Size) -> dict[str, Limit]:
    """The limits of a run."""
    per_second = max(STARTS_PER_SECOND_MIN, size.of("meter") / METERED_SECONDS_MAX)
    return {
        "pool": Limit("pool", concurrency=10, per="key", concurrency_per_key=3),
        # Without a total, claimers don't wait for each other: only the locks of keys count.
        "keys": Limit("keys", per="key", concurrency_per_key=3),
        "meter": Limit(
            "meter",
            rate=Rate(per_second, burst=10),
            per="key",
            rate_per_key=Rate(per_second / KEYS * 1.2, burst=2),
        ),
        "line": Limit("line", per="key", ordered=True),
    }


@dataclass(slots=True)
class Outcome:
    """What a run has shown."""

    limits: Mapping[str, Limit]
    figures: Mapping[str, LimitFigures]
    findings: Sequence[str]
    seconds: float
    left: int
    killed: int
    counts: Counter[str] = field(default_factory=Counter[str])

    def rate_used(self) -> float:
        """Which share of the starts that the rate allowed in total was used."""
        figures, numbers = self.figures["meter"], self.limits["meter"].numbers
        if figures.first_at is None or not numbers.interval_us:
            return 0.0
        allowed = (numbers.burst or 1) + (figures.last_at - figures.first_at) / numbers.interval_us
        return figures.starts / allowed


def fill(store: Store, size: Size) -> None:
    """Enqueue the jobs of all limits."""
    policy = Policy(retry=["fixed", 0.01])
    for name, limit in limits(size).items():
        made = [
            new_job(
                kind="noop",
                payload="{}",
                queue=name,
                policy=policy,
                limit=LimitPlace(name, f"key-{number % KEYS}", limit.is_ordered),
            )
            for number in range(size.of(name))
        ]
        for start in range(0, len(made), ENQUEUED_AT_ONCE):
            store.enqueue(made[start : start + ENQUEUED_AT_ONCE])


def claim_and_settle(url: str, worker: str) -> None:
    """Claim, hold for a moment and settle, for ever. Some runs fail, and some are released.

    Some leases are held over the next claim, as those of a worker with several slots are.
    """
    chance = random.Random(worker)
    held: list[Lease] = []
    with closing(open_store(url)) as store:
        while True:
            queues = random.Random(chance.random()).sample(list(SHARES), len(SHARES))
            limit = chance.randint(1, CLAIMED_MAX)
            leases = store.claim(worker=worker, queues=queues, limit=limit, lease=LEASE_SECONDS)
            if not leases:
                time.sleep(chance.uniform(0.0, 2 * LOOK_SECONDS))
            elif chance.random() < 0.3:
                time.sleep(chance.uniform(0.0, 0.01))
            ended = [lease for lease in (*held, *leases) if chance.random() < 0.6]
            held = [lease for lease in (*held, *leases) if lease not in ended]
            settle(store, ended, chance)


def settle(store: Store, leases: Sequence[Lease], chance: random.Random) -> None:
    """Settle leases one by one. One that has expired is somebody else's."""
    for lease in leases:
        with suppress(LeaseLost):
            match chance.randrange(20):
                case 0:
                    store.fail(lease, "as planned")
                case 1:
                    store.release(lease, chance.choice((0.0, 0.01)))
                case _:
                    store.succeed([lease])


class Crew:
    """The claiming processes. One that is killed is replaced by another with a new name."""

    def __init__(
        self, url: str, processes: int, environment: Mapping[str, str], module: str = MODULE
    ) -> None:
        self._url = url
        self._module = module
        self._environment = {**os.environ, **environment}
        self._started = 0
        self._all = [self._start() for _ in range(processes)]

    def _start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        words = [sys.executable, "-m", self._module, "--claim", self._url, f"w{self._started}"]
        return subprocess.Popen(words, env=self._environment)

    def kill_one(self, chance: random.Random) -> None:
        """Kill one and replace it."""
        place = chance.randrange(len(self._all))
        _kill(self._all[place])
        self._all[place] = self._start()

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        for process in self._all:
            if process.poll() is not None:
                raise RuntimeError(f"a process that claims has ended with {process.returncode}")

    def end(self) -> None:
        for process in self._all:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def run(
    url: str, size: Size, *, seed: int = 1, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run in an empty database, and judge what was committed."""
    declared = limits(size)
    with closing(open_store(url)) as store:
        store.migrate()
        store.declare_limits([limit.declared for limit in declared.values()])
        witness.watch(url, schema=SCHEMA)
        fill(store, size)
    start = time.monotonic()
    with ExitStack() as stack:
        crew = Crew(url, size.processes, environment or {})
        stack.callback(crew.end)
        left, killed = until_done(url, size, crew, random.Random(seed))
    seconds = time.monotonic() - start
    numbers = {name: limit.numbers for name, limit in declared.items()}
    rules = LimitJudge(numbers, lambda _, __: True)
    counts: Counter[str] = Counter()
    findings = list(_findings(rules, witness.read(url, schema=SCHEMA), counts))
    return Outcome(declared, rules.figures, findings, seconds, left, killed, counts)


def until_done(url: str, size: Size, crew: Crew, chance: random.Random) -> tuple[int, int]:
    """Kill processes, spread over the jobs. Return how many jobs are left, and the kills."""
    killed, fewest, end = 0, size.jobs + 1, 0.0
    while left := witness.unfinished(url, schema=SCHEMA):
        crew.check()
        now = time.monotonic()
        if left < fewest:
            fewest, end = left, now + PATIENCE_SECONDS
        if now > end:
            break
        done = size.jobs - left
        if killed < size.kills and done * (size.kills + 1) > size.jobs * (killed + 1):
            crew.kill_one(chance)
            killed += 1
        time.sleep(LOOK_SECONDS)
    return left, killed


def _findings(
    rules: LimitJudge, events: Iterator[CommittedChange], counts: Counter[str]
) -> Iterator[str]:
    for event in events:
        counts["claims"] += event.what is What.CLAIMED
        counts["taken over"] += event.what is What.RETURNED and bool(event.is_taken)
        for number, text in rules.see(event):
            yield f"I{number}: {text}"


def report(name: str, size: Size, outcome: Outcome) -> None:
    """Print the figures of a run."""
    pool, keys, meter, line = (
        outcome.figures[limit] for limit in ("pool", "keys", "meter", "line")
    )
    print(f"{name}: {size.jobs:,} jobs, {size.processes} processes, {outcome.killed} kills", end="")
    print(f" in {outcome.seconds:.0f} s; {outcome.counts['claims']:,} leases", end="")
    print(f" ({outcome.counts['taken over']} taken over), {outcome.left} jobs left")
    print(f"  most at once: {pool.most} of 10 in total, {pool.most_of_a_key} of 3 of a key", end="")
    print(f", {keys.most_of_a_key} of 3 without a total")
    print(f"  starts too early: {meter.early}; {outcome.rate_used():.1%} of the rate was used")
    print(f"  in order: {line.most_of_a_key} of a key at once, {line.out_of_order} overtaken")
    for text in outcome.findings[:10]:
        print(f"  {text}")


def main() -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("stores", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--jobs", type=int, default=Size.jobs)
    parser.add_argument("--processes", type=int, default=Size.processes)
    parser.add_argument("--kills", type=int, default=Size.kills)
    parser.add_argument("--claim", nargs=2, metavar=("URL", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.claim:
        claim_and_settle(*options.claim)
    size = Size(options.jobs, options.processes, options.kills)
    is_bad = False
    for store in options.stores:
        with ExitStack() as stack:
            if store == "sqlite":
                place = stack.enter_context(tempfile.TemporaryDirectory())
                url = f"sqlite:///{Path(place) / 'limits.db'}"
            else:
                url = stack.enter_context(ThrowAwayPostgres(durable=True)).url
            outcome = run(url, size)
        report({"sqlite": "SQLite"}.get(store, "PostgreSQL"), size, outcome)
        is_bad = is_bad or bool(outcome.findings or outcome.left)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
