"""Hand-written journals: the good life of a few jobs, as processes and the witness tell it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock.chaos.journal import JournalLine, Word
from rowlock.chaos.judge import Judge
from rowlock.chaos.plan import Fault
from rowlock.chaos.witness import CommittedChange, FinishedRow, What

SECOND_US = 1_000_000
OWNER = "worker-0-1"
OTHER = "worker-1-1"


def to_monotonic(microseconds: int) -> int:
    return microseconds * 1000


class History:
    """What was said and committed, line by line; a second of both clocks passes with each."""

    def __init__(self) -> None:
        self.now = 0
        self.lines: list[JournalLine] = []
        self.events: list[CommittedChange] = []
        self.settled: list[FinishedRow] = []
        self.live: list[str] = []
        self.effects: list[tuple[str, int]] = []
        self.scheduled = (0, 0)

    def tick(self) -> int:
        self.now += SECOND_US
        return self.now

    def say(self, word: Word, job: str = "a", token: int = 0, rest: str = "", pid: int = 1) -> None:
        self.lines.append(JournalLine(to_monotonic(self.tick()), pid, word, job, token, rest))

    def note(self, what: What, job: str = "a", token: int = 0, **rest: Any) -> None:
        told = {"attempt": token, "actor": OWNER, "kind": "brief", "at": self.tick(), **rest}
        self.events.append(CommittedChange(what=what, job=job, token=token, **told))

    def strike(self, fault: Fault = Fault.KILL_CHILD, pid: int = 1) -> None:
        self.say(Word.STRIKE, "-", rest=f"{fault}:{pid}", pid=99)

    # Parts of a life

    def ask(self, job: str = "a", kind: str = "brief", tenant: str = "-", delay: int = 0) -> None:
        self.say(Word.ASK, job, rest=f"{kind} {tenant} {delay}")

    def insert(self, job: str = "a", **rest: Any) -> None:
        self.note(What.INSERTED, job, **{"run_at": self.now, **rest})

    def acknowledge(self, job: str = "a", answer: str | None = None) -> None:
        self.say(Word.ACK, job, rest=answer or job)

    def claim(self, job: str = "a", token: int = 1, **rest: Any) -> None:
        was = {"was_token": token - 1, "was_attempt": rest.get("attempt", token) - 1}
        lease = self.now + 30 * SECOND_US
        self.note(What.CLAIMED, job, token, **{**was, "run_at": 0, "lease": lease, **rest})

    def start(self, job: str = "a", token: int = 1, told: str = "brief -", pid: int = 1) -> None:
        self.say(Word.START, job, token, f"{token} {told}", pid)

    def end(self, job: str = "a", token: int = 1, how: str = "ok") -> None:
        self.say(Word.END, job, token, how)

    def give_back(self, job: str = "a", token: int = 1, **rest: Any) -> None:
        held = {"was_token": token, "was_attempt": token, "lease": self.now, "is_noted": True}
        self.note(What.RETURNED, job, token, **{**held, **rest})

    def crash(self, job: str = "a", token: int = 1, **rest: Any) -> None:
        """Its process was killed: it comes back, by default as if it had run alone."""
        self.give_back(job, token, **{"is_crash": True, "worker": "w", **rest})

    def lose(self, job: str = "a", token: int = 1, **rest: Any) -> None:
        """Its lease expired: it comes back, by default uncounted."""
        lost = {"attempt": token - 1, "is_taken": True, "actor": OTHER, "worker": "w"}
        self.give_back(job, token, **{**lost, **rest})

    def finish(self, job: str = "a", token: int = 1, state: str = "succeeded", **rest: Any) -> None:
        self.note(What.FINISHED, job, token, **{"state": state, **rest})
        self.note(What.DELETED, job, token, **{"lease": self.now, **rest})
        self.settled.append(FinishedRow(job, state, token))

    def make(self, job: str = "a", kind: str = "brief", **rest: Any) -> None:
        self.ask(job, kind)
        self.insert(job, kind=kind, **rest)
        self.acknowledge(job)

    def run(self, job: str = "a", token: int = 1, kind: str = "brief") -> None:
        self.claim(job, token, kind=kind)
        self.start(job, token, f"{kind} -")
        self.end(job, token)

    def live_well(self, job: str = "a", kind: str = "brief") -> None:
        self.make(job, kind)
        self.run(job, kind=kind)
        self.finish(job, kind=kind)

    def make_flow(self, wants: str = "wait") -> None:
        """A job `a`, and a job `b` that waits for it."""
        for job, said in (("a", "wait"), ("b", f"{wants} a")):
            self.ask(job)
            self.say(Word.NODE, job, rest=f"flow {said}")
            self.insert(job)
            self.acknowledge(job)

    def die(self, job: str = "a") -> None:
        """It fails for good."""
        self.claim(job, max_attempts=1)
        self.start(job)
        self.end(job, how="fail")
        self.finish(job, state="dead", max_attempts=1)

    def cancel_unrun(self, job: str = "b") -> None:
        """It is cancelled while it waits."""
        self.note(What.FINISHED, job, state="cancelled")
        self.note(What.DELETED, job)
        self.settled.append(FinishedRow(job, "cancelled", 0))

    def judge(self) -> Judge:
        judge = Judge(to_monotonic)
        feed(judge.hear, self.lines)
        feed(judge.see, self.events)
        judge.close(
            settled=self.settled,
            live=self.live,
            effects=self.effects,
            scheduled=self.scheduled,
        )
        return judge


def feed(hear: Any, told: Iterable[Any]) -> None:
    for each in told:
        hear(each)
