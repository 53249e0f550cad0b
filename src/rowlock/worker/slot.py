"""A process slot: runs one job at a time for the worker that started it.

It talks to the worker through a socket of its own, so that a handler may print what it likes. The
end of that socket means that the worker is dead, or has no more use for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from rowlock import codec, config
from rowlock.context import Context
from rowlock.lifecycle import Failed, Outcome, Succeeded
from rowlock.store import NewJob
from rowlock.store.blocks import Blocks
from rowlock.task import prepare_follow_up
from rowlock.worker import wire
from rowlock.worker.hooks import HeldLoop
from rowlock.worker.process import Title
from rowlock.worker.progress import Unwritten
from rowlock.worker.report import running
from rowlock.worker.run import Cause, Run
from rowlock.worker.runner import await_handler, call_handler
from rowlock.worker.transaction import RunBlock

if TYPE_CHECKING:
    from rowlock.app import App


def serve(orders: wire.SlotOrders, load: Callable[[str], App]) -> None:
    """Serve until the worker has no more use for it.

    Args:
        load: The app, on the database of this URL.
    """
    os.set_inheritable(orders.descriptor, False)
    link = Link(socket.socket(fileno=orders.descriptor))
    sys.path[:] = orders.path
    home = link.hear()
    if home is None:
        return
    assert isinstance(home, wire.Home), "it is sent first"
    app = load(home.url)
    hooks = app.worker_hooks
    with hooks.in_process(app.state) as state:
        loop = HeldLoop(hooks, state) if hooks.needs_loop else None
        link.tell(wire.Hello())
        server = SlotServer(
            app,
            link,
            lease_seconds=home.lease_seconds,
            state=state if loop is None else loop.state,
            run_coroutine=asyncio.run if loop is None else loop.runner.run,
        )
        server.serve()
        if loop is not None:
            loop.close()
    app.close()


class Link:
    """The socket to the worker. Handlers may send from several threads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._guard = threading.Lock()

    def tell(self, word: wire.Word) -> None:
        frame = wire.encode(word)
        with self._guard:
            self._end.sendall(frame)

    def hear(self) -> wire.Order | None:
        """The next order. None at the end."""
        try:
            body = wire.read_frame(self._end.recv)
        except ConnectionError:
            return None
        return None if body is None else wire.decode_order(body)


class SlotProgressWriter:
    """Progress and log lines on their way to the worker, progress at most twice a second.

    The worker gathers and writes them. For a block, it is asked to stop writing and to send back
    what is left, so that nothing is lost or out of order.
    """

    def __init__(self, link: Link, number: int) -> None:
        self._link = link
        self._number = number
        self._next = 0.0
        self._pending: wire.Progressed | None = None
        # The questions that the worker has not answered yet; it answers in their order.
        self._asked: deque[Future[Unwritten]] = deque()
        self._logged = 0
        self._is_over = False

    def progress(self, fraction: float, text: str) -> None:
        cleaned = codec.clean_text(text, bytes_max=config.PROGRESS_TEXT_BYTES_MAX)
        self._pending = wire.Progressed(self._number, float(fraction), cleaned)
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        if self._pending is not None:
            word, self._pending = self._pending, None
            self._next = time.monotonic() + config.PROGRESS_SECONDS
            self._link.tell(word)

    def log(self, line: str) -> None:
        self._logged += 1
        if self._logged > config.LOG_LINES_MAX:
            return
        cleaned = codec.clean_text(line, bytes_max=config.LOG_LINE_BYTES_MAX)
        self._link.tell(wire.Logged(self._number, cleaned))

    # For a block

    def hold(self) -> None:
        self._ask(wire.HoldProgress(self._number)).result()

    async def ahold(self) -> None:
        await asyncio.wrap_future(self._ask(wire.HoldProgress(self._number)))

    def gather(self) -> Unwritten:
        return self._ask(wire.Conclude(self._number)).result()

    async def agather(self) -> Unwritten:
        return await asyncio.wrap_future(self._ask(wire.Conclude(self._number)))

    def let_go(self) -> None:
        if not self._is_over:
            self._link.tell(wire.ResumeProgress(self._number))

    def end(self) -> None:
        self._is_over = True

    def _ask(self, question: wire.HoldProgress | wire.Conclude) -> Future[Unwritten]:
        self.flush()
        answer: Future[Unwritten] = Future()
        # It can't be cancelled: the worker will answer, even if nothing waits for it any more.
        answer.set_running_or_notify_cancel()
        self._asked.append(answer)
        self._link.tell(question)
        return answer

    def answer(self, word: wire.Gathered) -> None:
        """Take the worker's answer. In the listening thread."""
        self._asked.popleft().set_result(Unwritten(word.progress, word.lines))


