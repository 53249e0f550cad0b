"""What a seed decides before anything runs: who takes part, what may go wrong, and how often.

Each kind of fault is in some plans and not in others (a plan with all of them hides what a few
would show), and bounds of `config` are drawn: what a batch of 500 never reaches, a batch of 3 does.

Seeds take turns in themes. A theme aims at what chance would rarely hit: it has one kind of trouble
often, at the verb where it hurts. So every planted bug is found by the first seeds of its theme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from rowlock import config

# What a run may do, and how likely.
ACTS = {
    "ok": 12,
    "notes": 4,
    "follow": 2,
    "fail": 4,
    "fatal": 1,
    "release": 2,
    "cancel": 1,
    "crash": 1,
    "late": 1,
}
# What producers do, and how often.
ACTIONS = {
    "enqueue": 10,
    "enqueue many": 3,
    "enqueue again": 2,
    "cancel": 3,
    "retry": 2,
    "delete": 1,
    "pause": 1,
}
FLOW_ACTIONS = ACTIONS | {
    "flow": 14,
    "cancel flow": 2,
    "retry flow": 3,
    "retry dead": 1,
    "bulk cancel": 1,
    "retry": 6,
    "delete": 5,
    "pause": 0,
}


@dataclass(frozen=True, slots=True)
class Aim:
    """A verb at which much goes wrong: its statement fails, its answer is lost, or comes late."""

    op: str
    fault: Literal["failing", "losing", "slow"]
    chance: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulation, but for the draws during it."""

    seed: int
    theme: str
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
    # How long a disaster lasts, in leases.
    disaster_leases: tuple[float, ...] = (0.05, 0.3, 1.0, 4.0)
    # So long producers work, and then so long they rest, as a fleet does at night.
    busy_seconds: float = 1.0
    quiet_seconds: float = 0.0
    # Between two ticks of the schedule that makes up for all it has missed.
    tick_seconds: int = 10
    # How many of the calls in threads take long.
    slow_threads: float = 0.2
    aim: Aim | None = None
    acts: Mapping[str, int] = field(default_factory=lambda: ACTS)
    actions: Mapping[str, int] = field(default_factory=lambda: ACTIONS)
    # All jobs are of this kind, of one queue and one priority.
    lane_kind: str | None = None
    # How many of the jobs have a limit.
    limited: float = 0.0
    # Whether a tenant's worker takes part, as over HTTP.
    has_tenant_worker: bool = False
    # Whether workers are told to stop, and started anew, once nothing goes wrong any more.
    has_restarts: bool = True
    # How long handlers take.
    run_seconds: tuple[float, ...] = (0.0, 0.0, 0.01, 0.3, 2.0, 8.0)
    bounds: dict[str, Any] = field(default_factory=dict)

    def rest_seconds(self, now: float) -> float:
        """How long nobody has anything to do from now on."""
        if now >= self.fault_seconds:
            return 0.0
        into = now % (self.busy_seconds + self.quiet_seconds)
        until = self.busy_seconds + self.quiet_seconds - into
        return 0.0 if into < self.busy_seconds else min(until, self.fault_seconds - now)


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
    """The plan of a seed."""
    theme = theme_of(seed)
    chance = Random(seed)
    plan = replace(_THEMED[theme](_dense(seed, chance), chance), theme=theme)
    # What waits in a worker's buffer goes back in time; not before, and not after its lease.
    late, early = plan.lease_seconds / 3, config.PREFETCH_STALE_SECONDS
    stale = early if theme != "days" and chance.random() < 0.3 else late
    return replace(plan, bounds=plan.bounds | {"PREFETCH_STALE_SECONDS": stale})


def theme_of(seed: int) -> str:
    """Themes take turns."""
    return THEMES[seed % len(THEMES)]


