"""The worker of a bench: a real one, in processes of its own, which end with the bench.

It is started as `python -m rowlock.bench.worker PROCESSES`. When its stdin ends, for example
because the bench was killed, the worker stops as on SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import Final, Self

from rowlock.app import DATABASE_URL_VARIABLE
from rowlock.bench.tasks import SCHEMA_VARIABLE, SPEC
from rowlock.errors import StoreUnavailable
from rowlock.store.scratch import Scratch
from rowlock.testing.processes import cpu_seconds

# Slots per child: enough that no-op jobs never wait for one.
SLOTS: Final = 100
STOP_SECONDS: Final = 10.0
_SAID_MAX: Final = 500


class BenchWorker:
    """A worker on a scratch while the block runs."""

    def __init__(self, scratch: Scratch, *, processes: int) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end of the block
        # In the environment, because everyone can read a password among the arguments.
        places = {DATABASE_URL_VARIABLE: scratch.url, SCHEMA_VARIABLE: scratch.schema}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(processes)],
            env={**os.environ, **places},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C reaches only us. We then stop it.
        )

    def __enter__(self) -> Self:
        return self

    def wait(self, seconds: float) -> None:
        """Let it work for a while. Raise `StoreUnavailable` if it has ended."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise self.trouble(f"ended with {code}")

    def trouble(self, what: str) -> StoreUnavailable:
        """Return an error that says what is wrong, with the worker's last output."""
        self._said.seek(0)
        said = " ".join(self._said.read().decode(errors="replace").split())
        return StoreUnavailable(f"the worker {what}: {said[-_SAID_MAX:] or 'it printed no reason'}")

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of it and its children. None if the system does not report it."""
        return cpu_seconds(self._process.pid)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        finally:
            self._said.close()


def main() -> None:
    """Run the worker until stdin ends."""
    from rowlock.observe import log
    from rowlock.worker.settings import worker_settings
    from rowlock.worker.supervisor import Supervisor

    log.configure_here_and_in_children("warning", "console", has_jobs=False)
    supervisor = Supervisor(
        app=SPEC,
        processes=int(sys.argv[1]),
        settings=worker_settings(concurrency=SLOTS, schedules=False, grace=STOP_SECONDS / 2),
    )
    threading.Thread(target=_stop_at_the_end_of_stdin, daemon=True).start()
    sys.exit(supervisor.run())


def _stop_at_the_end_of_stdin() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
