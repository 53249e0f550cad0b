"""Programs as data: lists of operations that can be drawn, shrunk, printed and replayed.

Operations name jobs and leases by symbolic references, which are resolved while a program runs:
job n is the n-th that was ever asked for, lease n the n-th last that was ever given, still held
or not. So every program can be run, on anything, and means the same there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rowlock.errors import InvalidTransition, LeaseLost, RowlockError
from tests.model.limits import LimitSpec, RateSpec
from tests.model.model import (
    KEPT,
    SECOND,
    UNTIL_STARTED,
    Chosen,
    Ending,
    New,
    Rules,
    Run,
    View,
    Wanted,
    number_of,
)

QUEUES = ("p", "q")
KINDS = ("a", "b")
TENANTS = ("x", "y")
KEYS = ("k", "l")
WORKERS = ("w1", "w2")
# One of each kind, and one with all that can be bounded. The last is declared by nobody at first.
LIMITS = {
    "at once": LimitSpec(concurrency=3, key_concurrency=2),
    "rate": LimitSpec(rate=RateSpec(3, 10, burst=2), key_rate=RateSpec(1, 10)),
    "both": LimitSpec(
        concurrency=2, rate=RateSpec(1, 5, burst=3), key_concurrency=1, key_rate=RateSpec(1, 2, 2)
    ),
    "fair": LimitSpec(weights=(("k", 2),)),
    "order": LimitSpec(key_concurrency=1, is_ordered=True),
    "strict": LimitSpec(key_concurrency=1, is_ordered=True, pauses_when_dead=True),
}
OTHER_LIMITS = {
    **LIMITS,
    "at once": LimitSpec(concurrency=4, key_concurrency=1),
    "rate": LimitSpec(rate=RateSpec(1, 1), key_rate=RateSpec(2, 10, burst=3)),
    "fair": LimitSpec(weights=(("l", 3),)),
}
LIMIT_KEYS = ("j", "k", "l")
KNOWN = {"a": (Rules(retry=2.0, keep=60 * SECOND), 3)}


@dataclass(frozen=True)
class Ask:
    """One job of an enqueue: `resend` repeats the id of an earlier one."""

    new: New
    resend: int | None = None


@dataclass(frozen=True)
class Nothing:
    """The simplest operation, which a program shrinks to."""


@dataclass(frozen=True)
class Advance:
    seconds: float


@dataclass(frozen=True)
class Reopen:
    pass


@dataclass(frozen=True)
class Enqueue:
    asked: tuple[Ask, ...]


@dataclass(frozen=True)
class Claim:
    worker: str
    queues: tuple[str, ...] | tuple[tuple[str, int], ...] | None
    kinds: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None
    limit: int = 1
    seconds: float = 30
    include_expired: bool = True
    knows_kinds: bool = False
    begun: bool = True


@dataclass(frozen=True)
class Beat:
    leases: tuple[int, ...]
    seconds: float = 30


@dataclass(frozen=True)
class Begin:
    """Mark the runs of these leases as begun."""

    leases: tuple[int, ...]


@dataclass(frozen=True)
class Tell:
    """Progress, and a log line, of a running job."""

    lease: int
    fraction: float
    is_logged: bool = False


@dataclass(frozen=True)
class End:
    """How the run of one lease ended, by whoever still believes to hold it."""

    lease: int
    ending: Ending
    seconds: float | None = None
    result: int | None = None
    follow_ups: tuple[Ask, ...] = ()


@dataclass(frozen=True)
class Settle:
    ends: tuple[End, ...]
    by_hand: bool = False


@dataclass(frozen=True)
class Cancel:
    job: int


@dataclass(frozen=True)
class Retry:
    job: int
    payload: int | None = None


@dataclass(frozen=True)
class RetryDead:
    chosen: Chosen


@dataclass(frozen=True)
class RunNow:
    job: int


@dataclass(frozen=True)
class Reschedule:
    job: int
    seconds: float


@dataclass(frozen=True)
class Reroute:
    job: int
    queue: str


@dataclass(frozen=True)
class Delete:
    job: int


@dataclass(frozen=True)
class SetPause:
    queue: str
    is_paused: bool


@dataclass(frozen=True)
class SetOrder:
    queue: str
    order: str


@dataclass(frozen=True)
class DeclareLimits:
    """Declare limits by name, as `LIMITS` has them, or with other numbers."""

    names: tuple[str, ...]
    are_others: bool = False


@dataclass(frozen=True)
class SetLimit:
    name: str
    spec: LimitSpec
    key: str | None = None
    weight: int | None = None


@dataclass(frozen=True)
class UnsetLimit:
    name: str
    key: str | None = None


@dataclass(frozen=True)
class PauseLimit:
    name: str
    key: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ResumeLimit:
    name: str
    key: str | None = None


@dataclass(frozen=True)
class Recover:
    seconds: float = 0
    queues: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Adopt:
    queues: tuple[str, ...]
    action: str
    seconds: float


@dataclass(frozen=True)
class ReleaseWorker:
    worker: str


@dataclass(frozen=True)
class Prune:
    pass


@dataclass(frozen=True)
class List:
    chosen: Chosen
    state: str | None
    limit: int


@dataclass(frozen=True)
class Stats:
    queues: tuple[str, ...] | None


Operation = (
    Nothing | Advance | Reopen | Enqueue | Claim | Beat | Begin | Tell | Settle | Cancel | Retry
    | RetryDead | Delete | SetPause | SetOrder | Recover | Adopt | ReleaseWorker | Prune | List
    | Stats | RunNow | Reschedule | Reroute | DeclareLimits | SetLimit | UnsetLimit | PauseLimit
    | ResumeLimit
)  # fmt: skip
Program = Sequence[Operation]


class Subject(Protocol):
    """Anything with the model's verbs: the model itself, or a store behind `StoreSubject`."""

    def advance(self, microseconds: int) -> None: ...
    def reopen(self) -> None: ...
    def enqueue(self, asked: Sequence[tuple[int, New]]) -> Any: ...
    def claim(self, wanted: Wanted) -> Any: ...
    def heartbeat(self, leases: Sequence[tuple[int, int]], lease: int) -> Any: ...
    def begin(self, leases: Sequence[tuple[int, int]]) -> Any: ...
    def progress(self, number: int, token: int, fraction: float, text: str) -> None: ...
    def log(self, number: int, token: int, lines: Sequence[str]) -> None: ...
    def read_log(self, number: int) -> Any: ...
    def settle(self, runs: Sequence[Run], *, by_hand: bool) -> None: ...
    def recover(self, older_than: int, queues: Sequence[str] | None) -> int: ...
    def adopt_orphans(self, queues: Sequence[str], action: str, older_than: int) -> int: ...
    def release_worker(self, worker: str) -> int: ...
    def cancel(self, number: int) -> Any: ...
    def retry(self, number: int, payload: int | None) -> View: ...
    def retry_dead(self, chosen: Chosen) -> Any: ...
    def run_now(self, number: int) -> View: ...
    def reschedule(self, number: int, delay: int) -> View: ...
    def reroute(self, number: int, queue: str) -> View: ...
    def delete(self, number: int) -> None: ...
    def pause(self, queue: str) -> None: ...
    def resume(self, queue: str) -> None: ...
    def set_order(self, queue: str, order: str) -> None: ...
    def declare_limit(self, name: str, spec: LimitSpec) -> bool: ...
    def set_limit(
        self, name: str, key: str | None, spec: LimitSpec, weight: int | None
    ) -> None: ...
    def unset_limit(self, name: str, key: str | None) -> None: ...
    def pause_limit(self, name: str, key: str | None, microseconds: int | None) -> None: ...
    def resume_limit(self, name: str, key: str | None) -> None: ...
    def prune(self) -> int: ...
    def get(self, number: int) -> View | None: ...
    def list(self, chosen: Chosen, *, state: str | None, limit: int) -> Any: ...
    def stats(self, queues: Sequence[str] | None) -> Any: ...
    def workers(self) -> Any: ...


