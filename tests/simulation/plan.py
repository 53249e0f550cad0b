"""What a seed decides before anything runs: who takes part, what may go wrong, and how often.

Each kind of fault is in some plans and not in others (a plan with all of them hides what a few
would show), and bounds of `config` are drawn: what a batch of 500 never reaches, a batch of 3 does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from rowlock import config


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulation, but for the draws during it."""

    seed: int
    fault_seconds: float
    # No more work is made after this time, and after that of the faults.
    drain_seconds: float
    workers: int
    producers: int
    lease_seconds: float
    is_postgres: bool
    bell: str
    is_shuffled: bool
    # Between two calls of a producer, on average.
    pause_seconds: float
    # Probabilities for each statement, COMMIT, request and ring.
    failing: float
    losing: float
    slow: float
    deaf: float
    # Mean seconds between two disasters of all hosts together, and which may happen.
    disaster_seconds: float
    disasters: tuple[str, ...]
    bounds: dict[str, float] = field(default_factory=dict)


DISASTERS = (
    "kill child",
    "kill machine",
    "stop child",
    "stop machine",
    "suspend machine",
    "block child",
    "restart",
    "database away",
    "disk full",
    "cut bells",
    "clock forward",
    "clock back",
)


def plan_of(seed: int) -> Plan:
    """The plan of a seed. Every third one is long and quiet: what takes hours to go wrong."""
    chance = Random(seed)
    is_long = chance.random() < 0.33
    disasters = tuple(each for each in DISASTERS if chance.random() < 0.6)
    return Plan(
        seed=seed,
        fault_seconds=60.0 * chance.choice((60, 120, 240) if is_long else (4, 8, 15)),
        drain_seconds=900.0,
        workers=chance.randint(3, 6),
        producers=chance.randint(1, 3),
        lease_seconds=chance.choice((10.0, 30.0) if is_long else (3.0, 10.0, 30.0)),
        is_postgres=chance.random() < 0.5,
        bell=chance.choice(("none", "notify") if is_long else ("none", "file", "notify")),
        is_shuffled=chance.random() < 0.5,
        pause_seconds=chance.choice((30.0, 90.0) if is_long else (1.0, 4.0, 10.0)),
        failing=chance.choice((0.0, 0.001, 0.01, 0.05)),
        losing=chance.choice((0.0, 0.001, 0.01, 0.05)),
        slow=chance.choice((0.0, 0.001, 0.01)),
        deaf=chance.choice((0.0, 0.1)),
        disaster_seconds=chance.choice((60.0, 300.0) if is_long else (10.0, 30.0, 60.0)),
        disasters=disasters or ("kill child",),
        bounds=_bounds(
            chance, slower=chance.choice((10, 20)) if is_long else chance.choice((1, 4))
        ),
    )


# Looks that find nothing are most of the work of a simulation, and are made rarer in some.
_LOOKS = (
    "POLL_SECONDS",
    "POLL_SECONDS_WITH_BELL",
    "PROGRESS_SECONDS",
    "EVENTS_SECONDS",
    "HISTORY_FOLD_SECONDS",
    "HISTORY_WRITE_SECONDS",
    "ANNOUNCE_SECONDS",
)


def _bounds(chance: Random, *, slower: int) -> dict[str, float]:
    """Other values for some bounds."""
    bounds: dict[str, float] = {name: getattr(config, name) * slower for name in _LOOKS}
    for name in ("SWEEP_SECONDS", "SWEEP_STALE_SECONDS", "PREFETCH_STALE_SECONDS"):
        bounds[name] = getattr(config, name) * min(slower, 4)
    bounds["PRUNE_SECONDS"] = chance.choice((5.0, 60.0))
    choices: dict[str, tuple[float, ...]] = {
        "MAINTENANCE_BATCH_ROWS": (2, 5),
        "SETTLE_BATCH": (1, 3),
        "SETTLE_BACKLOG_MAX": (2, 20),
        "PREFETCH_MAX": (0, 5),
        "PREFETCH_SECONDS": (0.5, 5.0),
        "SCHEDULE_BATCH_ROWS": (1,),
        "CLAIM_LIMIT_MAX": (1, 3),
        "BATCH_ROWS": (2,),
        "COPY_ROWS_MIN": (2,),
    }
    for name, values in choices.items():
        if chance.random() < 0.25:
            bounds[name] = chance.choice(values)
    return bounds
