"""`python -m benchmarks`: rowlock, the limits and chosen peers, by turns, in one go.

Writes `results.json` (everything as measured), a page and its charts into the output directory;
with `--publish` they go into the documentation.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.contestants import GAP_SEED, ROOT, Contestant, StoreName, ours, read_peers
from benchmarks.machine import Bystanders, machine, versions
from benchmarks.page import publish, write_page
from benchmarks.places import POSTGRES_SETTINGS, Place, RedisPlace, SqlitePlace, postgres_place
from benchmarks.results import Results, read_results
from benchmarks.sizes import PRESETS, Sizes
from benchmarks.workloads import drain, enqueue, idle, latency, life, weight
from benchmarks.workloads.held import Held

Step = tuple[str, Callable[[], None]]

STORES = ("postgres", "sqlite")
WORKLOADS = ["enqueue", "drain", "many", "latency", "burst", "wal", "idle", "held"]
WORKLOADS += ["weight", "backlog"]
# Only when asked for: it takes as long as all the others.
LONG = ["life"]


def main() -> None:
    asked = parse(sys.argv[1:])
    output: Path = asked.output
    if asked.render is not None:
        results = read_results(asked.render)
    else:
        results = run(asked)
        results.write(output / "results.json")
    if asked.publish:
        publish(results, ROOT / "docs")
    page = write_page(results, output)
    print(page.read_text("utf-8"))
    print(f"written to {output}" + (" and docs/" if asked.publish else ""), file=sys.stderr)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="quick")
    parser.add_argument("--stores", type=_names, default=list(STORES), help="postgres,sqlite")
    parser.add_argument(
        "--only", type=_names, default=list(WORKLOADS), help=",".join(WORKLOADS + LONG)
    )
    parser.add_argument("--peers", type=Path, metavar="DIR", help="a directory of peers")
    parser.add_argument("--peer", type=_names, default=[], help="which of them: NAME,...")
    parser.add_argument(
        "--peers-home",
        type=Path,
        default=os.environ.get("BENCH_HOME", f"{tempfile.gettempdir()}/bench_home"),
        help="where their virtual environments are",
    )
    parser.add_argument("--postgres-version", type=int, help="major version of the server")
    parser.add_argument("--directory", type=Path, help="where databases go: the disk to measure")
    parser.add_argument("--output", type=Path, default=ROOT / ".cache" / "benchmarks")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.md")
    parser.add_argument("--render", type=Path, metavar="JSON", help="measure nothing: show these")
    sizes = parser.add_argument_group("sizes", "single numbers of the preset, see benchmarks/sizes")
    for field in fields(Sizes):
        option = f"--{field.name.replace('_', '-')}"
        kind = float if field.type == "float" else int
        known = ", ".join(f"{name} {getattr(each, field.name):,}" for name, each in PRESETS.items())
        sizes.add_argument(option, type=kind, metavar="N", help=known)
    return parser.parse_args(words)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run(asked: argparse.Namespace) -> Results:
    """Measure everything that was asked for."""
    given = {field.name: getattr(asked, field.name) for field in fields(Sizes)}
    chosen = {name: value for name, value in given.items() if value is not None}
    sizes = replace(PRESETS[asked.preset], **chosen)
    contestants = [ours(store, drain_jobs=sizes.drain_jobs) for store in asked.stores]
    if asked.peers is not None:
        contestants += read_peers(asked.peers.resolve(), asked.peers_home, asked.peer)
    bystanders = Bystanders()
    with _directory(asked.directory) as directory, ExitStack() as stack:
        places = _places(contestants, directory, asked.postgres_version, stack)
        contestants = [each for each in contestants if each.store in places]
        about = {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": _shown(sys.argv[1:]),
            "sizes": asdict(sizes),
            "seeds": {"gaps": GAP_SEED},
            "machine": machine(directory),
            "versions": versions(contestants) | _server_version(places),
            "postgres_settings": POSTGRES_SETTINGS,
            "contestants": {f"{each.name} {each.store}": each.settings for each in contestants},
            "steps": {},
        }
        results = Results(about)
        bench = Bench(sizes, directory, places, contestants, results, asked.output)
        _run_steps(bench, asked.only)
    results.about["machine"] |= bystanders.document()
    return results


def _shown(words: list[str]) -> str:
    """The command as others would give it: where things are is this machine's business."""
    placed = ("--peers", "--peers-home", "--directory", "--output")
    pairs = zip(["", *words], words, strict=False)
    shown = ["DIR" if before in placed else word for before, word in pairs]
    return shlex.join(["python", "-m", "benchmarks", *shown])


def _run_steps(bench: Bench, only: list[str]) -> None:
    held = Held(bench)
    try:
        for name, act in plan(bench, held):
            if name.partition(" ")[0] in only:
                start = time.monotonic()
                act()
                bench.results.about["steps"][name] = round(time.monotonic() - start, 1)
    finally:
        held.close()


def plan(bench: Bench, held: Held) -> Iterator[Step]:
    """Everything, in an order in which nothing disturbs what comes after it.

    The transaction is held while only SQLite is busy: on the same server it would be felt.
    """
    yield "enqueue one", partial(enqueue.enqueue_one, bench)
    yield "enqueue bulk", partial(enqueue.enqueue_bulk, bench)
    yield "drain by one", partial(drain.drain, bench)
    yield "drain by two", partial(drain.drain_by_two, bench)
    yield "many", partial(drain.drain_by_many, bench)
    yield "latency", partial(latency.latency, bench)
    yield "burst", partial(latency.burst, bench)
    yield "wal", partial(idle.wal, bench)
    yield "idle", partial(idle.idle, bench)
    yield "held begin", held.begin
    yield from _weights(bench, [each for each in bench.contestants if each.store == "sqlite"])
    yield "held finish", held.finish
    yield from _weights(bench, [each for each in bench.contestants if each.store == "postgres"])


def _weights(bench: Bench, contestants: list[Contestant]) -> Iterator[Step]:
    for each in contestants:
        if each.is_ours:
            yield f"weight {each.store}", partial(weight.history_and_foreign, bench, each)
            yield f"life {each.store}", partial(life.life, bench, each)
        yield f"backlog {each.name} {each.store}", partial(weight.backlog, bench, each)


@contextmanager
def _directory(wanted: Path | None) -> Iterator[Path]:
    """A directory of the run's own, which the server's user can enter; removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="rowlock-benchmarks-", dir=wanted))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _places(
    contestants: list[Contestant], directory: Path, version: int | None, stack: ExitStack
) -> dict[StoreName, Place]:
    wanted = {each.store for each in contestants}
    places: dict[StoreName, Place] = {}
    if "postgres" in wanted:
        places["postgres"] = stack.enter_context(postgres_place(directory, version=version))
    if "sqlite" in wanted:
        places["sqlite"] = SqlitePlace(directory)
    if "redis" in wanted:
        program = shutil.which("redis-server")
        if program is None:
            print("peers on Redis are left out: there is no redis-server", file=sys.stderr)
        else:
            places["redis"] = RedisPlace(program, directory)
    return places


def _server_version(places: dict[StoreName, Place]) -> dict[str, str]:
    place = places.get("postgres")
    version = getattr(place, "version", None)
    return {} if version is None else {"postgresql": version}


if __name__ == "__main__":
    main()