@dataclass
class Runner:
    """Runs operations on one subject. What it returns can be compared with another subject's."""

    subject: Subject
    number_of: Callable[[str], int] = number_of
    count: int = 0
    leases: list[tuple[int, int]] = field(default_factory=list)

    def step(self, operation: Operation) -> Any:
        """What the operation answers: a result, or an error by its type, code and jobs."""
        try:
            return self._perform(operation)
        except LeaseLost as lost:
            named = [(self.number_of(lease.id), lease.token) for lease in lost.leases]
            return ("LeaseLost", lost.code, named)
        except InvalidTransition as invalid:
            return ("InvalidTransition", invalid.code, self.number_of(invalid.job_id))
        except RowlockError as error:
            return (type(error).__name__, error.code)

    def _perform(self, operation: Operation) -> Any:  # noqa: PLR0911, PLR0912  # one line a verb
        subject = self.subject
        match operation:
            case Nothing():
                return None
            case Advance():
                return subject.advance(_us(operation.seconds))
            case Reopen():
                return subject.reopen()
            case Enqueue():
                return subject.enqueue(self._numbered(operation.asked))
            case Claim():
                return self._claim(operation)
            case Beat():
                held = [self._lease(lease) for lease in operation.leases if self.leases]
                return subject.heartbeat(held, _us(operation.seconds))
            case Begin():
                return subject.begin(
                    [self._lease(each) for each in operation.leases if self.leases]
                )
            case Tell():
                return self._tell(operation)
            case Settle():
                return self._settle(operation)
            case Cancel():
                return subject.cancel(self._job(operation.job))
            case Retry():
                return subject.retry(self._job(operation.job), operation.payload)
            case RetryDead():
                return subject.retry_dead(operation.chosen)
            case RunNow():
                return subject.run_now(self._job(operation.job))
            case Reschedule():
                return subject.reschedule(self._job(operation.job), _us(operation.seconds))
            case Reroute():
                return subject.reroute(self._job(operation.job), operation.queue)
            case Delete():
                return subject.delete(self._job(operation.job))
            case SetPause():
                change = subject.pause if operation.is_paused else subject.resume
                return change(operation.queue)
            case SetOrder():
                return subject.set_order(operation.queue, operation.order)
            case DeclareLimits():
                specs = OTHER_LIMITS if operation.are_others else LIMITS
                return [subject.declare_limit(name, specs[name]) for name in operation.names]
            case SetLimit():
                chosen, key = operation.spec, operation.key
                return subject.set_limit(operation.name, key, chosen, operation.weight)
            case UnsetLimit():
                return subject.unset_limit(operation.name, operation.key)
            case PauseLimit():
                time = None if operation.seconds is None else _us(operation.seconds)
                return subject.pause_limit(operation.name, operation.key, time)
            case ResumeLimit():
                return subject.resume_limit(operation.name, operation.key)
            case Recover():
                return subject.recover(_us(operation.seconds), operation.queues)
            case Adopt():
                age = _us(operation.seconds)
                return subject.adopt_orphans(operation.queues, operation.action, age)
            case ReleaseWorker():
                return subject.release_worker(operation.worker)
            case Prune():
                return subject.prune()
            case List():
                chosen, limit = operation.chosen, operation.limit
                return subject.list(chosen, state=operation.state, limit=limit)
            case Stats():
                return subject.stats(operation.queues)

    def _numbered(self, asked: Sequence[Ask]) -> list[tuple[int, New]]:
        numbered = []
        for ask in asked:
            if ask.resend is None or not self.count:
                number = self.count
                self.count += 1
            else:
                number = ask.resend % self.count
            numbered.append((number, ask.new))
        return numbered

    def _claim(self, operation: Claim) -> Any:
        queues: Any = operation.queues
        if queues and isinstance(queues[0], tuple):
            queues = dict(queues)
        wanted = Wanted(
            worker=operation.worker,
            queues=queues,
            kinds=operation.kinds,
            tenants=operation.tenants,
            limit=operation.limit,
            lease=_us(operation.seconds),
            include_expired=operation.include_expired,
            policies=KNOWN if operation.knows_kinds else {},
            begun=operation.begun,
        )
        views = self.subject.claim(wanted)
        self.leases += [(view["number"], view["token"]) for view in views]
        return views

    def _tell(self, operation: Tell) -> None:
        if self.leases:
            number, token = self._lease(operation.lease)
            self.subject.progress(number, token, operation.fraction, "half")
            if operation.is_logged:
                self.subject.log(number, token, ["a line"])

    def _settle(self, operation: Settle) -> None:
        if self.leases:
            runs = [self._run(end) for end in operation.ends]
            self.subject.settle(runs, by_hand=operation.by_hand)

    def _run(self, end: End) -> Run:
        number, token = self._lease(end.lease)
        follow_ups = tuple(self._numbered(end.follow_ups))
        return Run(number, token, end.ending, end.seconds, end.result, follow_ups)

    def _job(self, reference: int) -> int:
        """One more than there are: a job that never was is asked for, too."""
        return reference % (self.count + 1)

    def _lease(self, reference: int) -> tuple[int, int]:
        return self.leases[-1 - reference % len(self.leases)]

    def glance(self) -> dict[str, Any]:
        """All jobs and counts, by two calls."""
        return {
            "jobs": self.subject.list(Chosen(), state=None, limit=1000),
            "stats": self.subject.stats(None),
        }

    def epilogue(self) -> list[Operation]:
        """What lies hidden at the end of a program, asked for: which leases, ids and keys hold."""
        slots = product(KINDS, (None, *TENANTS), KEYS)
        return [
            *(Settle((End(lease, "succeed"),), by_hand=True) for lease in range(len(self.leases))),
            Enqueue(tuple(Ask(New(), resend=number) for number in range(self.count))),
            Enqueue(
                tuple(Ask(New(kind=kind, tenant=tenant, key=key)) for kind, tenant, key in slots)
            ),
        ]

    def observe(self) -> dict[str, Any]:
        """Everything that can be seen."""
        subject = self.subject
        return {
            **self.glance(),
            "each": [subject.get(number) for number in range(self.count + 1)],
            "logs": [subject.read_log(number) for number in range(self.count)],
            "pages": subject.list(Chosen(), state=None, limit=2),
            "dead": subject.list(Chosen(), state="dead", limit=2),
            "asked": subject.stats(("zz", *QUEUES)),
            "workers": subject.workers(),
        }


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Where two observations differ, in words that can be read."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in [*first, *(set(second) - set(first))]:
            yield from differences(first.get(name), second.get(name), f"{path}.{name}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif first != second:
        yield f"{path}: expected {first!r}, got {second!r}"


def text_of(program: Program) -> str:
    """The program as source, to paste into a test."""
    lines = [f"    {operation}," for operation in program if operation != Nothing()]
    return "\n".join(["[", *lines, "]"])


def _us(seconds: float) -> int:
    return round(seconds * SECOND)


# Drawing programs. Few names, few times and few numbers: what is drawn must meet.

_references = st.integers(0, 11)
_recent = st.integers(0, 3)
_short = st.sampled_from([0, 1, 5, 30])
_keeps = st.sampled_from([60 * SECOND, 0, None, 1000 * SECOND])


def _maybe(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.none() | strategy


def _some(names: Sequence[str]) -> SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), max_size=3).map(tuple)


