"""An event loop with virtual time: one thread, no sleeping, every choice from one seed.

1. Each callback belongs to a host: a simulated process, known by its context. Which host goes next
   is drawn; within a host callbacks run in the order asyncio promises, or are drawn as well.
2. Time stands still while a callback runs, but for a few microseconds, and jumps to the next timer
   when nothing is ready. A host may see a time of its own.
3. A dead host's callbacks are never run; a stopped host's wait until it goes on.
4. Nothing is decided by an address in memory: tasks are hashed by their number.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

CALLBACK_SECONDS = 0.00001


HOST: contextvars.ContextVar[Host] = contextvars.ContextVar("simulated_host")


class Host:
    """A simulated process, and its clocks."""

    def __init__(self, name: str, *, wall_skew: float = 0.0) -> None:
        self.name = name
        # What its monotonic clock shows beside the true time; it stands still in a suspend.
        self.offset = 0.0
        self.wall_skew = wall_skew
        self.is_dead = False
        self.is_stopped = False
        self.suspended_at: float | None = None
        self.ready: deque[_Handle] = deque()
        # Timers that would have been due, had its clock not stood still.
        self.asleep: list[tuple[float, int, _Timer]] = []
        self.context = contextvars.Context()
        self.context.run(HOST.set, self)

    def __repr__(self) -> str:
        return self.name


class LivelockError(AssertionError):
    """So many callbacks were run that something must be running in circles."""


class _Handle:
    """What asyncio asks of a handle, without what it keeps for debugging: half of its price."""

    __slots__ = ("args", "callback", "context", "host", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Any, outside: Host
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.host: Host = self.context.get(HOST, outside)
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class _Timer(_Handle):
    __slots__ = ("_when",)

    def when(self) -> float:
        """By the clock of its host."""
        return self._when


class SimulatedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose place in a set is the same in every run."""

    def __init__(self, coroutine: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of all hosts."""

    def __init__(
        self,
        chance: Random,
        *,
        is_shuffled: bool,
        callbacks_max: int,
        slow_threads: float = 0.2,
    ) -> None:
        super().__init__()
        self._chance = chance
        self._slow_threads = slow_threads
        self._is_shuffled = is_shuffled
        self._callbacks_max = callbacks_max
        # The true time, in seconds since the simulation began.
        self.now = 0.0
        self.callbacks = 0
        self.outside = Host("outside")
        self.current = self.outside
        self._waiting: list[Host] = []
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()
        self.tasks: list[SimulatedTask] = []
        self._tasks_max = 1000
        # The first one ends the simulation, wherever it was raised.
        self.failures: list[BaseException] = []
        self.set_exception_handler(self._note_failure)

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.now + self.current.offset

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        handle = _Handle(callback, args, context, self.outside)
        self._put(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Timer:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Timer:
        timer = _Timer(callback, args, context, self.outside)
        timer._when = when
        heapq.heappush(self._timers, (when - timer.host.offset, next(self._numbers), timer))
        return timer

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None, **_: Any
    ) -> SimulatedTask:
        number = next(self._numbers)
        task = SimulatedTask(coro, number=number, loop=self, name=name, context=context)
        # Kept to the end: a coroutine of a dead host must not be closed, and run its last lines.
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_max:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._tasks_max = 2 * len(self.tasks) + 1000
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Threads are not simulated: it is done at once, and told of a moment later."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001  # as an executor does
            settle = (_fail, error)
        else:
            settle = (_succeed, result)
        most = 1.0 if self._chance.random() < self._slow_threads else 0.02
        self.call_later(self._chance.uniform(0.0005, most), settle[0], future, settle[1])
        return future

    def _note_failure(self, _: object, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or RuntimeError(context["message"]))

    # Hosts

    def on(self, host: Host, callback: Callable[..., object], *args: Any, delay: float = 0) -> None:
        """Call something in a host, after a delay of the true time."""
        self.call_at(self.now + host.offset + delay, callback, *args, context=host.context)

    def stop_host(self, host: Host, *, is_suspended: bool = False) -> None:
        """As SIGSTOP does; or as a lid that is closed, under which its clock stands still too."""
        host.is_stopped = True
        host.suspended_at = self.now if is_suspended else None

    def resume_host(self, host: Host) -> None:
        """Let a host go on that was stopped."""
        if not host.is_stopped:
            return
        host.is_stopped = False
        if host.suspended_at is not None:
            lost = self.now - host.suspended_at
            host.suspended_at = None
            host.offset -= lost
            self._timers = [
                (due + lost if handle.host is host else due, number, handle)
                for due, number, handle in (*self._timers, *host.asleep)
            ]
            heapq.heapify(self._timers)
            host.asleep.clear()
        if host.ready:
            self._waiting.append(host)

    def kill_host(self, host: Host) -> None:
        """As SIGKILL does."""
        host.is_dead = True
        host.ready.clear()

    # Running

    def _put(self, handle: _Handle) -> None:
        host = handle.host
        if host.is_dead:
            return
        if not host.ready and not host.is_stopped:
            self._waiting.append(host)
        host.ready.append(handle)

    def _run_once(self) -> None:
        # All of it at once: being asked for every callback took a tenth of the time.
        while not self._stopping:
            if self._timers and self._timers[0][0] <= self.now:
                self._ring_timers()
            while not self._waiting and self._timers:
                self.now = max(self.now, self._timers[0][0])
                self._ring_timers()
            if not self._waiting:
                raise LivelockError(f"nothing will ever happen again, at {self.now:.3f} s")
            handle = self._next_handle()
            if handle is not None and not handle.is_cancelled:
                self._run(handle)

    def _run(self, handle: _Handle) -> None:
        if self.callbacks == self._callbacks_max:
            raise LivelockError(f"more callbacks than are allowed, at {self.now:.3f} s")
        self.callbacks += 1
        self.now += CALLBACK_SECONDS
        self.current = handle.host
        try:
            handle.context.run(handle.callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  # as asyncio does
            self.failures.append(error)
        self.current = self.outside
        if self.failures:
            raise self.failures[0]

    def _ring_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            timer = heapq.heappop(timers)
            handle = timer[2]
            if handle.is_cancelled:
                continue
            if handle.host.suspended_at is None:
                self._put(handle)
            else:
                handle.host.asleep.append(timer)

    def _next_handle(self) -> _Handle | None:
        place = self._chance.randrange(len(self._waiting)) if len(self._waiting) > 1 else 0
        host = self._waiting[place]
        if host.is_dead or host.is_stopped or not host.ready:
            self._forget(place)
            return None
        ready = host.ready
        if self._is_shuffled and len(ready) > 1:
            at = self._chance.randrange(len(ready))
            ready[0], ready[at] = ready[at], ready[0]
        handle = ready.popleft()
        if not ready:
            self._forget(place)
        return handle

    def _forget(self, place: int) -> None:
        self._waiting[place] = self._waiting[-1]
        self._waiting.pop()


def _succeed(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
