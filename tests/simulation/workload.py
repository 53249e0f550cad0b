"""What is to be done: tasks whose runs follow a script, and producers that use every option."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import rowlock
from rowlock.clock import from_us
from rowlock.errors import InvalidTransition, NotFound, StoreUnavailable
from rowlock.limits import Limit
from rowlock.retry import exponential, fixed
from rowlock.store import JobFilter, NewJob, Store
from rowlock.store.ops.bulk import BulkAction, Selection, bulk
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.options import new_job
from rowlock.task import Tasks
from rowlock.worker.report import running_lease
from tests.simulation.database import Engine
from tests.simulation.flow_load import draw_flow, draw_growth
from tests.simulation.limits import KINDS, LANES, LIMITS, QUEUE
from tests.simulation.loop import HOST, Host

if TYPE_CHECKING:
    from tests.simulation.run import Simulation

QUEUES = ("default", "mail", "slow")
_KINDS = ("work", "work", "plain", "brief", "once", "timed", "threaded", "bare")
# A schedule of which no tick is left out.
CONTIGUOUS = "contiguous"
# Expressions for the seconds between two ticks.
_CRON = {10: "*/10 * * * * *", 600: "*/10 * * * *"}


class SimulatedError(Exception):
    """A handler fails."""


class Sender:
    """What tasks ask of an app, when nothing is enqueued by way of it."""

    keep_dead_us = 300_000_000

    def send(self, jobs: Any, *, conn: Any) -> Any:
        raise NotImplementedError

    async def asend(self, jobs: Any, *, conn: Any) -> Any:
        raise NotImplementedError


def tasks_of(simulation: Simulation) -> Tasks:
    """The tasks, for all workers."""
    tasks = Tasks()
    acting = Acting(simulation)
    declared = "* * * * *" if simulation.plan.tick_seconds < 60 else "0 * * * *"

    @tasks.task(name="work", max_attempts=5, retry=fixed(2), keep=120)
    async def work(ctx: rowlock.Context, seconds: float, script: list[str]) -> str:
        return await acting.run(ctx, seconds, script)

    @tasks.task(name="plain", max_attempts=4, retry=exponential(cap=16))
    async def plain(seconds: float, script: list[str]) -> str:
        return await acting.run(None, seconds, script)

    @tasks.task(name="bare", max_attempts=4, retry=fixed(1))
    async def bare(seconds: float, script: list[str]) -> None:
        # Most of them do not suspend, so that they are run as blocks.
        await acting.run(None, seconds if seconds > 1 else 0.0, script)

    @tasks.task(name="brief", keep=0, max_attempts=3, retry=fixed(1))
    async def brief(ctx: rowlock.Context, seconds: float, script: list[str]) -> str:
        return await acting.run(ctx, seconds, script)

    @tasks.task(name="once", max_attempts=1)
    async def once(ctx: rowlock.Context, seconds: float, script: list[str]) -> str:
        return await acting.run(ctx, seconds, script)

    @tasks.task(name="timed", timeout=3, max_attempts=3, retry=fixed(1))
    async def timed(ctx: rowlock.Context, seconds: float, script: list[str]) -> str:
        return await acting.run(ctx, seconds, script)

    @tasks.task(name="threaded", max_attempts=3)
    def threaded(ctx: rowlock.Context, seconds: float, script: list[str]) -> str:
        return acting.call(ctx, script)

    for name, limit in KINDS.items():
        _add_limited(tasks, acting, name, LIMITS[limit])

    @tasks.task(name="tick", max_attempts=100, retry=fixed(1), cron=declared)
    async def tick() -> str:
        return await acting.run(None, 0.05, ["ok"])

    for task in tasks:
        task.bind(Sender())
    return tasks


def _add_limited(tasks: Tasks, acting: Acting, name: str, limit: Limit) -> None:
    @tasks.task(name=name, max_attempts=5, retry=fixed(2), queue=QUEUE, limit=limit)
    async def limited(ctx: rowlock.Context, seconds: float, script: list[str], lane: str) -> str:
        return await acting.run(ctx, seconds, script)


class Acting:
    """Runs scripts, and says so."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._checker = simulation.checker
        self._runs: Counter[str] = Counter()

    async def run(self, ctx: rowlock.Context | None, seconds: float, script: list[str]) -> str:
        id, token = self._begin()
        try:
            if seconds:
                await asyncio.sleep(seconds)
            self._act(ctx, self._next_act(id, script))
            if HOST.get().is_dead:
                await asyncio.Event().wait()
        except BaseException as error:
            self._checker.finished(id, token, type(error).__name__)
            raise
        self._checker.finished(id, token, "ok")
        return "done"

    def call(self, ctx: rowlock.Context, script: list[str]) -> str:
        id, token = self._begin()
        act = self._next_act(id, script)
        try:
            self._act(ctx, "ok" if act == "crash" else act)
        except BaseException as error:
            self._checker.finished(id, token, type(error).__name__)
            raise
        self._checker.finished(id, token, "ok")
        return "done"

    def _next_act(self, id: str, script: list[str]) -> str:
        """What its script says for this run; when it is over, all is well."""
        self._runs[id] += 1
        return script[self._runs[id] - 1] if self._runs[id] <= len(script) else "ok"

    def _begin(self) -> tuple[str, int]:
        lease = running_lease()
        assert lease is not None
        self._checker.started(lease.id, lease.token, HOST.get())
        return lease.id, lease.token

    def _act(self, ctx: rowlock.Context | None, act: str) -> None:
        match act:
            case "notes" if ctx is not None:
                ctx.progress(0.5, "halfway")
                ctx.log("a line")
            case "late" if ctx is not None:
                # Somebody asks to cancel it just when it ends.
                ctx.log("the last line")
                self._simulation.cancel_soon(ctx.job.id)
            case "grow" if ctx is not None:
                growth = ctx.workflow
                draw_growth(self._simulation.growth_chance, self._simulation.tasks, growth)
                self._checker.flows.grows(ctx.job.id, ctx.token, growth._draft)
            case "follow" if ctx is not None:
                brief = self._simulation.tasks.find("brief")
                ctx.enqueue_on_success(brief, seconds=0.0, script=["ok"])
            case "fail":
                raise SimulatedError("fail")
            case "fatal":
                raise rowlock.Fail("for good")
            case "release":
                raise rowlock.Release(delay=1)
            case "throttle":
                raise rowlock.Throttled(2, "429")
            case "cancel":
                raise rowlock.Cancel("not wanted")
            case "crash":
                self._simulation.crash(HOST.get())
            case _:
                return


