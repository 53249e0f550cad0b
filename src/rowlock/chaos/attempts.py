"""Which runs may count as attempts of their jobs, by what was struck and when.

Three things use up an attempt, and no others:

1. The handler failed, and said so.
2. The process of the run was killed while nothing else ran in it. Nobody can tell such a strike
   from a crash by the job itself.
3. The run was a suspect's, whose lease had been lost twice in a row. It was marked as begun, and
   its lease was lost as well.

So strikes can use up a job, if they hit it again and again while it runs alone. A job that does not
fail by itself may end dead only after the last of its attempts, or after as many interrupted runs
as are allowed; each of those runs was judged by these rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from rowlock import config
from rowlock.chaos.job_record import HandlerRun, JobRecord, Strikes
from rowlock.chaos.plan import Fault
from rowlock.chaos.witness import CommittedChange

# The tolerance between a journal and the database's clock.
SLACK_NS: Final = 50_000_000
_KILLS: Final = (Fault.KILL_CHILD, Fault.KILL_WORKER)
_CRASHES: Final = ("Crashed", "Poison")
# Kills its own process.
POISON: Final = "poison"
# Its transaction may fail, when it has already said that it ended.
BOOK: Final = "book"


class AttemptRules:
    """Judges the runs that were cut short. Call `cut_short` for every job that leaves a run."""

    def __init__(self, strikes: Strikes) -> None:
        self._strikes = strikes
        # By worker, which is a name for one life of one process: the jobs whose runs had not ended
        # when they left it, and the one whose crash was counted as an attempt.
        self._cut_short: dict[str, set[str]] = {}
        self._counted: dict[str, str] = {}

    def cut_short(self, record: JobRecord, event: CommittedChange) -> None:
        """Note a job that was given back, or has ended without success."""
        run = record.runs.get(event.token)
        # A handler that is cancelled, or whose transaction fails, may end without a word.
        has_failed = event.attempt == event.was_attempt and not event.is_crash
        has_ended = run is None or run.end is not None or record.is_flagged or has_failed
        if not has_ended and not event.is_taken and event.worker is not None:
            self._cut_short.setdefault(event.worker, set()).add(event.job)

    def returned(self, record: JobRecord, event: CommittedChange, at: int) -> str | None:
        """Judge a job that was given back at a monotonic time. Return what is wrong."""
        if event.attempt == event.was_attempt:
            return self._attempt_problem(record, event, at, is_crash=event.is_crash)
        if event.is_noted:
            record.interruptions += 1
            record.losses += event.is_taken
        return None

    def dead(self, record: JobRecord, event: CommittedChange, at: int) -> str | None:
        """Judge a job that ended dead and should not fail by itself. Return what is wrong."""
        if record.interruptions + 1 >= config.INTERRUPTIONS_MAX:
            return None
        if event.max_attempts is None or event.attempt < event.max_attempts:
            return "has attempts left"
        errors = json.loads(event.errors or "[]")
        is_crash = bool(errors) and errors[-1]["type"] in _CRASHES
        return self._attempt_problem(record, event, at, is_crash=is_crash)

    def _attempt_problem(
        self, record: JobRecord, event: CommittedChange, at: int, *, is_crash: bool
    ) -> str | None:
        """Return why a run should not have counted as an attempt."""
        run = record.runs.get(event.token)
        if event.is_taken:
            return self._loss_problem(record, event)
        if is_crash:
            return self._crash_problem(record, event, run, at)
        # Without a run there is another finding.
        if run is None or run.how == "fail" or record.kind == BOOK:
            record.losses = 0
            return None
        return "has failed, though its handler did not"

    @staticmethod
    def _loss_problem(record: JobRecord, event: CommittedChange) -> str | None:
        if record.losses < config.SUSPECT_LOSSES:
            return f"was lost and counted after {record.losses} losses"
        return None if event.token in record.marked else "was lost and counted without a mark"

    def _crash_problem(
        self, record: JobRecord, event: CommittedChange, run: HandlerRun | None, at: int
    ) -> str | None:
        if event.worker is not None:
            self._counted[event.worker] = event.job
        if run is None or record.kind == POISON or self._was_killed(run, at):
            return None
        return f"has crashed, but nothing struck its process {run.pid}"

    def _was_killed(self, run: HandlerRun, at: int) -> bool:
        return any(
            fault in _KILLS and run.start <= struck_at <= at + SLACK_NS
            for struck_at, fault in self._strikes.struck.get(run.pid, ())
        )

    def not_alone(self) -> Iterator[tuple[str, set[str]]]:
        """Yield the jobs whose crash was counted, with the jobs that ran beside them."""
        for worker, job in self._counted.items():
            beside = self._cut_short.get(worker, set()) - {job}
            if beside:
                yield job, beside
