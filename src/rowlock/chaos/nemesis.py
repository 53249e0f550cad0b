"""The nemesis: injects faults in the order of the plan, and records them in a journal.

1. A pause lasts until others have taken over, and another worker is always running meanwhile. The
   paused process continues a moment later, while others run the jobs that it believes to hold.
2. It strikes only processes that run a job, and none while most children have not started working.
   Children that die early are replaced ever later, and there would be nothing left to strike.
3. `tick` ends a lasting fault, and `let_be` ends all of them.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from rowlock.app import App
from rowlock.chaos.database import CONNECTIONS_MAX, ChaosDatabase
from rowlock.chaos.journal import Journal, Word
from rowlock.chaos.plan import ChaosPlan, Fault
from rowlock.chaos.processes import Processes
from rowlock.chaos.proxy import FaultyProxy, Mode
from rowlock.errors import StoreUnavailable
from rowlock.testing.database import away, connect, execute
from rowlock.testing.processes import children_of, kill, send

# Longer than any takeover, and how long a pause lasts after one.
PAUSE_SECONDS_MAX: Final = 15.0
RESUME_SECONDS: Final = (0.0, 0.7)
_LOOK_SECONDS: Final = 0.25
# A fault of the database lasts for this many leases, at least and at most.
SHORT: Final = (0.2, 0.6)
LONG: Final = (1.2, 2.0)
# A worker's clock is wrong by at most this much, in both directions.
CLOCK_SECONDS_MAX: Final = 7_200


@dataclass(slots=True)
class Ongoing:
    """A fault that lasts until a time, and how to end it."""

    fault: Fault
    until: float
    end: Callable[[], object]
    # For a pause: the paused processes, and whether others have taken over their jobs.
    pids: list[int] = field(default_factory=list[int])
    is_taken: bool = False


class Nemesis:
    """Injects faults on request."""

    def __init__(
        self,
        plan: ChaosPlan,
        database: ChaosDatabase,
        processes: Processes,
        *,
        app: App,
        journal: Journal,
    ) -> None:
        self._plan = plan
        self._database = database
        self._processes = processes
        self._app = app
        self._journal = journal
        self._chance = plan.chance("nemesis")
        self._lasting: list[Ongoing] = []
        self._look_at = 0.0
        self._troubles = Troubles(database, self._chance, workers=plan.workers)
        self.dealt: Counter[Fault] = Counter()
        self._acts: dict[Fault, Callable[[], bool]] = {
            Fault.KILL_CHILD: self._kill_child,
            Fault.KILL_SUPERVISOR: lambda: self._lose_worker(with_children=False),
            Fault.KILL_WORKER: lambda: self._lose_worker(with_children=True),
            Fault.KILL_PRODUCER: self._lose_producer,
            Fault.PAUSE_CHILD: lambda: self._pause(whole=False),
            Fault.PAUSE_WORKER: lambda: self._pause(whole=True),
        }

    def strike(self, fault: Fault) -> bool:
        """Inject a fault. Return False if no process can be struck just now."""
        act = self._acts.get(fault)
        if act is not None:
            done = act()
        else:
            self._note(fault)
            done = self._trouble(fault)
        self.dealt[fault] += done
        return done

    def tick(self, *, at_once: bool = False) -> None:
        """End the faults that have lasted long enough."""
        self._end_pauses()
        now = time.monotonic()
        over = [each for each in self._lasting if at_once or each.until <= now]
        for each in over:
            self._lasting.remove(each)
            each.end()
            self._journal.note(Word.OVER, rest=each.fault)

    def _end_pauses(self) -> None:
        """Continue soon the processes whose jobs others have taken over."""
        now = time.monotonic()
        waiting = [each for each in self._lasting if each.pids and not each.is_taken]
        if not waiting or now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        try:
            holding = {worker.pid for worker in self._app.workers() if worker.running}
        except StoreUnavailable:
            return
        for each in waiting:
            if not holding.intersection(each.pids):
                each.is_taken = True
                each.until = now + self._chance.uniform(*RESUME_SECONDS)

    @property
    def is_striking(self) -> bool:
        """Whether a fault still lasts."""
        return bool(self._lasting)

    def let_be(self) -> None:
        """End all faults for good."""
        self.tick(at_once=True)
        self._troubles.end()

    def _note(self, fault: Fault, pids: list[int] | None = None) -> None:
        self._journal.note(Word.STRIKE, rest=f"{fault}:{','.join(map(str, pids or ()))}")

    # Processes

    def _at_work(self) -> dict[int, list[int]]:
        """Return the children that can be struck, those that run a job, by their supervisors.

        There are none while most have not started working, and none of a paused worker.
        """
        try:
            busy = {worker.pid: bool(worker.running) for worker in self._app.workers()}
        except StoreUnavailable:
            return {}
        families = {each.pid: children_of(each.pid) for each in self._processes.workers}
        there = {pid for family in families.values() for pid in family if pid in busy}
        if 2 * len(there) < self._plan.workers * self._plan.processes:
            return {}
        still = {pid for each in self._lasting for pid in each.pids}
        found = {
            parent: [pid for pid in family if busy.get(pid, False)]
            for parent, family in families.items()
            if not still.intersection((parent, *family))
        }
        return {parent: family for parent, family in found.items() if family}

    def _kill_child(self) -> bool:
        children = [child for family in self._at_work().values() for child in family]
        if not children:
            return False
        child = self._chance.choice(children)
        self._note(Fault.KILL_CHILD, [child])
        return bool(kill(child))

    def _lose_worker(self, *, with_children: bool) -> bool:
        parents = list(self._at_work())
        if not parents:
            return False
        parent = self._chance.choice(parents)
        number = next(n for n, each in enumerate(self._processes.workers) if each.pid == parent)
        pids = self._processes.lose_worker(number, with_children=with_children)
        self._note(Fault.KILL_WORKER if with_children else Fault.KILL_SUPERVISOR, pids)
        return True

    def _lose_producer(self) -> bool:
        pids = self._processes.lose_producer(self._chance.randrange(self._plan.producers))
        if pids:
            self._note(Fault.KILL_PRODUCER, pids)
        return bool(pids)

    def _pause(self, *, whole: bool) -> bool:
        at_work = self._at_work()
        pauses = sum(bool(each.pids) for each in self._lasting)
        if pauses >= self._plan.workers - 1 or not at_work:
            return False
        parent = self._chance.choice(list(at_work))
        child = self._chance.choice(at_work[parent])
        pids = [parent, *children_of(parent)] if whole else [child]
        fault = Fault.PAUSE_WORKER if whole else Fault.PAUSE_CHILD
        self._note(fault, pids)
        send(signal.SIGSTOP, pids)
        until = time.monotonic() + PAUSE_SECONDS_MAX
        self._lasting.append(Ongoing(fault, until, lambda: send(signal.SIGCONT, pids), pids))
        return True

    # The database and the line to it

    def _trouble(self, fault: Fault) -> bool:
        lasting = self._troubles.strike(fault)
        if lasting is not None:
            until = time.monotonic() + lasting.leases * self._plan.lease_seconds
            self._lasting.append(Ongoing(fault, until, lasting.end))
        return True


@dataclass(frozen=True, slots=True)
class Lasting:
    """A fault that lasts for some leases, and how to end it."""

    leases: float
    end: Callable[[], object]


class Troubles:
    """The faults of the database, of the lines to it, of clocks and of the disk."""

    def __init__(self, database: ChaosDatabase, chance: random.Random, *, workers: int) -> None:
        self._database = database
        self._workers = workers
        self._chance = chance
        self._held: list[Any] = []
        self._acts: dict[Fault, Callable[[], Lasting | None]] = {
            Fault.CRASH: self._crash,
            Fault.KILL_BACKEND: self._kill_backend,
            Fault.EXHAUST: self._exhaust,
            Fault.SWALLOW: self._swallow,
            Fault.CUT: self._cut,
            Fault.DELAY: partial(self._set, Mode.DELAY, SHORT),
            Fault.BLACKHOLE: partial(self._set, Mode.BLACKHOLE, LONG),
            Fault.STEP_CLOCK: self._step_clock,
            Fault.FILL_DISK: self._fill_disk,
        }

    def strike(self, fault: Fault) -> Lasting | None:
        """Inject a fault. Return how to end it, if it lasts."""
        return self._acts[fault]()

    def end(self) -> None:
        """End all faults."""
        for line in self._database.lines:
            line.mode = Mode.PASS
            line.swallow_no_more()
        self._let_go()

    def _line(self) -> FaultyProxy:
        return self._chance.choice(self._database.lines)

    def _crash(self) -> None:
        assert self._database.server is not None
        # The connections that we hold would be gone.
        self._let_go()
        self._database.server.restart(immediate=True)

    def _kill_backend(self) -> None:
        """End the server's process of a worker's or a producer's connection."""
        with suppress(*away()):
            execute(
                self._database.url,
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE "
                "application_name ~ '^(worker|producer)-[0-9]' AND datname = current_database() "
                "ORDER BY random() LIMIT 1) AS one",
            )

    def _swallow(self) -> None:
        self._line().swallow_commit()

    def _cut(self) -> None:
        self._line().cut()

    def _set(self, mode: Mode, leases: tuple[float, float]) -> Lasting:
        line = self._line()
        line.mode = mode

        def end() -> None:
            line.mode = Mode.PASS

        return Lasting(self._chance.uniform(*leases), end)

    def _step_clock(self) -> None:
        assert self._database.clocks is not None
        seconds = self._chance.randint(-CLOCK_SECONDS_MAX, CLOCK_SECONDS_MAX)
        self._database.clocks.set(self._chance.randrange(self._workers), seconds)

    def _fill_disk(self) -> Lasting:
        assert self._database.disk is not None
        self._database.disk.fill()
        return Lasting(self._chance.uniform(*SHORT), self._database.disk.free)

    def _exhaust(self) -> Lasting:
        """Take every connection that is left, so that nobody else gets a new one."""
        # The last one is refused.
        with suppress(*away()):
            for _ in range(CONNECTIONS_MAX):
                self._held.append(connect(self._database.url))
        return Lasting(self._chance.uniform(*LONG), self._let_go)

    def _let_go(self) -> None:
        while self._held:
            # The server may have crashed meanwhile.
            with suppress(*away()):
                self._held.pop().close()
