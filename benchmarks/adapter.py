"""rowlock's side of the interface that `benchmarks.contestants` describes, and the app it runs.

    BENCH_STORE=sqlite BENCH_DB=/tmp/x.db python -m benchmarks.adapter enqueue_one 1000

Commands of its own, beside those of every contestant:

    burst LOW HIGH PROBES  fill the queue `bulk` with jobs LOW to HIGH at once; then, while that
                           may last, enqueue probes, by turns on the queue `calm` and, with a high
                           priority, on `bulk`
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any

import rowlock
from benchmarks.contestants import GAP_SEED
from benchmarks.record import told_record

BULK = 1_000
WARM_UP = 20


def database_url() -> str:
    """Where the jobs are, as the environment tells."""
    if os.environ["BENCH_STORE"] == "sqlite":
        return f"sqlite:///{os.environ['BENCH_DB']}"
    return f"{os.environ['BENCH_PG']}/{os.environ['BENCH_DB']}"


app = rowlock.App(database_url())


@app.task
async def noop(i: int, t: float, to: str, template: str, lang: str) -> None:
    """Say that it has started."""
    told_record().hit(i, t)


def payload(number: int, enqueued_at: float = 0.0) -> dict[str, Any]:
    """About 90 bytes of JSON."""
    return {
        "i": number,
        "t": enqueued_at,
        "to": "someone@example.com",
        "template": "welcome",
        "lang": "en",
    }


def bulk(low: int, high: int, *, queue: str = "default") -> None:
    call = noop.using(queue=queue)
    for start in range(low, high, BULK):
        numbers = range(start, min(high, start + BULK))
        app.enqueue_many([call.job(**payload(number)) for number in numbers])


def setup() -> dict[str, Any]:
    app.migrate()
    return {}


def preload(low: int, high: int) -> dict[str, Any]:
    start = time.perf_counter()
    bulk(low, high)
    return {"s": time.perf_counter() - start}


def enqueue_one(count: int) -> dict[str, Any]:
    for number in range(WARM_UP):
        noop.enqueue(**payload(number))
    start, cpu = time.perf_counter(), time.process_time()
    for number in range(count):
        noop.enqueue(**payload(number))
    return _rate(count, time.perf_counter() - start, time.process_time() - cpu)


def enqueue_bulk(count: int) -> dict[str, Any]:
    noop.enqueue(**payload(0))
    start, cpu = time.perf_counter(), time.process_time()
    bulk(0, count)
    return _rate(count, time.perf_counter() - start, time.process_time() - cpu)


def _rate(count: int, seconds: float, cpu: float) -> dict[str, Any]:
    return {"n": count, "s": seconds, "per_s": count / seconds, "cpu_us": 1e6 * cpu / count}


def latency(low: int, high: int) -> dict[str, Any]:
    chance = random.Random(GAP_SEED)
    for number in range(low, high):
        time.sleep(chance.uniform(0.02, 0.08))
        noop.enqueue(**payload(number, time.time()))
    return {}


def burst(low: int, high: int, probes: int) -> dict[str, Any]:
    """The probes have the numbers after HIGH, by turns calm and urgent."""
    calm, urgent = noop.using(queue="calm"), noop.using(queue="bulk", priority=10)
    calls = noop.using(queue="bulk")
    jobs = [calls.job(**payload(number)) for number in range(low, high)]
    app.enqueue_many(jobs)
    chance = random.Random(GAP_SEED)
    for number in range(high, high + probes):
        call = calm if (number - high) % 2 == 0 else urgent
        call.enqueue(**payload(number, time.time()))
        time.sleep(chance.uniform(0.002, 0.008))
    return {}


COMMANDS = {
    command.__name__: command
    for command in (setup, preload, enqueue_one, enqueue_bulk, latency, burst)
}


def main() -> None:
    command, *numbers = sys.argv[1:]
    with app:
        print(json.dumps(COMMANDS[command](*map(int, numbers))), flush=True)


if __name__ == "__main__":
    main()
