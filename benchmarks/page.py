"""The page: the text of docs/performance.md with its tables and charts made anew from results.

What stands between `<!-- results: NAME -->` and `<!-- end -->` is written here; all other text is
kept. Charts are files beside the page, in `assets/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.aims import STORES, kept_share, verdicts
from benchmarks.charts import Bar, Kind, Line, Range, bars, lines, ranges
from benchmarks.contestants import OURS, ROOT
from benchmarks.results import Results, quantile
from benchmarks.workloads.drain import BARE, OWN_LOOP
from benchmarks.workloads.enqueue import BARE_COPY, BARE_INSERT

NAME = "performance"
LIMITS = {BARE, BARE_INSERT, BARE_COPY}
ALL_STORES = {**STORES, "redis": "Redis"}
# Other work that is felt by nothing measured here.
QUIET_CORES = 0.1
NOT_MEASURED = "Not measured in this run.\n"
_BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_page(results: Results, output: Path) -> Path:
    """Write the page and its charts into a directory; the page's path."""
    template = (ROOT / "docs" / f"{NAME}.md").read_text("utf-8")
    page = output / f"{NAME}.md"
    page.write_text(rendered(template, results), encoding="utf-8")
    assets = output / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    for name, chart in CHARTS.items():
        (assets / f"{NAME}-{name}.svg").write_text(chart(results), encoding="utf-8")
    return page


def publish(results: Results, docs: Path) -> None:
    """Write the page, its charts and the results into the documentation."""
    write_page(results, docs)
    results.write(docs / "assets" / f"{NAME}.json")


def rendered(template: str, results: Results) -> str:
    """The text with every block filled."""

    def fill(match: re.Match[str]) -> str:
        block = BLOCKS[match[2]](results) or NOT_MEASURED
        return f"{match[1]}\n{block}\n{match[3]}"

    return _BLOCK.sub(fill, template)


# Words and tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; empty without rows. All columns but the first are numbers."""
    if not rows:
        return ""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *rows])


def number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def shown(name: str) -> str:
    """Ours stands out."""
    return f"**{name}**" if name == OURS else name


def kind_of(name: str) -> Kind:
    if name in (OURS, OWN_LOOP):
        return Kind.OURS
    return Kind.LIMIT if name in LIMITS else Kind.PEER


def _machine(results: Results) -> str:
    machine, versions = results.about["machine"], results.about["versions"]
    software = [f"rowlock {versions['rowlock']} ({versions['commit']})"]
    software += [f"Python {versions['python']}", f"psycopg {versions['psycopg']}"]
    software += [f"SQLite {versions['sqlite']}"]
    if "postgresql" in versions:
        software.append(f"PostgreSQL {versions['postgresql']}")
    settings = ", ".join(f"{k} {v}" for k, v in results.about["postgres_settings"].items())
    hardware = [f"{machine['cores']} cores ({machine['processor']})"]
    hardware += [f"{machine['memory_gib']} GiB", machine["system"], machine["file_system"]]
    sync = f"{machine['sync_p50_ms']:.2f} ms (p99 {machine['sync_p99_ms']:.2f} ms)"
    said = [
        f"{results.about['started'][:10]}: {', '.join(hardware)}",
        f"a synchronised write of 8 KiB takes {sync}",
        f"meanwhile other work kept {machine['others_cores']:.2f} cores busy",
        ", ".join(software),
        f"fsync on everywhere; PostgreSQL with {settings}",
    ]
    if machine["others_cores"] > QUIET_CORES:
        said.append("**the machine was not quiet: nothing here should be quoted**")
    return "".join(f"- {line}\n" for line in said)


def _aims(results: Results) -> str:
    marks = {True: "yes", False: "**no**", None: "not measured"}
    return table(
        ["figure", "aim", "measured", "held"],
        [[each.figure, each.aim, each.measured, marks[each.is_held]] for each in verdicts(results)],
    )


def _drain(results: Results) -> str:
    parts: list[str] = []
    for store, title in STORES.items():
        rows = [_drain_row(results, name, store) for name in results.names("drain", store)]
        ordered = sorted(rows, key=lambda row: -_rate(row[1]))
        head = [title, "jobs/s, 1 process", "2 processes", "worker CPU µs", "server CPU µs"]
        parts.append(table(head, ordered))
    return "\n".join(part for part in parts if part)


def _drain_row(results: Results, name: str, store: str) -> list[str]:
    def figure(what: str, processes: str = "1") -> float | None:
        return results.median("drain", name, store, what, processes)

    return [
        shown(name),
        number(figure("per_s")),
        number(figure("per_s", "2")),
        number(figure("worker_cpu_us")),
        number(figure("server_cpu_us")) if store == "postgres" else "",
    ]


def _rate(text: str) -> float:
    return float(text.replace(",", "") or 0)


