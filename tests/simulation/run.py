"""One simulation from its seed to its verdict."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from random import Random

from rowlock import config
from rowlock.errors import NotFound, StoreUnavailable
from rowlock.store import Store
from rowlock.task import prepare_follow_up
from rowlock.worker.settings import WorkerSettings
from tests.mutants import SIMULATED
from tests.simulation.checker import Checker, ViolationError
from tests.simulation.database import Database, Engine
from tests.simulation.faults import Nemesis, SimulatedWeather
from tests.simulation.flow_load import TenantWorker
from tests.simulation.liveness import LOOK_SECONDS, OpenRooms
from tests.simulation.loop import Host, SimulatedLoop
from tests.simulation.machine import Child, Machine, settings_of
from tests.simulation.plan import Plan, plan_of
from tests.simulation.workload import CONTIGUOUS, Producer, tasks_of
from tests.simulation.world import seeded, tear_down

CALLBACKS_MAX = 20_000_000
# After the faults have ended: what was under way then may still go wrong for so long.
SETTLE_SECONDS = 90.0
# And so long everybody goes on after that, while nothing may.
CALM_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a simulation has shown; `problem` is None if it was good."""

    plan: Plan
    digest: str
    seconds: float
    took: float
    counts: Counter[str]
    problem: str | None = None
    journal: tuple[str, ...] = ()


class Simulation:
    """All that takes part."""

    def __init__(self, plan: Plan, loop: SimulatedLoop, chance: Random) -> None:
        self.plan = plan
        self.loop = loop
        self._chance = chance
        self.checker = Checker(loop)
        self.weather = SimulatedWeather(plan, _fork(chance))
        self.database = Database(
            loop,
            _fork(chance),
            witness=self.checker,
            weather=self.weather,
            is_postgres=plan.is_postgres,
            bell=plan.bell,
        )
        self.tasks = tasks_of(self)
        # Another than that of the rest, so that plans without workflows are drawn as ever.
        self.growth_chance = Random(plan.seed)
        self.prepare = prepare_follow_up
        self.is_enough = False
        self._clients = Host("clients")
        self.machines = [Machine(self, number, _fork(chance)) for number in range(plan.workers)]
        self.nemesis = Nemesis(self, _fork(chance))
        self._producing: list[asyncio.Task[None]] = []

    def worker_settings(self, chance: Random) -> WorkerSettings:
        return settings_of(chance, lease_seconds=self.plan.lease_seconds)

    def watch(self, task: asyncio.Task[None]) -> None:
        """A service that ends with an error ends the simulation."""
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.failures.append(error)

    def crash(self, host: Host) -> None:
        """A handler takes down its process."""
        machine = next(each for each in self.machines if each.child.host is host)
        machine.kill_child()

    def cancel_soon(self, id: str) -> None:
        """Somebody asks to cancel a job, in a moment."""
        delay = self._chance.uniform(0.0, 0.3)
        self.loop.on(self._clients, self._cancel, id, delay=delay)

    def _cancel(self, id: str) -> None:
        self.loop.create_task(self._try_to_cancel(id))

    async def _try_to_cancel(self, id: str) -> None:
        with suppress(StoreUnavailable, NotFound):
            await Store(Engine(self.database, self._clients)).acancel(id)

    def check_idle(self, child: Child) -> None:
        """A child that holds nothing knows of nothing."""
        engine = child.engine
        assert engine is not None
        left = {
            "running": len(engine._running),
            "buffered": len(engine._buffer),
            "known": len(engine._known),
            "quarantined": len(engine._quarantined),
            "unwritten": engine.settler.backlog,
            "slots": sum(engine._capacity._used.values()),
            "table": len(child.table.leases),
        }
        if any(left.values()):
            raise ViolationError(f"I15: {child.host} is idle and has {left}")

    def check_over(self, child: Child) -> None:
        """A child that was stopped has given back all it had, if it could."""
        self.check_idle(child)
        held = self.database.connection.execute(
            "SELECT id, token FROM rowlock_job WHERE worker = ?", [child.worker]
        ).fetchall()
        if held and self.checker.calm_since is not None:
            raise ViolationError(f"I15: {child.host} has ended and holds {held}")

    async def live(self) -> None:
        """Faults, calm, and the end."""
        for number in range(self.plan.producers):
            producer = Producer(self, number, _fork(self._chance))
            self.loop.on(producer.host, self._produce, producer)
        if self.plan.has_tenant_worker:
            tenant = TenantWorker(self, _fork(self._chance))
            self.loop.on(tenant.host, self._produce, tenant)
        nemesis = self.loop.create_task(self.nemesis.run())
        self.watch(nemesis)
        await asyncio.sleep(self.plan.fault_seconds)
        nemesis.cancel()
        self._heal()
        await asyncio.sleep(SETTLE_SECONDS)
        self.checker.calm_since = self.loop.now
        self.checker.note("calm")
        for machine in self.machines if self.plan.has_restarts else ():
            # Being told to stop is no fault, and may cost nothing.
            self.loop.call_later(self._chance.uniform(0, CALM_SECONDS), machine.restart)
        await self._stay_calm()
        self.is_enough = True
        await self._drain()
        self.checker.check_end({CONTIGUOUS: self.plan.tick_seconds})
        for machine in self.machines:
            self.check_idle(machine.child)

    async def _stay_calm(self) -> None:
        """Nothing goes wrong, and no open limit keeps a job from a worker that is free."""
        rooms, end = OpenRooms(self.database), self.loop.now + CALM_SECONDS
        while self.loop.now < end:
            await asyncio.sleep(LOOK_SECONDS)
            if self.plan.limited and (problem := rooms.look(self.machines)) is not None:
                raise ViolationError(f"I13: {problem}")

    def _produce(self, producer: Producer | TenantWorker) -> None:
        task = self.loop.create_task(producer.run())
        self._producing.append(task)
        self.watch(task)

    def _heal(self) -> None:
        self.checker.note("faults end")
        self.weather.is_calm = True
        for machine in self.machines:
            machine.heal()

    async def _drain(self) -> None:
        store = Store(Engine(self.database, Host("drain")))
        deadline = self.loop.now + self.plan.drain_seconds
        await asyncio.wait(self._producing)
        for schedule in await store.alist_schedules():
            await store.apause_schedule(schedule.name)
        while self.checker.live:
            if self.loop.now > deadline:
                rows = self.database.connection.execute("SELECT * FROM rowlock_job").fetchall()
                left = "\n".join(map(str, rows[:20]))
                raise ViolationError(f"I16: {len(rows)} jobs have not ended:\n{left}")
            for id in list(self.checker.flows.stuck()):
                # It was retried, and the job that it waits for was not.
                await store.acancel(id)
            await asyncio.sleep(1.0)
        # What was settled last is told and counted, and the ends of workflows are noted.
        await asyncio.sleep(5.0 + 2 * config.WORKFLOW_SWEEP_SECONDS)
        still_open = self.database.connection.execute(
            "SELECT id FROM rowlock_workflow WHERE ended_at IS NULL"
        ).fetchall()
        if still_open:
            raise ViolationError(f"I16: nobody has noted the ends of {still_open}")


