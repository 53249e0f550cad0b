"""The queue as dictionaries: what every store must do, in the plainest form that can be checked.

Written from the contract, not from the stores: it shares their vocabulary (states, errors) and
nothing else. A job's id is a number, times are microseconds since the start, and every job, live,
finished or running, is one `Entry` of one dictionary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rowlock.errors import InvalidTransition, LeaseLost, NotFound, OptionInvalid
from rowlock.job import JobState, Lease
from tests.model.limits import FOR_EVER, SECOND, Limits, LimitSpec

DAY = 86_400 * SECOND
REMEMBERED = 15 * 60 * SECOND
ERRORS_KEPT = 20
MAX_ATTEMPTS = 20
INTERRUPTIONS_MAX = 20
LOSSES_OF_A_SUSPECT = 2
KEPT = "kept"
UNTIL_STARTED = "until_started"
SUCCESSES = ("succeed", "unstorable")

UNKNOWN_ID = "00000000-0000-7000-8000-{:012x}"

View = dict[str, Any]
Ending = Literal[
    "succeed",
    "unstorable",
    "fail",
    "permanent",
    "release",
    "throttle",
    "not_begun",
    "interrupted",
    "cancelled",
    "crash",
    "crash_together",
]


def id_of(number: int) -> str:
    """The id under which errors of the model name a job."""
    return UNKNOWN_ID.format(number)


def number_of(id: str) -> int:
    """The number of a job by such an id."""
    return int(id.rpartition("-")[2], 16)


def _lease_of(number: int, token: int) -> Lease:
    return Lease(id=id_of(number), token=token)


@dataclass(frozen=True, slots=True)
class Rules:
    """A job's policy. `retry` is the fixed wait in seconds; None is jitter, at its shortest."""

    retry: float | None = 5.0
    keep: int | None = DAY
    keep_dead: int | None = 30 * DAY
    max_crashes: int = 3

    def wait(self, attempt: int) -> float:
        """Seconds after a failed attempt."""
        return 3**attempt / 2 if self.retry is None else self.retry


# What holds for a job whose kind nobody knew yet; the waits of its jitter are the shortest ones.
UNRESOLVED = Rules(retry=None)


@dataclass(frozen=True, slots=True)
class New:
    """What an enqueue asks for, except its number."""

    kind: str = "a"
    queue: str = "q"
    payload: int = 0
    priority: int = 0
    tenant: str | None = None
    key: str | None = None
    hold: int | str | None = None
    replaces: bool = False
    quiet: int | None = None
    max_wait: int | None = None
    delay: int | None = None
    run_at: int | None = None
    max_attempts: int | None = None
    tags: tuple[str, ...] = ()
    rules: Rules | None = Rules()
    limit: str | None = None
    limit_key: str = ""
    is_ordered: bool = False

    @property
    def slot(self) -> tuple[str | None, str, str | None]:
        return (self.tenant, self.kind, self.key)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim asks for. `policies` are those of the kinds that the worker knows."""

    worker: str
    queues: Sequence[str] | Mapping[str, int] | None
    kinds: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    limit: int = 1
    lease: int = 30 * SECOND
    include_expired: bool = True
    begun: bool = True
    policies: Mapping[str, tuple[Rules, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """How one run ended: `seconds` overrides the wait of a failure or a release."""

    number: int
    token: int
    ending: Ending
    seconds: float | None = None
    result: Any = None
    follow_ups: tuple[tuple[int, New], ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A filter of jobs; None everywhere is all."""

    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    key: str | None = None
    tag: str | None = None