def _processes(results: Results) -> str:
    numbers = _process_numbers(results)
    rows = [
        [title, *(number(results.median("drain", OURS, store, "per_s", n)) for n in numbers)]
        for store, title in STORES.items()
    ]
    return table(["processes", *numbers], rows) if len(numbers) > 1 else ""


def _process_numbers(results: Results) -> list[str]:
    found = {n for store in STORES for n in results.variants("drain", OURS, store)}
    return sorted(found, key=int)


def _enqueue(results: Results) -> str:
    parts: list[str] = []
    for store, title in ALL_STORES.items():
        names = dict.fromkeys(
            results.names("enqueue_one", store) + results.names("enqueue_bulk", store)
        )
        rows = [
            [
                shown(name),
                number(results.median("enqueue_one", name, store, "per_s")),
                number(results.median("enqueue_bulk", name, store, "per_s")),
            ]
            for name in names
        ]
        parts.append(table([title, "one by one, jobs/s", "in bulk, jobs/s"], rows))
    return "\n".join(part for part in parts if part)


def _latency(results: Results) -> str:
    columns = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
    rows = [
        [
            shown(name),
            title,
            *(number(results.median("latency", name, store, each), 1) for each in columns),
        ]
        for store, title in ALL_STORES.items()
        for name in results.names("latency", store)
    ]
    return table(["milliseconds", "store", "p50", "p90", "p99", "largest"], rows)


def _burst(results: Results) -> str:
    rows: list[list[str]] = []
    for store, title in STORES.items():
        for order in results.variants("burst", OURS, store):
            for probe, what in (("calm", "another queue"), ("urgent", "high priority, same queue")):
                delays = [
                    delay
                    for each in results.of("burst", OURS, store, order)
                    for delay in each[probe].get("delays_ms", [])
                ]
                if delays:
                    middle, far = quantile(delays, 0.5), quantile(delays, 0.99)
                    figures = [number(middle, 1), number(far, 1), str(len(delays))]
                    rows.append([f"{title}, {order}", what, *figures])
    return table(["worker", "job", "p50 ms", "p99 ms", "jobs"], rows)


def _held(results: Results) -> str:
    rows: list[list[str]] = []
    for name in results.names("held", "postgres"):
        for each in results.of("held", name, "postgres"):
            rates, cpu = each["rounds_per_s"], each["rounds_server_cpu_us"]
            rows.append(
                [
                    shown(name),
                    str(len(rates)),
                    number(rates[0]),
                    number(rates[-1]),
                    number(kept_share(rates), 2) if len(rates) > 1 else "",
                    f"{cpu[0]:,.0f} → {cpu[-1]:,.0f}",
                ]
            )
    head = ["PostgreSQL", "rounds", "first, jobs/s", "last, jobs/s", "kept", "server CPU µs"]
    return table(head, rows)


def _weight(results: Results) -> str:
    sizes = results.about["sizes"]
    named = {
        ("backlog", "few"): "5,000 waiting: its first 5,000",
        ("backlog", "many"): f"{sizes['backlog']:,} waiting: its first 5,000",
        ("weight", "nothing"): f"{sizes['drain_jobs']:,} jobs, nothing else",
        ("weight", "finished"): f"beside {sizes['finished']:,} finished",
        ("weight", "foreign"): f"behind {sizes['foreign']:,} of a foreign kind",
        ("weight", "scheduled"): f"behind {sizes['foreign']:,} of a higher priority, not due",
        ("weight", "retention"): f"while {sizes['foreign']:,} finished are dropped",
    }
    names = dict.fromkeys(
        (name, store) for store in STORES for name in results.names("backlog", store)
    )
    head = ["jobs/s", *(f"{shown(name)}, {STORES[store]}" for name, store in names)]
    rows = [
        [what, *(number(results.median(load, name, s, "per_s", variant)) for name, s in names)]
        for (load, variant), what in named.items()
    ]
    return table(head, rows) if names else ""


def _looks(results: Results) -> str:
    sizes = results.about["sizes"]
    columns = {
        (store, variant): f"{STORES[store]}, {sizes[variant]:,} {variant}"
        for store in STORES
        for variant in results.variants("looks", OURS, store)
    }
    found = [results.of("looks", OURS, store, variant) for store, variant in columns]
    names = list(found[0][0]) if found else []
    rows = [[name, *(number(each[0][name], 1) for each in found)] for name in names]
    return table(["ms", *columns.values()], rows) if rows else ""


