"""Writes the jobs of many requests together: while one write is in progress, the next ones queue.

A job that arrives alone is written at once. Jobs that arrive together share one transaction: on
PostgreSQL, an enqueue by itself cost 275 µs of processor time, most of it in the driver. If a batch
can't be written, each of its jobs is tried alone, so that no request fails because of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from rowlock import config
from rowlock.errors import StoreUnavailable
from rowlock.job import Job
from rowlock.server.background import Background
from rowlock.store import NewJob, Store
from rowlock.store.ops.enqueue import enqueue


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: NewJob
    answer: asyncio.Future[Job]

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def succeed(self, made: Job) -> None:
        if not self.answer.done():
            self.answer.set_result(made)


class WriteBatcher:
    """Enqueues one job per caller, and many in one transaction."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._waiting: deque[_Waiting] = deque()

    async def enqueue(self, job: NewJob) -> Job:
        """Write the job, or find the job that holds its id or key."""
        answer: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(job, answer))
        self._background.ensure("write-batcher", self._write)
        return await answer

    async def _write(self) -> None:
        while self._waiting:
            await self._gather()
            await self._write_together(self._next())

    async def _gather(self) -> None:
        """Wait while more jobs arrive with every turn of the loop.

        A job that is alone waits for one turn.
        """
        seen = 0
        while seen < len(self._waiting) < config.HTTP_GATHER_JOBS:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    def _next(self) -> list[_Waiting]:
        """The next batch, within the bounds of one statement."""
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < config.HTTP_GATHER_JOBS:
            size += len(self._waiting[0].job.payload)
            if batch and size > config.HTTP_GATHER_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write_together(self, batch: list[_Waiting]) -> None:
        try:
            made = await self._store.arun(enqueue([each.job for each in batch], is_lean=True))
        except asyncio.CancelledError:
            for each in (*batch, *self._waiting):
                each.answer.cancel()
            raise
        except StoreUnavailable as error:
            for each in batch:
                each.fail(StoreUnavailable(*error.args))
        except Exception as error:  # noqa: BLE001  # each request gets its own error
            if len(batch) == 1:
                batch[0].fail(error)
                return
            for each in batch:
                await self._write_together([each])
        else:
            for each, job in zip(batch, made, strict=True):
                each.succeed(job)
