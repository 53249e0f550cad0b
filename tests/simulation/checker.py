"""The judge: sees every commit and every run, and knows what must never be.

The numbers are those of the invariants:

1.  An acknowledged enqueue is never lost: the job ends in exactly one terminal state.
2.  No job comes from nowhere.
3.  An id is one job, however often it is enqueued.
4.  A lease is ended once; and by its own holder only after its run has ended, as the run has ended.
5.  Nobody changes a job by a lease that is another's, or that was ended.
6.  Attempts and tokens rise by one with each claim, attempts to their bound; what is not counted as
    an attempt is taken back. No lease of an id is given twice, even if its job was deleted in
    between and enqueued again.
7.  A lease is not given before the one before it was ended, or has expired by the database's clock.
8.  A key is held by one live job. Where it is free once its job runs, that is one that waits.
9.  No more jobs run at once than their limit allows, in total and per key, and none starts before
    its rate allows it.
10. Jobs of an ordered key start in their order.
11. Of two keys with a backlog, neither has more than two turns per claimer more than the other.
12. Nothing is claimed before its time.
13. A living worker's lease does not expire while nothing goes wrong, and what its worker gave back
    or knows to be lost is not started. A job at an open limit is started in seconds.
14. What was cancelled while it waited is not run, and what was cancelled does not come back.
16. When nothing goes wrong any more, all jobs end within a bounded time.
20. Each tick of a schedule is enqueued once, and none is left out of one that makes up for all.
21. A run that is cut short leaves a trace in the job's errors; and what never began is not counted
    as an attempt.
22. A job with one attempt is run at most once, until somebody retries it.
23. to 25. Jobs wait for jobs as their workflows say (`flows`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import datetime

from rowlock.chaos.limit_rules import LimitJudge
from rowlock.chaos.witness import CommittedChange, What
from rowlock.job import KEY_HELD_UNTIL_STARTED
from rowlock.store import NewJob
from tests.simulation.database import Change
from tests.simulation.fairness import FairShares
from tests.simulation.flows import CANCEL_FLOW, REVIVERS, FlowJudge
from tests.simulation.limits import LIMITS
from tests.simulation.loop import Host, SimulatedLoop

JOURNAL_LINES = 400
ERRORS_KEPT = 20
# Those who take what has expired, whoever holds it.
_SWEEPERS = {"sweep", "recover", "claim"}
# How a run ends that asks to be run again.
_AGAIN = {"Release", "Throttled"}
_MAKERS = {"enqueue", "settle", "fire_due", "run_schedule_now", "enqueue_workflow"}
_CANCELS = {"cancel", "bulk", CANCEL_FLOW}


class ViolationError(AssertionError):
    """What must never be was."""


@dataclass(slots=True)
class Run:
    """One run of a handler."""

    host: Host
    outcome: str | None = None


@dataclass(slots=True)
class Live:
    """What the judge knows of a job."""

    kind: str
    # Its last token, and who holds it.
    token: int
    worker: str | None = None
    claimed_at: float = 0.0
    state: str = "waiting"
    is_at_most_once: bool = False
    # Since it was enqueued or retried.
    has_run: bool = False
    # By whom each lease was ended.
    ended: dict[int, str] = field(default_factory=dict)


class Checker:
    """The witness of a simulation."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._digest = hashlib.blake2b(digest_size=16)
        self.journal: deque[str] = deque(maxlen=JOURNAL_LINES)
        self.counts: Counter[str] = Counter()
        self.jobs: dict[str, Live] = {}
        self.live: set[str] = set()
        self._keys: dict[tuple[str, str, str], str] = {}
        self._asked: dict[str, NewJob] = {}
        self._acknowledged: set[str] = set()
        self._runs: dict[tuple[str, int], Run] = {}
        # Who acts for which workers: a child for itself, a supervisor for its children.
        self._workers: dict[Host, set[str]] = {}
        self._homes: dict[str, Host] = {}
        self._given: set[tuple[str, int]] = set()
        # Whose runs were marked as begun.
        self._marked: set[tuple[str, int]] = set()
        self._told_lost: set[tuple[str, int]] = set()
        self._ticks: dict[str, set[int]] = {}
        numbers = {name: limit.numbers for name, limit in LIMITS.items()}
        # Whatever is inserted is known: commits come one after the other.
        self._limits = LimitJudge(numbers, lambda _, __: True)
        self._fairness = FairShares("fair", numbers["fair"].weights)
        self.flows = FlowJudge()
        # When the faults ended, if they have.
        self.calm_since: float | None = None
        self._minute = -1.0

    # The journal

    def note(self, *words: object) -> None:
        line = f"{self._loop.now:.6f} {' '.join(map(str, words))}"
        self.journal.append(line)
        self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """Two runs with the same one did the same."""
        return self._digest.hexdigest()

    def _refuse(self, number: int, *words: object) -> None:
        text = f"I{number}: {' '.join(map(str, words))}"
        self.note("VIOLATION", text)
        error = ViolationError(text)
        # Whoever is told may take it for a failure of their own.
        self._loop.failures.append(error)
        raise error

    # What the others tell

    def works(self, worker: str, *, host: Host, supervisor: Host) -> None:
        """A new worker, and who may act for it."""
        self._homes[worker] = host
        for each in (host, supervisor):
            self._workers.setdefault(each, set()).add(worker)

    def asked(self, job: NewJob) -> None:
        """A producer asks for this; whether it will be is not known yet."""
        self._asked[job.id] = job

    def acknowledged(self, id: str) -> None:
        """A producer was told that the job is there."""
        if id not in self.jobs:
            self._refuse(1, f"{id} was acknowledged and is not there")
        self._acknowledged.add(id)
        self.counts["acknowledged"] += 1

    def started(self, id: str, token: int, host: Host) -> None:
        """A handler has begun."""
        self.note("start", host, id, token)
        self.counts["started"] += 1
        job = self.jobs.get(id)
        if job is None or token > job.token:
            self._refuse(2, f"{id} is run with token {token}, which nobody gave")
            return
        if (id, token) in self._runs:
            self._refuse(4, f"{id} is run twice with token {token}")
        self._runs[id, token] = Run(host)
        if job.is_at_most_once:
            if job.has_run:
                self._refuse(22, f"{id} has one attempt, and is run again with token {token}")
            job.has_run = True
        if (id, token) in self._told_lost:
            self._refuse(13, f"{id} is started by {host}, which knows that {token} is lost")
        if (how := job.ended.get(token)) is not None:
            self.counts["started stale"] += 1
            if how == "own":
                self._refuse(13, f"{id} is started by {host}, which has given {token} back")
            if how == "cancel":
                self._refuse(14, f"{id} was cancelled while it waited, and is started")
            if self._is_calm(job):
                self._refuse(13, f"{id} is started by {host} without a lease: {how}")

    def finished(self, id: str, token: int, outcome: str) -> None:
        """A handler has ended."""
        self.note("end", id, token, outcome)
        self._runs[id, token].outcome = outcome
        if outcome in _AGAIN and id in self.jobs:
            # It has asked to be run again.
            self.jobs[id].has_run = False

    def lost(self, id: str, token: int) -> None:
        """A worker was told that its lease is another's."""
        self._told_lost.add((id, token))
        self.counts["leases lost"] += 1

    # Commits

    def committed(self, host: Host, op: str, now: int, changes: list[Change]) -> None:
        if not changes:
            return
        self._check_limits(now, changes)
        self.note(now, host, op, *map(_brief, changes))
        for number, text in self.flows.committed(op, changes):
            self._refuse(number, text)
        minute = self._loop.now // 60
        if minute != self._minute:
            self._minute = minute
            self.counts["busy minutes"] += 1
        by_kind = {
            what: {change.id: change for change in changes if change.what == what}
            for what in "idID"
        }
        ended, dropped = by_kind["I"], by_kind["D"]
        # What was made in vain is removed again before anyone sees it.
        vain = by_kind["i"].keys() & by_kind["d"].keys() - ended.keys()
        for change in changes:
            if change.id in vain:
                continue
            match change.what:
                case "i":
                    self._inserted(op, change, dropped.get(change.id))
                case "u":
                    self._updated(host, op, now, change)
                case "d":
                    self._deleted(host, op, now, change, ended.get(change.id))
                case "D":
                    self._forgotten(op, now, change)
        for id in sorted(ended.keys() - by_kind["d"].keys()):
            self._refuse(4, f"{id} has ended a second time, by {op}")

    def _check_limits(self, now: int, changes: list[Change]) -> None:
        for change in changes:
            self._fairness.see(change)
            what = _what(change)
            if what is None or change.new_limit_name is None:
                continue
            event = CommittedChange(
                at=now,
                actor=None,
                what=what,
                job=change.id,
                token=change.new_token,
                attempt=change.new_attempt,
                limit_name=change.new_limit_name,
                limit_key=change.limit_key,
                place=change.place,
                started_at=now,
            )
            for number, text in self._limits.see(event):
                self._refuse(number, text)
            self.counts["limit starts"] += what is What.CLAIMED
        if (problem := self._fairness.problem()) is not None:
            self._refuse(11, problem)

    def _inserted(self, op: str, change: Change, dropped: Change | None) -> None:
        id = change.id
        if op in REVIVERS:
            if dropped is None or change.token != dropped.token or change.attempt:
                self._refuse(6, f"{id} came back with token {change.token}, from {dropped}")
            self.jobs[id].state = "waiting"
            self.jobs[id].has_run = False
            # It may be run again, after all.
            self.jobs[id].ended.pop(change.token + 1, None)
            self.counts["revived"] += 1
        elif op not in _MAKERS:
            self._refuse(2, f"{id} was made by {op}")
        elif op in {"enqueue", "enqueue_workflow"} and not self._is_asked(id):
            self._refuse(2, f"{id} was never asked for")
        elif id in self.jobs and self.jobs[id].state != "deleted":
            self._refuse(3, f"{id} is there a second time, by {op}; it was {self.jobs[id].state}")
        else:
            is_at_most_once = change.max_attempts == 1
            self.jobs[id] = Live(change.kind, change.token, is_at_most_once=is_at_most_once)
            self._tick(change)
        self.live.add(id)
        self._hold_key(change)

    def _is_asked(self, id: str) -> bool:
        return id in self._asked or self.flows.is_asked(id)

    def _hold_key(self, change: Change) -> None:
        if change.key is None:
            return
        key = (change.tenant or "", change.kind, change.key)
        if key in self._keys:
            self._refuse(8, f"{change.id} has the key {key} of {self._keys[key]}")
        self._keys[key] = change.id

    def _free_key(self, change: Change) -> None:
        key = (change.tenant or "", change.kind, change.key or "")
        if self._keys.get(key) == change.id:
            del self._keys[key]

    def _tick(self, change: Change) -> None:
        meta = json.loads(change.meta) if change.meta else {}
        if "tick" not in meta:
            return
        tick = round(datetime.fromisoformat(meta["tick"]).timestamp())
        ticks = self._ticks.setdefault(meta["schedule"], set())
        if tick in ticks:
            self._refuse(20, f"tick {tick} of {meta['schedule']} was fired twice")
        ticks.add(tick)
        self.counts["ticks"] += 1

    def _updated(self, host: Host, op: str, now: int, change: Change) -> None:
        if change.leased_until is None:
            if change.new_leased_until is not None:
                self._claimed(host, op, now, change)
            elif op != "promote" and change.new_token != change.token:
                self._refuse(6, f"the token of {change.id} changed without a claim, by {op}")
            return
        if op == "claim" and change.limit_name is None and change.new_limit_name is not None:
            # It was sent without its limit, and goes there as if it had not been claimed.
            self.jobs[change.id].state = "waiting"
            self.counts["sent to rooms"] += 1
            return
        if change.new_token != change.token:
            self._refuse(7, f"{change.id} was claimed over a lease until {change.leased_until}")
        if change.new_leased_until is None:
            self._ended(host, op, now, change, state=None)
        elif op == "begin":
            self._check_holder(host, op, change)
            self._marked.add((change.id, change.token))
        elif op in {"heartbeat", "progress", "log", "report"}:
            self._check_holder(host, op, change)
            if op == "heartbeat" and change.new_leased_until < now:
                self._refuse(7, f"a beat for {change.id} ends in the past")
        elif change.new_leased_until != change.leased_until:
            self._refuse(5, f"the lease of {change.id} was moved by {op}")
        elif change.new_cancel_requested != change.cancel_requested and op not in _CANCELS:
            self._refuse(14, f"{change.id} was asked to cancel by {op}")

    def _claimed(self, host: Host, op: str, now: int, change: Change) -> None:
        id, job = change.id, self.jobs[change.id]
        self.counts["claims"] += 1
        if op != "claim" or change.new_worker not in self._workers.get(host, ()):
            self._refuse(5, f"{id} was leased to {change.new_worker} by {op} of {host}")
        if self.flows.waits(id):
            self._refuse(23, f"{id} was claimed, and waits for others")
        if change.run_at > now:
            self._refuse(12, f"{id} was claimed {change.run_at - now} µs before its time")
        if (id, change.new_token) in self._given:
            self._refuse(6, f"the lease {change.new_token} of {id} was given before")
        self._given.add((id, change.new_token))
        if change.new_token != change.token + 1 or change.new_attempt != change.attempt + 1:
            self._refuse(6, f"{id} was claimed: {change}")
        if change.max_attempts is not None and change.new_attempt > change.max_attempts:
            self._refuse(6, f"{id} has more attempts than {change.max_attempts}")
        if change.cancel_requested:
            self._refuse(14, f"{id} was claimed though somebody asked to cancel it")
        job.state, job.token, job.worker = "leased", change.new_token, change.new_worker
        job.claimed_at = self._loop.now
        if change.new_worker.startswith("tenant:"):
            # Over HTTP the claim is the beginning, even if its answer is lost.
            self._marked.add((id, change.new_token))
        if change.key_hold == KEY_HELD_UNTIL_STARTED:
            self._free_key(change)

    def _check_holder(self, host: Host, op: str, change: Change) -> None:
        if change.worker not in self._workers.get(host, ()):
            self._refuse(5, f"{op} of {host} for {change.id}, which {change.worker} holds")

    def _ended(self, host: Host, op: str, now: int, change: Change, state: str | None) -> None:
        """A lease was ended, with a terminal state or without."""
        id, job = change.id, self.jobs[change.id]
        is_own = change.worker in self._workers.get(host, ())
        assert change.leased_until is not None
        if change.token in job.ended:
            self._refuse(4, f"the lease {change.token} of {id} was ended twice")
        if op in _SWEEPERS:
            if change.leased_until > now:
                left = change.leased_until - now
                self._refuse(7, f"{op} of {host} took {id}, whose lease had {left} µs left")
            if self._is_calm(job):
                self._refuse(13, f"the lease of {id} expired, and {job.worker} lives")
            self.counts["rescued"] += 1
            job.ended[change.token] = "expired"
        else:
            self._check_own_end(host, op, change, state)
            job.ended[change.token] = "own" if is_own else "another"
        if state is None:
            job.state = "waiting"
            if change.cancel_requested:
                self._refuse(14, f"{id} was asked to cancel, and came back by {op}")
            self._check_attempt(op, change)
            if change.key_hold == KEY_HELD_UNTIL_STARTED:
                self._hold_key(change)

    def _check_own_end(self, host: Host, op: str, change: Change, state: str | None) -> None:
        id, token = change.id, change.token
        self._check_holder(host, op, change)
        run = self._runs.get((id, token))
        is_alive = run is not None and run.outcome is None and not run.host.is_dead
        if is_alive:
            self._refuse(4, f"{op} of {host} ended the run {token} of {id}, which goes on")
        if op == "settle":
            outcome = None if run is None else run.outcome
            if state == "succeeded" and outcome != "ok":
                self._refuse(4, f"{id} succeeded with token {token}, and its run: {outcome}")
            if outcome == "ok" and state not in {"succeeded", "gone"} and run.host is host:
                self._refuse(4, f"{id} is {state} with token {token}, and its run was good")
        elif op not in {"release_worker", "release_unknown"}:
            self._refuse(5, f"the lease of {id} was ended by {op} of {host}")

    def _check_attempt(self, op: str, change: Change) -> None:
        """A job came back: what was counted, and what was written of it."""
        id, run = change.id, self._runs.get((change.id, change.token))
        is_counted = change.new_attempt == change.attempt
        if change.new_attempt not in {change.attempt, change.attempt - 1}:
            self._refuse(6, f"attempt {change.attempt} of {id} became {change.new_attempt}")
        if is_counted and op in {"release_worker", "release_unknown"}:
            self._refuse(6, f"{op} has counted an attempt of {id}")
        if is_counted and run is None and (id, change.token) not in self._marked:
            self._refuse(21, f"{id} never began with token {change.token}, and {op} has counted it")
        is_noted = change.new_errors > change.errors or change.errors >= ERRORS_KEPT
        if run is not None and not is_noted and run.outcome not in _AGAIN:
            # Its own end is settled as what it was; a run that was cut short is written down.
            self._refuse(21, f"{id} began with token {change.token}, and {op} left no trace of it")

    def _is_calm(self, job: Live) -> bool:
        """Whether it was claimed when nothing went wrong any more, by one that lives."""
        if self.calm_since is None or job.claimed_at < self.calm_since or job.worker is None:
            return False
        return not self._homes[job.worker].is_dead

    def _deleted(self, host: Host, op: str, now: int, change: Change, ended: Change | None) -> None:
        id, job = change.id, self.jobs[change.id]
        state = None if ended is None else ended.state
        if change.leased_until is not None:
            self._ended(host, op, now, change, state=state or "gone")
        elif op in _CANCELS:
            job.ended[change.token + 1] = "cancel"
        elif op != "delete" and not self.flows.is_doomed(id):
            self._refuse(1, f"{id} was removed by {op} while it waited")
        is_kept = change.kind != "brief" or change.workflow is not None
        if ended is None and op != "delete" and is_kept:
            self._refuse(1, f"{id} was removed by {op}, and is nowhere")
        job.state = "deleted" if op == "delete" else state or "gone"
        self.counts[job.state] += 1
        self._leave(change)

    def _leave(self, change: Change) -> None:
        self.live.discard(change.id)
        self._free_key(change)

    def _forgotten(self, op: str, now: int, change: Change) -> None:
        """A finished job was removed."""
        if op == "delete":
            self.jobs[change.id].state = "deleted"
        if op in REVIVERS or op == "delete":
            return
        if op != "prune" or change.expires_at is None or change.expires_at > now:
            self._refuse(1, f"{change.id} was removed by {op} before its time")
        self.counts["pruned"] += 1

    # The end

    def check_end(self, contiguous: dict[str, int]) -> None:
        """Nothing is left, nothing was lost; of schedules that make up for all, no tick is missing.

        Args:
            contiguous: The seconds between two ticks of those schedules.
        """
        for id in sorted(self._acknowledged):
            if self.jobs[id].state in {"waiting", "leased"}:
                self._refuse(1, f"{id} was acknowledged and is {self.jobs[id].state}")
        for name, seconds in contiguous.items():
            ticks = sorted(self._ticks.get(name, ()))
            for before, after in itertools.pairwise(ticks):
                if after - before != seconds:
                    self._refuse(20, f"{name} was fired at {before} and next at {after}")


def _what(change: Change) -> What | None:
    """What a change of a row is to the rules of limits."""
    is_free, is_freed = change.leased_until is None, change.new_leased_until is None
    match change.what:
        case "i":
            return What.INSERTED
        case "d":
            return What.DELETED
        case "u" if is_free != is_freed:
            return What.CLAIMED if is_free else What.RETURNED
        case _:
            return None


def _brief(change: Change) -> str:
    return (
        f"[{change.what} {change.id} {change.token}>{change.new_token} "
        f"{change.attempt}>{change.new_attempt} {change.leased_until}>{change.new_leased_until} "
        f"{change.worker}>{change.new_worker} {change.state or ''}]"
    )