_rules = st.builds(
    Rules,
    retry=st.sampled_from([5.0, 0.0, 100.0]),
    keep=_keeps,
    keep_dead=_keeps,
    max_crashes=st.sampled_from([2, 1, 3]),
)
_when: SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(dict),
    st.builds(dict),
    _short.map(lambda seconds: {"delay": seconds * SECOND}),
    st.sampled_from([-5, 10, 40, 200]).map(lambda seconds: {"run_at": seconds * SECOND}),
)
_keyed: SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(dict),
    st.builds(
        lambda key, hold, replaces: {"key": key, "hold": hold, "replaces": replaces},
        st.sampled_from(KEYS),
        st.sampled_from([None, UNTIL_STARTED, UNTIL_STARTED, KEPT, 20 * SECOND, 300 * SECOND]),
        st.booleans(),
    ),
)
# Of one slot, so that some run while others come.
_crowded: SearchStrategy[dict[str, Any]] = st.one_of(
    st.booleans().map(lambda replaces: {"replaces": replaces}),
    st.builds(
        lambda quiet, most: {"quiet": quiet, "max_wait": most},
        st.sampled_from([0, 1 * SECOND, 5 * SECOND]),
        st.sampled_from([None, 5 * SECOND, 8 * SECOND]),
    ),
).map(
    lambda chosen: {"kind": "a", "tenant": None, "key": "k", "hold": UNTIL_STARTED, **chosen},
)
_keyed_and_timed: SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda when, keyed: {**when, **keyed}, _when, _keyed),
    st.builds(lambda when, keyed: {**when, **keyed}, _when, _keyed),
    _crowded,
)


