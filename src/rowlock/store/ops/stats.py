"""Stats: counts per queue and state. Exact to a bound; beyond it estimated, and marked so.

Ready and waiting jobs are counted lane by lane on the index alone. A lane longer than the bound
shares, with the others that are, what the whole table holds beyond what was counted.

All statements of a look see one moment, and one time: a job that is claimed, settled or due in
between is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowlock import config
from rowlock.job import TERMINAL_STATES, Count, JobState, QueueStats
from rowlock.store import options
from rowlock.store.steps import Batch, Begin, Op, Rows, Statement, Steps, reading


def stats(queues: Sequence[str] | None = None) -> Op[list[QueueStats]]:
    """Counts per queue and state, and the age of the oldest ready job; zeros for asked names."""
    asked = options.names(queues, option="queues")
    return reading("stats", lambda: _stats(asked))


def tenant_stats(tenant: str, queues: Sequence[str] | None = None) -> Op[list[QueueStats]]:
    """As `stats`, of one tenant's jobs: counted among a bounded number of rows of each table.

    What has ended is looked for among the newest; where there are more, the counts are of those,
    and marked.
    """
    asked = options.names(queues, option="queues")
    scan = {"scan": config.LIST_SCAN_ROWS_MAX}

    def steps() -> Steps[list[QueueStats]]:
        yield Begin(is_look=True)
        now: int = (yield Statement("clock"))[0][0]
        rows = yield Statement("count_tenant", {**scan, "tenant": tenant, "now": now})
        is_cut = bool((yield Statement("finished_beyond", scan))[0][0])
        paused = {row[0] for row in (yield Statement("paused_queues"))}
        names = sorted({row[0] for row in rows}) if asked is None else sorted(asked)
        return [
            _tenant_queue(name, rows, now=now, is_paused=name in paused, is_cut=is_cut)
            for name in names
        ]

    return reading("tenant_stats", steps)


def _tenant_queue(name: str, rows: Rows, *, now: int, is_paused: bool, is_cut: bool) -> QueueStats:
    found = {state: (number, oldest) for queue, state, number, oldest in rows if queue == name}
    counts = {
        state: Count(found.get(state, (0, 0))[0], exact=not (is_cut and state in TERMINAL_STATES))
        for state in JobState
    }
    ready = found.get(JobState.READY)
    oldest = None if ready is None else (now - ready[1]) / config.SECOND_US
    return QueueStats(name, counts, oldest, is_paused)


def all_stats() -> Steps[list[QueueStats]]:
    """Those of every queue, within another verb."""
    return (yield from _stats(None))


def _stats(asked: list[str] | None) -> Steps[list[QueueStats]]:
    yield Begin(is_look=True)
    now: int = (yield Statement("clock"))[0][0]
    succeeded = yield Statement("count_succeeded", {"scan": config.LIST_SCAN_ROWS_MAX})
    names = asked
    if names is None:
        found = yield Statement("queue_names")
        names = sorted({row[0] for row in found} | {row[0] for row in succeeded if row[1]})
    if not names:
        return []
    lanes, counted = yield from _lanes(names, now)
    if any(map(_is_cut, counted)):
        counted = yield from _estimated(counted, names, now)
    asked_rows = [(name,) for name in names]
    queues = yield Batch("count_queues", ("queue",), asked_rows, _bounds(now))
    heads = _oldest(lanes, now)
    estimates = _succeeded(succeeded)
    return [
        _queue_stats(row, [lane for lane in counted if lane[0] == row[0]], estimates, heads)
        for row in sorted(queues)
    ]


def _bounds(now: int) -> dict[str, int]:
    return {"cap": config.COUNT_EXACT_MAX + 1, "now": now}


def _lanes(names: list[str], now: int) -> Steps[tuple[Rows, Rows]]:
    """The lanes of queues with the time of their head, and how many are due and wait in each."""
    lanes = yield Statement("all_lanes", {"queues": names})
    keys = [row[:3] for row in lanes]
    if not keys:
        return lanes, []
    counted = yield Batch("count_lanes", ("queue", "rank", "kind"), keys, _bounds(now))
    return lanes, [row[:3] for row in counted]


def _is_cut(lane: tuple[str, int, int]) -> bool:
    return max(lane[1:]) > config.COUNT_EXACT_MAX


def _estimated(counted: Rows, names: list[str], now: int) -> Steps[Rows]:
    """The same counts, those that were cut short raised to their share of the whole table."""
    every = yield Statement("queue_names")
    others = [row[0] for row in every if row[0] not in names]
    beside = (yield from _lanes(others, now))[1] if others else []
    total: int = (yield Statement("live_rows"))[0][0]
    numbers = [number for row in [*counted, *beside] for number in row[1:]]
    cut = sum(number > config.COUNT_EXACT_MAX for number in numbers)
    more = max(0, total - sum(numbers)) // cut

    def raised(number: int) -> int:
        return number + more if number > config.COUNT_EXACT_MAX else number

    return [(queue, raised(due), raised(later)) for queue, due, later in counted]


def _oldest(lanes: Rows, now: int) -> dict[str, float]:
    ages: dict[str, float] = {}
    for queue, _, _, run_at in lanes:
        if run_at <= now:
            age = (now - run_at) / config.SECOND_US
            ages[queue] = max(age, ages.get(queue, 0.0))
    return ages


def _succeeded(rows: Rows) -> dict[str, Count]:
    """Exact where all rows were read; else the share of each queue among the newest."""
    estimates: dict[str, Count] = {}
    for queue, share, read, total in rows:
        if read < config.LIST_SCAN_ROWS_MAX:
            estimates[queue] = Count(share)
        else:
            estimates[queue] = Count(round(share * max(total, read) / read), exact=False)
    return estimates


def _queue_stats(
    row: tuple[object, ...],
    lanes: Rows,
    succeeded: dict[str, Count],
    oldest: dict[str, float],
) -> QueueStats:
    queue, retrying, running, dead, cancelled, is_paused = row
    name = str(queue)
    waiting = _summed(lane[2] for lane in lanes)
    back = _capped(retrying)
    counts = {
        JobState.SCHEDULED: Count(max(0, waiting.value - back.value), waiting.exact and back.exact),
        JobState.READY: _summed(lane[1] for lane in lanes),
        JobState.RUNNING: _capped(running),
        JobState.RETRYING: back,
        JobState.SUCCEEDED: succeeded.get(name, Count(0)),
        JobState.DEAD: _capped(dead),
        JobState.CANCELLED: _capped(cancelled),
    }
    return QueueStats(name, counts, oldest.get(name), bool(is_paused))


def _capped(number: object) -> Count:
    assert isinstance(number, int)
    return Count(min(number, config.COUNT_EXACT_MAX), number <= config.COUNT_EXACT_MAX)


def _summed(numbers: Iterable[int]) -> Count:
    listed = list(numbers)
    return Count(sum(listed), exact=all(number <= config.COUNT_EXACT_MAX for number in listed))
