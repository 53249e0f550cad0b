"""A machine with a worker: the real engine and its services in a child, beats beside it.

What is ours here is what a supervisor does with processes, which can't be simulated as they are:
it beats for the leases that the child holds, gives them back when the child is dead, and starts
another one. An embedded worker beats for itself, and nobody gives anything back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.job import Beat, Lease
from rowlock.lifecycle import Crashed, Interrupted, NotBegun, Outcome
from rowlock.store import Settlement, Store
from rowlock.store.ops.settle import settle
from rowlock.worker.counts import ProcessCounts
from rowlock.worker.engine import WorkerEngine
from rowlock.worker.services import Services
from rowlock.worker.settings import WorkerSettings
from rowlock.worker.trouble import ServiceName, Trouble
from tests.simulation.database import Engine
from tests.simulation.loop import Host

if TYPE_CHECKING:
    from tests.simulation.run import Simulation


class Table:
    """The leases of a child, where its supervisor can read them. A dead child writes no more."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.leases: dict[tuple[str, int], Lease] = {}
        self.started: set[tuple[str, int]] = set()
        # Runs that are over, and whose outcome is not written yet.
        self.ended: set[tuple[str, int]] = set()

    def hold(self, lease: Lease) -> None:
        self.leases[lease.id, lease.token] = lease

    def start(self, lease: Lease, *, deadline: float | None = None) -> bool:
        if not self._host.is_dead:
            self.started.add((lease.id, lease.token))
        return True

    def hold_block(self, ids: Sequence[str], token: int) -> TableBlock:
        held = [Lease(id=id, token=token) for id in ids]
        for lease in held:
            self.hold(lease)
        return TableBlock(self, held)

    def is_revoked(self, lease: Lease) -> bool:
        return False

    def end(self, lease: Lease) -> None:
        if not self._host.is_dead:
            self.started.discard((lease.id, lease.token))
            self.ended.add((lease.id, lease.token))

    def must_end_by(self, lease: Lease, deadline: float) -> None:
        """No handler here refuses to end."""

    def lose(self, lease: Lease) -> None:
        self.drop(lease)

    def drop(self, lease: Lease) -> None:
        if not self._host.is_dead:
            self.leases.pop((lease.id, lease.token), None)
            self.started.discard((lease.id, lease.token))
            self.ended.discard((lease.id, lease.token))

    def count_finished(self, jobs: int) -> None:
        """Nobody asks."""


class TableBlock:
    """Leases that were claimed together, in the same table."""

    def __init__(self, table: Table, held: Sequence[Lease]) -> None:
        self._table = table
        self._held = held

    def start(self, number: int) -> bool:
        return self._table.start(self._held[number])

    def end(self, number: int) -> None:
        self._table.end(self._held[number])

    def is_revoked(self) -> bool:
        return False

    def part(self, number: int, lease: Lease) -> None:
        """It is found by its lease anyway."""

    def drop(self, first: int, count: int) -> None:
        for lease in self._held[first : first + count]:
            self._table.drop(lease)


class OnlyChild:
    """A machine has one child: no other could run a suspect beside it."""

    def take(self) -> bool:
        return True

    def is_taken(self) -> bool:
        return False

    def free(self) -> None:
        """Nobody waits for it."""


class Child:
    """One worker process."""

    def __init__(self, host: Host, worker: str) -> None:
        self.host = host
        self.worker = worker
        self.table = Table(host)
        self.engine: WorkerEngine | None = None
        # Whether its supervisor can see that it stands still.
        self.is_seen_stopped = False


