"""History: sums of how runs ended, kept for a week, and samples of the queues' depths.

1. A process adds rows of its own and never changes one. So no two processes wait for each other,
   and a write whose answer was lost is repeated under the same part.
2. Folding locks rows and replaces them with one row of their sum, under a new part. Another process
   that folds at the same time skips locked rows. A late row is one more part. Reading adds up all
   parts.
3. The database's clock decides which slot of time a write belongs to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.ids import id_at, new_id
from rowlock.job import JobState, QueueStats
from rowlock.store.ops.stats import Exact, all_stats, count_live, is_exact
from rowlock.store.steps import (
    Batch,
    Begin,
    Commit,
    Op,
    Row,
    Rows,
    Statement,
    Steps,
    reading,
    writing,
)
from rowlock.tally import ENDS, OTHER, Name, RunEnd, Spread, Sums, Tally, bounded, merged

logger: logging.Logger = logging.getLogger("rowlock.store")

_COLUMNS: Final = ("part", "at", "queue", "kind", "sums")
_DEPTH_COLUMNS: Final = ("queue", "ready", "scheduled", "running", "retrying", "oldest_us")
_SAMPLED: Final = (JobState.READY, JobState.SCHEDULED, JobState.RUNNING, JobState.RETRYING)
_WRITE_US: Final = int(config.HISTORY_WRITE_SECONDS) * config.SECOND_US
_KEPT: Final = {"kept": int(config.HISTORY_KEEP_SECONDS) * config.SECOND_US}
_MINUTE_US: Final = 60 * config.SECOND_US
# The name under which the sample of all queues together is stored. No queue has it.
_ALL: Final = ""


class _StoredTally(msgspec.Struct, frozen=True, array_like=True):
    """The stored form of sums."""

    ends: list[int]
    run: dict[int, int]
    run_us: int
    wait: dict[int, int]
    wait_us: int


_decode = msgspec.json.Decoder(_StoredTally).decode


def _encoded(sums: Sums) -> str:
    stored = _StoredTally(
        sums.ends, sums.run.buckets, sums.run.total_us, sums.wait.buckets, sums.wait.total_us
    )
    return msgspec.json.encode(stored).decode()


def _decoded(text: str) -> Sums | None:
    """The sums of a row. None if it can't be read: the other rows must still count."""
    try:
        stored = _decode(text)
    except msgspec.DecodeError:
        return None
    if len(stored.ends) != len(ENDS):
        return None
    return Sums(stored.ends, Spread(stored.run, stored.run_us), Spread(stored.wait, stored.wait_us))


