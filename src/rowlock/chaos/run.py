"""One run: injects faults while jobs are enqueued, waits until all have ended, and judges."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Final, Protocol, TypeVar

from rowlock.app import App
from rowlock.chaos import journal, witness
from rowlock.chaos.database import ChaosDatabase, DatabaseClock, integrity_problems
from rowlock.chaos.flow_rules import STUCK
from rowlock.chaos.job_record import recoveries
from rowlock.chaos.jobs import JOURNALS, chaos_app
from rowlock.chaos.journal import Journal, Word
from rowlock.chaos.judge import Judge
from rowlock.chaos.nemesis import Nemesis
from rowlock.chaos.plan import PROCESS_FAULTS, ChaosPlan, Fault
from rowlock.chaos.processes import LOGS, Processes
from rowlock.chaos.report import ChaosReport, Durations, gates_of
from rowlock.errors import NotFound, StoreUnavailable
from rowlock.store.ops import health
from rowlock.store.ops.workflow_info import open_workflows
from rowlock.testing.database import away
from rowlock.workflow_rules import WorkflowState

# The shortest time between two strikes, and the longest wait of one for the jobs of its share.
GAP_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 20.0
# Producers pause while more jobs than this are waiting.
BACKLOG_MAX: Final = 3_000
# No process is struck before all of them work.
WARM_SECONDS_MAX: Final = 60.0
# A lease, two looks of a sweep, and ample time for a machine under many faults.
RETURN_SECONDS_MAX: Final = 60.0
# This many ended jobs are enqueued once more.
REPEATS: Final = 50
_REPEATED: Final = ("brief ", "plain ", "fleeting ")
_TRIES: Final = 60
_LOOK_SECONDS: Final = 0.05
_COUNT_SECONDS: Final = 0.5
_CLOCK_SECONDS: Final = 2.0
_STUCK_SECONDS: Final = 1.0
SCHEDULE: Final = "every second"


T = TypeVar("T")


class OnProgress(Protocol):
    """Called with the number of jobs created."""

    def __call__(self, done: int) -> None: ...


class Chaos:
    """A run on a database, with a directory for its files."""

    def __init__(
        self,
        plan: ChaosPlan,
        database: ChaosDatabase,
        directory: Path,
        *,
        on_progress: OnProgress,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = plan
        self._database = database
        self._directory = directory
        self._environment = environment or {}
        self._on_progress = on_progress
        self._clock = DatabaseClock()
        self._rest = Event()
        self._looks: dict[str, float] = {}
        self._backlog = 0
        # When the schedule began and ended.
        self._scheduled = (0, 0)

    def run(self) -> ChaosReport:
        """Run, drain and judge. Return the report."""
        for name in (JOURNALS, LOGS):
            (self._directory / name).mkdir(parents=True)
        with chaos_app(self._database.url, schema=self._database.schema) as app:
            app.migrate()
            version = app.store.run(health.server()).version
            witness.watch(self._database.url, schema=self._database.schema)
            app.schedule(SCHEDULE, "tick", cron="* * * * * *", missed="all")
            self._scheduled = (time.monotonic_ns(), 0)
            self._clock.look(self._database)
            start = time.monotonic()
            with self._processes() as processes:
                nemesis, drain_seconds = self._trouble(app, processes)
            seconds = time.monotonic() - start
        return self._judge(
            nemesis, version=version, start=start, seconds=seconds, drain_seconds=drain_seconds
        )

    def _processes(self) -> Processes:
        workers = self._plan.workers

        def address(role: str, number: int, name: str) -> str:
            return self._database.address(number if role == "worker" else workers + number, name)

        def environment_of(role: str, number: int) -> Mapping[str, str]:
            clocks = self._database.clocks
            if clocks is None or role != "worker":
                return self._environment
            return {**self._environment, **clocks.environment(number)}

        return Processes(
            self._plan,
            self._directory,
            schema=self._database.schema,
            address=address,
            environment_of=environment_of,
        )

    # While it goes wrong, and after that

    def _trouble(self, app: App, processes: Processes) -> tuple[Nemesis, float]:
        said = Journal(self._directory / JOURNALS, "nemesis")
        nemesis = Nemesis(self._plan, self._database, processes, app=app, journal=said)
        self._warm_up(app, processes)
        strikes = self._plan.strikes()
        for number, fault in enumerate(strikes):
            self._wait(processes, nemesis, GAP_SECONDS)
            self._await_share(processes, nemesis, number, of=len(strikes))
            self._strike(processes, nemesis, fault, jobs=self._plan.jobs // len(strikes) + 1)
        processes.counts.allowed = self._plan.jobs
        while processes.is_producing or nemesis.is_striking:
            self._wait(processes, nemesis, _LOOK_SECONDS)
        nemesis.let_be()
        drain_seconds = self._drain(app, processes, nemesis, said)
        processes.end()
        said.close()
        return nemesis, drain_seconds

    def _strike(self, processes: Processes, nemesis: Nemesis, fault: Fault, *, jobs: int) -> None:
        """Strike as soon as a process can be struck."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not nemesis.strike(fault) and time.monotonic() < end:
            self._wait(processes, nemesis, _LOOK_SECONDS)
            if processes.counts.made >= processes.counts.allowed - self._plan.producers:
                # No process runs a job, so allow more jobs.
                processes.counts.allowed = min(self._plan.jobs, processes.counts.allowed + jobs)

    def _warm_up(self, app: App, processes: Processes) -> None:
        everybody = self._plan.workers * self._plan.processes
        end = time.monotonic() + WARM_SECONDS_MAX
        while len(app.workers()) < everybody and time.monotonic() < end:
            self._on_progress(0)
            processes.check()
            self._rest.wait(_LOOK_SECONDS)

    def _allow(self, processes: Processes, share: float) -> None:
        """Allow producers this share of the jobs, unless too many are waiting."""
        if self._is_due("count", _COUNT_SECONDS):
            self._backlog = self._unfinished()
        if self._backlog < BACKLOG_MAX:
            processes.counts.allowed = max(processes.counts.allowed, round(self._plan.jobs * share))

    def _unfinished(self) -> int:
        try:
            return witness.unfinished(self._database.url, schema=self._database.schema)
        except away():
            return self._backlog

    def _is_due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._looks.get(what, 0.0):
            return False
        self._looks[what] = now + seconds
        return True

    def _wait(self, processes: Processes, nemesis: Nemesis, seconds: float) -> None:
        self._rest.wait(seconds)
        nemesis.tick()
        processes.check()
        if self._is_due("clock", _CLOCK_SECONDS):
            self._clock.look(self._database)
        self._on_progress(processes.counts.made)

    def _await_share(self, processes: Processes, nemesis: Nemesis, number: int, *, of: int) -> None:
        """Wait for the jobs that come before a strike, up to a limit."""
        end = time.monotonic() + PATIENCE_SECONDS
        self._allow(processes, (number + 1) / of)
        while processes.counts.made < self._plan.jobs * number / of and time.monotonic() < end:
            self._wait(processes, nemesis, _LOOK_SECONDS)
            self._allow(processes, (number + 1) / of)

    def _drain(self, app: App, processes: Processes, nemesis: Nemesis, said: Journal) -> float:
        """Wait until all jobs have ended, and cancel those that wait for it."""
        start = time.monotonic()
        self._scheduled = (self._scheduled[0], time.monotonic_ns())
        self._insist(lambda: app.store.delete_schedule(SCHEDULE))
        lingering = self._insist(lambda: self._lingering(app))
        for id in lingering or ():
            said.note(Word.CANCEL, id)
            done = self._insist(lambda: app.cancel(id))  # noqa: B023  # used at once
            if done is not None:
                said.note(Word.CANCELLED, id, 0, done.outcome)
        self._until_drained(app, processes, nemesis, said)
        seconds = time.monotonic() - start
        self._repeat_some(app, said)
        self._until_drained(app, processes, nemesis, said)
        return seconds

    def _until_drained(
        self, app: App, processes: Processes, nemesis: Nemesis, said: Journal
    ) -> None:
        """Wait as long as the number of jobs keeps falling, because a busy machine is slow."""
        fewest, end = math.inf, 0.0
        while left := self._unfinished():
            now = time.monotonic()
            if left < fewest:
                fewest, end = left, now + self._plan.drain_seconds
            if now > end:
                return
            if self._is_due("stuck", _STUCK_SECONDS):
                self._insist(lambda: self._cancel_stuck(app, said))
            self._wait(processes, nemesis, 4 * _LOOK_SECONDS)

    @staticmethod
    def _cancel_stuck(app: App, said: Journal) -> None:
        """Cancel workflows whose jobs wait for the retry of a dead one."""
        for flow in app.store.run(open_workflows()):
            if flow.state is WorkflowState.DEAD and flow.has_waiting:
                said.note(Word.CANCEL_FLOW, flow.id, 0, STUCK)
                app.cancel_workflow(flow.id)

    def _insist(self, act: Callable[[], T]) -> T | None:
        """Retry an act on lost connections. Return None if the job does not exist."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return act()
            except NotFound:
                return None
            except StoreUnavailable:
                if not tries_left:
                    raise
                self._rest.wait(_COUNT_SECONDS)
        raise AssertionError("the last try returns or raises")

    @staticmethod
    def _lingering(app: App) -> list[str]:
        """Return the jobs that still wait to be cancelled."""
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = app.list(kind="linger", limit=1_000, cursor=cursor or None)
            found += [job.id for job in page.jobs if not job.state.is_terminal]
            cursor = page.next
        return found

    def _repeat_some(self, app: App, said: Journal) -> None:
        """Enqueue some long-ended jobs once more, which must have no effect."""
        known: dict[str, str] = {}
        acknowledged: list[str] = []
        for line in journal.read(self._directory / JOURNALS):
            if line.word is Word.ASK and line.rest.startswith(_REPEATED):
                known[line.job] = line.rest.partition(" ")[0]
            elif line.word is Word.NODE:
                # Its id is remembered by its workflow, which is sent again as a whole.
                known.pop(line.job, None)
            elif line.word is Word.ACK and line.rest == line.job and line.job in known:
                acknowledged.append(line.job)
        chosen = self._plan.chance("repeats").sample(acknowledged, min(REPEATS, len(acknowledged)))
        for id in chosen:
            payload = {"seconds": 0.01}
            answer = self._insist(lambda: app.enqueue(known[id], payload, id=id))  # noqa: B023
            if answer is not None:
                said.note(Word.ACK, id, 0, answer.id)

    # Judging

    def _judge(
        self, nemesis: Nemesis, *, version: str, start: float, seconds: float, drain_seconds: float
    ) -> ChaosReport:
        began = time.monotonic()
        database, judge = self._database, Judge(self._clock.to_monotonic)
        where = {"url": database.url, "schema": database.schema}
        for line in journal.read(self._directory / JOURNALS):
            judge.hear(line)
        for event in witness.read(**where):
            judge.see(event)
        judge.close(
            settled=witness.settled(**where),
            live=witness.live(**where),
            effects=witness.effects(**where),
            scheduled=self._scheduled,
        )
        for problem in integrity_problems(database):
            judge.findings.add(18, problem)
        counts = {
            **judge.counts,
            "struck": sum(nemesis.dealt[fault] for fault in PROCESS_FAULTS),
            "swallowed": sum(line.swallowed for line in database.lines),
        }
        recovered = recoveries(judge.records.values(), judge.strikes.struck)
        for fault, each in recovered.items():
            for took in each.returned:
                if took > RETURN_SECONDS_MAX:
                    judge.findings.add(13, f"{fault}: its job was given back after {took:.1f} s")
        return ChaosReport(
            store="SQLite" if database.is_sqlite else "PostgreSQL",
            version=version,
            plan=self._plan,
            seconds=seconds,
            drain_seconds=drain_seconds,
            judged_seconds=time.monotonic() - began,
            faults=nemesis.dealt,
            counts=counts,
            recovery={
                f"{fault}, until {what}": durations
                for fault, each in sorted(recovered.items())
                for what, took in (("given back", each.returned), ("run again", each.again))
                if (durations := Durations.of(took)) is not None
            },
            gates=gates_of(self._plan, counts),
            violations=dict(sorted(judge.findings.counts.items())),
            texts=judge.findings.lines(),
            ended=[at / 1e9 - start for at in judge.ended_at],
            struck=[(at / 1e9 - start, fault) for at, fault in judge.strikes.all],
        )
