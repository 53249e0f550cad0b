"""What goes wrong: the weather of every statement, and disasters now and then."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.plan import Plan

if TYPE_CHECKING:
    from tests.simulation.run import Simulation

# So far the database's clock may be set back in all: what waits for it must not wait for ever.
_BACK_SECONDS_MAX = 240.0
# So many disasters wait until there is work that they can spoil.
_BUSY_SHARE = 0.98


class SimulatedWeather:
    """The line to the database, and its disk."""

    def __init__(self, plan: Plan, chance: Random) -> None:
        self._plan = plan
        self._chance = chance
        self.is_calm = False
        self.is_away = False
        self.is_full = False
        self.counts: Counter[str] = Counter()

    def delay(self, op: str = "") -> float:
        drawn = self._chance.random()
        if not self.is_calm and (drawn < self._plan.slow or self._is_hit(op, "slow")):
            self.counts["slow"] += 1
            # As long as a call may take before it is given up; longer than a lease, sometimes.
            return self._chance.uniform(0.5, 15.0)
        return 0.0002 + 0.003 * drawn

    def fails_before(self, op: str, *, writes: bool) -> str | None:
        if self.is_calm:
            return None
        if self.is_away:
            self.counts["away"] += 1
            return "the database is away"
        if self.is_full and writes:
            self.counts["full"] += 1
            return "the disk is full"
        is_cut = self._plan.failing and self._chance.random() < self._plan.failing
        if is_cut or self._is_hit(op, "failing"):
            self.counts["failed"] += 1
            return "the connection was lost"
        return None

    def loses_answer(self, op: str) -> bool:
        if self.is_calm:
            return False
        is_lost = self._plan.losing and self._chance.random() < self._plan.losing
        if not is_lost and not self._is_hit(op, "losing"):
            return False
        self.counts["answers lost"] += 1
        return True

    def _is_hit(self, op: str, fault: str) -> bool:
        aim = self._plan.aim
        if aim is None or aim.op != op or aim.fault != fault:
            return False
        return self._chance.random() < aim.chance

    def loses_ring(self) -> bool:
        return bool(self._plan.deaf) and self._chance.random() < self._plan.deaf


class Nemesis:
    """Lets disasters happen until it is told to stop; then all is well again."""

    def __init__(self, simulation: Simulation, chance: Random) -> None:
        self._simulation = simulation
        self._chance = chance
        self._set_back = 0.0
        self.counts: Counter[str] = Counter()

    async def run(self) -> None:
        plan = self._simulation.plan
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / plan.disaster_seconds))
            if self._chance.random() < _BUSY_SHARE:
                await asyncio.sleep(plan.rest_seconds(self._simulation.loop.now))
            disaster = self._chance.choice(plan.disasters)
            self.counts[disaster] += 1
            self._simulation.checker.note("disaster", disaster)
            self._strike(disaster)

    def _strike(self, disaster: str) -> None:
        chance, simulation = self._chance, self._simulation
        weather, clock = simulation.weather, simulation.database.clock
        machine = chance.choice(simulation.machines)
        plan = simulation.plan
        seconds = plan.lease_seconds * chance.choice(plan.disaster_leases)
        seconds *= chance.uniform(0.5, 1.5)
        match disaster:
            case "kill child":
                machine.kill_child()
            case "kill machine":
                machine.kill(seconds)
            case "stop child" | "block child":
                machine.stop_child(seconds, is_seen=disaster == "stop child")
            case "stop machine" | "suspend machine":
                machine.stop(seconds, is_suspended=disaster == "suspend machine")
            case "restart":
                machine.restart()
            case "database away":
                weather.is_away = True
                self._later(seconds, weather, "is_away")
            case "disk full":
                weather.is_full = True
                self._later(seconds, weather, "is_full")
            case "cut bells":
                simulation.database.cut_bells()
            case "clock forward":
                clock.offset += seconds
            case "clock back":
                seconds = min(seconds, _BACK_SECONDS_MAX - self._set_back)
                self._set_back += seconds
                clock.offset -= seconds

    def _later(self, seconds: float, weather: SimulatedWeather, name: str) -> None:
        asyncio.get_running_loop().call_later(seconds, setattr, weather, name, False)
