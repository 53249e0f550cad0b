"""`/v1/history`: outcomes, durations and waiting times of runs, and queue depths, over time.

It is not kept per tenant, so a token that is bound to one gets 403.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from rowlock import config, tally
from rowlock.clock import to_us
from rowlock.server.gate import Reach
from rowlock.server.routing import AnyRoute, Call, Example, Reply, Route, scopes
from rowlock.server.schemas import EXAMPLE_AT, Name, Time
from rowlock.store.ops.history import Depth, HistoryQuery, Series, read_history
from rowlock.tally import RunEnd
from rowlock.tokens import Scope


class HistoryRange(StrEnum):
    """The last five minutes, hour, day or week."""

    MINUTES = "5m"
    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


class HistoryGrouping(StrEnum):
    """How series are grouped."""

    ALL = "all"
    QUEUE = "queue"
    KIND = "kind"
    BOTH = "queue,kind"


# The length of each range and its steps, in seconds.
_RANGES: Final = {
    HistoryRange.MINUTES: (300, 30),
    HistoryRange.HOUR: (3_600, 60),
    HistoryRange.DAY: (86_400, 600),
    HistoryRange.WEEK: (7 * 86_400, 3_600),
}


class HistoryFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time range, step, filters and grouping.

    The time range is a `range` up to now, or from `since` until `until`.
    """

    range: HistoryRange = HistoryRange.HOUR
    since: Annotated[Time, Meta(description="Instead of `range`. At most a week ago.")] | None = (
        None
    )
    until: Annotated[Time, Meta(description="With `since`. By default now.")] | None = None
    step: (
        Annotated[
            int,
            Meta(
                ge=10,
                le=7 * 86_400,
                description="Seconds between two points. The answer may have longer steps, because "
                "old sums are kept in longer ones, and the number of points is limited.",
            ),
        ]
        | None
    ) = None
    queue: Name | None = None
    kind: Name | None = None
    by: HistoryGrouping = HistoryGrouping.ALL


class HistoryBucket(msgspec.Struct, frozen=True, kw_only=True):
    """How many values are above the previous bucket, up to `up_to` seconds (null: no limit)."""

    up_to: float | None
    count: int


