"""The plan of a run: its jobs and faults, and their order. Pure, and all of it from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    """The faults that the nemesis can inject."""

    KILL_CHILD = "kill a child"
    KILL_SUPERVISOR = "kill a supervisor"
    KILL_WORKER = "kill a whole worker"
    KILL_PRODUCER = "kill a producer"
    # For longer than a lease.
    PAUSE_CHILD = "stop a child"
    PAUSE_WORKER = "stop a whole worker"
    # PostgreSQL.
    CRASH = "crash the server"
    KILL_BACKEND = "end a connection's process"
    EXHAUST = "use up all connections"
    SWALLOW = "swallow the answer to a commit"
    CUT = "cut connections"
    DELAY = "slow the line"
    BLACKHOLE = "silence the line"
    # The clock of a worker's machine, and the disk of SQLite's file.
    STEP_CLOCK = "set a worker's clock"
    FILL_DISK = "fill the disk"


# The share of each kind among the killed processes, in percent.
_KILLS: Final[Mapping[Fault, int]] = {
    Fault.KILL_CHILD: 54,
    Fault.KILL_SUPERVISOR: 8,
    # All its processes at once, as when a container ends.
    Fault.KILL_WORKER: 28,
    Fault.KILL_PRODUCER: 10,
}
_PAUSES: Final[Mapping[Fault, int]] = {Fault.PAUSE_CHILD: 50, Fault.PAUSE_WORKER: 50}
PROCESS_FAULTS: Final = (*_KILLS, *_PAUSES)


# Each crashes several processes and holds up others, so ten are enough for any run.
_POISON: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of jobs that last a second, and of jobs that crash their process."""

    long: float
    poison: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosPlan:
    """How large a run is. `kills` and `pauses` are shared among kinds of processes."""

    seed: int
    jobs: int
    kills: int
    pauses: int
    others: Mapping[Fault, int] = field(default_factory=dict[Fault, int])
    workers: int = 3
    processes: int = 2
    slots: int = 20
    producers: int = 2
    lease_seconds: float = 2.0
    # While draining, the number of jobs must reach a new low within this time.
    drain_seconds: float = 180.0

    @property
    def faults(self) -> dict[Fault, int]:
        """Return the number of faults of each kind."""
        return {
            **_shared(self.kills, _KILLS),
            **_shared(self.pauses, _PAUSES),
            **{fault: number for fault, number in self.others.items() if number},
        }

    @property
    def shares(self) -> Shares:
        """Return the shares of jobs. In a small run more are long, so that faults hit some."""
        return Shares(
            long=min(0.1, max(0.005, 500 / self.jobs)), poison=min(0.001, _POISON / self.jobs)
        )

    def chance(self, *names: object) -> random.Random:
        """Return the random source for one part of the run."""
        return random.Random(" ".join(map(str, (self.seed, *names))))

    def strikes(self) -> list[Fault]:
        """Return all faults, in the order in which they strike."""
        drawn = [fault for fault, number in self.faults.items() for _ in range(number)]
        self.chance("strikes").shuffle(drawn)
        return drawn


def possible(
    *,
    crashes: int,
    swallows: int,
    troubles: int,
    clock_steps: int = 0,
    full_disks: int = 0,
    is_postgres: bool,
    is_own: bool,
) -> dict[Fault, int]:
    """Return the faults, besides kills and pauses, that fit this database and harm no others."""
    if not is_postgres:
        return {Fault.FILL_DISK: full_disks} if is_own else {}
    line = (Fault.CUT, Fault.DELAY, Fault.BLACKHOLE, Fault.KILL_BACKEND)
    others = {Fault.SWALLOW: swallows, **dict.fromkeys(line, troubles)}
    if not is_own:
        return others
    own = {Fault.CRASH: crashes, Fault.EXHAUST: troubles, Fault.STEP_CLOCK: clock_steps}
    return {**others, **own}