def _fork(chance: Random) -> Random:
    return Random(chance.getrandbits(64))


def simulate_one(seed: int, mutant: str | None) -> Report:
    """As `simulate`, by choice with a planted bug.

    Here, since another process can't find what stands in `__main__`.
    """
    with nullcontext() if mutant is None else SIMULATED[mutant]():
        return simulate(seed)


def simulate(seed: int) -> Report:
    """Run the simulation of a seed."""
    plan = plan_of(seed)
    began = time.process_time()
    chance = Random(f"run of {seed}")
    loop = SimulatedLoop(
        _fork(chance),
        is_shuffled=plan.is_shuffled,
        slow_threads=plan.slow_threads,
        callbacks_max=CALLBACKS_MAX,
    )
    problem = None
    with seeded(loop, _fork(chance), plan.bounds):
        simulation = Simulation(plan, loop, _fork(chance))
        try:
            loop.run_until_complete(simulation.live())
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the verdict
            problem = f"{type(error).__name__}: {error}"
    checker = simulation.checker
    counts = checker.counts + simulation.weather.counts + simulation.nemesis.counts
    counts["statements"] = simulation.database.statements
    counts["released"] = checker.flows.released
    counts["grown"] = checker.flows.grown
    counts["callbacks"] = loop.callbacks
    journal = tuple(checker.journal) if problem else ()
    seconds = loop.now
    tear_down(loop)
    return Report(
        plan, checker.digest, seconds, time.process_time() - began, counts, problem, journal
    )
