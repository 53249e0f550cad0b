"""Metrics for Prometheus, from counts that processes keep anyway. Nothing is counted here.

1. Labels are queues, kinds, limits, outcomes and states, each bounded. They are never tenants, ids
   or keys of limits.
2. Every process reports what it did itself, so that a sum over all processes counts everything
   once. Only servers report what is in the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rowlock import config
from rowlock.job import JobState, QueueStats
from rowlock.limit_info import LimitInfo
from rowlock.tally import BOUNDS_US, ENDS, OTHER, Spread, Sums
from rowlock.worker.shared_memory import Totals
from rowlock.worker.trouble import ServiceName
from rowlock.workflow_rules import WorkflowState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
# Prometheus treats an empty label as none. Before any name is known, each counter has this one
# sample, so that a query or an alert finds the metric from the first scrape on.
_NO_NAME: Final = ("", "")
# Two bounds per decade, a selection of those by which times are counted.
_SHOWN: Final = [
    bucket
    for bucket, bound in enumerate(BOUNDS_US)
    if str(bound)[0] in "13" and str(bound)[1] == "0" and bound <= 3 * 10**9
]


def of_counts(counts: Totals) -> list[Metric]:
    """Return the metrics of one process.

    They cover runs, times, lost leases, enqueued jobs, refused outcomes, and errors of its own
    services.
    """
    enqueued = CounterMetricFamily(
        "rowlock_jobs_enqueued", "Jobs that this process enqueued.", labels=["queue", "kind"]
    )
    for (queue, kind), number in sorted(counts.enqueued.items()) or [(_NO_NAME, 0)]:
        enqueued.add_metric([queue, kind], number)
    finished = CounterMetricFamily(
        "rowlock_jobs_finished",
        "Runs that ended, by outcome.",
        labels=["queue", "kind", "outcome"],
    )
    duration = HistogramMetricFamily(
        "rowlock_job_duration_seconds", "Duration of runs.", labels=["queue", "kind"]
    )
    wait = HistogramMetricFamily(
        "rowlock_job_wait_seconds",
        "Time from when a job was due until it was claimed.",
        labels=["queue", "kind"],
    )
    for (queue, kind), sums in sorted(counts.tally.items()) or [(_NO_NAME, Sums())]:
        for end in ENDS:
            finished.add_metric([queue, kind, end.value], sums.of(end))
        _add(duration, [queue, kind], sums.run)
        _add(wait, [queue, kind], sums.wait)
    lost = CounterMetricFamily(
        "rowlock_leases_lost", "Runs whose job another worker had taken.", labels=["queue"]
    )
    interrupted = CounterMetricFamily(
        "rowlock_jobs_interrupted",
        "Runs that were ended by a shutdown, or with another run in the same process.",
        labels=["queue"],
    )
    # A queue whose jobs have run here may lose one, so its counters begin with 0.
    queues = counts.lost.keys() | counts.interrupted.keys() | {queue for queue, _ in counts.tally}
    for queue in sorted(queues) or [""]:
        lost.add_metric([queue], counts.lost[queue])
        interrupted.add_metric([queue], counts.interrupted[queue])
    refused = CounterMetricFamily(
        "rowlock_settles_refused",
        "Outcomes of runs and of lost jobs that the database refused to store unchanged.",
    )
    refused.add_metric([], counts.refused)
    errors = CounterMetricFamily(
        "rowlock_service_errors",
        "Errors of rowlock's own services, which then try again.",
        labels=["service"],
    )
    for service in ServiceName:
        errors.add_metric([service.value], counts.service_errors[service.value])
    return [enqueued, finished, duration, wait, lost, interrupted, refused, errors]


def _add(family: HistogramMetricFamily, labels: Sequence[str], spread: Spread) -> None:
    buckets = [
        (f"{BOUNDS_US[shown] / config.SECOND_US:g}", float(_up_to(spread, shown)))
        for shown in _SHOWN
    ]
    total = spread.total_us / config.SECOND_US
    family.add_metric(labels, [*buckets, ("+Inf", float(spread.count))], total)


def _up_to(spread: Spread, shown: int) -> int:
    return sum(number for bucket, number in spread.buckets.items() if bucket <= shown)


def of_slots(slots: Mapping[str, int]) -> list[Metric]:
    """Return the metrics of one worker's slots."""
    family = GaugeMetricFamily(
        "rowlock_worker_slots", "Slots of this worker, by state.", labels=["state"]
    )
    for state, number in slots.items():
        family.add_metric([state], number)
    return [family]