class SlotServer:
    """Runs jobs in the main thread, and receives orders in another."""

    def __init__(
        self,
        app: App,
        link: Link,
        *,
        lease_seconds: float,
        state: Any,
        run_coroutine: Callable[[Coroutine[Any, Any, Outcome | None]], Outcome | None],
    ) -> None:
        self._app = app
        self._state = state
        self._run_coroutine = run_coroutine
        self._link = link
        self._title = Title("rowlock slot", pause_seconds=0.0)
        self._jobs: queue.SimpleQueue[wire.Start | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        # The run that is under way, or waits to be started, for the listening thread.
        self._number = 0
        self._run: Run | None = None
        self._causes: list[Cause] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = False
        self._notes: SlotProgressWriter | None = None
        # Nothing is opened before a handler asks for one: most never do.
        self._blocks = Blocks(app.store, lease_seconds=lease_seconds)

    def serve(self) -> None:
        """Run jobs until the socket ends."""
        threading.Thread(target=self._listen, name="rowlock-listen", daemon=True).start()
        self._title.show("rowlock slot: idle")
        while (start := self._jobs.get()) is not None:
            lease = start.lease()
            assert lease.row is not None
            self._title.show(f"rowlock slot: {lease.row.kind}")
            # First: without this message, nothing of the job has happened.
            self._link.tell(wire.Hello(start.run))
            outcome = self._outcome(start)
            # Printed text is out before the worker knows that the job has ended.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            self._link.tell(wire.Finished.of(start.run, outcome))
            self._title.show("rowlock slot: idle")

    # In the listening thread

    def _listen(self) -> None:
        while (order := self._link.hear()) is not None:
            with self._guard:
                self._obey(order)
        with self._guard:
            if self._number:
                # The worker is dead, so the lease of this run has no holder.
                os._exit(1)
        self._jobs.put(None)

    def _obey(self, order: wire.Order) -> None:
        match order:
            case wire.Start():
                self._number, self._causes, self._is_stopping = order.run, [], False
                self._jobs.put(order)
            case wire.End() if order.run == self._number:
                self._causes.append(Cause[order.cause])
                self._pass_on()
            case wire.Stopping() if order.run == self._number:
                self._is_stopping = True
                self._pass_on()
            case wire.Gathered() if order.run == self._number and self._notes is not None:
                self._notes.answer(order)
            case _:
                # It came after the end of its run.
                return

    def _pass_on(self) -> None:
        """Pass the orders on to the run. Call it under the guard."""
        run = self._run
        if run is None:
            return
        run.stopping = self._is_stopping
        while self._causes:
            cause = self._causes.pop(0)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(run.end, cause)
            else:
                run.end(cause)

    # In the main thread

    def _outcome(self, start: wire.Start) -> Outcome:
        lease = start.lease()
        assert lease.row is not None
        task = self._app.find(lease.row.kind)
        if task is None:
            return Failed("LookupError", f"the app of its slot has no task {lease.row.kind!r}")
        notes = self._notes = SlotProgressWriter(self._link, start.run)
        run = Run(lease, task)
        run.on_settled = lambda _: self._tell_settled(start.run, run)
        context = Context(
            lease.job,
            state=self._state,
            notes=notes,
            signals=run,
            prepare=lambda task, payload: self._follow(start.run, task, payload),
            block=functools.partial(RunBlock, run, notes=notes, blocks=self._blocks),
            find=self._app.find,
        )
        with running(lease):
            if task.is_async:
                outcome = self._run_coroutine(self._await(run, context))
            else:
                run.context = context
                run.guard_function()
                run.started_at = time.monotonic()
                self._begin(run)
                outcome = call_handler(run, context)
        self._finish()
        notes.flush()
        if context.growth is not None and isinstance(outcome, Succeeded):
            self._link.tell(wire.Grown(start.run, context.growth.without_sends()))
        # Lost: the worker does not wait for an outcome any more.
        return outcome or Failed("LeaseLost", "another worker runs it now")

    async def _await(self, run: Run, context: Context) -> Outcome | None:
        run.handle, run.has_begun = asyncio.current_task(), True
        self._begin(run, asyncio.get_running_loop())
        try:
            return await await_handler(run, context)
        finally:
            # From here on it only cleans up, and must not be cancelled.
            run.handle = None
            self._finish()
            await self._app.store.engine.aclose_loop()

    def _begin(self, run: Run, loop: asyncio.AbstractEventLoop | None = None) -> None:
        with self._guard:
            self._run, self._loop = run, loop
            self._pass_on()

    def _finish(self) -> None:
        with self._guard:
            self._run, self._loop, self._number = None, None, 0

    def _follow(self, number: int, task: Any, payload: dict[str, Any]) -> NewJob:
        job = prepare_follow_up(task, payload)
        # It is sent once, with the success: the worker need not know whether it was sent before.
        self._link.tell(wire.Followed(number, job._replace(first_send=None)))
        return job

    def _tell_settled(self, number: int, run: Run) -> None:
        assert run.success is not None
        # If the worker is dead, this process will be in a moment. Until then the handler must not
        # get an error, because its block is committed.
        with contextlib.suppress(OSError):
            self._link.tell(wire.Committed(number, run.success.problem))