@dataclass(slots=True)
class Entry:
    """A job. `state` is set once it is terminal; `lease` while it runs."""

    number: int
    asked: New
    run_at: int
    created_at: int
    state: JobState | None = None
    attempt: int = 0
    token: int = 0
    crashes: int = 0
    # Whether its run is known to have begun; leases lost in a row; runs that were not counted.
    has_begun: bool = False
    losses: int = 0
    interruptions: int = 0
    is_cancelled: bool = False
    # Its last lease was ended by somebody else than its holder.
    is_taken: bool = False
    worker: str | None = None
    started_at: int | None = None
    finished_at: int | None = None
    lease: int | None = None
    beat_at: int = 0
    errors: tuple[tuple[int, int, str, str], ...] = ()
    result: Any = None
    progress: tuple[float, str] | None = None
    # Its place in an order: the number of its enqueue.
    place: int = 0

    @property
    def rules(self) -> Rules:
        return self.asked.rules or UNRESOLVED

    @property
    def max_attempts(self) -> int:
        return self.asked.max_attempts or MAX_ATTEMPTS

    @property
    def is_suspect(self) -> bool:
        return self.losses >= LOSSES_OF_A_SUSPECT

    @property
    def never_began(self) -> bool:
        """Whether it is known that the handler was not called."""
        return (self.max_attempts == 1 or self.is_suspect) and not self.has_begun

    @property
    def is_running(self) -> bool:
        return self.lease is not None

    @property
    def is_waiting(self) -> bool:
        return self.state is None and self.lease is None

    @property
    def holds_key(self) -> bool:
        """Whether it is live, and its key is not free while it runs."""
        return self.is_waiting or (self.is_running and self.asked.hold != UNTIL_STARTED)

    @property
    def age(self) -> tuple[int, int]:
        return (self.created_at, self.number)

    def state_at(self, now: int) -> JobState:
        if self.state is not None:
            return self.state
        if self.is_running:
            return JobState.RUNNING
        if self.run_at <= now:
            return JobState.READY
        return JobState.RETRYING if self.attempt else JobState.SCHEDULED


def _place_in_queue(entry: Entry) -> tuple[int, int, int]:
    return (-entry.asked.priority, entry.run_at, entry.number)


class NotAllowed(AssertionError):
    """A store has claimed what it must not, or left out what it should have claimed."""


def _room(entry: Entry) -> tuple[Any, ...]:
    """Where a job waits: its lane has all kinds of a queue and priority."""
    asked = entry.asked
    if asked.limit is None:
        return (asked.queue, asked.priority, None, None, "")
    return (asked.queue, asked.priority, asked.kind, asked.limit, asked.limit_key)


@dataclass(slots=True)
class Memory:
    """What is known of a job beyond its row: its id until `until`, its key until `key_until`."""

    entry: Entry
    until: int
    key_until: int | None


