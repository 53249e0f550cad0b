"""The processes of a run: workers and producers, each replaced when it was killed.

One thread starts all of them, and they die with it. Each worker is a session of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from rowlock.app import DATABASE_URL_VARIABLE
from rowlock.chaos.jobs import SCHEMA_VARIABLE, SPEC
from rowlock.chaos.journal import DIRECTORY_VARIABLE
from rowlock.chaos.plan import ChaosPlan
from rowlock.chaos.producer import ProducerCounts, ProducerOrders
from rowlock.errors import RowlockError
from rowlock.testing.processes import children_of, kill

END_SECONDS_MAX: Final = 60.0
LOGS: Final = "logs"

Process = subprocess.Popen[bytes]
# The URL for the process of a role and a number, with a name of its own.
Address = Callable[[str, int, str], str]
# Further environment variables for the processes of a role and a number.
EnvironmentOf = Callable[[str, int], Mapping[str, str]]


class ProcessFailed(RowlockError):
    """A process of a run ended unexpectedly. The message has its last output."""

    code = "chaos_failed"


class Processes:
    """A context manager that starts, replaces and ends the processes of a run."""

    def __init__(
        self,
        plan: ChaosPlan,
        directory: Path,
        *,
        schema: str,
        address: Address,
        environment_of: EnvironmentOf,
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._schema = schema
        self._address = address
        self._environment_of = environment_of
        self._lives: dict[str, int] = {}
        self.counts: ProducerCounts = ProducerCounts(directory / "counts", plan.producers)
        self.workers: list[Process] = []
        self.producers: list[Process | None] = []
        # Every process that was ever started here. At the end, those left are killed.
        self._all: list[Process] = []

    def __enter__(self) -> Self:
        self.workers = [self._worker(number) for number in range(self._plan.workers)]
        self.producers = [self._producer(number) for number in range(self._plan.producers)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.counts.close()

    # Starting

    def _worker(self, number: int) -> Process:
        plan = self._plan
        words = ("--app", SPEC, "worker", "-p", str(plan.processes), "-c", str(plan.slots))
        options = ("--lease", f"{plan.lease_seconds:g}", "--grace", "5", "--log-level", "warning")
        return self._start("worker", number, ["rowlock.chaos.worker", *words, *options])

    def _producer(self, number: int) -> Process:
        plan = self._plan
        share = plan.jobs // plan.producers + (number < plan.jobs % plan.producers)
        orders = ProducerOrders(
            number=number,
            producers=plan.producers,
            jobs=share,
            shares=plan.shares,
            chance=f"{plan.seed} producer {number} {self._lives.get(f'producer-{number}', 0)}",
        )
        words = ["rowlock.chaos.producer", msgspec.json.encode(orders).decode()]
        return self._start("producer", number, words)

    def _start(self, role: str, number: int, words: list[str]) -> Process:
        name = f"{role}-{number}"
        life = self._lives[name] = self._lives.get(name, 0) + 1
        environment = {
            **os.environ,
            **self._environment_of(role, number),
            DATABASE_URL_VARIABLE: self._address(role, number, f"{name}-{life}"),
            SCHEMA_VARIABLE: self._schema,
            DIRECTORY_VARIABLE: str(self._directory),
        }
        with (self._directory / LOGS / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._all.append(process)
        return process

    # Losing

    def lose_worker(self, number: int, *, with_children: bool) -> list[int]:
        """Kill a supervisor, optionally with its children, and replace it. Return the killed."""
        worker = self.workers[number]
        pids = [worker.pid, *(children_of(worker.pid) if with_children else [])]
        for pid in pids:
            kill(pid)
        worker.wait()
        self.workers[number] = self._worker(number)
        return pids

    def lose_producer(self, number: int) -> list[int]:
        """Kill a producer that is not done, and replace it. Return the killed."""
        producer = self.producers[number]
        if producer is None or producer.poll() is not None:
            return []
        kill(producer.pid)
        producer.wait()
        self.producers[number] = self._producer(number)
        return [producer.pid]

    def check(self) -> None:
        """Check that no process has ended, except producers that are done."""
        for number, worker in enumerate(self.workers):
            if (code := worker.poll()) is not None:
                raise self._failed(f"worker-{number}", code)
        for number, producer in enumerate(self.producers):
            code = None if producer is None else producer.poll()
            if code is not None and code != 0:
                raise self._failed(f"producer-{number}", code)
            if code == 0:
                self.producers[number] = None

    def _failed(self, name: str, code: int) -> ProcessFailed:
        text = (self._directory / LOGS / f"{name}.log").read_text(errors="replace")
        return ProcessFailed(
            f"{name} ended with {code}: {text[-1_000:].strip() or 'it printed nothing'}"
        )

    @property
    def is_producing(self) -> bool:
        """Whether a producer is not done yet."""
        return any(producer is not None for producer in self.producers)

    def end(self) -> None:
        """Stop the workers, which have nothing left to do.

        Raises:
            ProcessFailed: One of them did not end, or failed.
        """
        for worker in self.workers:
            worker.terminate()
        for number, worker in enumerate(self.workers):
            try:
                code = worker.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired as error:
                seconds = f"{END_SECONDS_MAX:g}"
                raise ProcessFailed(f"worker-{number} has not ended in {seconds} s") from error
            if code != 0:
                raise self._failed(f"worker-{number}", code)