def write_history(tally: Mapping[Name, Sums], *, part: str) -> Op[None]:
    """Add the counts of a process from the last seconds. `part` is an id of its own."""
    rows = [(part, None, *name, _encoded(sums)) for name, sums in sorted(tally.items())]

    def steps() -> Steps[None]:
        if rows:
            # Half of these runs were counted before the middle of that time.
            slot = {"back": _WRITE_US // 2, "slot": _WRITE_US, "width": _WRITE_US // 10**6}
            yield Batch("history_write", _COLUMNS, rows, slot)

    return writing("write_history", steps, repeat=steps)


def fold_history() -> Op[int]:
    """Fold old rows into longer slots and remove expired ones. Return how many were folded."""

    folded = 0

    def steps() -> Steps[int]:
        nonlocal folded
        for age, width in config.HISTORY_FOLDS:
            while True:
                yield Begin()
                rows = yield from _fold(int(age) * config.SECOND_US, width)
                yield Commit()
                folded += rows
                if rows < config.HISTORY_FOLD_ROWS:
                    break
        yield Statement("history_prune", _KEPT)
        yield Statement("depth_prune", _KEPT)
        return folded

    return writing("fold_history", steps, repeat=steps)


def _fold(age: int, width: int) -> Steps[int]:
    slot = width * config.SECOND_US
    ripe = {"age": age, "width": width, "slot": slot, "limit": config.HISTORY_FOLD_ROWS}
    rows = yield Statement("history_ripe", ripe)
    if not rows:
        return 0
    slots: dict[int, Tally] = {}
    unreadable = 0
    for _, at, queue, kind, text in rows:
        if (sums := _decoded(text)) is None:
            unreadable += 1
        else:
            merged(slots.setdefault(at // slot * slot, {}), {(queue, kind): sums})
    if unreadable:
        logger.warning("%d unreadable history rows were dropped", unreadable)
    gone = [(part, queue, kind) for part, _, queue, kind, _ in rows]
    yield Batch("history_drop", ("part", "queue", "kind"), gone)
    new = [row for at, tally in slots.items() for row in _folded(at, tally)]
    if new:
        yield Batch("history_write", _COLUMNS, new, {"back": 0, "slot": slot, "width": width})
    return len(rows)


def _folded(at: int, tally: Tally) -> list[Row]:
    part = new_id()
    return [(part, at, *name, _encoded(sums)) for name, sums in bounded(tally).items()]


def sample_depth() -> Op[bool]:
    """Sample the depth of each queue, once per minute. Return whether this call did it."""

    def steps() -> Steps[bool]:
        now, is_there = (yield Statement("depth_last"))[0]
        if is_there:
            return False
        queues = yield from all_stats()
        # A backlog larger than those counts' bound must not be drawn as a plateau.
        exact = {} if is_exact(queues, _SAMPLED) else (yield from count_live())
        rows = _sampled(queues, exact)
        # A look is read-only, so its result is written after it.
        yield Commit()
        yield Begin()
        at = now // _MINUTE_US * _MINUTE_US
        yield Batch("depth_write", _DEPTH_COLUMNS, rows, {"at": at})
        return True

    return writing("sample_depth", steps, repeat=steps)


def _sampled(queues: list[QueueStats], exact: Exact) -> list[Row]:
    """A row for all queues together, under the empty name, and one for each queue with jobs.

    The first row records that a sample was taken: a queue without a row was empty then. In a
    minute without any row, no sample was taken.
    """
    depths = {each.queue: _depth_of(each, exact) for each in queues}
    total = _joined(list(depths.values())) if depths else _EMPTY
    waiting = {name: depth for name, depth in depths.items() if any(depth.counts)}
    if len(waiting) >= config.TALLY_NAMES_MAX:
        by_size = sorted(waiting, key=lambda name: sum(waiting[name].counts))
        others = [waiting.pop(name) for name in by_size[: -config.TALLY_NAMES_MAX + 1]]
        waiting[OTHER] = _joined(others)
    rows = [(_ALL, total), *sorted(waiting.items())]
    return [(name, *depth.counts, depth.oldest_us) for name, depth in rows]


class Depth(msgspec.Struct, frozen=True):
    """How many jobs were ready, scheduled, running, retrying, and the age of the oldest ready."""

    counts: tuple[int, int, int, int]
    oldest_us: int | None


_EMPTY: Final = Depth((0, 0, 0, 0), None)


def _depth_of(stats: QueueStats, exact: Exact) -> Depth:
    ready, scheduled, running, retrying = (
        exact.get((stats.queue, state), 0) if exact else stats.counts[state].value
        for state in _SAMPLED
    )
    oldest = stats.oldest_ready_seconds
    age = None if oldest is None else round(oldest * config.SECOND_US)
    return Depth((ready, scheduled, running, retrying), age)


def _joined(depths: list[Depth]) -> Depth:
    """Add up several queues at one time."""
    return _combined(depths, sum)


def _highest(depths: list[Depth]) -> Depth:
    """Take the maximum of each number for one queue at several times."""
    return _combined(depths, max)


def _combined(depths: list[Depth], combine: Callable[[tuple[int, ...]], int]) -> Depth:
    columns = zip(*(each.counts for each in depths), strict=True)
    ready, scheduled, running, retrying = map(combine, columns)
    ages = [each.oldest_us for each in depths if each.oldest_us is not None]
    return Depth((ready, scheduled, running, retrying), max(ages, default=None))


class HistoryQuery(msgspec.Struct, frozen=True):
    """The time range and step in microseconds, the queue or kind, and the grouping."""

    since: int | None
    until: int | None
    last: int
    step: int | None = None
    queue: str | None = None
    kind: str | None = None
    by_queue: bool = False
    by_kind: bool = False


class Series(msgspec.Struct, frozen=True):
    """The sums of each step, by its place. Has a queue and kind if grouped by them."""

    queue: str | None
    kind: str | None
    steps: dict[int, Sums] = msgspec.field(default_factory=dict[int, Sums])

    @property
    def total(self) -> Sums:
        total = Sums()
        for sums in self.steps.values():
            total.merge(sums)
        return total


class History(msgspec.Struct, frozen=True):
    """The answer to a query. `is_cut`: there was more than one answer may read.

    Then the oldest steps or the smallest series are missing.
    """

    since: datetime
    times: list[datetime]
    step_seconds: int
    series: list[Series]
    depths: dict[str, dict[int, Depth]]
    is_cut: bool


def read_history(asked: HistoryQuery) -> Op[History]:
    """How runs ended, and how deep the queues were, over a time range."""

    def steps() -> Steps[History]:
        now: int = (yield Statement("clock"))[0][0]
        window = _window(asked, now)
        values = {
            "since": window.since,
            "until": window.until,
            "queue": asked.queue,
            "limit": config.HISTORY_ROWS_MAX,
        }
        rows = yield Statement("history_read", {**values, "kind": asked.kind})
        # A sample stands for its whole minute, which may have begun before the range.
        since = window.since - _MINUTE_US + 1
        depths = yield Statement("depth_read", {**values, "since": since})
        series = _series(rows, asked, window)
        most = config.HISTORY_SERIES_MAX
        is_cut = max(len(rows), len(depths)) >= config.HISTORY_ROWS_MAX or len(series) > most
        return History(
            since=from_us(window.since),
            times=[from_us(at) for at in range(window.since, window.until, window.step)],
            step_seconds=window.step // config.SECOND_US,
            series=series[:most],
            depths=_depths(depths, asked, window),
            is_cut=is_cut,
        )

    return reading("read_history", steps)


class Flow(msgspec.Struct, frozen=True):
    """How many jobs are enqueued and end per second, over the last complete half minute."""

    enqueued: float
    finished: float
    succeeded: float


def read_flow() -> Op[Flow]:
    """The rates at which jobs are enqueued (by their ids) and end (by the history).

    Not seen are jobs whose id is not a UUIDv7, and runs that are settled by `store.succeed` and the
    like, which write no history.
    """

    def steps() -> Steps[Flow]:
        now: int = (yield Statement("clock"))[0][0]
        # Workers write a slot within a few seconds after it has passed.
        until = (now - _WRITE_US) // _WRITE_US * _WRITE_US
        since = until - _FLOW_US
        cap = config.LIST_SCAN_ROWS_MAX
        low, high = (id_at(at // 1_000) for at in (since, until))
        count, first = (yield Statement("count_new", {"low": low, "high": high, "cap": cap}))[0]
        if count >= cap:
            since_ids = int(first.replace("-", "")[:12], 16) * 1_000
            enqueued = count / max(until - since_ids, 1_000)
        else:
            enqueued = count / _FLOW_US
        values = {"since": since, "until": until, "queue": None, "kind": None}
        rows = yield Statement("history_read", {**values, "limit": config.HISTORY_ROWS_MAX})
        total = Sums()
        for *_, text in rows:
            if (sums := _decoded(text)) is not None:
                total.merge(sums)
        second = config.SECOND_US
        finished = sum(total.of(end) for end in _FINAL) * second / _FLOW_US
        succeeded = total.of(RunEnd.SUCCEEDED) * second / _FLOW_US
        return Flow(enqueued * second, finished, succeeded)

    return reading("read_flow", steps)


_FLOW_US: Final = 3 * _WRITE_US
_FINAL: Final = (RunEnd.SUCCEEDED, RunEnd.DEAD, RunEnd.CANCELLED)


class _Window(msgspec.Struct, frozen=True):
    since: int
    until: int
    step: int

    def place(self, at: int) -> int:
        return (at - self.since) // self.step

    def places(self, at: int, length: int) -> range:
        """The steps that begin within a stretch of time, or the step in which it begins."""
        first = max(0, self.place(at))
        last = max(first, self.place(min(at + length, self.until) - 1))
        return range(first, last + 1)


def _window(asked: HistoryQuery, now: int) -> _Window:
    """The range in whole steps. No step is shorter than the slots that are kept for that age."""
    until = min(asked.until or now, now) + 1
    kept = now - _KEPT["kept"]
    since = max(asked.since if asked.since is not None else until - asked.last, kept)
    since = min(since, until - 1)
    least = [_WRITE_US, (until - since) // config.HISTORY_POINTS_MAX]
    least += [
        width * config.SECOND_US
        for age, width in config.HISTORY_FOLDS
        if since < now - int(age) * config.SECOND_US
    ]
    step = max(asked.step or 0, *least)
    # Whole widths, so that no slot spans two steps.
    unit = max(width for width in least if width in _UNITS_US)
    step = -(-step // unit) * unit
    start = since // step * step
    return _Window(start, -(-until // step) * step, step)


_UNITS_US: Final = frozenset(
    {_WRITE_US, *(width * config.SECOND_US for _, width in config.HISTORY_FOLDS)}
)


def _series(rows: Rows, asked: HistoryQuery, window: _Window) -> list[Series]:
    """The series, largest first. Without a grouping there is one."""
    found: dict[tuple[str | None, str | None], Series] = {}
    if not (asked.by_queue or asked.by_kind):
        found[None, None] = Series(None, None)
    for at, queue, kind, text in rows:
        if (sums := _decoded(text)) is None:
            continue
        name = queue if asked.by_queue else None, kind if asked.by_kind else None
        series = found.setdefault(name, Series(*name))
        series.steps.setdefault(window.place(at), Sums()).merge(sums)
    return sorted(found.values(), key=lambda each: -sum(s.total for s in each.steps.values()))


def _depths(rows: Rows, asked: HistoryQuery, window: _Window) -> dict[str, dict[int, Depth]]:
    """The highest depth of each step, by queue, or under an empty name for all together.

    A step without a sample is left out, so that a line over it has a gap. A sample stands for its
    whole minute, which may be several steps.
    """
    samples: dict[int, dict[str, Depth]] = {}
    for at, queue, *counts, oldest in rows:
        ready, scheduled, running, retrying = counts
        samples.setdefault(at, {})[queue] = Depth((ready, scheduled, running, retrying), oldest)
    if len(rows) >= config.HISTORY_ROWS_MAX:
        # Some rows of the oldest minute may be missing.
        samples.pop(min(samples))
    names = {queue for sample in samples.values() for queue in sample}
    wanted = names - {_ALL} if asked.by_queue else {asked.queue or _ALL}
    depths: dict[str, dict[int, Depth]] = {}
    for name in sorted(wanted):
        steps: dict[int, list[Depth]] = {}
        for at, sample in samples.items():
            for place in window.places(at, _MINUTE_US):
                steps.setdefault(place, []).append(sample.get(name, _EMPTY))
        if steps:
            shown = name if asked.by_queue else _ALL
            depths[shown] = {place: _highest(each) for place, each in steps.items()}
    return depths
