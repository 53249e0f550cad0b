"""The judge: compares journals and commits, and finds every broken invariant.

The numbers are those of the invariants in the simulation:

1.  An acknowledged enqueue is never lost: the job ends in exactly one terminal state. A follow-up
    exists if its parent has succeeded.
2.  Every job was enqueued by a producer, and every follow-up by its parent's success.
3.  An id is one job, however often it is enqueued.
4.  A run is settled once, and a job ends once. It succeeds only by a run that recorded success.
5.  A job is changed only under its current lease.
6.  Attempts and tokens rise by one with each claim, attempts up to their limit. An attempt is used
    up by the job's own failure, or by a strike that hit it while it ran alone (`attempts`).
7.  A lease is granted only after the previous one was ended, or expired by the database's clock.
8.  A key is held by one live job.
9.  No more jobs run at once than their limit allows, in total and per key, and none starts before
    its rate allows it.
10. Jobs of an ordered key start in their order.
12. No job is claimed or started before its time.
13. The jobs of a dead process run again within a bounded time.
14. A job that was cancelled while it waited does not run, a job with a cancel request does not
    return to the queue, and a handler that waits to be cancelled sees the request.
15. The rows stored at the end are those that were committed.
16. When the faults stop, all jobs end.
17. A handler gets the job that was enqueued: its kind, its tenant.
18. The database's own integrity checks pass.
19. A handler's writes in the transaction of its success exist once, and only with that success.
20. Each tick of a schedule is enqueued once. A schedule that makes up for all ticks leaves none
    out. Ticks don't stop.
21. A run that is cut short leaves a trace in the job's errors. A run that never began isn't counted
    as an attempt.
22. A job with one attempt runs at most once, and does not end dead before it ran.
23. A job of a workflow is claimed only after the ends of the jobs that it waits for allow it, and
    is released once (`flow_rules`).
24. No job of a workflow is left waiting when they do.

It reads every line of the journals, then every event of the witness, then the rows stored at the
end. It keeps one record per job, and reads each line once.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from rowlock.chaos.attempts import POISON, SLACK_NS, AttemptRules
from rowlock.chaos.flow_rules import FlowRules
from rowlock.chaos.job_record import FLEETING, Acknowledged, HandlerRun, JobRecord, Strikes
from rowlock.chaos.jobs import LIMITS
from rowlock.chaos.journal import JournalLine, Word
from rowlock.chaos.limit_rules import LimitJudge, counts_of
from rowlock.chaos.witness import CommittedChange, FinishedRow, What

# The tolerance between two clocks of one machine, of which one counts milliseconds.
SLACK_US: Final = 5_000
ONCE: Final = "once"
MORTAL: Final = ("doom", POISON, ONCE)
TICK: Final = "tick"
# How a run ends that leaves no trace: its handler was throttled.
THROTTLED: Final = "throttled"
# A scheduler may be late, because all of them may be killed at once.
TICK_NS_MAX: Final = 60_000_000_000

# This many findings per number are shown. All are counted.
SHOWN_MAX: Final = 10

ToMonotonic = Callable[[int], int]


class Judge:
    """Reads journals, then commits, then the final rows, and collects findings."""

    def __init__(self, to_monotonic: ToMonotonic) -> None:
        """`to_monotonic` converts a time of the database to nanoseconds."""
        self._to_monotonic = to_monotonic
        self.findings: Findings = Findings()
        self.counts: Counter[str] = Counter()
        self.records: dict[str, JobRecord] = {}
        self.ended_at: list[int] = []
        self._follows: dict[str, tuple[str, int]] = {}
        self._keys: dict[tuple[str, str, str], str] = {}
        self.strikes: Strikes = Strikes()
        self._attempts = AttemptRules(self.strikes)
        numbers = {name: limit.numbers for name, limit in LIMITS.items()}
        self._limits = LimitJudge(numbers, self._was_known)
        self._flows = FlowRules()
        self._crashed_workers: set[str] = set()
        self._ticks: dict[str, set[int]] = {}

    def _record(self, job: str) -> JobRecord:
        record = self.records.get(job)
        if record is None:
            record = self.records[job] = JobRecord()
        return record

    # What processes said

    def hear(self, line: JournalLine) -> None:
        """Take a line of a journal. Those of one process come in order."""
        self._flows.hear(line)
        match line.word:
            case Word.ASK:
                self._asked(line)
            case Word.ACK:
                self._acknowledged(line)
            case Word.UNKNOWN:
                self.counts["unknown"] += 1
            case Word.CANCELLED:
                self._record(line.job).cancel = line.rest
                self.counts["cancels"] += 1
            case Word.START:
                self._started(line)
            case Word.END:
                run = self._record(line.job).runs.get(line.token)
                if run is not None:
                    run.end, run.how = line.at, line.rest
            case Word.FOLLOW:
                self._follows[line.job] = (line.rest, line.token)
                self._ask_for(line.job, "brief", None)
            case Word.STRIKE:
                self.strikes.hear(line)
            case Word.CANCEL | Word.OVER | Word.NODE | Word.SINK | Word.CANCEL_FLOW:
                pass

    def _asked(self, line: JournalLine) -> None:
        kind, tenant, delay = line.rest.split()
        record = self._ask_for(line.job, kind, None if tenant == "-" else tenant)
        # The first time counts: a job that is sent again was due from then on.
        record.asked_at = record.asked_at or line.at
        record.delay = int(delay)
        self.counts["asked"] += 1

    def _ask_for(self, job: str, kind: str, tenant: str | None) -> JobRecord:
        record = self._record(job)
        record.kind, record.tenant = kind, tenant
        return record

    def _acknowledged(self, line: JournalLine) -> None:
        record, is_own = self._record(line.job), line.rest == line.job
        is_again = record.acknowledged is not Acknowledged.NOTHING
        self.counts["repeats" if is_again else "acknowledged"] += 1
        record.acknowledged = Acknowledged.OWN if is_own else Acknowledged.ANOTHER
        if is_own and record.acknowledged_at is None:
            record.acknowledged_at = line.at

    def _was_known(self, job: str, at: int) -> bool:
        """Whether a job was acknowledged before a time of the database."""
        known_at = self._record(job).acknowledged_at
        return known_at is not None and known_at + SLACK_NS < self._to_monotonic(at)

    def _started(self, line: JournalLine) -> None:
        record, job, token = self._record(line.job), line.job, line.token
        self.counts["runs"] += 1
        if token in record.runs:
            self.findings.add(4, f"{job} ran twice with token {token}")
        record.runs[token] = HandlerRun(line.at, line.pid)
        _, kind, tenant = line.rest.split()
        if kind == TICK:
            record.kind = TICK
        elif (kind, tenant) != (record.kind, record.tenant or "-") and record.asked_at:
            wanted = f"{record.kind} of {record.tenant}"
            self.findings.add(17, f"{job} was enqueued as {wanted}, but ran as {kind} of {tenant}")

    # What was committed

    def see(self, event: CommittedChange) -> None:
        """Take an event of the witness. Those of one job come in order."""
        record = self._record(event.job)
        for number, text in itertools.chain(self._limits.see(event), self._flows.see(event)):
            self.findings.add(number, text)
        match event.what:
            case What.INSERTED:
                self._inserted(record, event)
            case What.CLAIMED:
                self._claimed(record, event)
            case What.BEATEN:
                self._check_actor(record, event, "beat for")
            case What.MARKED:
                record.marked.add(event.token)
            case What.FLAGGED:
                record.is_flagged = event.is_cancelled
            case What.RETURNED:
                self._returned(record, event)
            case What.DELETED:
                self._deleted(record, event)
            case What.FINISHED:
                self._finished(record, event)
            case What.RELEASED | What.RECOUNTED:
                pass
            case What.CHANGED:
                self.findings.add(4, f"{event.job} was finished, but is written again")

    def _inserted(self, record: JobRecord, event: CommittedChange) -> None:
        record.inserted += 1
        record.is_again = record.inserted > 1
        if not record.is_again:
            # For a given id, tokens start at the clock.
            record.token = event.token
        if event.kind == TICK:
            record.kind = TICK
            self._tick(event)
        elif record.kind is None:
            self.findings.add(2, f"{event.job} ({event.kind}) was never enqueued")
        if event.key is not None:
            key = (event.tenant or "", event.kind, event.key)
            other = self._keys.get(key)
            if other is not None and other != event.job:
                self.findings.add(8, f"{event.job} has the key {key}, which {other} holds")
            self._keys[key] = event.job

    def _tick(self, event: CommittedChange) -> None:
        meta = json.loads(event.meta or "{}")
        tick = round(datetime.fromisoformat(meta["tick"]).timestamp())
        ticks = self._ticks.setdefault(meta["schedule"], set())
        if tick in ticks:
            self.findings.add(20, f"tick {tick} of {meta['schedule']} was fired twice")
        ticks.add(tick)
        self.counts["ticks"] += 1

    def _claimed(self, record: JobRecord, event: CommittedChange) -> None:
        job = event.job
        self.counts["claims"] += 1
        if record.is_again:
            self.findings.add(3, f"{job} exists twice, and is claimed")
        if record.is_over:
            number = 14 if record.state == "cancelled" else 4
            self.findings.add(number, f"{job} is {record.state or 'gone'}, and is claimed")
        if record.is_held:
            self.findings.add(7, f"{job} is claimed over the lease of token {event.was_token}")
        if event.token != (event.was_token or 0) + 1:
            self.findings.add(6, f"{job}: a claim made token {event.was_token} {event.token}")
        if event.attempt != (event.was_attempt or 0) + 1:
            self.findings.add(6, f"{job}: a claim made attempt {event.was_attempt} {event.attempt}")
        if event.max_attempts is not None and event.attempt > event.max_attempts:
            self.findings.add(6, f"{job} has more attempts than {event.max_attempts}")
        if event.run_at is not None and event.run_at > event.at + SLACK_US:
            early = event.run_at - event.at
            self.findings.add(12, f"{job} was claimed {early} µs before its time")
        if event.is_cancelled:
            self.findings.add(14, f"{job} was claimed in spite of a cancel request")
        record.token, record.is_held, record.holder = event.token, True, event.actor

    def _returned(self, record: JobRecord, event: CommittedChange) -> None:
        job = event.job
        self._check_held(record, event, "given back")
        was = event.was_attempt or 0
        # A run that is known not to have begun leaves no trace, either.
        is_expired = event.lease is not None and event.lease <= event.at
        is_lost = event.is_taken and (event.is_noted or is_expired)
        if not is_lost:
            self._check_actor(record, event, "gave back")
        record.is_held = False
        run = record.runs.get(event.token)
        if run is not None:
            run.returned = self._to_monotonic(event.at)
        if event.attempt not in (was, max(0, was - 1)):
            self.findings.add(6, f"attempt {was} of {job} became {event.attempt}")
        if run is not None and not event.is_noted and run.how != THROTTLED:
            self.findings.add(21, f"{job} ran with token {event.token}, but left no trace")
        has_begun = event.token in record.marked or self._may_have_crashed(event)
        if run is None and event.attempt == was and not has_begun:
            self.findings.add(21, f"{job} never began with token {event.token}, but was counted")
        if run is not None and event.attempt < was:
            self.counts["interrupted"] += 1
        self._attempts.cut_short(record, event)
        problem = self._attempts.returned(record, event, self._to_monotonic(event.at))
        if problem is not None:
            self.findings.add(6, f"run {event.token} of {job} ({record.kind}) {problem}")
        if event.is_cancelled:
            self.findings.add(14, f"{job} had a cancel request, but came back")
        if not is_lost:
            return
        self._check_expired(event)
        self.counts["rescues"] += 1
        if run is not None and run.end is not None and run.end > (run.returned or 0):
            self.counts["late ends"] += 1

    def _may_have_crashed(self, event: CommittedChange) -> bool:
        """Whether its process may have been killed just before the first line of its handler.

        Its worker counts a run from the note that precedes that line, which the journal does not
        have. Only a run that was alone in its process is counted after a crash: so that is true of
        one job for each worker that died.
        """
        worker = event.worker
        if not event.is_crash or worker is None or worker in self._crashed_workers:
            return False
        self._crashed_workers.add(worker)
        return True

    def _check_expired(self, event: CommittedChange) -> None:
        if event.lease is not None and event.lease > event.at + SLACK_US:
            left = event.lease - event.at
            self.findings.add(7, f"{event.job} was taken while its lease had {left} µs left")

    def _check_held(self, record: JobRecord, event: CommittedChange, how: str) -> None:
        if not record.is_held or record.token != event.token:
            self.findings.add(5, f"{event.job} is {how} with token {event.token}, not its holder's")

    def _check_actor(self, record: JobRecord, event: CommittedChange, what: str) -> None:
        """Check that the holder itself did it. Known only where connections have names."""
        if event.actor is not None and record.is_held and event.actor != record.holder:
            self.findings.add(5, f"{event.actor} {what} {event.job}, which {record.holder} holds")

    def _deleted(self, record: JobRecord, event: CommittedChange) -> None:
        if event.key is not None:
            self._keys.pop((event.tenant or "", event.kind, event.key), None)
        if event.lease is not None:
            self._ended(record, event)
        elif record.is_again:
            record.is_again, record.inserted = False, record.inserted - 1
            self.counts["withdrawn"] += 1
        elif record.state is None:
            record.is_withdrawn, record.inserted = True, record.inserted - 1

    def _ended(self, record: JobRecord, event: CommittedChange) -> None:
        record.ends += 1
        if record.ends > 1:
            self.findings.add(4, f"{event.job} has ended a second time")
        if record.is_held or record.state is None:
            self._check_held(record, event, "ended")
        if record.kind == FLEETING and not event.is_cancelled:
            # A success, unless it is written as dead: which of the two comes first is not known.
            record.left = event
        if record.kind == FLEETING or record.state is not None:
            record.is_held = False

    def _finished(self, record: JobRecord, event: CommittedChange) -> None:
        record.settles += 1
        if record.settles > 1:
            self.findings.add(4, f"{event.job} was {record.state}, and has become {event.state}")
        if record.is_withdrawn:
            record.is_withdrawn, record.inserted = False, record.inserted + 1
        if not event.is_taken:
            self._check_actor(record, event, "ended")
        record.state = event.state
        if event.state == "succeeded":
            self._check_success(record, event)
        elif event.state == "dead":
            self._died(record, event)
        if record.ends:
            record.is_held = False

    def _died(self, record: JobRecord, event: CommittedChange) -> None:
        self.counts["dead"] += 1
        self.counts["poisoned"] += record.kind == POISON
        self._attempts.cut_short(record, event)
        if record.kind in MORTAL:
            return
        problem = self._attempts.dead(record, event, self._to_monotonic(event.at))
        self.counts["used up by strikes"] += problem is None
        if problem is not None:
            text = f"{event.job} ({record.kind}) ended dead, but {problem}: {event.errors}"
            self.findings.add(6, text)

    def _check_success(self, record: JobRecord, event: CommittedChange) -> None:
        job, token, run = event.job, event.token, record.runs.get(event.token)
        at = self._to_monotonic(event.at)
        self.ended_at.append(at)
        self.counts["succeeded"] += 1
        if run is None:
            self.findings.add(4, f"{job} has succeeded with token {token}, which was never run")
        elif run.end is None or run.how != "ok":
            said = run.how or "nothing"
            self.findings.add(4, f"{job} has succeeded with token {token}, whose run said {said}")
        elif run.end > at + SLACK_NS:
            late = (run.end - at) / 1e6
            self.findings.add(5, f"{job} has succeeded {late:.0f} ms before run {token} ended")

    # What is stored in the end

    def close(
        self,
        *,
        settled: Iterable[FinishedRow],
        live: Iterable[str],
        effects: Iterable[tuple[str, int]],
        scheduled: tuple[int, int],
    ) -> None:
        """Compare the records with the rows at the end.

        Args:
            scheduled: When the schedule began and ended (monotonic nanoseconds).
        """
        stored = 0
        for row in settled:
            record = self._record(row.job)
            # In a workflow, one that is not kept is removed some time after the workflow's end.
            stored += record.kind != FLEETING
            if (row.state, row.token) != (record.state, record.token):
                known = f"{record.state} with token {record.token}"
                self.findings.add(15, f"{row.job} is {row.state} with {row.token}, and was {known}")
        kept = [record for record in self.records.values() if record.kind != FLEETING]
        if stored != sum(record.state is not None for record in kept):
            self.findings.add(15, f"{stored} jobs are stored as finished, but others had finished")
        for job in live:
            self.findings.add(16, f"{job} ({self._record(job).kind}) has not ended")
        for job, record in self.records.items():
            self._check_end(job, record)
        for job, beside in self._attempts.not_alone():
            others = ", ".join(sorted(beside))
            self.findings.add(6, f"a crash of {job} was counted, but beside it ran {others}")
        for job, (parent, token) in self._follows.items():
            self._check_follow(job, parent, token)
        for number, text in self._flows.close():
            self.findings.add(number, text)
        self.counts["nodes"] = len(self._flows.nodes)
        self.counts["released"] = self._flows.released
        self._check_effects(effects)
        self._check_ticks(*scheduled)
        self.counts.update(counts_of(self._limits.figures))

    def _check_ticks(self, first: int, last: int) -> None:
        all_ticks = itertools.chain.from_iterable(self._ticks.values())
        fired = [self._to_monotonic(tick * 1_000_000) for tick in all_ticks]
        begun, ended = (min(fired), max(fired)) if fired else (last, first)
        if begun - first > TICK_NS_MAX or last - ended > TICK_NS_MAX:
            silent = max(begun - first, last - ended) / 1e9
            self.findings.add(20, f"no schedule was fired for {silent:.0f} s")
        for name, ticks in self._ticks.items():
            for before, after in itertools.pairwise(sorted(ticks)):
                if after - before != 1:
                    self.findings.add(20, f"{name} was fired at {before} and next at {after}")

    def _check_end(self, job: str, record: JobRecord) -> None:
        if record.kind == ONCE:
            self._check_once(job, record)
        if record.left is not None and record.state is None:
            self._check_gone(record, record.left)
        if record.is_again:
            self.findings.add(3, f"{job} exists twice")
        if record.acknowledged is Acknowledged.OWN and not record.inserted:
            self.findings.add(1, f"{job} was acknowledged, but never existed")
        elif record.acknowledged is Acknowledged.OWN and not record.is_over:
            self.findings.add(1, f"{job} was acknowledged, but has not ended")
        if record.acknowledged is Acknowledged.ANOTHER and record.inserted:
            self.findings.add(3, f"{job} exists, but its enqueue returned another job")
        if record.cancel == "cancelled" and record.state != "cancelled" and record.kind != FLEETING:
            self.findings.add(14, f"{job} was cancelled, but is {record.state}")
        is_deaf = record.kind == "linger" and record.state != "cancelled"
        if record.cancel == "pending_on_worker" and is_deaf:
            self.findings.add(14, f"{job} waited to be cancelled, but is {record.state}")
        for token, run in record.runs.items():
            if record.delay and run.start < record.asked_at + record.delay * 1_000_000:
                early = record.asked_at + record.delay * 1_000_000 - run.start
                self.findings.add(12, f"{job} started {early / 1e6:.0f} ms too early ({token})")

    def _check_gone(self, record: JobRecord, event: CommittedChange) -> None:
        """Check a job that is not kept, which left no row."""
        if event.actor is not None and event.actor != record.holder:
            self.findings.add(5, f"{event.actor} ended {event.job}, which {record.holder} holds")
        self._check_success(record, event)

    def _check_once(self, job: str, record: JobRecord) -> None:
        if len(record.runs) > 1:
            self.findings.add(22, f"{job} has one attempt, but ran {len(record.runs)} times")
        if record.state == "dead":
            self.counts["once and interrupted"] += 1
            # Marked as begun, and killed before its first line, within some microseconds.
            self.counts["once and never run"] += not record.runs

    def _check_follow(self, job: str, parent: str, token: int) -> None:
        leader = self._record(parent)
        is_wanted = leader.state == "succeeded" and leader.token == token
        may_be_missing = self._flows.may_be_cancelled(parent)
        if is_wanted and not self._record(job).inserted and not may_be_missing:
            self.findings.add(1, f"{job} is missing, though its parent {parent} succeeded")
        if not is_wanted and self._record(job).inserted:
            self.findings.add(2, f"{job} follows {parent}, which did not succeed with {token}")

    def _check_effects(self, effects: Iterable[tuple[str, int]]) -> None:
        written: Counter[str] = Counter()
        for job, token in effects:
            written[job] += 1
            record = self._record(job)
            if record.state != "succeeded" or record.token != token:
                self.findings.add(19, f"{job} is {record.state}, and run {token} has left its row")
        for job, record in self.records.items():
            if record.kind == "book" and record.state == "succeeded" and written[job] != 1:
                self.findings.add(19, f"{job} has succeeded, and left {written[job]} rows")
        self.counts["effects"] = sum(written.values())


class Findings:
    """Counts everything, and keeps the first few texts of each number."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.texts: dict[int, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, number: int, text: str) -> None:
        """Record a broken invariant."""
        self.counts[number] += 1
        texts = self.texts.setdefault(number, [])
        if len(texts) < SHOWN_MAX:
            texts.append(text)

    def lines(self) -> list[str]:
        """Return the kept texts, in the order of the numbers."""
        return [
            f"I{number}: {text}" for number in sorted(self.texts) for text in self.texts[number]
        ]