@st.composite
def _news(draw: st.DrawFn) -> New:
    new = New(
        kind=draw(st.sampled_from(KINDS)),
        queue=draw(st.sampled_from(QUEUES)),
        payload=draw(st.integers(0, 3)),
        priority=draw(st.sampled_from([0, 0, 5, -100])),
        tenant=draw(_maybe(st.sampled_from(TENANTS))),
        max_attempts=draw(st.sampled_from([None, 1, 2, 3])),
        tags=draw(st.sampled_from([(), ("red",), ("red", "blue")])),
        rules=draw(_maybe(_rules)),
    )
    return replace(new, **draw(_keyed_and_timed))


_asks = st.builds(Ask, _news(), st.one_of(st.none(), st.none(), st.none(), _references))
_chosen = st.builds(
    Chosen,
    kind=_maybe(st.sampled_from(KINDS)),
    queue=_maybe(st.sampled_from(QUEUES)),
    tenant=_maybe(st.sampled_from(TENANTS)),
    key=st.sampled_from([None, None, None, "k"]),
    tag=st.sampled_from([None, None, None, "red"]),
)
_claims = st.builds(
    Claim,
    worker=st.sampled_from(WORKERS),
    queues=st.one_of(
        st.none(),
        st.sampled_from([("p", "q"), ("q", "p"), ("q",), ()]),
        st.builds(
            lambda first, second: (("q", first), ("p", second)),
            st.integers(0, 2),
            st.integers(0, 2),
        ),
    ),
    kinds=st.one_of(st.none(), st.none(), _some(KINDS)),
    tenants=st.one_of(st.none(), st.none(), _some(TENANTS)),
    limit=st.integers(1, 3),
    seconds=st.sampled_from([30, 5, 100]),
    include_expired=st.sampled_from([True, True, True, False]),
    knows_kinds=st.booleans(),
    begun=st.booleans(),
)
_endings: SearchStrategy[Any] = st.sampled_from(
    [
        "succeed", "succeed", "fail", "fail", "unstorable", "permanent", "release", "cancelled",
        "crash", "crash_together", "not_begun", "interrupted",
    ]
)  # fmt: skip
_ends = st.builds(
    End,
    lease=_recent | _references,
    ending=_endings,
    seconds=_maybe(_short),
    result=_maybe(st.integers(0, 3)),
    follow_ups=st.one_of(st.just(()), st.just(()), st.lists(_asks, max_size=2).map(tuple)),
)
_settles = st.builds(
    Settle,
    st.one_of(st.tuples(_ends), st.lists(_ends, min_size=1, max_size=3).map(tuple)),
    by_hand=st.booleans(),
)
_enqueues = st.builds(
    Enqueue, st.one_of(st.tuples(_asks), st.lists(_asks, min_size=1, max_size=4).map(tuple))
)

