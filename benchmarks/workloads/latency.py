"""Latency: from just before the enqueue to the start of the handler; idle, and in a burst."""

from __future__ import annotations

import time

from benchmarks.bench import Bench
from benchmarks.contestants import Contestant
from benchmarks.record import Record, new_record
from benchmarks.results import Figures, quantile
from benchmarks.workloads.watch import wait_for

WARM_UP = 10
REST_SECONDS = 1.0
# A probe every five milliseconds or so; those after the burst are not counted.
PROBES = 500
# Queues in the order of preference, and by their slots.
BURST_WORKERS = {
    "strict": ("-q", "calm,bulk"),
    "weighted": ("-q", "bulk:80,calm:20", "--order", "weighted"),
}


def latency(bench: Bench) -> None:
    """An idle worker; jobs come one at a time, at random gaps of 20 to 80 ms."""
    for contestant in bench.contestants:
        _measure_latency(bench, contestant)
    # Ours once more, so that one bad moment of the machine is seen to be one.
    for contestant in bench.ours() if bench.sizes.repeats > 1 else []:
        _measure_latency(bench, contestant)


def _measure_latency(bench: Bench, contestant: Contestant) -> None:
    jobs = WARM_UP + bench.sizes.latencies
    with (
        bench.turn("latency", contestant) as figures,
        bench.fresh(contestant) as database,
        new_record(jobs, bench.directory) as record,
        contestant.workers(database, record, log=bench.log) as crew,
    ):
        contestant.call(database, "latency", 0, WARM_UP)
        wait_for(lambda: record.done(0, WARM_UP), WARM_UP, crew)
        time.sleep(REST_SECONDS)
        contestant.call(database, "latency", WARM_UP, jobs)
        wait_for(record.done, jobs, crew)
        figures.update(_spread(record.delays_ms(WARM_UP)))
        figures["doubles"] = record.doubles()


def burst(bench: Bench) -> None:
    """A burst of no-ops on one queue; what waits behind it, on another and with a high priority."""
    for variant in BURST_WORKERS:
        for contestant in bench.ours():
            _measure_burst(bench, contestant, variant)


def _measure_burst(bench: Bench, contestant: Contestant, variant: str) -> None:
    sizes = bench.sizes
    probes = min(PROBES, max(20, sizes.burst_jobs // 20))
    each = sizes.burst_jobs + probes
    calm: list[float] = []
    urgent: list[float] = []
    with (
        bench.turn("burst", contestant, variant) as figures,
        bench.fresh(contestant) as database,
        new_record(each * sizes.bursts + 1, bench.directory) as record,
        contestant.workers(database, record, words=BURST_WORKERS[variant], log=bench.log) as crew,
    ):
        # A job of before, so that the worker is up and idle.
        contestant.call(database, "burst", each * sizes.bursts, each * sizes.bursts + 1, 0)
        wait_for(record.done, 1, crew)
        for number in range(sizes.bursts):
            low, high = number * each, number * each + sizes.burst_jobs
            contestant.call(database, "burst", low, high, probes)
            wait_for(lambda low=low: record.done(low, low + each), each, crew)  # type: ignore[misc]
            calm += _probes(record, low, high, probes, turn=0)
            urgent += _probes(record, low, high, probes, turn=1)
        figures.update({"calm": _spread(calm), "urgent": _spread(urgent)})


def _probes(record: Record, low: int, high: int, probes: int, *, turn: int) -> list[float]:
    """The delays of every second probe, of those enqueued while the burst was not over."""
    over = record.starts(low, high)[-1]
    return [
        delay
        for number in range(high + turn, high + probes, 2)
        for delay in record.delays_before(over, number, number + 1)
    ]


def _spread(delays_ms: list[float]) -> Figures:
    if not delays_ms:
        return {"count": 0}
    return {
        "count": len(delays_ms),
        "p50_ms": quantile(delays_ms, 0.5),
        "p90_ms": quantile(delays_ms, 0.9),
        "p99_ms": quantile(delays_ms, 0.99),
        "max_ms": max(delays_ms),
        "delays_ms": [round(delay, 3) for delay in sorted(delays_ms)],
    }
