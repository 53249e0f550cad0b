"""Process slots: the worker's side of jobs with `executor="process"`.

1. A slot is one process with its own socket, started afresh (never forked). It loads the app once
   and runs one job at a time. Slots are kept for the next job, and end when idle for long.
2. A dead slot costs one job: the crash counts only for the job that ran in it. A time limit, a
   cancel without an answer and a lost lease kill the slot. Other jobs are unaffected. A job whose
   slot died before it began is not to blame.
3. A killed slot's run is judged only when its process is dead.
4. The slot writes nothing of a run itself: it sends messages, and the worker writes, under its
   lease. The exception is a block of `ctx.transaction()`, which the slot commits on its own
   connection. The worker is informed before it begins and once it is done. If the slot dies in
   between, the settle of that death finds by the token what became of the block.

Rejected: the standard library's process pools. When one of their children dies, all jobs of the
pool have failed, and they pickle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from typing import Any

import msgspec

from rowlock import config
from rowlock.context import Context
from rowlock.lifecycle import CancelSeen, Crashed, NotBegun, Outcome, Succeeded
from rowlock.task import Tasks
from rowlock.worker import signals, wire
from rowlock.worker.process import how_it_ended
from rowlock.worker.progress import AsyncProgressWriter
from rowlock.worker.run import Cause, Run
from rowlock.worker.settings import PROCESSES_MODULE

logger: logging.Logger = logging.getLogger("rowlock.worker")

APP_VARIABLE = "ROWLOCK_APP"


def find_app(tasks: Tasks) -> str | None:
    """The `module:app` by which another process can import an app that was made in this one.

    An app that is the attribute of a module; or, for one in the script that was started, what
    `ROWLOCK_APP` names. None if there is no such name, or no task that needs it.
    """
    if not any(task.settings.executor == "process" for task in tasks):
        return None
    for name, module in list(sys.modules.items()):
        if name == "__main__" or getattr(module, "__spec__", None) is None:
            continue
        # Not by getattr: some modules import others when they are asked for a name.
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is tasks:
                return f"{name}:{attribute}"
    named = os.environ.get(APP_VARIABLE)
    # A module that was imported and holds another app would run that app's tasks.
    if named is not None and named.partition(":")[0] not in sys.modules:
        return named
    logger.warning(
        'tasks with executor="process" run in threads: their app has no module to import'
    )
    return None


class SlotNotStartedError(Exception):
    """A slot's process ended, or was silent for too long, before the app was loaded."""


class Slots:
    """The slots of one worker process: as many as jobs run at once, at most."""

    def __init__(self, app: str, home: wire.Home) -> None:
        self._app = app
        self._home = home
        self._idle: list[ProcessSlot] = []
        self._busy: set[ProcessSlot] = set()

    @classmethod
    def for_app(cls, app: str | None, home: wire.Home) -> Slots | None:
        """None without a name for the app: a process slot could not load it."""
        return None if app is None else cls(app, home)

    async def run(self, run: Run, context: Context, notes: AsyncProgressWriter) -> Outcome | None:
        """Run a job in a slot to its end. None if it was lost."""
        try:
            slot = await self._free_slot()
        except (OSError, SlotNotStartedError) as error:
            logger.warning("job %s: its process slot did not start: %s", run.lease.id, error)
            return NotBegun(round(config.SLOT_RETRY_SECONDS * config.SECOND_US))
        self._busy.add(slot)
        try:
            # It may have been ended before it began.
            if run.cause is not None or not await run.begin():
                return run.outcome_before_start()
            return await slot.run(run, context, notes)
        finally:
            self._busy.discard(slot)
            if slot.is_fit:
                self._idle.append(slot)
            else:
                await slot.kill()

    async def _free_slot(self) -> ProcessSlot:
        while self._idle:
            # The one used last: the others may become idle for long and end.
            slot = self._idle.pop()
            if slot.is_fit:
                return slot
            await slot.kill()
        return await ProcessSlot.start(self._app, self._home)

    async def end_idle(self, *, seconds: float = config.SLOT_IDLE_SECONDS) -> None:
        """End the slots that have waited for a job for at least this many seconds."""
        latest = time.monotonic() - seconds
        old = [slot for slot in self._idle if slot.idle_since <= latest or not slot.is_fit]
        self._idle = [slot for slot in self._idle if slot not in old]
        await asyncio.gather(*(slot.leave() for slot in old))

    async def aclose(self) -> None:
        """End all slots."""
        await self.end_idle(seconds=0)
        await asyncio.gather(*(slot.kill() for slot in self._busy))


