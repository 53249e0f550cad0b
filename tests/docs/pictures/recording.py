"""The recording of a terminal: real commands, in a real shell, in twenty seconds.

A worker is killed in the middle of its jobs, and the next one finishes them. Long waits are cut.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pictures.terminal import COLUMNS, ROWS, lay_out, render

# It is shown, so it must not differ between machines.
PLACE = Path("/tmp/shop")
SHOP = """\
import asyncio

import rowlock

app = rowlock.App("sqlite:///shop.db")


@app.task
async def pay(order: int) -> str:
    print(f"paying order {order} ...")
    await asyncio.sleep(2)
    return f"order {order} is paid"


if __name__ == "__main__":
    for order in (1, 2, 3):
        job = pay.enqueue(order=order)
        print(job.kind, job.payload, job.state)
"""
TITLE = "Jobs are enqueued, a worker is killed, and another worker finishes them"
# What is typed is bold: PS0 is printed when a command begins, and ends that.
PROMPT = "\x1b[36m$ \x1b[1m"
TYPING_SECONDS = 0.035
PAUSE_SECONDS_MAX = 0.7
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and how long a reader needs for what it printed.

    When all of `until` was printed, the command gets the signal.
    """

    command: str
    seconds: float
    until: tuple[str, ...] = ()
    signal: signal.Signals = signal.SIGINT


WORKER = "rowlock worker --app shop:app --lease 2"
STEPS = (
    Step("cat shop.py", 2.2),
    Step("python shop.py", 1.0),
    Step(WORKER, 0.8, until=("paying",) * 3, signal=signal.SIGKILL),
    Step("# That was kill -9, in the middle of three jobs. Start another worker:", 0.6),
    Step(WORKER, 0.8, until=("succeeded",) * 3),
    Step("rowlock jobs list --app shop:app", 0.0),
)


class Recorder:
    """A shell in a terminal of its own, and what it has printed, with the times."""

    def __init__(self, folder: Path) -> None:
        self._pid, self._terminal = pty.fork()
        if not self._pid:  # The child, which has the terminal.
            os.chdir(folder)
            paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            environment = {**os.environ, "PS1": PROMPT, "PS0": "\x1b[0m"}
            environment |= {"PATH": paths, "TERM": "xterm"}
            os.execvpe("bash", ["bash", "--noprofile", "--norc", "--noediting", "-i"], environment)
        termios.tcsetwinsize(self._terminal, (ROWS, COLUMNS))
        self._begin = time.monotonic()
        self._text = ""
        self._mark = 0
        self.events: list[tuple[float, str]] = []

    def type(self, command: str) -> None:
        """Type a command like a quick person."""
        for character in command:
            os.write(self._terminal, character.encode())
            self._read(TYPING_SECONDS)
        self._mark = len(self._text)
        os.write(self._terminal, b"\n")

    def wait_for(self, text: str) -> None:
        """Record until this was printed, after what was waited for before."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (found := self._text.find(text, self._mark)) < 0:
            assert time.monotonic() < end, f"{text!r} is not in {self._text[self._mark :]!r}"
            self._read(0.05)
        self._mark = found + len(text)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command that runs, and to all its processes."""
        os.killpg(os.tcgetpgrp(self._terminal), number)

    def close(self) -> None:
        os.write(self._terminal, b"\x04")
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def _read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._terminal], [], [], left)[0]:
                text = os.read(self._terminal, 65_536).decode()
                self._text += text
                self.events.append((time.monotonic() - self._begin, text))


def make(path: Path) -> None:
    """Record the steps, and write the picture."""
    with recorder() as shell:
        shell.wait_for(PROMPT)
        holds: list[tuple[int, float]] = []
        for step in STEPS:
            shell.type(step.command)
            for text in step.until:
                shell.wait_for(text)
            if step.until:
                shell.signal(step.signal)
            shell.wait_for(PROMPT)
            holds.append((len(shell.events), step.seconds))
    path.write_text(render(lay_out(shortened(shell.events, holds)), TITLE), "utf-8")


@contextmanager
def recorder() -> Iterator[Recorder]:
    PLACE.mkdir()
    try:
        (PLACE / "shop.py").write_text(SHOP, "utf-8")
        shell = Recorder(PLACE)
        yield shell
        shell.close()
    finally:
        shutil.rmtree(PLACE)


def shortened(
    events: list[tuple[float, str]], holds: list[tuple[int, float]]
) -> list[tuple[float, str]]:
    """Cut long waits, and leave time to read after each step."""
    extra = dict(holds)
    now = before = 0.0
    result: list[tuple[float, str]] = []
    for number, (seconds, text) in enumerate(events):
        now += min(seconds - before, PAUSE_SECONDS_MAX) + extra.get(number, 0.0)
        before = seconds
        result.append((round(now, 2), text))
    return result
