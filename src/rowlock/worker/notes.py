"""Progress and log lines of a run, written without holding up an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from rowlock import config
from rowlock.errors import LeaseLost
from rowlock.job import Lease
from rowlock.store import Store


class Held(NamedTuple):
    """What was said and is not written yet."""

    progress: tuple[float, str] | None
    lines: list[str]


class BlockNotes(Protocol):
    """What a block of `ctx.transaction()` asks of the notes of its run."""

    def hold(self) -> None:
        """Write nothing from now on: the block writes it, or keeps others from writing."""
        ...

    def gather(self) -> Held:
        """As `hold`; what is left to be written, by the block that is about to be committed."""
        ...

    async def ahold(self) -> None: ...
    async def agather(self) -> Held: ...
    def let_go(self) -> None:
        """Write again: the block is over."""
        ...

    def end(self) -> None:
        """The block was committed: nothing more is written."""
        ...


class _Notes:
    """What a run says of itself, and whether it may be written now.

    While held it is only gathered: the handler's own transaction will write it. After `end` it
    is dropped: the job has succeeded, and takes no more of it.
    """

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._guard = threading.Lock()
        self._pending: tuple[float, str] | None = None
        self._lines: list[str] = []
        # How many lines this run has said so far.
        self._logged = 0
        self._is_held = False
        self._is_over = False

    def hold(self) -> None:
        self._is_held = True

    def let_go(self) -> None:
        self._is_held = False

    async def ahold(self) -> None:
        self.hold()

    def gather(self) -> Held:
        self.hold()
        return self._held()

    async def agather(self) -> Held:
        await self.ahold()
        return self._held()

    def _held(self) -> Held:
        with self._guard:
            return Held(self._pending, list(self._lines))

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
                self._lines.append(line)

    def _take(self) -> Held:
        with self._guard:
            held, self._pending, self._lines = Held(self._pending, self._lines), None, []
            return held


class BlockingNotes(_Notes):
    """For handlers in a thread: written at once, progress at most twice a second."""

    def __init__(self, store: Store, lease: Lease) -> None:
        super().__init__(store, lease)
        self._next = 0.0

    def progress(self, fraction: float, text: str) -> None:
        self._note((fraction, text))
        if not self._is_held and time.monotonic() >= self._next:
            self._write_progress()

    def log(self, line: str) -> None:
        self._add(line)
        if not self._is_held:
            self._write_lines()

    def flush(self) -> None:
        self._write_lines()
        self._write_progress()

    def _write_progress(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._next = time.monotonic() + config.PROGRESS_SECONDS
            self._store.progress(self._lease, fraction=pending[0], text=pending[1])

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self._store.log(self._lease, lines)


class LoopNotes(_Notes):
    """For coroutines: gathered here, written by `aflush` beside the handler.

    In a thread, because the loop may end before its connections do; of `threads`, or else of the
    loop's own.
    """

    def __init__(self, store: Store, lease: Lease, *, threads: Executor | None = None) -> None:
        super().__init__(store, lease)
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

    async def aflush(self) -> None:
        """Write what was gathered."""
        async with self._writing:
            if not self._is_held:
                held = self._take()
                if held.progress is not None or held.lines:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._threads, self._write, held)

    def _write(self, held: Held) -> None:
        try:
            if held.progress is not None:
                fraction, text = held.progress
                self._store.progress(self._lease, fraction=fraction, text=text)
            if held.lines:
                self._store.log(self._lease, held.lines)
        except LeaseLost:
            # Another runs it now; there is nobody left to write for.
            return
