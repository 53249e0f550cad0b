"""Small workflows of every shape, what runs add to them, and a tenant's worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, cast

from rowlock import config
from rowlock.errors import InvalidTransition, LeaseLost, StoreUnavailable
from rowlock.job import Lease
from rowlock.lifecycle import CancelSeen, Failed, Outcome, Released, Succeeded
from rowlock.store import Settlement, Store
from rowlock.store.ops.settle import settle
from rowlock.store.ops.workflows import Draft
from rowlock.task import Tasks
from rowlock.workflow import Plan as FlowPlan
from rowlock.workflow import Workflow, WorkflowHome
from tests.simulation.database import Engine
from tests.simulation.loop import Host
from tests.simulation.plan import Plan

if TYPE_CHECKING:
    from tests.simulation.run import Simulation

TENANT = "zoo"
_KINDS = ("work", "work", "plain", "brief", "once", "bare")
_WANTS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"if_dead": "cancel"},
    {"if_dead": "run"},
    {"when": "ended"},
    {"when": "dead"},
)


def draw_flow(chance: Random, tasks: Tasks, plan: Plan, outside: Sequence[str]) -> Draft:
    """A workflow. Its jobs may wait for some that exist already."""
    tenant = TENANT if chance.random() < 0.3 else None
    deadline = 20 if chance.random() < 0.05 else None
    flow = Workflow(cast("WorkflowHome", tasks), "flow", tenant=tenant, deadline=deadline)
    shape = chance.choice(("chain", "fan", "any", "any"))
    nodes: list[Any] = []
    for place in range(chance.randint(2, 7)):
        match shape:
            case "chain":
                after = nodes[-1:]
            case "fan":
                after = [] if place < 3 else list(nodes)
            case _:
                after = chance.sample(nodes, min(len(nodes), chance.choice((0, 1, 1, 2, 3))))
        if outside and tenant is None and chance.random() < 0.3:
            after.append(chance.choice(outside))
        wants = chance.choice(_WANTS) if after else {}
        nodes.append(flow.add(_draw_job(chance, tasks, plan), after=after, **wants))
    return flow.finished()


def draw_growth(chance: Random, tasks: Tasks, growth: FlowPlan) -> None:
    """A run adds a job or two."""
    task = tasks.find("brief")
    assert task is not None
    first = growth.add(task.job(seconds=0.0, script=["ok"]))
    if chance.random() < 0.5:
        growth.add(task.job(seconds=0.0, script=[chance.choice(("ok", "fatal"))]), after=first)


def _draw_job(chance: Random, tasks: Tasks, plan: Plan) -> Any:
    task = tasks.find(chance.choice(_KINDS))
    assert task is not None
    script = chance.choices(list(plan.acts), list(plan.acts.values()), k=chance.randint(1, 3))
    delay = {"delay": chance.choice((0.5, 5.0))} if chance.random() < 0.1 else {}
    return task.using(**delay).job(seconds=chance.choice(plan.run_seconds), script=script)


class TenantWorker:
    """Leases jobs of a tenant, and settles them as calls over HTTP do."""

    def __init__(self, simulation: Simulation, chance: Random) -> None:
        self._simulation = simulation
        self._checker = simulation.checker
        self._chance = chance
        self.host = Host("tenant")
        self._name = "tenant:zoo/1"
        self._store = Store(Engine(simulation.database, self.host))
        self._checker.works(self._name, host=self.host, supervisor=self.host)

    async def run(self) -> None:
        """Work until there is enough, and all is told."""
        while not self._simulation.is_enough:
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))
            try:
                leases = await self._store.aclaim(
                    worker=self._name,
                    queues=None,
                    tenants=[TENANT],
                    limit=min(self._chance.randint(1, 4), config.CLAIM_LIMIT_MAX),
                    lease=self._simulation.plan.lease_seconds,
                )
            except StoreUnavailable:
                continue
            if leases:
                await self._work(leases)

    async def _work(self, leases: Sequence[Lease]) -> None:
        ended = [Settlement(lease, self._run(lease)) for lease in leases]
        op = settle(ended, tenant=TENANT, chance=self._chance)
        try:
            (await self._store.arun(op)).raise_if_missed()
        except (StoreUnavailable, LeaseLost, InvalidTransition) as error:
            self._checker.note(self.host, type(error).__name__)

    def _run(self, lease: Lease) -> Outcome:
        """Run a job, which takes no time."""
        self._checker.started(lease.id, lease.token, self.host)
        how = self._chance.choice(("ok", "ok", "ok", "fail", "fatal", "release", "cancel"))
        said = {"fail": "SimulatedError", "fatal": "Fail", "release": "Release", "cancel": "Cancel"}
        self._checker.finished(lease.id, lease.token, said.get(how, "ok"))
        match how:
            case "ok":
                return Succeeded('"done"')
            case "fail" | "fatal":
                return Failed("SimulatedError", "no", permanent=how == "fatal")
            case "release":
                return Released(config.SECOND_US)
            case _:
                return CancelSeen("not wanted")