@dataclass(slots=True)
class Model:
    """The verbs of a store on dictionaries. What it refuses it raises, and changes nothing."""

    now: int = 0
    # What the stores' clock shows at the model's beginning: tokens of given ids start there.
    start: int = 0
    asked: set[int] = field(default_factory=set)
    jobs: dict[int, Entry] = field(default_factory=dict)
    memory: dict[int, Memory] = field(default_factory=dict)
    paused: dict[str, bool] = field(default_factory=dict)
    by_age: dict[str, bool] = field(default_factory=dict)
    logs: dict[int, list[str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    places: int = 0
    # What a store has claimed: where jobs wait at limits, the next claim must be able to be this.
    claimed: Sequence[int] = ()

    def advance(self, microseconds: int) -> None:
        self.now += microseconds

    def reopen(self) -> None:
        """A store may lose its connections; nothing that was asked for hangs on them."""

    # Enqueue

    def enqueue(self, asked: Sequence[tuple[int, New]]) -> list[tuple[bool, View]]:
        """Insert jobs; of several with one id the first counts, keys are served in order.

        Jobs that run in order come last, as they were given.
        """
        firsts: dict[int, New] = {}
        for number, new in asked:
            firsts.setdefault(number, new)
        # An id that was asked for before is given, and one is enough for the whole call.
        token = self.start + self.now if self.asked & firsts.keys() else 0
        self.asked |= firsts.keys()
        inserted = sorted(firsts, key=lambda number: firsts[number].is_ordered)
        answers = {number: self._enqueue(number, firsts[number], token) for number in inserted}
        told: set[int] = set()
        listed = []
        for number, _ in asked:
            is_new, entry = answers[number]
            is_first = is_new and number not in told
            listed.append((is_first, self.view(entry) if is_first else self.brief(entry)))
            told.add(number)
        return listed

    def _enqueue(self, number: int, new: New, token: int) -> tuple[bool, Entry]:
        known = self._by_id(number)
        if known is not None:
            return False, known
        held = self._by_key(new)
        if held is not None:
            if held.is_waiting and (new.replaces or new.quiet is not None):
                self._replace(held, new)
            return False, held
        due = self._due_at(new, self.now)
        self.places += 1
        self.jobs[number] = Entry(
            number, new, run_at=due, created_at=self.now, token=token, place=self.places
        )
        return True, self.jobs[number]

    def _replace(self, held: Entry, new: New) -> None:
        old = held.asked
        stays = old.is_ordered and (old.limit, old.limit_key) == (new.limit, new.limit_key)
        if new.is_ordered and not stays:
            self.places += 1
            held.place = self.places
        held.asked, held.run_at = new, self._due_at(new, held.created_at)

    def _due_at(self, new: New, created_at: int) -> int:
        if new.run_at is not None:
            return max(new.run_at, self.now)
        due = self.now + (new.delay or new.quiet or 0)
        return due if new.max_wait is None else max(self.now, min(due, created_at + new.max_wait))

    def _by_id(self, number: int) -> Entry | None:
        if number in self.jobs:
            return self.jobs[number]
        memory = self.memory.get(number)
        return memory.entry if memory is not None and memory.until > self.now else None

    def _by_key(self, new: New) -> Entry | None:
        if new.key is None:
            return None
        alike = [entry for entry in self.jobs.values() if entry.asked.slot == new.slot]
        live = [entry for entry in alike if entry.holds_key]
        kept = [entry for entry in alike if entry.state is not None and entry.asked.hold == KEPT]
        held = [
            memory.entry
            for memory in self.memory.values()
            if memory.entry.asked.slot == new.slot and (memory.key_until or 0) > self.now
        ]
        return next(iter([*live, *kept, *held]), None)

    # Claim and hold

    def claim(self, wanted: Wanted) -> list[View]:
        """Expired leases come back first, and compete at their old place."""
        queues = wanted.queues
        names = self.queue_names() if queues is None else queues
        limits = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(names, wanted.limit)
        if wanted.include_expired:
            self.recover(0, list(limits))
        due = {queue: self._due(queue, wanted.kinds, wanted.tenants) for queue in limits}
        for queue in limits:
            if self.by_age.get(queue) and any(not entry.asked.limit for entry in due[queue]):
                self._promote(queue)
        if any(entry.asked.limit for entries in due.values() for entry in entries):
            return self._claim_told(wanted, limits, due)
        taken: list[Entry] = []
        for queue, most in limits.items():
            first = sorted(due[queue], key=_place_in_queue)
            taken += first[: max(0, min(most, wanted.limit - len(taken)))]
        return [self._lease(entry, wanted) for entry in taken]

    def _claim_told(
        self, wanted: Wanted, limits: dict[str, int], due: Mapping[str, Sequence[Entry]]
    ) -> list[View]:
        """Lease what a store has claimed, job by job, if each was allowed when its turn came."""
        groups = {
            entry.number: (place, -entry.asked.priority)
            for place, queue in enumerate(limits)
            for entry in due[queue]
        }
        entries = {number: self.jobs[number] for number in groups}
        views: list[View] = []
        served: Counter[tuple[Any, ...]] = Counter()

        def startable(entry: Entry) -> bool:
            is_wanted = limits[entry.asked.queue] > 0 and len(views) < wanted.limit
            return is_wanted and entry.is_waiting and self._may_start(entry)

        for number in self.claimed:
            if number not in entries or not startable(entries[number]):
                raise NotAllowed(f"job {number} was claimed, and may not start")
            entry = entries[number]
            for other in entries.values():
                is_before = groups[other.number] < groups[number] or (
                    _room(other) == _room(entry) and _place_in_queue(other) < _place_in_queue(entry)
                )
                if is_before and startable(other):
                    raise NotAllowed(f"job {number} was claimed before {other.number}")
            views.append(self._lease(entry, wanted))
            limits[entry.asked.queue] -= 1
            served[_room(entry)] += 1
            if entry.asked.limit is not None:
                self.limits.start(entry.asked.limit, entry.asked.limit_key, self.now)
        left_out = [number for number, entry in entries.items() if startable(entry)]
        if left_out:
            raise NotAllowed(f"of {self.claimed} jobs, {left_out} were left out of a claim")
        self._check_shares(entries.values(), served)
        return views

    def _check_shares(self, entries: Iterable[Entry], served: Counter[tuple[Any, ...]]) -> None:
        """Of two keys of a room that could go on, neither had two turns more than the other."""
        turns: dict[tuple[Any, ...], list[float]] = {}
        rooms = {_room(each) for each in entries if each.is_waiting and self._may_start(each)}
        for *room, limit, key in rooms:
            if limit is not None:
                share = served[(*room, limit, key)] / self.limits.weight(limit, key)
                turns.setdefault((*room, limit), []).append(share)
        for shares in turns.values():
            if max(shares) - min(shares) > 2:
                raise NotAllowed(f"keys of a room had {shares} turns in one claim")

    def _may_start(self, entry: Entry) -> bool:
        """Whether its limit lets a job that is due start now."""
        name, key = entry.asked.limit, entry.asked.limit_key
        if name is None:
            return True
        running = [other for other in self._running(None) if other.asked.limit == name]
        of_key = sum(other.asked.limit_key == key for other in running)
        before = [
            other
            for other in self.jobs.values()
            if entry.asked.is_ordered
            and other.state is None
            and (other.asked.limit, other.asked.limit_key) == (name, key)
            and other.place < entry.place
        ]
        return not before and self.limits.is_open(name, key, self.now, len(running), of_key)

    def _due(
        self, queue: str, kinds: Sequence[str] | None, tenants: Sequence[str] | None
    ) -> list[Entry]:
        return [
            entry
            for entry in self.jobs.values()
            if entry.is_waiting
            and entry.run_at <= self.now
            and entry.asked.queue == queue
            and not self.paused.get(queue)
            and (kinds is None or entry.asked.kind in kinds)
            and (tenants is None or entry.asked.tenant in tenants)
        ]

    def _promote(self, queue: str) -> None:
        """In a queue ordered by age, retries that are due go to the place of their creation."""
        for entry in self._due(queue, None, None):
            if entry.attempt and not entry.asked.limit:
                entry.run_at = min(entry.run_at, entry.created_at)

    def _lease(self, entry: Entry, wanted: Wanted) -> View:
        entry.attempt += 1
        entry.token += 1
        entry.worker, entry.started_at, entry.beat_at = wanted.worker, self.now, self.now
        entry.lease, entry.is_taken = self.now + wanted.lease, False
        entry.has_begun = wanted.begun
        asked = entry.asked
        if asked.rules is None and asked.kind in wanted.policies:
            rules, attempts = wanted.policies[asked.kind]
            attempts = asked.max_attempts or attempts
            entry.asked = replace(asked, rules=rules, max_attempts=attempts)
        return self.view(entry)

    def _held(self, number: int, token: int) -> Entry | None:
        entry = self.jobs.get(number)
        holds = entry is not None and entry.is_running and entry.token == token
        return entry if holds else None

    def heartbeat(self, leases: Sequence[tuple[int, int]], lease: int) -> list[str]:
        beats = []
        for number, token in leases:
            entry = self._held(number, token)
            if entry is None:
                beats.append("lost")
                continue
            entry.lease, entry.beat_at = self.now + lease, self.now
            beats.append("cancel_requested" if entry.is_cancelled else "kept")
        return beats

    def begin(self, leases: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Mark runs as begun; those that still hold."""
        held = [lease for lease in set(leases) if self._held(*lease) is not None]
        for number, _ in held:
            self.jobs[number].has_begun = True
        return sorted(held)

    def progress(self, number: int, token: int, fraction: float, text: str) -> None:
        self._must_hold(number, token).progress = (fraction, text)

    def log(self, number: int, token: int, lines: Sequence[str]) -> None:
        self._must_hold(number, token)
        self.logs.setdefault(number, []).extend(lines)

    def read_log(self, number: int) -> list[str]:
        return self.logs.get(number, [])

    def _must_hold(self, number: int, token: int) -> Entry:
        entry = self._held(number, token)
        if entry is None:
            raise LeaseLost([_lease_of(number, token)])
        return entry

    # Settle

    def settle(self, runs: Sequence[Run], *, by_hand: bool = False) -> None:
        """Each run is judged alone: what holds is applied, then the rest is named."""
        asked = {number for run in runs for number, _ in run.follow_ups}
        if len({run.number for run in runs}) != len(runs):
            self.asked |= asked
            raise OptionInvalid("leases", "each job may be settled only once per call")
        missed: list[Run] = []
        follow_ups: list[tuple[int, New]] = []
        ended: list[tuple[Entry, Entry]] = []
        for run in sorted(runs, key=lambda run: run.number):
            entry = self._held(run.number, run.token)
            if entry is None:
                missed.append(run)
                continue
            ended.append((entry, replace(entry)))
            self._end(entry, run)
            if run.ending in SUCCESSES:
                follow_ups += run.follow_ups
        self._supersede(ended)
        self.enqueue(follow_ups)
        # Those of a run that failed are not enqueued, but whoever does so later gives their ids.
        self.asked |= asked
        lost = [run for run in missed if not self._was_settled(run)]
        if lost:
            raise LeaseLost([_lease_of(run.number, run.token) for run in lost])
        if missed:
            raise InvalidTransition(id_of(missed[0].number), "settled already")

    def _was_settled(self, run: Run) -> bool:
        """Whether the job's last run was this one, and its holder has ended it."""
        entry = self._by_id(run.number)
        return (
            entry is not None
            and not entry.is_running
            and entry.token == run.token
            and not entry.is_taken
        )

    def _end(self, entry: Entry, run: Run) -> None:
        ending = run.ending
        if ending in SUCCESSES:
            if ending == "unstorable":
                self._note(entry, "ResultNotStored", "")
            entry.result = run.result if ending == "succeed" else None
            return self._finish(entry, JobState.SUCCEEDED)
        if ending in ("crash", "crash_together", "interrupted"):
            return self._cut_short(entry, ending)
        if ending in ("fail", "permanent"):
            self._note(entry, "Error", "boom")
        if entry.is_cancelled or ending == "cancelled":
            return self._finish(entry, JobState.CANCELLED)
        if ending == "release":
            entry.losses = 0
            return self._release(entry, run.seconds)
        if ending == "not_begun":
            return self._release(entry, run.seconds)
        if ending == "throttle":
            return self._throttle(entry, run.seconds or 0)
        if ending == "permanent" or entry.attempt >= entry.max_attempts:
            return self._finish(entry, JobState.DEAD)
        entry.losses = 0
        seconds = entry.rules.wait(entry.attempt) if run.seconds is None else run.seconds
        return self._give_back(entry, run_at=self.now + round(seconds * SECOND))

    def _cut_short(self, entry: Entry, ending: str, *, reason: str = "signal 9") -> None:
        """A run ended by something else than its handler; `ending` may be "lost", too."""
        is_crash = ending.startswith("crash")
        is_taken = ending == "lost" or reason == "gave up"
        if not entry.is_cancelled and entry.never_began:
            self._release(entry, None)
            entry.is_taken = is_taken
            return
        is_at_most_once = entry.max_attempts == 1
        is_begun_loss = ending == "lost" and entry.has_begun
        is_alone = ending == "crash" or (ending == "lost" and entry.is_suspect)
        is_poison = is_alone and entry.crashes + 1 >= entry.rules.max_crashes
        kind = "LeaseLost" if ending == "lost" else "Crashed"
        if ending == "interrupted" or (is_at_most_once and entry.has_begun):
            kind = "Interrupted"
        elif is_poison:
            kind = "Poison"
        self._note(entry, kind, reason)
        if entry.is_cancelled:
            entry.crashes += is_crash
            self._finish(entry, JobState.CANCELLED, is_taken=is_taken)
        elif is_at_most_once:
            entry.crashes += is_crash
            self._finish(entry, JobState.DEAD, is_taken=is_taken)
        elif ending == "crash" or is_begun_loss:
            entry.crashes += is_alone
            if is_poison or entry.attempt >= entry.max_attempts:
                self._finish(entry, JobState.DEAD, is_taken=is_taken)
            else:
                self._give_back(entry, run_at=entry.run_at, is_taken=is_taken)
        else:
            entry.crashes += is_crash
            entry.interruptions += 1
            entry.losses += ending == "lost"
            if entry.interruptions >= INTERRUPTIONS_MAX:
                self._finish(entry, JobState.DEAD, is_taken=is_taken)
            else:
                self._release(entry, None)
                entry.is_taken = is_taken

    def _release(self, entry: Entry, seconds: float | None) -> None:
        entry.attempt -= 1
        later = self.now + round((seconds or 0) * SECOND)
        self._give_back(entry, run_at=later if seconds else entry.run_at)

    def _throttle(self, entry: Entry, seconds: float) -> None:
        entry.losses = 0
        name, until = entry.asked.limit, self.now + round(seconds * SECOND)
        if name is not None:
            self.limits.close(name, entry.asked.limit_key, until)
        self._release(entry, None)
        entry.run_at = until if name is None else entry.run_at

    def _give_back(self, entry: Entry, *, run_at: int, is_taken: bool = False) -> None:
        entry.run_at, entry.is_taken = run_at, is_taken
        entry.lease, entry.worker, entry.has_begun = None, None, False

    def _supersede(self, ended: Sequence[tuple[Entry, Entry]]) -> None:
        """Of runs that ended together, with their jobs before: what may not return is over."""
        back = [pair for pair in ended if pair[0].is_waiting and self._gave_up_its_key(pair[0])]
        waiting = {entry.number for entry, _ in back}
        for entry, before in sorted(back, key=lambda pair: pair[0].age, reverse=True):
            others = [
                other
                for other in self.jobs.values()
                if other.state is None
                and other.asked.slot == entry.asked.slot
                and other.number not in waiting
            ]
            newest = max(others, key=lambda other: (other.holds_key, other.age), default=None)
            waiting.remove(entry.number)
            if newest is not None and (newest.holds_key or newest.age > entry.age):
                entry.attempt, entry.run_at = before.attempt, before.run_at
                entry.worker = before.worker
                self._note(entry, "Superseded", f"superseded by {newest.number}")
                self._finish(entry, JobState.CANCELLED, is_taken=entry.is_taken)

    def _gave_up_its_key(self, entry: Entry) -> bool:
        return entry.asked.key is not None and entry.asked.hold == UNTIL_STARTED

    def _finish(self, entry: Entry, state: JobState, *, is_taken: bool | None = None) -> None:
        was_running = entry.is_running
        entry.state, entry.finished_at, entry.lease = state, self.now, None
        entry.is_taken = bool(is_taken)
        if state is JobState.DEAD and was_running and entry.asked.is_ordered:
            name = entry.asked.limit or ""
            spec = self.limits.spec(name)
            if spec is not None and spec.pauses_when_dead:
                self.limits.close(name, entry.asked.limit_key, self.now + FOR_EVER)
        hold = entry.asked.hold
        key_until = entry.created_at + hold if isinstance(hold, int) else None
        until = max(key_until or 0, self.now + REMEMBERED)
        self.memory[entry.number] = Memory(entry, until, key_until)
        if self._keep(entry) == 0:
            del self.jobs[entry.number]
            self.logs.pop(entry.number, None)

    def _keep(self, entry: Entry) -> int | None:
        return entry.rules.keep_dead if entry.state is JobState.DEAD else entry.rules.keep

    def _note(self, entry: Entry, kind: str, message: str) -> None:
        line = (entry.attempt, self.now, kind, message)
        entry.errors = (*entry.errors, line)[-ERRORS_KEPT:]

    # Recover

    def recover(self, older_than: int, queues: Sequence[str] | None) -> int:
        return self._take(
            [
                entry
                for entry in self._running(queues)
                if (entry.lease or 0) <= self.now - older_than
            ],
            "lease expired",
        )

    def adopt_orphans(self, queues: Sequence[str], action: str, older_than: int) -> int:
        silent = [
            entry for entry in self._running(queues) if entry.beat_at <= self.now - older_than
        ]
        return self._take(silent, "orphaned", is_parked=action == "park")

    def _running(self, queues: Sequence[str] | None) -> list[Entry]:
        return [
            entry
            for entry in self.jobs.values()
            if entry.is_running and (queues is None or entry.asked.queue in queues)
        ]

    def _take(self, entries: list[Entry], reason: str, *, is_parked: bool = False) -> int:
        ended = [(entry, replace(entry)) for entry in entries]
        for entry in entries:
            if not is_parked:
                self._cut_short(entry, "lost", reason=reason)
                continue
            self._note(entry, "LeaseLost", reason)
            state = JobState.CANCELLED if entry.is_cancelled else JobState.DEAD
            self._finish(entry, state, is_taken=True)
        self._supersede(ended)
        return len(entries)

    def release_worker(self, worker: str) -> int:
        held = [entry for entry in self._running(None) if entry.worker == worker]
        ended = [(entry, replace(entry)) for entry in held]
        for entry in held:
            if entry.has_begun and (entry.max_attempts == 1 or entry.is_suspect):
                self._cut_short(entry, "interrupted", reason="gave up")
            elif entry.is_cancelled:
                self._finish(entry, JobState.CANCELLED, is_taken=True)
            else:
                self._release(entry, None)
                entry.is_taken = True
        self._supersede(ended)
        return len(held)

    # Manage

    def cancel(self, number: int) -> tuple[str, str]:
        entry = self._must_find(number)
        if entry.state is not None:
            return "already_terminal", entry.state.value
        if entry.is_running:
            entry.is_cancelled = True
            return "pending_on_worker", "running"
        self._finish(entry, JobState.CANCELLED, is_taken=entry.is_taken)
        return "cancelled", "cancelled"

    def _must_find(self, number: int) -> Entry:
        if number not in self.jobs:
            raise NotFound(f"no job {number}")
        return self.jobs[number]

    def retry(self, number: int, payload: int | None = None) -> View:
        entry = self._must_find(number)
        if entry.state not in (JobState.DEAD, JobState.CANCELLED) or self._is_in_flight(entry):
            raise InvalidTransition(id_of(number), "can't be retried")
        back = self._revive(entry)
        if payload is not None:
            back.asked = replace(back.asked, payload=payload)
        return self.view(back)

    def _is_in_flight(self, entry: Entry) -> bool:
        return entry.asked.key is not None and any(
            other.holds_key and other.asked.slot == entry.asked.slot for other in self.jobs.values()
        )

    def _revive(self, entry: Entry) -> Entry:
        self.memory.pop(entry.number, None)
        back = self.jobs[entry.number] = Entry(
            entry.number,
            entry.asked,
            run_at=self.now,
            created_at=entry.created_at,
            token=entry.token,
            errors=entry.errors,
            is_taken=entry.is_taken,
            place=entry.place,
        )
        return back

    def retry_dead(self, chosen: Chosen) -> tuple[int, list[int]]:
        dead = [entry for entry in self._chosen(chosen) if entry.state is JobState.DEAD]
        skipped = []
        for entry in sorted(dead, key=lambda entry: (entry.finished_at, entry.number)):
            if self._is_in_flight(entry):
                skipped.append(entry.number)
            else:
                self._revive(entry)
        return len(dead) - len(skipped), skipped

    def run_now(self, number: int) -> View:
        entry = self._must_wait(number)
        entry.run_at = min(entry.run_at, self.now)
        return self.view(entry)

    def reschedule(self, number: int, delay: int) -> View:
        entry = self._must_wait(number)
        entry.run_at = self.now + delay
        return self.view(entry)

    def reroute(self, number: int, queue: str) -> View:
        entry = self._must_wait(number)
        entry.asked = replace(entry.asked, queue=queue)
        return self.view(entry)

    def _must_wait(self, number: int) -> Entry:
        entry = self._must_find(number)
        if entry.is_running or entry.state is not None:
            raise InvalidTransition(id_of(number), "does not wait")
        return entry

    def delete(self, number: int) -> None:
        if self._must_find(number).is_running:
            raise InvalidTransition(id_of(number), "is running")
        del self.jobs[number]
        self.memory.pop(number, None)
        self.logs.pop(number, None)

    def pause(self, queue: str) -> None:
        self.paused[queue] = True

    def resume(self, queue: str) -> None:
        self.paused[queue] = False

    def set_order(self, queue: str, order: str) -> None:
        self.by_age[queue] = order == "created"

    def declare_limit(self, name: str, spec: LimitSpec) -> bool:
        """Return whether it is new, or has other numbers now."""
        is_changed = self.limits.declared.get(name) != spec
        self.limits.declared[name] = spec
        return is_changed

    def set_limit(self, name: str, key: str | None, spec: LimitSpec, weight: int | None) -> None:
        self._must_know(name)
        if key is None:
            old = self.limits.chosen.get(name, LimitSpec())
            self.limits.chosen[name] = spec.over(old)
            return
        gate = self.limits.key(name, key)
        gate.concurrency = spec.concurrency or gate.concurrency
        gate.rate = spec.rate or gate.rate
        gate.weight = weight or gate.weight

    def unset_limit(self, name: str, key: str | None) -> None:
        self._must_know(name)
        if key is None:
            self.limits.chosen.pop(name, None)
            return
        gate = self.limits.key(name, key)
        gate.concurrency, gate.rate, gate.weight = None, None, None

    def pause_limit(self, name: str, key: str | None, microseconds: int | None) -> None:
        self._must_know(name)
        until = self.now + (FOR_EVER if microseconds is None else microseconds)
        if key is None:
            self.limits.total(name).closed_until = until
        else:
            self.limits.close(name, key, until)

    def resume_limit(self, name: str, key: str | None) -> None:
        self._must_know(name)
        gate = self.limits.total(name) if key is None else self.limits.key(name, key)
        gate.closed_until = 0

    def _must_know(self, name: str) -> None:
        if self.limits.spec(name) is None:
            raise NotFound(f"no limit {name}")

    def prune(self) -> int:
        old = [entry for entry in self.jobs.values() if self._is_over(entry)]
        for entry in old:
            del self.jobs[entry.number]
            self.logs.pop(entry.number, None)
        self.memory = {
            number: memory for number, memory in self.memory.items() if memory.until > self.now
        }
        return len(old)

    def _is_over(self, entry: Entry) -> bool:
        keep = self._keep(entry)
        return (
            entry.finished_at is not None
            and keep is not None
            and entry.finished_at + keep <= self.now
        )

    # Look

    def get(self, number: int) -> View | None:
        return self.view(self.jobs[number]) if number in self.jobs else None

    def list(self, chosen: Chosen, *, state: str | None, limit: int) -> list[View]:
        """All pages as one: dead jobs newest failure first, all others newest first."""
        found = [
            entry
            for entry in self._chosen(chosen)
            if state is None or entry.state_at(self.now) == state
        ]

        def place(entry: Entry) -> tuple[int, int]:
            return (entry.finished_at or 0 if state == "dead" else 0, entry.number)

        return [self.view(entry) for entry in sorted(found, key=place, reverse=True)]

    def _chosen(self, chosen: Chosen) -> Iterable[Entry]:
        for entry in list(self.jobs.values()):
            asked = entry.asked
            pairs = [
                (chosen.kind, asked.kind),
                (chosen.queue, asked.queue),
                (chosen.tenant, asked.tenant),
                (chosen.key, asked.key),
            ]
            if all(wanted is None or wanted == had for wanted, had in pairs) and (
                chosen.tag is None or chosen.tag in asked.tags
            ):
                yield entry

    def queue_names(self) -> Sequence[str]:
        used = {entry.asked.queue for entry in self.jobs.values()}
        return sorted(used | set(self.paused) | set(self.by_age))

    def stats(self, queues: Sequence[str] | None) -> Sequence[View]:
        names = self.queue_names() if queues is None else sorted(set(queues))
        return [self._stats(name) for name in names]

    def _stats(self, queue: str) -> View:
        here = [entry for entry in self.jobs.values() if entry.asked.queue == queue]
        states = [entry.state_at(self.now).value for entry in here]
        ready = [entry.run_at for entry in here if entry.state_at(self.now) is JobState.READY]
        return {
            "queue": queue,
            "counts": {state.value: states.count(state.value) for state in JobState},
            "oldest": (self.now - min(ready)) / SECOND if ready else None,
            "is_paused": self.paused.get(queue, False),
        }

    def workers(self) -> dict[str, Sequence[int]]:
        held: dict[str, list[int]] = {}
        for entry in sorted(self._running(None), key=lambda entry: entry.number):
            held.setdefault(entry.worker or "", []).append(entry.number)
        return dict(held)

    def brief(self, entry: Entry) -> View:
        """What an enqueue must say of a job that existed, even when its row is gone."""
        asked = entry.asked
        return {
            "number": entry.number,
            "kind": asked.kind,
            "queue": asked.queue,
            "tenant": asked.tenant,
            "key": asked.key,
            "state": entry.state_at(self.now).value,
            "token": entry.token,
        }

    def view(self, entry: Entry) -> View:
        """Every field that a user sees."""
        asked, rules = entry.asked, entry.rules
        return {
            **self.brief(entry),
            "payload": {"n": asked.payload},
            "priority": asked.priority,
            "attempt": entry.attempt,
            "max_attempts": entry.max_attempts,
            "run_at": entry.run_at,
            "created_at": entry.created_at,
            "started_at": entry.started_at,
            "finished_at": entry.finished_at,
            "lease_expires_at": entry.lease,
            "worker": entry.worker,
            "crashes": entry.crashes,
            "cancel_requested": entry.is_cancelled,
            "errors": list(entry.errors),
            "result": entry.result,
            "progress": entry.progress,
            "tags": list(asked.tags),
            "retry": None if asked.rules is None else ["fixed", rules.retry],
            "keep": None if rules.keep is None else rules.keep / SECOND,
            "max_crashes": rules.max_crashes,
            "limit": asked.limit,
            "limit_key": None if asked.limit is None else asked.limit_key,
        }