# How often each is drawn.
_weighted: list[tuple[int, SearchStrategy[Operation]]] = [
    (1, st.just(Nothing())),
    (10, _enqueues),
    (10, _claims),
    (10, _settles),
    (6, st.builds(Advance, st.sampled_from([1, 0.5, 5, 10, 31, 100, 901, 100_000]))),
    (2, st.builds(Beat, st.lists(_recent, max_size=3).map(tuple), st.sampled_from([30, 5]))),
    (2, st.builds(Begin, st.lists(_recent, max_size=3).map(tuple))),
    (2, st.builds(Tell, _recent, st.sampled_from([0.0, 0.5]), st.booleans())),
    (3, st.builds(Cancel, _references)),
    (3, st.builds(Retry, _references, _maybe(st.integers(4, 5)))),
    (1, st.builds(RetryDead, st.one_of(st.just(Chosen()), _chosen))),
    (1, st.builds(RunNow, _references)),
    (1, st.builds(Reschedule, _references, st.sampled_from([0, 5, 60]))),
    (1, st.builds(Reroute, _references, st.sampled_from(QUEUES))),
    (1, st.builds(Delete, _references)),
    (1, st.builds(SetPause, st.sampled_from(QUEUES), st.booleans())),
    (1, st.builds(SetOrder, st.sampled_from(QUEUES), st.sampled_from(["created", "run_at"]))),
    (1, st.builds(Recover, st.sampled_from([0, 5]), _maybe(_some(QUEUES)))),
    (
        1,
        st.builds(
            Adopt,
            _some(QUEUES),
            st.sampled_from(["retry", "park"]),
            st.sampled_from([0, 5, 300]),
        ),
    ),
    (1, st.builds(ReleaseWorker, st.sampled_from(WORKERS))),
    (1, st.just(Prune())),
    (
        1,
        st.builds(
            List,
            _chosen,
            st.sampled_from([None, "ready", "scheduled", "running", "retrying", "dead"]),
            st.integers(1, 3),
        ),
    ),
    (1, st.builds(Stats, _maybe(_some(QUEUES)))),
    (1, st.just(Reopen())),
]
operations: SearchStrategy[Operation] = st.sampled_from(
    [strategy for weight, strategy in _weighted for _ in range(weight)]
).flatmap(lambda strategy: strategy)