class Producer:
    """Enqueues, repeats, cancels, retries, deletes, pauses."""

    def __init__(self, simulation: Simulation, number: int, chance: Random) -> None:
        self._simulation = simulation
        self._chance = chance
        self._checker = simulation.checker
        self.host = Host(f"producer-{number}", wall_skew=chance.choice((0.0, 600.0)))
        self._store = Store(Engine(simulation.database, self.host))
        self._known: list[NewJob] = []
        self._deleted: list[NewJob] = []
        self._paused: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._flows: list[str] = []

    async def run(self) -> None:
        """Work until there is enough."""
        plan, loop = self._simulation.plan, self._simulation.loop
        schedule = _schedule(self._simulation.tasks, plan.tick_seconds)
        await self._insist(lambda: self._store.aput_schedule(schedule))
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            "enqueue": self._enqueue,
            "enqueue many": self._enqueue_many,
            "enqueue again": self._enqueue_again,
            "cancel": self._cancel,
            "retry": self._retry,
            "delete": self._delete,
            "pause": self._pause,
            "flow": self._enqueue_flow,
            "cancel flow": self._cancel_flow,
            "retry flow": self._retry_flow,
            "retry dead": self._retry_dead,
            "bulk cancel": self._bulk_cancel,
        }
        names, weights = list(plan.actions), list(plan.actions.values())
        while not self._simulation.is_enough:
            await asyncio.sleep(plan.rest_seconds(loop.now))
            (action,) = self._chance.choices(names, weights)
            try:
                await actions[action]()
            except (StoreUnavailable, NotFound, InvalidTransition) as error:
                self._checker.note(self.host, type(error).__name__)
            await asyncio.sleep(self._chance.expovariate(1 / plan.pause_seconds))
        for queue in sorted(self._paused):
            await self._insist(lambda queue=queue: self._store.aresume(queue))

    async def _insist(self, act: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await act()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    async def _enqueue(self) -> None:
        await self._send([self._new()])

    async def _enqueue_many(self) -> None:
        await self._send([self._new() for _ in range(self._chance.randint(2, 12))])

    async def _enqueue_again(self) -> None:
        """Somebody repeats what was asked for long ago, on purpose; also what was deleted."""
        if self._deleted and self._chance.random() < 0.5:
            gone = self._deleted.pop()
            self._known.append(gone)
            await self._send([gone._replace(is_resend=True)])
        elif self._known:
            known = self._chance.choice(self._known)
            if known.node is not None:
                return
            age = self._store.engine.clock.now_us() / 10**6 - self._asked_at[known.id]
            # So long an id is remembered, at least.
            if age < 600:
                await self._send([known._replace(is_resend=True)])

    async def _send(self, jobs: list[NewJob]) -> None:
        now = self._simulation.database.clock.now_us() / 10**6
        for job in jobs:
            self._checker.asked(job)
            self._asked_at.setdefault(job.id, now)
        self._known += [job for job in jobs if not job.is_resend]
        del self._known[:-200]
        again = self._chance.random() < 0.7
        while True:
            try:
                answers = await self._store.aenqueue(jobs)
                break
            except StoreUnavailable:
                if not again:
                    raise
                # Whether it was done is not known: the same ids again are the same jobs.
                jobs = [job._replace(is_resend=True) for job in jobs]
                await asyncio.sleep(0.5)
        for answer in answers:
            self._checker.acknowledged(answer.id)

    def _new(self) -> NewJob:
        chance, tasks = self._chance, self._simulation.tasks
        plan = self._simulation.plan
        kind = plan.lane_kind or chance.choice(_KINDS)
        if plan.limited and chance.random() < plan.limited:
            return self._new_limited()
        names, weights = list(plan.acts), list(plan.acts.values())
        script = chance.choices(names, weights, k=chance.randint(1, 4))
        seconds = chance.choice(plan.run_seconds)
        task = tasks.find(kind)
        assert task is not None
        options: dict[str, Any] = {}
        if plan.lane_kind is None:
            options["queue"] = chance.choice(QUEUES)
        if chance.random() < 0.3 and plan.lane_kind is None:
            options["priority"] = chance.choice((-5, 5, 100))
        if chance.random() < 0.2:
            options["delay"] = chance.choice((0.5, 5.0, 60.0))
        elif chance.random() < 0.1:
            at = from_us(self._simulation.database.clock.now_us())
            options["run_at"] = at + timedelta(seconds=chance.choice((-60, 1, 30)))
        if chance.random() < 0.25:
            options["key"] = f"key-{chance.randrange(5)}"
            options["key_hold"] = chance.choice(("in_flight", "until_started", 20.0, "kept"))
            if options["key_hold"] == "until_started":
                options["if_held"] = "replace"
        if chance.random() < 0.2:
            options["tenant"] = chance.choice(("acme", "umbrella"))
        if chance.random() < 0.1:
            # By its name alone, where the task is not known.
            payload = task.schema.encode((), {"seconds": seconds, "script": script})
            return new_job(kind=kind, payload=payload, **options)
        return task.using(**options).job(seconds=seconds, script=script)

    def _new_limited(self) -> NewJob:
        """A job with a limit. Some are sent by name, and get theirs from a worker."""
        chance, plan = self._chance, self._simulation.plan
        kind = chance.choice(tuple(KINDS))
        task = self._simulation.tasks.find(kind)
        assert task is not None
        names, weights = list(plan.acts), list(plan.acts.values())
        said: dict[str, Any] = {
            "seconds": chance.choice(plan.run_seconds),
            "script": chance.choices(names, weights, k=chance.randint(1, 3)),
            "lane": chance.choice(LANES),
        }
        delay = {"delay": chance.choice((0.5, 5.0))} if chance.random() < 0.1 else {}
        if chance.random() < 0.1:
            payload = task.schema.encode((), said)
            return new_job(kind=kind, payload=payload, queue=QUEUE, **delay)
        return task.using(**delay).job(**said)

    async def _cancel(self) -> None:
        if self._known:
            await self._store.acancel(self._chance.choice(self._known[-20:]).id)

    async def _retry(self) -> None:
        if self._known:
            await self._store.aretry(self._chance.choice(self._known).id)

    async def _delete(self) -> None:
        """What was deleted is forgotten: the same id again is another job."""
        if self._known:
            # Of those that others wait for, most are new.
            chosen = self._chance.choice(self._known[-20:] if self._flows else self._known)
            self._known = [job for job in self._known if job.id != chosen.id]
            await self._store.adelete(chosen.id, cascade=self._chance.random() < 0.5)
            if chosen.node is None:
                self._deleted.append(chosen)
                del self._deleted[:-20]

    async def _enqueue_flow(self) -> None:
        """A workflow. Its jobs are then cancelled, retried and deleted like others."""
        simulation, chance = self._simulation, self._chance
        outside = [job.id for job in self._known[-8:] if job.tenant is None]
        draft = draw_flow(chance, simulation.tasks, simulation.plan, outside)
        self._checker.flows.asked(draft)
        while True:
            try:
                written = await self._store.aenqueue_workflow(draft)
                break
            except StoreUnavailable:
                if chance.random() < 0.3:
                    raise
                await asyncio.sleep(0.5)
        assert written.id == draft.id
        for job in draft.nodes:
            self._checker.acknowledged(job.id)
        self._known += draft.nodes
        self._flows = [*self._flows[-20:], draft.id]

    async def _cancel_flow(self) -> None:
        if self._flows:
            flow = self._chance.choice(self._flows)
            self._checker.flows.may_cancel(flow)
            await self._store.acancel_workflow(flow)

    async def _retry_flow(self) -> None:
        if self._flows:
            await self._store.aretry_workflow(self._chance.choice(self._flows))

    async def _retry_dead(self) -> None:
        await self._store.aretry_dead(JobFilter(kind="once"))

    async def _bulk_cancel(self) -> None:
        chosen = JobFilter(kind=self._chance.choice(("plain", "once")))
        await self._store.arun(bulk(Selection(BulkAction.CANCEL, None, chosen)))

    async def _pause(self) -> None:
        queue = self._chance.choice(QUEUES)
        if queue in self._paused:
            self._paused.discard(queue)
            await self._insist(lambda: self._store.aresume(queue))
        else:
            self._paused.add(queue)
            await self._store.apause(queue)


def _schedule(tasks: Tasks, tick_seconds: int) -> Any:
    task = tasks.find("tick")
    assert task is not None
    return new_schedule(CONTIGUOUS, task.job(), cron=_CRON[tick_seconds], missed="all")