def of_queues(queues: Sequence[QueueStats], *, workers: int) -> list[Metric]:
    """Return the metrics of the jobs and workers in the database."""
    jobs = GaugeMetricFamily(
        "rowlock_queue_jobs",
        "Jobs by state. Numbers beyond 10,000 are up to a minute old.",
        labels=["queue", "state"],
    )
    oldest = GaugeMetricFamily(
        "rowlock_queue_oldest_ready_seconds",
        "Age of the oldest ready job, 0 if none is ready.",
        labels=["queue"],
    )
    for name, counts, age in _bounded(queues):
        for state, number in counts.items():
            jobs.add_metric([name, state.value], number)
        oldest.add_metric([name], age)
    live = GaugeMetricFamily(
        "rowlock_workers", "Worker processes that announced themselves recently."
    )
    live.add_metric([], workers)
    return [jobs, oldest, live]


def of_limits(limits: Sequence[LimitInfo]) -> list[Metric]:
    """Return the metrics of the limits in the database. Of many, the busiest have their names."""
    families = {
        "running": "Jobs that run under a limit. Counting stops at 10,000.",
        "waiting": "Jobs that are due and wait for a limit. Counting stops at 10,000.",
        "oldest_waiting_seconds": "Age of the oldest of these jobs, 0 if none waits.",
        "paused": "Whether a limit is paused: 1, or 0.",
        "paused_keys": "Keys of a limit that are paused, by hand or by `Throttled`.",
    }
    rows = [
        (
            each.name,
            each.running.value,
            each.waiting.value,
            each.oldest_waiting_seconds or 0.0,
            int(each.is_paused),
            each.paused_keys.value,
        )
        for each in limits
    ]
    most = config.TALLY_NAMES_MAX
    if len(rows) > most:
        rows.sort(key=lambda row: -(row[1] + row[2]))
        rest = list(zip(*rows[most - 1 :], strict=True))
        others = (sum(rest[1]), sum(rest[2]), max(rest[3]), sum(rest[4]), sum(rest[5]))
        rows[most - 1 :] = [(OTHER, *others)]
    found: list[Metric] = []
    for place, (name, text) in enumerate(families.items(), start=1):
        family = GaugeMetricFamily(f"rowlock_limit_{name}", text, labels=["limit"])
        for row in rows:
            family.add_metric([row[0]], float(row[place]))
        found.append(family)
    return found


def of_workflows(states: Iterable[WorkflowState]) -> list[Metric]:
    """Return the metrics of the open workflows in the database, from the state of each."""
    counts = Counter(states)
    family = GaugeMetricFamily(
        "rowlock_workflows_open",
        "Workflows that run, wait or are dead, by state. Counting stops at 1,000 in all.",
        labels=["state"],
    )
    # One that has ended otherwise is not counted from the next sweep on.
    for state in (WorkflowState.RUNNING, WorkflowState.WAITING, WorkflowState.DEAD):
        family.add_metric([state.value], counts[state])
    return [family]


_Queue = tuple[str, dict[JobState, int], float]


def _bounded(queues: Sequence[QueueStats]) -> list[_Queue]:
    """Return the largest queues, and all others as one."""
    plain: list[_Queue] = [
        (
            each.queue,
            {state: count.value for state, count in each.counts.items()},
            each.oldest_ready_seconds or 0.0,
        )
        for each in queues
    ]
    most = config.TALLY_NAMES_MAX
    if len(plain) <= most:
        return plain
    plain.sort(key=lambda each: -sum(each[1].values()))
    kept, rest = plain[: most - 1], plain[most - 1 :]
    # The sum of the others is known only if each of them is known.
    known = [state for state in JobState if all(state in each[1] for each in rest)]
    counts = {state: sum(each[1][state] for each in rest) for state in known}
    return [*kept, (OTHER, counts, max(each[2] for each in rest))]


def exposition(metrics: Sequence[Metric]) -> bytes:
    """Return the text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(metrics))
    return generate_latest(registry)


class _Given(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