class Machine:
    """A supervisor and its child, or a program with a worker in it."""

    def __init__(self, simulation: Simulation, number: int, chance: Random) -> None:
        self._simulation = simulation
        self._loop = simulation.loop
        self._chance = chance
        self.name = f"machine-{number}"
        self.is_embedded = chance.random() < 0.3
        self._wall_skew = chance.choice((0.0, 0.0, -3600.0, 3600.0, 0.5))
        self._settings = simulation.worker_settings(chance)
        self._children = 0
        self._boot()

    def _boot(self) -> None:
        self.supervisor = Host(f"{self.name}.supervisor", wall_skew=self._wall_skew)
        self._start_child()

    # Disasters

    def kill_child(self) -> None:
        """Its supervisor sees it, gives back what it held, and starts another."""
        child = self.child
        if child.host.is_dead:
            return
        self._loop.kill_host(child.host)
        self._simulation.database.deafen_host(child.host)
        if self.is_embedded:
            self._loop.on(self.supervisor, self._start_child, delay=self._chance.uniform(0.1, 5))
        else:
            self._loop.on(self.supervisor, self._bury, child, delay=self._chance.uniform(0, 1))

    def kill(self, seconds: float) -> None:
        """The machine is lost: only the leases' ends help. Another comes in its place."""
        self._loop.kill_host(self.child.host)
        self._loop.kill_host(self.supervisor)
        self._simulation.database.deafen_host(self.child.host)
        self.supervisor = Host(f"{self.name}.supervisor", wall_skew=self._wall_skew)
        self._loop.on(self.supervisor, self._start_child, delay=seconds)

    def stop_child(self, seconds: float, *, is_seen: bool) -> None:
        """The child stands still: stopped by a signal, or by a handler that lets nothing else run.

        In the second case its supervisor goes on beating for it.
        """
        child = self.child
        if child.host.is_dead or child.host.is_stopped:
            return
        child.is_seen_stopped = is_seen
        self._loop.stop_host(child.host)
        self._loop.call_later(seconds, self._loop.resume_host, child.host)

    def stop(self, seconds: float, *, is_suspended: bool) -> None:
        """The whole machine stands still; its clock too, if it is suspended."""
        for host in (self.child.host, self.supervisor):
            if not host.is_dead and not host.is_stopped:
                self._loop.stop_host(host, is_suspended=is_suspended)
                self._loop.call_later(seconds, self._loop.resume_host, host)

    def heal(self) -> None:
        """Let go on what stands still."""
        for host in (self.child.host, self.supervisor):
            self._loop.resume_host(host)

    def restart(self) -> None:
        """Stop as a signal would, and start anew when it has ended."""
        child = self.child
        if child.engine is not None and not child.host.is_dead:
            self._loop.on(child.host, child.engine.stop)

    # The child

    def _start_child(self) -> None:
        self._children += 1
        name = f"{self.name}.{self._children}"
        host = Host(name, wall_skew=self._wall_skew)
        host.offset = self.supervisor.offset
        self.child = Child(host, name)
        self._simulation.checker.works(name, host=host, supervisor=self.supervisor)
        self._loop.on(host, self._serve_soon, self.child)
        if not self.is_embedded:
            self._loop.on(self.supervisor, self._spawn_beats, self.child)

    def _serve_soon(self, child: Child) -> None:
        self._simulation.watch(self._loop.create_task(self._serve(child)))

    async def _serve(self, child: Child) -> None:
        store = Store(Engine(self._simulation.database, child.host))
        counts = ProcessCounts()
        services = Services(
            store,
            self._simulation.tasks,
            worker=child.worker,
            settings=self._settings,
            counts=counts,
        )
        child.engine = WorkerEngine(
            store,
            self._simulation.tasks,
            worker=child.worker,
            settings=self._settings,
            leases=child.table,
            state=child,
            prepare=self._simulation.prepare,
            on_news=services.wake,
            counts=counts,
            suspect_lock=OnlyChild(),
        )
        if self.is_embedded:
            self._spawn_beats(child)
        async with services.running():
            await child.engine.run()
        self._simulation.check_over(child)
        self._loop.kill_host(child.host)
        self._loop.on(self.supervisor, self._start_child, delay=self._chance.uniform(0.1, 5))

    def is_free(self, queue: str) -> bool:
        """Whether its worker could start one more job of a queue, which it has no bound for."""
        child, settings = self.child, self._settings
        if child.host.is_dead or child.host.is_stopped or child.engine is None:
            return False
        is_served = settings.queues is None or settings.queues.get(queue) == 0
        used = sum(child.engine._capacity._used.values())
        return is_served and not child.engine._quarantined and used < settings.concurrency

    # The supervisor

    def _spawn_beats(self, child: Child) -> None:
        self._simulation.watch(self._loop.create_task(self._beat_on(child)))

    async def _beat_on(self, child: Child) -> None:
        """As `Beats` does in its thread, and a supervisor in its loop."""
        host = child.host if self.is_embedded else self.supervisor
        store = Store(Engine(self._simulation.database, host))
        trouble = Trouble("leases can't be extended", ServiceName.HEARTBEAT)
        pause = third = self._settings.lease_seconds / 3
        while not child.host.is_dead:
            await asyncio.sleep(pause)
            leases = list(child.table.leases.values())
            is_stopped = child.host.is_stopped and child.is_seen_stopped
            if child.host.is_dead or is_stopped or not leases:
                continue
            try:
                beats = await store.aheartbeat(leases, lease=self._settings.lease_seconds)
            except StoreUnavailable as error:
                pause = min(third, config.BEAT_RETRY_SECONDS_MAX, trouble.pause(error))
                continue
            trouble.over()
            pause = third
            for lease, beat in zip(leases, beats, strict=True):
                self._pass_on(child, lease, beat)

    def _pass_on(self, child: Child, lease: Lease, beat: Beat) -> None:
        engine = child.engine
        if engine is None or (lease.id, lease.token) not in child.table.leases:
            return
        if beat is Beat.CANCEL_REQUESTED:
            self._loop.on(child.host, engine.cancel, lease.id)
        elif beat is Beat.LOST:
            self._loop.on(child.host, self._lose, child, lease)

    def _lose(self, child: Child, lease: Lease) -> None:
        if (lease.id, lease.token) in child.table.leases:
            assert child.engine is not None
            child.engine.lose(lease.id, lease.token)
            self._simulation.checker.lost(lease.id, lease.token)

    def _bury(self, child: Child) -> None:
        self._simulation.watch(self._loop.create_task(self._give_back(child)))
        self._start_child()

    async def _give_back(self, child: Child) -> None:
        """What ran has crashed, what had ended is interrupted, what had not begun goes back."""
        store = Store(Engine(self._simulation.database, self.supervisor))
        by_id = {lease.id: lease for _, lease in sorted(child.table.leases.items())}
        crashed = [lease for lease in by_id.values() if _key(lease) in child.table.started]
        crash = Crashed("its process died", alone=len(crashed) == 1)

        def outcome_of(lease: Lease) -> Outcome:
            if lease in crashed:
                return crash
            is_over = _key(lease) in child.table.ended
            return Interrupted("its outcome was not written") if is_over else NotBegun()

        ended = [Settlement(lease, outcome_of(lease)) for lease in by_id.values()]
        while ended:
            try:
                await store.arun(settle(ended, chance=self._chance))
                break
            except StoreUnavailable:
                await asyncio.sleep(1.0)
        for seconds in config.GIVE_BACK_AGAIN_SECONDS:
            await asyncio.sleep(seconds)
            await self._release(store, child.worker)

    async def _release(self, store: Store, worker: str) -> None:
        while True:
            try:
                await store.arelease_worker(worker)
                return
            except StoreUnavailable:
                await asyncio.sleep(config.GIVE_BACK_AGAIN_SECONDS[-1])


def _key(lease: Lease) -> tuple[str, int]:
    return lease.id, lease.token


def settings_of(chance: Random, *, lease_seconds: float) -> WorkerSettings:
    """Some of a worker's options."""
    queues = chance.choice(
        (
            None,
            None,
            {"default": 0, "mail": 0, "slow": 0},
            {"default": 2, "mail": 1, "slow": 0},
        )
    )
    return WorkerSettings(
        queues=queues,
        concurrency=chance.choice((1, 3, 10)),
        lease_seconds=lease_seconds,
        grace_seconds=chance.choice((0.0, 2.0, 10.0)),
        order=chance.choice(("strict", "weighted")) if queues is not None else "weighted",
    )