class HistoryTimes(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution of times in seconds. Percentiles are estimated from the buckets."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    buckets: list[HistoryBucket]


class HistoryTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Outcomes of all runs, how long they ran, and how long they waited once they were due."""

    succeeded: int
    retrying: int
    dead: int
    cancelled: int
    released: int
    run: HistoryTimes
    wait: HistoryTimes


class HistorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of runs by outcome, and percentiles of their times in seconds, for each of `times`.

    A value is of the step that begins at that time. It is null if nothing ran.
    """

    queue: str | None
    kind: str | None
    total: HistoryTotal
    succeeded: list[int]
    retrying: list[int]
    dead: list[int]
    cancelled: list[int]
    released: list[int]
    run_p50: list[float | None]
    run_p95: list[float | None]
    run_p99: list[float | None]
    wait_p50: list[float | None]
    wait_p95: list[float | None]
    wait_p99: list[float | None]


class HistoryDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs by state, and the age of the oldest ready job.

    They are sampled once a minute. A value is the highest of its step, or null without a sample.
    `queue` is null for all queues together.
    """

    queue: str | None
    ready: list[int | None]
    scheduled: list[int | None]
    running: list[int | None]
    retrying: list[int | None]
    oldest_ready_seconds: list[float | None]


class HistorySchema(msgspec.Struct, frozen=True, kw_only=True):
    """Series over time. Each list has one value per time. Times are `step` seconds apart.

    The last step is still in progress. If `is_cut`, the oldest steps or the smallest series are
    left out.
    """

    times: list[datetime]
    step: int
    by: HistoryGrouping
    series: list[HistorySeries]
    depths: list[HistoryDepth]
    is_cut: bool


async def get_history(call: Call[None, HistoryFilter]) -> Reply:
    query = call.query
    seconds, step = _RANGES[query.range]
    asked = HistoryQuery(
        since=None if query.since is None else to_us(query.since, option="since"),
        until=None if query.until is None else to_us(query.until, option="until"),
        last=seconds * config.SECOND_US,
        step=(query.step or (step if query.since is None else 0)) * config.SECOND_US,
        queue=query.queue,
        kind=query.kind,
        by_queue=query.by in (HistoryGrouping.QUEUE, HistoryGrouping.BOTH),
        by_kind=query.by in (HistoryGrouping.KIND, HistoryGrouping.BOTH),
    )
    found = await call.store.arun(read_history(asked))
    points = len(found.times)
    return Reply(
        HistorySchema(
            times=found.times,
            step=found.step_seconds,
            by=query.by,
            series=[_series_of(each, points) for each in found.series],
            depths=[_depth_of(name, each, points) for name, each in found.depths.items()],
            is_cut=found.is_cut,
        )
    )


def _series_of(series: Series, points: int) -> HistorySeries:
    steps = [series.steps.get(place) or tally.Sums() for place in range(points)]
    lists: dict[str, list[Any]] = {
        **{end.value: [sums.of(end) for sums in steps] for end in RunEnd},
        **_percentiles("run", [sums.run for sums in steps]),
        **_percentiles("wait", [sums.wait for sums in steps]),
    }
    total = _total_of(series.total)
    return HistorySeries(queue=series.queue, kind=series.kind, total=total, **lists)


def _percentiles(name: str, spreads: Sequence[tally.Spread]) -> dict[str, list[float | None]]:
    return {
        f"{name}_p{share}": [spread.quantile(share / 100) for spread in spreads]
        for share in (50, 95, 99)
    }


def _total_of(sums: tally.Sums) -> HistoryTotal:
    return HistoryTotal(
        **{end.value: sums.of(end) for end in RunEnd},
        run=_times_of(sums.run),
        wait=_times_of(sums.wait),
    )


def _times_of(spread: tally.Spread) -> HistoryTimes:
    return HistoryTimes(
        count=spread.count,
        mean=spread.mean_seconds,
        p50=spread.quantile(0.5),
        p95=spread.quantile(0.95),
        p99=spread.quantile(0.99),
        buckets=[
            HistoryBucket(up_to=_bound_of(bucket), count=spread.buckets[bucket])
            for bucket in sorted(spread.buckets)
        ],
    )


def _bound_of(bucket: int) -> float | None:
    bounds = tally.BOUNDS_US
    return bounds[bucket] / config.SECOND_US if bucket < len(bounds) else None


def _depth_of(queue: str, depths: dict[int, Depth], points: int) -> HistoryDepth:
    steps = [depths.get(place) for place in range(points)]
    counts = [
        [None if each is None else each.counts[state] for each in steps] for state in range(4)
    ]
    return HistoryDepth(
        queue=queue or None,
        ready=counts[0],
        scheduled=counts[1],
        running=counts[2],
        retrying=counts[3],
        oldest_ready_seconds=[
            None if each is None or each.oldest_us is None else each.oldest_us / config.SECOND_US
            for each in steps
        ],
    )


def _example() -> HistorySchema:
    sums = tally.Sums()
    sums.add(RunEnd.SUCCEEDED, 12)
    sums.run.add(20_000, 12)
    sums.wait.add(900, 12)
    return HistorySchema(
        times=[EXAMPLE_AT],
        step=60,
        by=HistoryGrouping.KIND,
        series=[_series_of(Series(None, "send_email", {0: sums}), 1)],
        depths=[_depth_of("", {0: Depth((3, 0, 1, 0), 400_000)}, 1)],
        is_cut=False,
    )


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/history",
        operation="getHistory",
        summary="Outcomes of runs and queue depths over the last minutes, hours or days",
        description="It is kept for a week. Runs of the last ten seconds may be missing, and so "
        "are the last seconds of a worker that was killed.",
        handler=get_history,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        reach=Reach.SYSTEM,
        query=HistoryFilter,
        answers={200: HistorySchema},
        example=Example(_example()),
    ),
]