def programs(steps: int) -> SearchStrategy[list[Operation]]:
    """Programs of so many steps; shorter ones only by steps that do nothing."""
    return st.lists(operations, min_size=steps, max_size=steps)


# Programs with limits. Orders have one queue and no priorities, as tasks with such a limit have.


@st.composite
def _limited_news(draw: st.DrawFn) -> New:
    # What a debounce replaces keeps its place, and may get another limit: not compared here.
    new = replace(draw(_news()), replaces=False, quiet=None, max_wait=None)
    name = draw(st.sampled_from([None, *LIMITS]))
    if name is None:
        return new
    is_ordered = LIMITS[name].is_ordered
    return replace(
        new,
        limit=name,
        limit_key=draw(st.sampled_from(LIMIT_KEYS)),
        is_ordered=is_ordered,
        queue="q" if is_ordered else new.queue,
        priority=0 if is_ordered else new.priority,
    )


_limited_asks = st.builds(Ask, _limited_news(), st.sampled_from([None] * 9 + [0]))
_limit_names = st.sampled_from([*LIMITS])
_loose_names = st.sampled_from([name for name, spec in LIMITS.items() if not spec.is_ordered])
_limit_keys = st.none() | st.sampled_from(LIMIT_KEYS)
_rates = st.sampled_from([RateSpec(1, 1), RateSpec(1, 100), RateSpec(4, 10, burst=4)])


@st.composite
def _set_limits(draw: st.DrawFn) -> SetLimit:
    """At least one number, and of a key only those that it can have."""
    key = draw(_limit_keys)
    number = draw(st.integers(1, 4))
    choices = [LimitSpec(concurrency=number), LimitSpec(rate=draw(_rates))]
    if key is None:
        choices += [LimitSpec(key_concurrency=number), LimitSpec(key_rate=draw(_rates))]
        return SetLimit(draw(_loose_names), draw(st.sampled_from(choices)))
    weight = draw(st.none() | st.integers(1, 3))
    return SetLimit(draw(_loose_names), draw(st.sampled_from(choices)), key, weight)


_limited_ends = st.builds(
    End,
    lease=_recent | _references,
    ending=_endings | st.just("throttle"),
    seconds=_maybe(_short),
    follow_ups=st.just(()) | st.lists(_limited_asks, max_size=2).map(tuple),
)
_limited_weighted: list[tuple[int, SearchStrategy[Operation]]] = [
    *(
        (weight, strategy)
        for weight, strategy in _weighted
        if strategy not in (_enqueues, _settles)
    ),
    (12, st.builds(Enqueue, st.lists(_limited_asks, min_size=1, max_size=4).map(tuple))),
    (8, st.builds(Claim, st.sampled_from(WORKERS), st.none(), limit=st.integers(1, 10))),
    (10, st.builds(Settle, st.lists(_limited_ends, min_size=1, max_size=3).map(tuple))),
    (4, st.builds(Advance, st.sampled_from([1, 2, 5, 10]))),
    (2, _set_limits()),
    (1, st.builds(UnsetLimit, _limit_names, _limit_keys)),
    (1, st.builds(PauseLimit, _limit_names, _limit_keys, _maybe(_short))),
    (2, st.builds(ResumeLimit, _limit_names, _limit_keys)),
    (1, st.builds(DeclareLimits, st.tuples(_limit_names), st.booleans())),
]
_limited_operations: SearchStrategy[Operation] = st.sampled_from(
    [strategy for weight, strategy in _limited_weighted for _ in range(weight)]
).flatmap(lambda strategy: strategy)


def limited_programs(steps: int) -> SearchStrategy[list[Operation]]:
    """Programs whose jobs have limits. Most limits are declared at the beginning."""
    first = st.sampled_from([tuple(LIMITS), tuple(LIMITS)[:-1], tuple(LIMITS)[1:]])
    rest = st.lists(_limited_operations, min_size=steps, max_size=steps)
    return st.builds(lambda names, rest: [DeclareLimits(names), *rest], first, rest)