def _cost(results: Results) -> str:
    rows: list[list[str]] = []
    for store, title in STORES.items():
        for name in results.names("idle", store):
            worker = results.median("idle", name, store, "worker_core")
            rows.append(
                [
                    shown(name),
                    title,
                    number(results.median("wal", name, store, "bytes_per_job")),
                    number(results.median("idle", name, store, "transactions_per_s"), 1),
                    "" if worker is None else number(100 * worker, 2),
                    number(results.median("idle", name, store, "mib")),
                ]
            )
    head = ["", "store", "WAL bytes a job", "idle: transactions/s", "idle: % of a core", "MiB"]
    return table(head, rows)


def _memory(results: Results) -> str:
    rows = [
        [
            title,
            *(f"{each[f'{when}_mib']:.0f} MiB after {each[when]:,}" for when in ("first", "last")),
        ]
        for store, title in STORES.items()
        for each in results.of("memory", OURS, store)
    ]
    return table(["a child", "then", "later"], rows)


def _settings(results: Results) -> str:
    versions = results.about["versions"]
    lines: list[str] = []
    for name, settings in results.about["contestants"].items():
        queue = name.partition(" ")[0]
        installed = versions.get(queue, {})
        package = queue.partition("_")[0]
        version = installed.get(package, "") if isinstance(installed, dict) else installed
        lines.append(f"- {queue} {version} on {name.partition(' ')[2]}: {settings}\n")
    return "".join(lines)


def _run(results: Results) -> str:
    seconds = sum(results.about["steps"].values())
    taken = {name: took for name, took in results.about["steps"].items() if took >= 1}
    steps = ", ".join(f"{name} {took:.0f} s" for name, took in taken.items())
    command = f"```sh\n{results.about['command']}\n```\n"
    return f"{command}\nIt took {seconds / 60:.0f} minutes: {steps}.\n"


# Charts


def _drain_chart(results: Results) -> str:
    return bars(
        "Drain of no-op jobs, one worker process",
        _bar_groups(results, "drain", variant="1"),
        unit="/s",
    )


def _enqueue_chart(results: Results) -> str:
    return bars("Enqueue one by one", _bar_groups(results, "enqueue_one"), unit="/s")


def _bar_groups(results: Results, workload: str, variant: str = "") -> list[tuple[str, list[Bar]]]:
    groups: list[tuple[str, list[Bar]]] = []
    for store, title in ALL_STORES.items():
        found = [
            Bar(name, rate, kind_of(name))
            for name in results.names(workload, store)
            if (rate := results.median(workload, name, store, "per_s", variant)) is not None
        ]
        if found:
            groups.append((title, found))
    return groups


def _latency_chart(results: Results) -> str:
    groups: list[tuple[str, list[Range]]] = []
    for store, title in ALL_STORES.items():
        found: list[Range] = []
        for name in results.names("latency", store):
            middle = results.median("latency", name, store, "p50_ms")
            far = results.median("latency", name, store, "p99_ms")
            if middle is not None and far is not None:
                found.append(Range(name, middle, far, kind_of(name)))
        if found:
            groups.append((title, found))
    title = "Enqueue to start on an idle worker, p50 to p99"
    return ranges(title, groups, unit=" ms")


def _held_chart(results: Results) -> str:
    drawn = [
        Line(name, [100 * rate / rates[0] for rate in rates], kind_of(name))
        for name in results.names("held", "postgres")
        for each in results.of("held", name, "postgres")
        if len(rates := each["rounds_per_s"]) > 1
    ]
    rounds = results.about["sizes"]["held_rounds"]
    jobs = results.about["sizes"]["held_jobs"]
    return lines(
        "Drain while a transaction is held open, share of the first round",
        drawn,
        places=[str(number + 1) for number in range(rounds)],
        below=f"rounds of {jobs:,} jobs",
        unit=" %",
    )


def _processes_chart(results: Results) -> str:
    numbers = _process_numbers(results)
    drawn: list[Line] = []
    for store, title in STORES.items():
        rates = [results.median("drain", OURS, store, "per_s", each) for each in numbers]
        values = [rate for rate in rates if rate is not None]
        kind = Kind.OURS if store == "postgres" else Kind.PEER
        drawn.append(Line(title, values, kind))
    cores = results.about["machine"]["cores"]
    return lines(
        "Drain by several worker processes",
        drawn,
        places=numbers,
        below=f"worker processes, on {cores} cores together with the database",
        unit="/s",
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "machine": _machine,
    "aims": _aims,
    "drain": _drain,
    "processes": _processes,
    "enqueue": _enqueue,
    "latency": _latency,
    "burst": _burst,
    "held": _held,
    "weight": _weight,
    "looks": _looks,
    "cost": _cost,
    "memory": _memory,
    "settings": _settings,
    "run": _run,
}
CHARTS: dict[str, Callable[[Results], str]] = {
    "drain": _drain_chart,
    "enqueue": _enqueue_chart,
    "latency": _latency_chart,
    "held": _held_chart,
    "processes": _processes_chart,
}