def _shared(number: int, weights: Mapping[Fault, int]) -> dict[Fault, int]:
    """Share a number by weights. The rest goes to the first."""
    shares = {fault: number * weight // 100 for fault, weight in weights.items()}
    first = next(iter(weights))
    shares[first] += number - sum(shares.values())
    return {fault: share for fault, share in shares.items() if share}


@dataclass(frozen=True, slots=True)
class WantedJob:
    """A job that a producer enqueues."""

    kind: str
    payload: Mapping[str, object]
    options: Mapping[str, object]


def wanted_jobs(chance: random.Random, shares: Shares) -> Iterator[WantedJob]:
    """Yield jobs endlessly."""
    while True:
        yield _wanted_job(chance, shares)


_RARELY_BRIEF: Final = 0.3
# Jobs under a limit, which has this many keys.
LIMITED: Final = ("pooled", "metered", "lined")
_LANES: Final = 8
# How many of a thousand jobs are of these kinds. The others are brief.
_RARE: Final = (
    ("doom", 5),
    ("linger", 5),
    ("falter", 20),
    ("book", 30),
    ("lead", 30),
    ("pooled", 40),
    ("metered", 30),
    ("lined", 30),
    ("plain", 60),
    ("fleeting", 60),
    ("once", 60),
)


def _wanted_job(chance: random.Random, shares: Shares) -> WantedJob:
    kind = "poison" if chance.random() < shares.poison else _kind(chance.randrange(1000))
    payload: dict[str, object] = {}
    if kind in ("brief", "plain", "fleeting", "once", "lead", "book"):
        # The last two are few, and a strike should hit one now and then.
        long = _RARELY_BRIEF if kind in ("lead", "book") else shares.long
        payload["seconds"] = round(chance.uniform(*_duration(chance, long)), 4)
    if kind in LIMITED:
        payload["seconds"] = round(chance.uniform(0.002, 0.05), 4)
        payload["lane"] = chance.randrange(_LANES)
    if kind == "metered":
        payload["throttled"] = chance.random() < 0.2
    if kind == "lined":
        payload["failures"] = chance.choice((0, 0, 0, 0, 1, 2))
    if kind == "falter":
        payload["failures"] = chance.randint(1, 3)
    options: dict[str, object] = {"priority": chance.choice((-1, 0, 0, 0, 1))}
    if kind == "lined":
        # Jobs in an order have no priorities.
        del options["priority"]
    if chance.random() < 0.3:
        options["tenant"] = chance.choice(("acme", "brook"))
    if kind == "brief" and chance.random() < 0.05:
        options["key"] = f"key-{chance.randrange(20)}"
    if kind == "brief" and chance.random() < 0.03:
        options["delay"] = round(chance.uniform(0.1, 2.0), 3)
    return WantedJob(kind, payload, options)


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A job of a workflow, with the places of those before it that it waits for."""

    job: WantedJob
    after: list[int]
    wants: str


_NODE_KINDS: Final = (
    *("brief",) * 8,
    *("plain", "once", "fleeting", "falter", "doom", "book", "lead", "grow"),
)
_WANTS: Final = ("wait", "wait", "cancel", "run", "ended", "dead")


def wanted_flow(chance: random.Random, shares: Shares, jobs: int) -> list[WantedNode]:
    """Return a workflow: a chain, a fan-out with jobs after all of it, or any other shape."""
    shape = chance.choice(("chain", "fan", "any"))
    nodes: list[WantedNode] = []
    for place in range(jobs):
        before = list(range(place))
        if shape == "chain":
            after = before[-1:]
        elif shape == "fan":
            after = before if place * 3 > jobs * 2 else []
        else:
            after = chance.sample(before, min(place, chance.choice((0, 1, 1, 2, 3))))
        kind = "poison" if chance.random() < shares.poison else chance.choice(_NODE_KINDS)
        payload: dict[str, object] = {}
        if kind == "falter":
            payload["failures"] = chance.randint(1, 2)
        elif kind not in ("doom", "poison"):
            payload["seconds"] = round(chance.uniform(*_duration(chance, shares.long)), 4)
        job = WantedJob(kind, payload, {"priority": chance.choice((-1, 0, 0, 1))})
        nodes.append(WantedNode(job, after, chance.choice(_WANTS) if after else "wait"))
    return nodes


def _duration(chance: random.Random, long: float) -> tuple[float, float]:
    """Return a duration. Some are long enough that strikes hit them in the middle."""
    if chance.random() >= long:
        return (0.002, 0.05)
    return (0.5, 1.5) if chance.random() < 0.8 else (2.0, 4.0)


def _kind(number: int) -> str:
    for kind, share in _RARE:
        number -= share
        if number < 0:
            return kind
    return "brief"
