"""Who is measured: rowlock, and peers found in a directory of their own.

Each is driven through the same interface, so that none has an advantage. An adapter is started as
`python -m MODULE COMMAND ...` and prints one line of JSON:

    setup                  make the tables of an empty database
    preload LOW HIGH       enqueue jobs LOW to HIGH, as fast as it can
    enqueue_one N          enqueue N jobs one by one: {"per_s": ...}
    enqueue_bulk N         enqueue N jobs by 1,000 a call: {"per_s": ...}; null: it has no such call
    latency LOW HIGH       enqueue jobs at random gaps of 20 to 80 ms, each with its time

Its workers run until SIGTERM; their handlers write to the record (see `benchmarks.record`). The
database, the record and the number of processes are told in the environment, as BENCH_*.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.processes import Crew, crew
from benchmarks.record import FILE_VARIABLE, JOBS_VARIABLE, Record

if TYPE_CHECKING:
    from benchmarks.places import Database

StoreName = Literal["postgres", "sqlite", "redis"]

ROOT = Path(__file__).resolve().parents[1]
CALL_SECONDS = 1_800.0
OURS = "rowlock"
# Of the random gaps between jobs; peers have their own, with the same bounds.
GAP_SEED = 7
# Slots of a child; the same for all of our drains.
SLOTS = 100


class AdapterFailed(Exception):
    """An adapter's command did not succeed; the text is the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A job queue on one store, and how to drive it.

    Args:
        left: SQL that counts the jobs that the queue does not call finished yet; None where that
            can't be asked.
        drain_jobs: How many jobs a drain should have, to take some seconds.
        worker_of_two: Replaces `worker` when two processes are asked for.
        starts_processes: Its worker starts as many processes as told; otherwise it is started as
            often.
    """

    name: str
    store: StoreName
    python: str
    directory: Path
    module: str
    worker: tuple[str, ...]
    left: str | None
    drain_jobs: int
    settings: str
    worker_of_two: tuple[str, ...] | None = None
    starts_processes: bool = False
    can_drain: bool = True
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_ours(self) -> bool:
        return self.name == OURS

    def call(self, database: Database, *words: str | int) -> dict[str, Any]:
        """Run a command of the adapter; what it says."""
        done = subprocess.run(
            [self.python, "-m", self.module, *map(str, words)],
            env=self._environment(database),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            check=False,
        )
        if done.returncode:
            raise AdapterFailed(f"{self.name} {words}: {done.stderr[-1_000:]}")
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        said: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return said

    @contextmanager
    def workers(
        self,
        database: Database,
        record: Record,
        *,
        processes: int = 1,
        words: Sequence[str] = (),
        log: Path,
    ) -> Iterator[Crew]:
        """Workers while the block runs; `words` are further options of ours."""
        told = self._environment(database) | {
            FILE_VARIABLE: str(record.path),
            JOBS_VARIABLE: str(record.jobs),
            "BENCH_PROCS": str(processes),
        }
        if told.get("BENCH_REC_EAGER_WORKER"):
            told["BENCH_REC_EAGER"] = "1"
        chosen = self.worker_of_two if processes > 1 and self.worker_of_two else self.worker
        command = [self.python, *(word.format(procs=processes) for word in chosen), *words]
        times = 1 if self.starts_processes else processes
        with crew([command] * times, environment=told, directory=self.directory, log=log) as them:
            yield them

    def _environment(self, database: Database) -> dict[str, str]:
        # The caller's own environment wins over the peer's settings: handy to try others.
        return {
            **self.environment,
            **os.environ,
            **database.environment,
            "PYTHONPATH": str(self.directory),
            "PYTHONUNBUFFERED": "1",
        }


def ours(store: Literal["postgres", "sqlite"], *, drain_jobs: int) -> Contestant:
    """rowlock itself, as `rowlock worker` runs it."""
    table = "rowlock.job" if store == "postgres" else "rowlock_job"
    app = ("-m", "rowlock.cli", "--app", "benchmarks.adapter:app")
    return Contestant(
        name=OURS,
        store=store,
        python=sys.executable,
        directory=ROOT,
        module="benchmarks.adapter",
        worker=(*app, "worker", "-c", str(SLOTS), "-p", "{procs}"),
        left=f"SELECT count(*) FROM {table}",
        drain_jobs=drain_jobs,
        settings=f"rowlock worker -c {SLOTS}, history kept for a day, synchronous commits",
        starts_processes=True,
        environment={"BENCH_STORE": store, "ROWLOCK_LOG_LEVEL": "warning"},
    )


def read_peers(directory: Path, home: Path, names: Sequence[str]) -> list[Contestant]:
    """The peers of these names, or with these environments; those that are not installed not.

    Args:
        directory: Where their package `peers` is; its REGISTRY says what it has.
        home: Where their virtual environments are, `venv-NAME` each.
    """
    # In a process of its own: what others wrote is not imported here.
    listed = subprocess.run(
        [sys.executable, "-c", "import json, peers; print(json.dumps(peers.REGISTRY))"],
        env={**os.environ, "PYTHONPATH": str(directory)},
        cwd=directory,
        capture_output=True,
        check=True,
    )
    registry: list[dict[str, Any]] = json.loads(listed.stdout)
    chosen = [each for name in names for each in _named(registry, name)]
    found = [_peer(each, directory, home) for each in chosen]
    for peer in found:
        if not Path(peer.python).exists():
            print(f"{peer.name} is left out: there is no {peer.python}", file=sys.stderr)
    return [peer for peer in found if Path(peer.python).exists()]


def _named(registry: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    exact = [each for each in registry if each["name"] == name]
    found = exact or [each for each in registry if each["venv"] == name]
    if not found:
        raise SystemExit(f"there is no peer {name!r}: {', '.join(e['name'] for e in registry)}")
    return found


def _peer(entry: Mapping[str, Any], directory: Path, home: Path) -> Contestant:
    worker_of_two = entry.get("worker2")
    return Contestant(
        name=entry["name"],
        store="postgres" if entry["backend"] == "pg" else entry["backend"],
        python=str(home / f"venv-{entry['venv']}" / "bin" / "python"),
        directory=directory,
        module=f"peers.{entry['module']}",
        worker=tuple(entry["worker"]),
        worker_of_two=None if worker_of_two is None else tuple(worker_of_two),
        starts_processes=entry["native_procs"],
        # Counted by SQL only.
        left=None if entry["backend"] == "redis" else entry["left"],
        drain_jobs=entry["n"],
        settings=entry["settings"],
        can_drain=not entry["no_drain"],
        environment=entry["env"],
    )
