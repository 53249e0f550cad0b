"""`app.drain()` on Django's connection: jobs are claimed, run and settled in the caller's thread.

So a `TestCase` can run what it enqueued, though nothing of it is ever committed. Coroutines are run
by `async_to_sync`, whose queries come back to this thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async

from rowlock.context import Context, TransactionBlock
from rowlock.worker.drain import Drain
from rowlock.worker.notes import BlockingNotes, LoopNotes
from rowlock.worker.run import Run

T = TypeVar("T")


class _HereAndNow:
    """Runs coroutines as `asyncio.Runner` does, with Django's thread in reach."""

    def run(self, coro: Coroutine[Any, Any, T], /) -> T:
        async def awaited() -> T:
            return await coro

        return async_to_sync(awaited)()


class DjangoDrain(Drain):
    """A drain without heartbeats: nobody else can see what a transaction has not committed.

    Nor is there a `ctx.transaction()`, which would be a second one.
    """

    def run(self) -> int:
        """Run what is ready; how many runs that were."""
        self._run_all(_HereAndNow())
        return self._done

    async def arun(self) -> int:
        """As `run`, in the thread of Django's own async calls."""
        return await sync_to_async(self.run)()

    def _block(
        self, run: Run, notes: BlockingNotes | LoopNotes
    ) -> Callable[[Context], TransactionBlock] | None:
        return None