class ProcessSlot:
    """One process, and the messages exchanged with it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._run = 0
        self._has_begun = False
        self._is_fit = True
        self.idle_since: float = time.monotonic()

    @property
    def is_fit(self) -> bool:
        """Whether it can run a job."""
        return self._is_fit and self._process.returncode is None

    @classmethod
    async def start(cls, app: str, home: wire.Home) -> ProcessSlot:
        """Start a process and wait until it has loaded the app."""
        mine, theirs = socket.socketpair()
        with theirs:
            orders = wire.SlotOrders(app=app, path=sys.path, descriptor=theirs.fileno())
            try:
                with signals.held_back():
                    process = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", PROCESSES_MODULE, "slot"),
                        msgspec.json.encode(orders).decode(),
                        stdin=asyncio.subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                        # Not a terminal's business; and what a handler starts is ended with it.
                        start_new_session=True,
                    )
            except BaseException:
                mine.close()
                raise
        slot = cls(process, *await asyncio.open_connection(sock=mine))
        slot._tell(home)
        try:
            async with asyncio.timeout(config.SLOT_START_SECONDS):
                await slot._read()
        except (EOFError, OSError, TimeoutError) as error:
            code = await slot.kill()
            how = "it took too long" if isinstance(error, TimeoutError) else how_it_ended(code)
            raise SlotNotStartedError(how) from None
        except BaseException:
            await slot.kill()
            raise
        return slot

    async def run(self, run: Run, context: Context, notes: AsyncProgressWriter) -> Outcome | None:
        """Run one job. Afterwards `is_fit` says whether the slot can run another."""
        assert run.lease.row is not None and run.news is not None
        self._run += 1
        self._has_begun = self._is_fit = False
        self._tell(wire.Start(self._run, list(run.lease.row)))
        hearing = asyncio.ensure_future(self._hear(run, context, notes))
        dying = asyncio.ensure_future(self._process.wait())
        try:
            if not await self._attend(run, hearing, dying):
                self._end_process()
                # It may have committed a block in its last moment.
                await asyncio.wait({hearing}, timeout=config.SLOT_LAST_WORDS_SECONDS)
                await self.kill()
                if run.cause is Cause.CANCEL:
                    return CancelSeen("it did not stop when asked to; its process was ended")
                return run.outcome_of_cause()
            outcome = await self._outcome(hearing, dying)
            return None if run.cause is Cause.LOST else outcome
        finally:
            self.idle_since = time.monotonic()
            for task in (hearing, dying):
                task.cancel()
            await asyncio.gather(hearing, dying, return_exceptions=True)
            # A block that was open is undone by now, and its run goes on to be settled.
            notes.let_go()

    async def _attend(
        self, run: Run, hearing: asyncio.Future[Outcome], dying: asyncio.Future[int]
    ) -> bool:
        """Pass orders on to the run until it has ended. False if it must be killed."""
        assert run.news is not None
        limit = latest = self._limit(run)
        while not hearing.done() and not dying.done():
            news = asyncio.ensure_future(run.news.wait())
            end = _end(run, limit=limit, latest=latest)
            left = None if end is None else max(0.0, end - time.monotonic())
            watched: set[asyncio.Future[Any]] = {hearing, dying, news}
            await asyncio.wait(watched, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            if run.news.is_set():
                run.news.clear()
                latest = self._pass_on(run, latest)
            end = _end(run, limit=limit, latest=latest)
            if end is not None and time.monotonic() >= end and not hearing.done():
                run.cause = run.cause or Cause.TIMEOUT
                return False
        return True

    def _limit(self, run: Run) -> float | None:
        if run.limit is None:
            return None
        # A coroutine is stopped by its own loop first.
        grace = config.TIMEOUT_GRACE_SECONDS if run.task.is_async else 0.0
        return time.monotonic() + run.limit + grace

    def _pass_on(self, run: Run, end: float | None) -> float | None:
        """Send the slot its run's orders. Returns when the run must have ended."""
        if run.cause is None:
            self._tell(wire.Stopping(self._run))
            return end
        self._tell(wire.End(self._run, run.cause.name))
        latest = time.monotonic() + _patience(run)
        return latest if end is None else min(end, latest)

    async def _outcome(
        self, hearing: asyncio.Future[Outcome], dying: asyncio.Future[int]
    ) -> Outcome:
        """The outcome that the slot sent. If it died before: that it crashed."""
        # The last message of a dead process may still come. A living process that has closed its
        # socket is about to end.
        await asyncio.wait({hearing}, timeout=config.SLOT_LAST_WORDS_SECONDS)
        if hearing.done() and hearing.exception() is None:
            self._is_fit = not dying.done()
            return hearing.result()
        await asyncio.wait({dying}, timeout=config.SLOT_LAST_WORDS_SECONDS)
        code = await self.kill()
        if not self._has_begun:
            return NotBegun()
        return Crashed(f"its process slot died: {how_it_ended(code)}", alone=True)

    async def _hear(self, run: Run, context: Context, notes: AsyncProgressWriter) -> Outcome:
        while True:
            word = await self._read()
            if word.run != self._run:
                continue
            match word:
                case wire.Progressed():
                    notes.progress(word.fraction, word.text)
                case wire.Logged():
                    notes.log(word.line)
                # Another thread of the handler may have sent it during the COMMIT.
                case wire.Followed() if not run.is_settled:
                    context.enqueue_on_success(word.job)
                case wire.Grown() if not run.is_settled:
                    context.grow(word.draft)
                case (
                    wire.HoldProgress() | wire.Conclude() | wire.ResumeProgress() | wire.Committed()
                ):
                    await self._hear_of_block(word, run, notes)
                case wire.Finished():
                    return word.read()
                case wire.Hello():
                    self._has_begun = True

    async def _hear_of_block(
        self,
        word: wire.HoldProgress | wire.Conclude | wire.ResumeProgress | wire.Committed,
        run: Run,
        notes: AsyncProgressWriter,
    ) -> None:
        match word:
            case wire.HoldProgress() | wire.Conclude():
                held = await notes.agather()
                run.is_settling = isinstance(word, wire.Conclude)
                self._tell(wire.Gathered(self._run, held.progress, held.lines))
            case wire.ResumeProgress():
                run.is_settling = False
                notes.let_go()
            case wire.Committed():
                notes.end()
                run.settled(Succeeded(problem=word.problem))

    async def _read(self) -> wire.Word:
        head = await self._reader.readexactly(wire.LENGTH.size)
        return wire.decode_word(await self._reader.readexactly(wire.length_of(head)))

    def _tell(self, order: wire.Order) -> None:
        self._writer.write(wire.encode(order))

    async def leave(self) -> None:
        """Ask an idle slot to end, and kill it if it does not."""
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(config.STOP_SECONDS):
                await self._process.wait()
        await self.kill()

    async def kill(self) -> int:
        """Kill the process and those that it started. Returns its exit code."""
        self._end_process()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        return await self._process.wait()

    def _end_process(self) -> None:
        self._is_fit = False
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _end(run: Run, *, limit: float | None, latest: float | None) -> float | None:
    """When a run must have ended. A run that has committed its success can't be cancelled."""
    return limit if run.is_settled and run.cause is Cause.CANCEL else latest


def _patience(run: Run) -> float:
    """How many seconds a run that was asked to end may continue."""
    match run.cause:
        case Cause.CANCEL:
            return config.CANCEL_GRACE_SECONDS
        case Cause.STOP:
            return config.STOP_SECONDS / 2 if run.task.is_async else 0.0
        case Cause.TIMEOUT | Cause.LOST | None:
            return 0.0


def take_as_is(job: Any, _: dict[str, Any]) -> Any:
    """Return a follow-up job unchanged: it was prepared in the slot."""
    return job
