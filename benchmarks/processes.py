"""Processes of a measurement: started, watched by /proc (Linux), and ended with all their kin."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rowlock.testing.processes import cpu_seconds, family

STOP_SECONDS = 20.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def used_seconds(pid: int) -> float:
    """The CPU time of a process and its family."""
    return cpu_seconds(pid) or 0.0


def largest_mib(pid: int) -> float:
    """The memory of the largest of a family that is its own.

    Not what it shares, which is mostly the record of starts: that grows with every job.
    """
    return max(map(_resident_mib, family(pid)))


def _resident_mib(pid: int) -> float:
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0.0
    return (resident - shared) * _PAGE_BYTES / 2**20


class Crew:
    """The worker processes of one measurement."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def cpu_seconds(self) -> float:
        return sum(used_seconds(process.pid) for process in self._processes)

    def largest_mib(self) -> float:
        return max(largest_mib(process.pid) for process in self._processes)

    def has_ended(self) -> bool:
        return all(process.poll() is not None for process in self._processes)

    def stop(self) -> None:
        """End them politely, and whatever is left of their sessions not so."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"pid {process.pid} did not end in {STOP_SECONDS:.0f} s and is killed")
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()


@contextmanager
def crew(
    commands: Sequence[Sequence[str]],
    *,
    environment: Mapping[str, str],
    directory: Path,
    log: Path,
) -> Iterator[Crew]:
    """Workers that run while the block does, each in a session of its own."""
    started: list[subprocess.Popen[bytes]] = []
    members = Crew(started)
    try:
        with log.open("ab") as output:
            for command in commands:
                started.append(  # noqa: PERF401  # one by one, so that all are stopped
                    subprocess.Popen(
                        command,
                        env=environment,
                        cwd=directory,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
        yield members
    finally:
        members.stop()
