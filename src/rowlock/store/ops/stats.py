"""Stats: counts per queue and state. Exact up to a bound, and marked "at least" beyond it.

Ready and waiting jobs are counted lane by lane on the index alone, up to the bound in each lane.
Succeeded jobs have no index by queue: they are counted among the newest finished rows. Uncounted
rows are never estimated: a share of a sample was wrong by a factor of eight where queues finish
jobs at different times, and the planner's number of rows is wrong until ANALYZE.

All statements of a look see one moment, and one time: a job that is claimed, settled or due in
between is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rowlock import config
from rowlock.job import QUEUED_STATES, TERMINAL_STATES, Count, JobState, QueueStats
from rowlock.store import options
from rowlock.store.steps import Batch, Begin, Op, Rows, Statement, Steps, reading

_NOT_RUNNING: Final = QUEUED_STATES | {JobState.WAITING}


def stats(queues: Sequence[str] | None = None) -> Op[list[QueueStats]]:
    """The number of jobs by queue and state, and the age of each queue's oldest ready job.

    Args:
        queues: Only these queues. A queue without jobs is returned with zeros. None: all known
            queues.
    """
    asked = options.names(queues, option="queues")
    return reading("stats", lambda: _seen_at_once(asked))


class NamePage(msgspec.Struct, frozen=True):
    """A part of all names, in their order: as many as `limit`, after a name."""

    after: str = ""
    limit: int | None = None

    def of(self, names: Iterable[str]) -> list[str]:
        return [name for name in sorted(names) if name > self.after][: self.limit]


_EVERY_NAME: Final = NamePage()


def queue_page(queues: Sequence[str] | None = None, *, page: NamePage) -> Op[list[QueueStats]]:
    """As `stats`, for a page of the queues. Only the jobs of that page are counted."""
    asked = options.names(queues, option="queues")
    return reading("queue_page", lambda: _seen_at_once(asked, page))


def tenant_stats(
    tenant: str, queues: Sequence[str] | None = None, *, page: NamePage = _EVERY_NAME
) -> Op[list[QueueStats]]:
    """As `stats`, for one tenant's jobs, counted among a bounded number of rows of each table.

    Ended jobs are counted among the newest. If there are more rows than the bound, the counts are
    of those that were read, and marked.
    """
    asked = options.names(queues, option="queues")
    scan = {"scan": config.LIST_SCAN_ROWS_MAX}

    def steps() -> Steps[list[QueueStats]]:
        yield Begin(is_look=True)
        now: int = (yield Statement("clock"))[0][0]
        rows = yield Statement("count_tenant", {**scan, "tenant": tenant, "now": now})
        is_beyond = bool((yield Statement("finished_beyond", scan))[0][0])
        cut = _cut_states(rows) | (TERMINAL_STATES if is_beyond else frozenset())
        paused = {row[0] for row in (yield Statement("paused_queues"))}
        names = page.of({row[0] for row in rows} if asked is None else asked)
        return [
            _tenant_queue(name, rows, now=now, is_paused=name in paused, cut=cut) for name in names
        ]

    return reading("tenant_stats", steps)


def _cut_states(rows: Rows) -> frozenset[JobState]:
    """The states that were read only in part: a tenant may have more jobs than the bound."""
    cut: set[JobState] = set()
    for together in (_NOT_RUNNING, {JobState.RUNNING}):
        if sum(row[2] for row in rows if row[1] in together) >= config.LIST_SCAN_ROWS_MAX:
            cut |= together
    return frozenset(cut)


def _tenant_queue(
    name: str, rows: Rows, *, now: int, is_paused: bool, cut: frozenset[JobState]
) -> QueueStats:
    found = {state: (number, oldest) for queue, state, number, oldest in rows if queue == name}
    counts = {
        state: Count(found.get(state, (0, 0))[0], exact=state not in cut) for state in JobState
    }
    ready = found.get(JobState.READY)
    oldest = None if ready is None else (now - ready[1]) / config.SECOND_US
    return QueueStats(name, counts, oldest, is_paused)


Exact = dict[tuple[str, JobState], int]
"""The number of jobs of each queue and state. A missing entry means zero."""


def exact_counts() -> Op[Exact]:
    """The number of jobs of every queue and state. Reads both tables to the end.

    For an occasional look in the background: on millions of rows it takes seconds.
    """

    def steps() -> Steps[Exact]:
        yield Begin(is_look=True)
        live = yield from count_live()
        rows = yield Statement("count_finished")
        return live | {(queue, JobState(state)): number for queue, state, number in rows}

    return reading("exact_counts", steps)


def exact_live_counts() -> Op[Exact]:
    """The number of live jobs of every queue and state. Reads the indexes to the end."""

    def steps() -> Steps[Exact]:
        yield Begin(is_look=True)
        return (yield from count_live())

    return reading("exact_live_counts", steps)


def count_live() -> Steps[Exact]:
    """The number of live jobs of every queue, within another verb."""
    now: int = (yield Statement("clock"))[0][0]
    counts: Exact = {}
    rows = yield Statement("count_live", {"now": now})
    for queue, ready, later, back, running, waiting in rows:
        # PostgreSQL's sums are decimals.
        counts[queue, JobState.READY] = int(ready)
        counts[queue, JobState.SCHEDULED] = int(later) - int(back)
        counts[queue, JobState.RETRYING] = int(back)
        counts[queue, JobState.RUNNING] = int(running)
        counts[queue, JobState.WAITING] = int(waiting)
    return counts


def is_exact(queues: Iterable[QueueStats], states: Iterable[JobState]) -> bool:
    """Whether the counts of these states are exact in all of the queues."""
    wanted = list(states)
    return all(queue.counts[state].exact for queue in queues for state in wanted)


def all_stats() -> Steps[list[QueueStats]]:
    """The stats of every queue, within another verb."""
    return (yield from _stats(None))


def _seen_at_once(asked: list[str] | None, page: NamePage = _EVERY_NAME) -> Steps[list[QueueStats]]:
    yield Begin(is_look=True)
    return (yield from _stats(asked, page))


def _stats(asked: list[str] | None, page: NamePage = _EVERY_NAME) -> Steps[list[QueueStats]]:
    now: int = (yield Statement("clock"))[0][0]
    succeeded = yield Statement("count_succeeded", {"scan": config.COUNT_EXACT_MAX + 1})
    if asked is None:
        found = yield Statement("queue_names")
        names = page.of({row[0] for row in found} | {row[0] for row in succeeded if row[1]})
    else:
        names = page.of(asked)
    if not names:
        return []
    lanes, counted = yield from _lanes(names, now)
    asked_rows = [(name,) for name in names]
    after_others: dict[str, int] = {}
    for queue, room, oldest, due, later, others, _ in (
        yield Batch("count_held", ("queue",), asked_rows, _bounds(now))
    ):
        after_others[queue] = others
        counted = [*counted, (queue, room, 0), (queue, due, later)]
        if oldest is not None:
            lanes = [*lanes, (queue, None, None, oldest)]
    queues = yield Batch("count_queues", ("queue",), asked_rows, _bounds(now))
    heads = _oldest(lanes, now)
    done = _succeeded(succeeded)
    return [
        _queue_stats(
            row,
            [lane for lane in counted if lane[0] == row[0]],
            done,
            heads,
            after_others=after_others[row[0]],
        )
        for row in sorted(queues)
    ]


def _bounds(now: int) -> dict[str, int]:
    return {"cap": config.COUNT_EXACT_MAX + 1, "now": now}


def _lanes(names: list[str], now: int) -> Steps[tuple[Rows, Rows]]:
    """The lanes of queues with the time of their head, and how many jobs are due and waiting."""
    lanes = yield Statement("all_lanes", {"queues": names})
    keys = [row[:3] for row in lanes]
    if not keys:
        return lanes, []
    counted = yield Batch("count_lanes", ("queue", "rank", "kind"), keys, _bounds(now))
    return lanes, [row[:3] for row in counted]


def _oldest(lanes: Rows, now: int) -> dict[str, float]:
    ages: dict[str, float] = {}
    for queue, _, _, run_at in lanes:
        if run_at <= now:
            age = (now - run_at) / config.SECOND_US
            ages[queue] = max(age, ages.get(queue, 0.0))
    return ages


class _Succeeded(msgspec.Struct, frozen=True):
    """Succeeded jobs by queue, among the rows that were read. `exact`: those are all rows."""

    found: dict[str, int]
    exact: bool

    def of(self, queue: str) -> Count:
        number = self.found.get(queue, 0)
        return Count(min(number, config.COUNT_EXACT_MAX), exact=self.exact)


def _succeeded(rows: Rows) -> _Succeeded:
    found = {queue: number for queue, number, _ in rows}
    return _Succeeded(found, exact=all(read <= config.COUNT_EXACT_MAX for _, _, read in rows))


def _queue_stats(
    row: tuple[object, ...],
    lanes: Rows,
    succeeded: _Succeeded,
    oldest: dict[str, float],
    *,
    after_others: int,
) -> QueueStats:
    queue, retrying, running, dead, cancelled, is_paused = row
    name = str(queue)
    waiting = _summed(lane[2] for lane in lanes)
    back = _capped(retrying)
    counts = {
        JobState.WAITING: _capped(after_others),
        JobState.SCHEDULED: _less(waiting, back),
        JobState.READY: _summed(lane[1] for lane in lanes),
        JobState.RUNNING: _capped(running),
        JobState.RETRYING: back,
        JobState.SUCCEEDED: succeeded.of(name),
        JobState.DEAD: _capped(dead),
        JobState.CANCELLED: _capped(cancelled),
    }
    return QueueStats(name, counts, oldest.get(name), bool(is_paused))


def _capped(number: object) -> Count:
    assert isinstance(number, int)
    return Count(min(number, config.COUNT_EXACT_MAX), number <= config.COUNT_EXACT_MAX)


def _summed(numbers: Iterable[int]) -> Count:
    counts = [_capped(number) for number in numbers]
    return Count(sum(count.value for count in counts), all(count.exact for count in counts))


def _less(waiting: Count, back: Count) -> Count:
    """The waiting jobs without those that are retrying. Unknown if the retrying are not exact."""
    if not back.exact:
        return Count(0, exact=False)
    return Count(max(0, waiting.value - back.value), waiting.exact)
