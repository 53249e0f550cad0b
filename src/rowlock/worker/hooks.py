"""The start and stop hooks of processes that run jobs, and the lifespan that makes `ctx.state`.

1. Plain functions are called first at the start and last at the end, in the thread that starts the
   worker: before its loop runs, where the worker has the process to itself. So they may block.
2. Coroutines run on the loop that runs the jobs. A pool that they open belongs to that loop.
3. Stop hooks run in the reverse order. If a start hook fails, no job runs. If it was a plain
   function, no stop hook is called. If it was a coroutine, the plain stop hooks are called, since
   the plain start hooks have run. A lifespan that was entered is left in any case.
4. A stop hook that fails is logged, and the others are still called.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, TypeVar, cast

from rowlock.errors import OptionInvalid, RowlockError, shown

F = TypeVar("F", bound=Callable[..., Any])

logger: logging.Logger = logging.getLogger("rowlock.worker")


class HookFailed(RowlockError):
    """A start hook or the lifespan of an app has failed, so its worker can't start."""


class WorkerHooks:
    """The hooks of an app."""

    def __init__(self) -> None:
        self._start: list[Callable[[], Any]] = []
        self._stop: list[Callable[[], Any]] = []
        self._lifespan: Callable[[], Any] | None = None

    def add_start(self, hook: F) -> F:
        """Call a function before the first job."""
        self._start.append(_checked(hook, option="on_worker_start"))
        return hook

    def add_stop(self, hook: F) -> F:
        """Call a function after the last job."""
        self._stop.append(_checked(hook, option="on_worker_stop"))
        return hook

    def set_lifespan(self, lifespan: F) -> F:
        """Run the jobs inside this context manager."""
        if self._lifespan is not None:
            known = _name_of(self._lifespan)
            raise OptionInvalid("lifespan", f"is {known!r} already; an app has one, so join them")
        self._lifespan = _checked(lifespan, option="lifespan")
        return lifespan

    @property
    def needs_loop(self) -> bool:
        """Whether a coroutine is among them."""
        hooks = [*self._start, *self._stop]
        return any(map(inspect.iscoroutinefunction, hooks)) or self._has_async_lifespan

    @property
    def _has_async_lifespan(self) -> bool:
        return self._lifespan is not None and inspect.isasyncgenfunction(
            inspect.unwrap(self._lifespan)
        )

    @contextmanager
    def in_process(self, state: Any) -> Iterator[Any]:
        """The block around a process's work, outside of its loop. Yields the state.

        Raises:
            HookFailed: A start hook has failed.
        """
        for hook in self._start:
            if not inspect.iscoroutinefunction(hook):
                with _starting(hook):
                    hook()
        if self._lifespan is None or self._has_async_lifespan:
            inner: AbstractContextManager[Any] | None = None
        else:
            with _starting(self._lifespan):
                inner = _plain(self._lifespan)
                given = inner.__enter__()
                state = state if given is None else given
        try:
            yield state
        finally:
            if inner is not None:
                with _stopping(self._lifespan):
                    inner.__exit__(None, None, None)
            for hook in reversed(self._stop):
                if not inspect.iscoroutinefunction(hook):
                    with _stopping(hook):
                        hook()

    @asynccontextmanager
    async def on_loop(self, state: Any) -> AsyncIterator[Any]:
        """The block around the jobs, on the loop that runs them. Yields the state.

        Raises:
            HookFailed: A start hook has failed.
        """
        inner: AbstractAsyncContextManager[Any] | None = None
        if self._lifespan is not None and self._has_async_lifespan:
            with _starting(self._lifespan):
                inner = _asynchronous(self._lifespan)
                given = await inner.__aenter__()
                state = state if given is None else given
        try:
            for hook in self._start:
                if inspect.iscoroutinefunction(hook):
                    with _starting(hook):
                        await hook()
            try:
                yield state
            finally:
                for hook in reversed(self._stop):
                    if inspect.iscoroutinefunction(hook):
                        with _stopping(hook):
                            await hook()
        finally:
            if inner is not None:
                with _stopping(self._lifespan):
                    await inner.__aexit__(None, None, None)

    @asynccontextmanager
    async def around(self, state: Any) -> AsyncIterator[Any]:
        """Both blocks, for a worker on a loop that runs already."""
        with self.in_process(state) as made:
            async with self.on_loop(made) as whole:
                yield whole


class HeldLoop:
    """A loop that runs only at times, for a process that runs one job at a time.

    The hooks are entered and left in one task of it, as timeouts and task groups need it.
    """

    def __init__(self, hooks: WorkerHooks, state: Any) -> None:
        """Raises `HookFailed`."""
        self.runner: asyncio.Runner = asyncio.Runner()
        self._hooks = hooks
        self.state: Any = self.runner.run(self._enter(state))

    async def _enter(self, state: Any) -> Any:
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[Any] = loop.create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.ensure_future(self._hold(state, entered))
        await asyncio.wait({entered, self._task}, return_when=asyncio.FIRST_COMPLETED)
        return entered.result() if entered.done() else self._task.result()

    async def _hold(self, state: Any, entered: asyncio.Future[Any]) -> None:
        async with self._hooks.on_loop(state) as made:
            entered.set_result(made)
            await self._leave.wait()

    def close(self) -> None:
        """Call the stop hooks, and close the loop."""
        self.runner.run(self._end())
        self.runner.close()

    async def _end(self) -> None:
        self._leave.set()
        await self._task


def _checked(hook: Callable[..., Any], *, option: str) -> Callable[[], Any]:
    if not callable(hook):
        raise OptionInvalid(option, f"must be a function, not {shown(hook)}")
    try:
        inspect.signature(hook).bind()
    except TypeError as error:
        problem = f"{_name_of(hook)!r} is called without arguments: {error}"
        raise OptionInvalid(option, problem) from None
    # Also below `@contextmanager` and `@asynccontextmanager`.
    inner = inspect.unwrap(hook)
    has_yield = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    if has_yield and option != "lifespan":
        raise OptionInvalid(option, f"{_name_of(hook)!r} has a yield; use @app.lifespan for it")
    if not has_yield and option == "lifespan":
        raise OptionInvalid(option, f"{_name_of(hook)!r} has no yield, during which jobs run")
    return hook


def _plain(lifespan: Callable[[], Any]) -> AbstractContextManager[Any]:
    if inspect.isgeneratorfunction(lifespan):
        return contextmanager(lifespan)()
    return cast("AbstractContextManager[Any]", lifespan())


def _asynchronous(lifespan: Callable[[], Any]) -> AbstractAsyncContextManager[Any]:
    if inspect.isasyncgenfunction(lifespan):
        return asynccontextmanager(lifespan)()
    return cast("AbstractAsyncContextManager[Any]", lifespan())


@contextmanager
def _starting(hook: Callable[..., Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        problem = f"{_name_of(hook)!r} has failed: {type(error).__name__}: {error}"
        raise HookFailed(f"the worker can't start, since its hook {problem}") from error


@contextmanager
def _stopping(hook: Callable[..., Any] | None) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("the hook %r has failed at the worker's end", _name_of(hook))


def _name_of(hook: object) -> str:
    name: str = getattr(hook, "__qualname__", None) or shown(hook)
    return name
