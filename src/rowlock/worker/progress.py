"""Progress and log lines of a run, written without holding up an event loop.

1. They never fail a job: what the database does not take is kept, and tried again with a pause.
2. What is kept is bounded: the last progress, and at most 1,000 lines of at most 4 KiB.
3. A lost lease ends that: there is nobody left to write for. A plain function hears of it.
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
    """What was said and is not written yet."""

    progress: tuple[float, str] | None
    lines: list[str]


class PausableProgress(Protocol):
    """What a block of `ctx.transaction()` asks of the notes of its run."""

    def hold(self) -> None:
        """Write nothing from now on: the block writes it, or keeps others from writing."""
        ...

    def gather(self) -> Unwritten:
        """As `hold`; what is left to be written, by the block that is about to be committed."""
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
    """What a run says of itself, and whether it may be written now.

    While held it is only gathered: the handler's own transaction will write it. After `end` it
    is dropped: the job has succeeded, and takes no more of it.
    """

    def __init__(self, store: Store, lease: Lease, errors: ServiceErrors | None) -> None:
        self._store = store
        self._lease = lease
        self._guard = threading.Lock()
        self._pending: tuple[float, str] | None = None
        self._lines: list[str] = []
        # How many lines this run has said so far.
        self._logged = 0
        self._is_held = False
        self._is_over = False
        what = f"job {lease.id}: progress and log lines are not stored"
        self._trouble = Trouble(what, ServiceName.PROGRESS, errors)
        # Before this, nothing is tried: the database was away a moment ago.
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
            # What goes beyond a job's bound would be dropped by the store, a call for each.
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
        """Whether it may be written now: by us, and not right after a failure."""
        return not self._is_held and time.monotonic() >= self._retry_at

    def _write(self, held: Unwritten) -> None:
        """Write what was taken; what the database does not take is kept for the next time."""
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
                # What was said since is newer.
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
        """Write what is left, once, as far as that works; `is_written` tells. Or `LeaseLost`."""
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

    In a thread, because the loop may end before its connections do; of `threads`, or else of the
    loop's own.
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
        """As `hold`, once what is being written is written."""
        self.hold()
        async with self._writing:
            pass

    async def aflush(self, *, is_last: bool = False) -> None:
        """Write what was gathered, as far as that works; the last time also after a failure."""
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
            # Another runs it now; there is nobody left to write for.
            return