def _dense(seed: int, chance: Random) -> Plan:
    """Minutes full of work, in which anything may go wrong."""
    disasters = tuple(each for each in DISASTERS if chance.random() < 0.6)
    return Plan(
        seed=seed,
        theme="anything",
        fault_seconds=60.0 * chance.choice((4, 8, 12)),
        drain_seconds=900.0,
        workers=chance.randint(3, 5),
        producers=chance.randint(1, 2),
        lease_seconds=chance.choice((3.0, 10.0, 30.0)),
        is_postgres=chance.random() < 0.5,
        bell=chance.choice(("none", "file", "notify")),
        is_shuffled=chance.random() < 0.5,
        pause_seconds=chance.choice((2.0, 5.0, 10.0)),
        failing=chance.choice((0.0, 0.001, 0.01, 0.05)),
        losing=chance.choice((0.0, 0.001, 0.01, 0.05)),
        slow=chance.choice((0.0, 0.001, 0.01)),
        deaf=chance.choice((0.0, 0.1)),
        disaster_seconds=chance.choice((10.0, 30.0, 60.0)),
        disasters=disasters or ("kill child",),
        bounds=_bounds(chance, slower=chance.choice((2, 4, 8))),
    )


def _zombies(plan: Plan, chance: Random) -> Plan:
    """Workers stand still, or can't beat, for longer than their leases, and go on."""
    aim = Aim("heartbeat", "failing", 0.8) if chance.random() < 0.5 else None
    return replace(
        plan,
        fault_seconds=180.0,
        lease_seconds=3.0,
        workers=3,
        producers=1,
        pause_seconds=2.0,
        disaster_seconds=chance.choice((4.0, 8.0)),
        disasters=("stop child", "stop machine", "suspend machine"),
        disaster_leases=(1.5, 3.0),
        aim=aim,
        acts=ACTS | {"fail": 8, "release": 8},
        actions=ACTIONS | {"cancel": 10},
        run_seconds=(0.3, 2.0, 8.0),
        bounds=plan.bounds | _SWEPT,
    )


def _last_words(plan: Plan, chance: Random) -> Plan:
    """Runs are asked to cancel while they end, and what they say last is written slowly."""
    return replace(
        plan,
        fault_seconds=180.0,
        bell=chance.choice(("file", "notify")),
        workers=3,
        producers=1,
        pause_seconds=1.0,
        slow_threads=0.8,
        acts=ACTS | {"late": 12, "notes": 8},
        actions=ACTIONS | {"cancel": 12},
        run_seconds=(0.0, 0.3, 2.0),
    )


def _alone(plan: Plan, chance: Random) -> Plan:
    """Handlers take down their process; what must run alone then loses its lease meanwhile."""
    return replace(
        plan,
        fault_seconds=240.0,
        lease_seconds=3.0,
        workers=3,
        producers=1,
        pause_seconds=5.0,
        disaster_seconds=20.0,
        aim=Aim("heartbeat", "failing", 0.9),
        acts=ACTS | {"crash": 12},
        run_seconds=(0.01, 2.0, 9.0),
        bounds=plan.bounds | _SWEPT,
    )


def _again(plan: Plan, chance: Random) -> Plan:
    """Answers are lost, and everything is asked for again, also what was deleted."""
    return replace(
        plan,
        fault_seconds=180.0,
        lease_seconds=3.0,
        workers=3,
        producers=1,
        pause_seconds=1.0,
        aim=Aim(chance.choice(("enqueue", "claim", "settle")), "losing", 0.3),
        actions=ACTIONS | {"enqueue again": 20, "delete": 10},
    )


def _back_in_line(plan: Plan, chance: Random) -> Plan:
    """Jobs come back to where they stood, and nobody restarts to find them there."""
    return replace(
        plan,
        fault_seconds=240.0,
        workers=2,
        producers=1,
        pause_seconds=2.0,
        disaster_seconds=60.0,
        disasters=("clock back", "block child"),
        acts=ACTS | {"crash": 0},
        lane_kind="work",
        has_restarts=False,
        bounds=plan.bounds | {"PREFETCH_SECONDS": 5.0, "PREFETCH_MAX": 5},
    )


def _blocks(plan: Plan, chance: Random) -> Plan:
    """Jobs that do not wait are run as blocks, whose workers die, stand still or settle late."""
    aim = chance.choice((Aim("settle", "slow", 0.3), Aim("settle", "losing", 0.3), None))
    return replace(
        plan,
        fault_seconds=90.0,
        lease_seconds=3.0,
        workers=3,
        producers=1,
        pause_seconds=2.0,
        disaster_seconds=chance.choice((4.0, 8.0)),
        disasters=("kill child", "stop child", "stop machine", "block child", "restart"),
        disaster_leases=(0.3, 1.5, 3.0),
        aim=aim,
        acts=ACTS | {"ok": 40, "crash": 2},
        actions=ACTIONS | {"enqueue many": 20, "cancel": 6},
        lane_kind="bare",
        bounds=plan.bounds | _SWEPT | {"CLAIM_BLOCK_MIN": 1, "CLAIM_LIMIT_MAX": 10_000},
    )


