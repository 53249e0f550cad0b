"""What rowlock holds itself to, and whether a run held it. Pure: results in, verdicts out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.contestants import OURS
from benchmarks.results import Results
from benchmarks.workloads.drain import BARE
from benchmarks.workloads.enqueue import BARE_COPY, BARE_INSERT

STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A figure beside its aim; `is_held` is None where it was not measured."""

    figure: str
    aim: str
    measured: str
    is_held: bool | None


def verdicts(results: Results) -> list[Verdict]:
    """Every aim, in the order of the design."""
    return [
        *_drains(results),
        *_enqueues(results),
        *_latencies(results),
        _held(results),
        *_weights(results),
        *_costs(results),
    ]


def _at_least(figure: str, aim: float, value: float | None) -> Verdict:
    shown = "" if value is None else f"{value:.2f}"
    return Verdict(figure, f"≥ {aim:g}", shown, None if value is None else value >= aim)


def _at_most(figure: str, aim: float, value: float | None, unit: str = "") -> Verdict:
    shown = "" if value is None else f"{value:.2f}{unit}"
    return Verdict(figure, f"≤ {aim:g}{unit}", shown, None if value is None else value <= aim)


def ratio(one: float | None, other: float | None) -> float | None:
    """How much larger one is; None where either was not measured."""
    return one / other if one is not None and other else None


def _drains(results: Results) -> Iterator[Verdict]:
    def rate(name: str, store: str, processes: int = 1) -> float | None:
        return results.median("drain", name, store, "per_s", str(processes))

    one, sqlite = rate(OURS, "postgres"), rate(OURS, "sqlite")
    yield _at_least(
        "drain, PostgreSQL: share of the bare loop", 0.7, ratio(one, rate(BARE, "postgres"))
    )
    yield _at_least(
        "drain, PostgreSQL: times PgQueuer", 2, ratio(one, rate("pgqueuer", "postgres"))
    )
    yield _at_least(
        "drain, PostgreSQL: two processes to one", 1.5, ratio(rate(OURS, "postgres", 2), one)
    )
    yield _at_least("drain, SQLite: times PostgreSQL", 1, ratio(sqlite, one))
    yield _at_least(
        "drain, SQLite: times Huey, as durable", 5, ratio(sqlite, rate("huey_sqlite", "sqlite"))
    )
    for store, aim in (("postgres", 0.8), ("sqlite", 0.6)):
        numbers = sorted(map(int, results.variants("drain", OURS, store)))
        rates = [rate(OURS, store, number) or 0.0 for number in numbers]
        most = rates[-1] / max(rates) if numbers and numbers[-1] > 2 else None
        figure = f"drain, {STORES[store]}: {numbers[-1] if numbers else 8} processes to the best"
        yield _at_least(figure, aim, most)


def _enqueues(results: Results) -> Iterator[Verdict]:
    for way, figure, aim in (
        ("enqueue_one", "enqueue one by one", 0.75),
        ("enqueue_bulk", "enqueue in bulk", 0.6),
    ):
        for store, shown in STORES.items():
            is_copy = way == "enqueue_bulk" and store == "postgres"
            bare = BARE_COPY if is_copy else BARE_INSERT
            value = ratio(
                results.median(way, OURS, store, "per_s"),
                results.median(way, bare, store, "per_s"),
            )
            yield _at_least(f"{figure}, {shown}: share of a {bare}", aim, value)


def _latencies(results: Results) -> Iterator[Verdict]:
    for store, middle, far in (("postgres", 2, 5), ("sqlite", 5, 15)):
        for name, aim in (("p50", middle), ("p99", far)):
            value = results.median("latency", OURS, store, f"{name}_ms")
            yield _at_most(f"enqueue to start, {STORES[store]}, idle: {name}", aim, value, " ms")
    for store, shown in STORES.items():
        for probe, what, aim in (
            ("calm", "a job of another queue", 20),
            ("urgent", "a job of high priority", 50),
        ):
            found = results.of("burst", OURS, store, "strict")
            values = [each[probe]["p99_ms"] for each in found if each[probe]["count"]]
            value = statistics.median(values) if values else None
            yield _at_most(f"in a burst, {shown}: {what}, p99", aim, value, " ms")


def _held(results: Results) -> Verdict:
    rounds = [each["rounds_per_s"] for each in results.of("held", OURS, "postgres")]
    value = statistics.median(map(kept_share, rounds)) if rounds else None
    return _at_least("drain under a held transaction: last rounds to first", 0.9, value)


def kept_share(rounds: Sequence[float]) -> float:
    """The last rounds against the first, by the medians of three, or of as many as there are."""
    some = min(3, max(1, len(rounds) // 2))
    return statistics.median(rounds[-some:]) / statistics.median(rounds[:some])


def _weights(results: Results) -> Iterator[Verdict]:
    sizes = results.about["sizes"]
    for store, shown in STORES.items():
        few = results.median("backlog", OURS, store, "per_s", "few")
        many = results.median("backlog", OURS, store, "per_s", "many")
        what = f"drain, {shown}: {sizes['backlog']:,} waiting to 5,000"
        yield _at_least(what, 0.9, ratio(many, few))
        nothing = results.median("weight", OURS, store, "per_s", "nothing")
        for variant, count, what in (
            ("finished", "finished", "finished"),
            ("foreign", "foreign", "of a foreign kind ahead"),
            ("scheduled", "foreign", "of a higher priority, not due"),
        ):
            value = results.median("weight", OURS, store, "per_s", variant)
            figure = f"drain, {shown}: {sizes[count]:,} {what} to none"
            yield _at_least(figure, 0.9, ratio(value, nothing))
        looks = results.of("looks", OURS, store, "finished")
        slowest = max(looks[0].values()) if looks else None
        figure = f"what a dashboard asks for, {shown}, {sizes['finished']:,} finished: the slowest"
        yield _at_most(figure, 50, slowest, " ms")


def _costs(results: Results) -> Iterator[Verdict]:
    wal = results.median("wal", OURS, "postgres", "bytes_per_job")
    yield _at_most("WAL a job, history kept", 1.4, ratio(wal, 1024), " KiB")
    rate = results.median("idle", OURS, "postgres", "transactions_per_s")
    yield _at_most("an idle worker: transactions", 2, rate, "/s")
    for store, aim in (("postgres", 0.5), ("sqlite", 1.5)):
        core = results.median("idle", OURS, store, "worker_core")
        share = None if core is None else 100 * core
        yield _at_most(f"an idle worker, {STORES[store]}: of a core", aim, share, " %")
    for store, shown in STORES.items():
        grown = [each["last_mib"] - each["first_mib"] for each in results.of("memory", OURS, store)]
        value = statistics.median(grown) if grown else None
        some, many = (results.about["sizes"][name] for name in ("memory_first", "memory_last"))
        yield _at_most(f"memory, {shown}: grown from {some:,} to {many:,} jobs", 10, value, " MiB")
