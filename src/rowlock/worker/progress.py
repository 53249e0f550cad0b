"""Progress and log lines of a run, written without holding up an event loop.

1. They never fail a job: text that the database does not take is kept, and tried again later.
2. What is kept is bounded: the last progress, and at most 1,000 lines of at most 4 KiB.
3. A lost lease ends that: nothing more is written. In a plain function, `LeaseLost` is raised.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from rowlock import codec, config
from rowlock.context import Cancel
from rowlock.errors import LeaseLost
from rowlock.job import Lease
from rowlock.store import Store
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble


class Unwritten(NamedTuple):
    """Progress and lines that are not written yet."""

    progress: tuple[float, str] | None
    lines: list[str]


class PausableProgress(Protocol):
    """What a block of `ctx.transaction()` needs from the progress writer of its run."""

    def hold(self) -> None:
        """Write nothing from now on. The block writes it, or holds the lock that writing needs."""
        ...

    def gather(self) -> Unwritten:
        """As `hold`. Returns what the block must write before it is committed."""
        ...

    async def ahold(self) -> None: ...
    async def agather(self) -> Unwritten: ...
    def let_go(self) -> None:
        """Write again: the block is over."""
        ...

    def end(self) -> None:
        """The block was committed: nothing more is written."""
        ...


class _ProgressWriter:
    """Gathers the progress and log lines of a run, and writes them when it may.

    While held, they are only gathered: the handler's own transaction will write them. After `end`
    they are dropped: the job has succeeded and takes no more.
    """

    def __init__(self, store: Store, lease: Lease, errors: ServiceErrors | None) -> None:
        self._store = store
        self._lease = lease
        self._guard = threading.Lock()
        self._pending: tuple[float, str] | None = None
        self._lines: list[str] = []
        # How many lines this run has logged so far.
        self._logged = 0
        self._is_held = False
        self._is_over = False
        what = f"job {lease.id}: progress and log lines are not stored"
        self._trouble = Trouble(what, ServiceName.PROGRESS, errors)
        # Nothing is tried before this time: the database was away a moment ago.
        self._retry_at = 0.0

    def hold(self) -> None:
        self._is_held = True

    def let_go(self) -> None:
        self._is_held = False

    async def ahold(self) -> None:
        self.hold()

    def gather(self) -> Unwritten:
        self.hold()
        return self._held()

    async def agather(self) -> Unwritten:
        await self.ahold()
        return self._held()

    def _held(self) -> Unwritten:
        with self._guard:
            return Unwritten(self._pending, list(self._lines))

    def end(self) -> None:
        self._is_over = True
        self._take()

    def _note(self, progress: tuple[float, str]) -> None:
        with self._guard:
            if not self._is_over:
                self._pending = progress

    def _add(self, line: str) -> None:
        with self._guard:
            # The store would drop lines beyond a job's bound, at the cost of a call for each.
            if not self._is_over and self._logged < config.LOG_LINES_MAX:
                self._logged += 1
                self._lines.append(codec.clean_text(line, bytes_max=config.LOG_LINE_BYTES_MAX))

    def _take(self) -> Unwritten:
        with self._guard:
            held, self._pending, self._lines = Unwritten(self._pending, self._lines), None, []
            return held

    @property
    def is_written(self) -> bool:
        """Whether nothing is left to be written."""
        return self._pending is None and not self._lines

    def _is_due(self) -> bool:
        """Whether it may be written now: not by a block, and not right after a failure."""
        return not self._is_held and time.monotonic() >= self._retry_at

    def _write(self, held: Unwritten) -> None:
        """Write what was taken. If that fails, it is kept for the next time."""
        progress, lines = held
        try:
            if lines:
                self._store.log(self._lease, lines)
                lines = []
            if progress is not None:
                self._store.progress(self._lease, fraction=progress[0], text=progress[1])
                progress = None
            self._trouble.over()
        except (LeaseLost, Cancel):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it is no failure of the job
            self._retry_at = time.monotonic() + self._trouble.pause(error)
            self._keep(Unwritten(progress, lines))

    def _keep(self, held: Unwritten) -> None:
        with self._guard:
            if not self._is_over:
                self._lines[:0] = held.lines
                # Progress that was noted since is newer.
                self._pending = self._pending or held.progress


class BlockingProgressWriter(_ProgressWriter):
    """For handlers in a thread: written at once, progress at most twice a second."""

    def __init__(self, store: Store, lease: Lease, *, errors: ServiceErrors | None = None) -> None:
        super().__init__(store, lease, errors)
        self._next = 0.0

    def progress(self, fraction: float, text: str) -> None:
        self._note((fraction, text))
        if time.monotonic() >= self._next and self._is_due():
            self._write_all()

    def log(self, line: str) -> None:
        self._add(line)
        if self._is_due():
            self._write(Unwritten(None, self._take_lines()))

    def flush(self) -> None:
        """Try once to write the rest: see `is_written`. Raises `LeaseLost`."""
        if not self.is_written:
            self._write_all()

    def _write_all(self) -> None:
        self._next = time.monotonic() + config.PROGRESS_SECONDS
        self._write(self._take())

    def _take_lines(self) -> list[str]:
        with self._guard:
            lines, self._lines = self._lines, []
            return lines


class AsyncProgressWriter(_ProgressWriter):
    """For coroutines: gathered here, written by `aflush` beside the handler.

    In a thread, because the loop may end before its connections do: one of `threads`, or of the
    loop's default executor.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        threads: Executor | None = None,
        errors: ServiceErrors | None = None,
    ) -> None:
        super().__init__(store, lease, errors)
        self._threads = threads
        self._writing = asyncio.Lock()

    def progress(self, fraction: float, text: str) -> None:
        self._note((fraction, text))

    def log(self, line: str) -> None:
        self._add(line)

    async def ahold(self) -> None:
        """As `hold`, after a write that is under way."""
        self.hold()
        async with self._writing:
            pass

    async def aflush(self, *, is_last: bool = False) -> None:
        """Try to write what was gathered. The last time, try even right after a failure."""
        async with self._writing:
            if self._is_due() or (is_last and not self._is_held):
                held = self._take()
                if held.progress is not None or held.lines:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._threads, self._write_quietly, held)

    def _write_quietly(self, held: Unwritten) -> None:
        try:
            self._write(held)
        except LeaseLost:
            # Another worker has the job now.
            return