def _limits(plan: Plan, chance: Random) -> Plan:
    """Nearly all jobs have limits, and those who hold a slot die, stand still or settle late."""
    aim = chance.choice((Aim("claim", "losing", 0.2), Aim("settle", "slow", 0.2), None))
    return replace(
        plan,
        fault_seconds=90.0,
        lease_seconds=3.0,
        workers=3,
        producers=1,
        pause_seconds=1.0,
        disaster_seconds=chance.choice((6.0, 12.0)),
        # Not the clock: when it goes back, what was let into its room stays there.
        disasters=("kill child", "stop child", "kill machine", "stop machine", "cut bells"),
        disaster_leases=(0.3, 1.5, 3.0),
        aim=aim,
        acts=ACTS | {"ok": 30, "throttle": 2},
        actions=ACTIONS | {"enqueue many": 8, "pause": 0},
        limited=0.9,
        has_restarts=False,
        run_seconds=(0.0, 0.01, 0.3, 1.0),
        bounds=plan.bounds | _SWEPT,
    )


def _flows(plan: Plan, chance: Random) -> Plan:
    """Jobs wait for jobs, which end in every way, come back, and add others."""
    aims = (Aim("settle", "losing", 0.2), Aim("cancel_workflow", "failing", 0.2), None)
    return replace(
        plan,
        fault_seconds=90.0,
        lease_seconds=3.0,
        workers=3,
        producers=1,
        pause_seconds=2.0,
        disaster_seconds=chance.choice((6.0, 20.0)),
        disaster_leases=(0.3, 1.5, 3.0),
        aim=chance.choice(aims),
        acts=ACTS | {"ok": 24, "fatal": 3, "grow": 6, "crash": 2},
        actions=FLOW_ACTIONS,
        has_tenant_worker=True,
        run_seconds=(0.0, 0.01, 0.3, 1.0),
        bounds=plan.bounds | _SWEPT | {"WORKFLOW_SWEEP_SECONDS": 2.5},
    )


def _days(plan: Plan, chance: Random) -> Plan:
    """Days of quiet with busy minutes: what takes long to go wrong."""
    return replace(
        plan,
        fault_seconds=86_400.0 * chance.choice((1, 2)),
        drain_seconds=3600.0,
        workers=3,
        producers=1,
        lease_seconds=chance.choice((60.0, 120.0)),
        pause_seconds=4.0,
        disaster_seconds=20.0,
        busy_seconds=120.0,
        quiet_seconds=3600.0 * chance.choice((2, 4)),
        tick_seconds=600,
        bounds=plan.bounds | _seldom(),
    )


_THEMED: dict[str, Callable[[Plan, Random], Plan]] = {
    "anything": lambda plan, _: plan,
    "zombies": _zombies,
    "last words": _last_words,
    "alone": _alone,
    "again": _again,
    "back in line": _back_in_line,
    "days": _days,
    "blocks": _blocks,
    "limits": _limits,
    "flows": _flows,
}
THEMES = tuple(_THEMED)

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


# Whatever has expired is taken at once, before its holder is back.
_SWEPT = {"SWEEP_SECONDS": 0.5, "SWEEP_STALE_SECONDS": 4.0}


def _bounds(chance: Random, *, slower: int) -> dict[str, float]:
    """Other values for some bounds."""
    bounds: dict[str, float] = {name: getattr(config, name) * slower for name in _LOOKS}
    for name in ("SWEEP_SECONDS", "SWEEP_STALE_SECONDS"):
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


def _seldom() -> dict[str, float]:
    """Bounds with which an idle hour costs next to nothing: a worker looks once a minute."""
    seldom: dict[str, float] = {name: getattr(config, name) * 60 for name in _LOOKS}
    return seldom | {
        "SWEEP_SECONDS": 60.0,
        "SWEEP_STALE_SECONDS": 90.0,
        "PRUNE_SECONDS": 1800.0,
        "BELL_PING_SECONDS": 1800.0,
        "SCHEDULER_SLEEP_SECONDS_MAX": 1800.0,
        "WORKER_SILENT_SECONDS": 3600.0,
        "WORKER_FORGOTTEN_SECONDS": 36_000.0,
    }
