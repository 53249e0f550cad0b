"""The block of `ctx.transaction()`: what a handler writes, and its job's success, as one.

1. A run commits at most one block. After that it is settled, and is not settled again.
2. While a block concludes, a heartbeat that finds the lease lost does nothing: the settle will.
3. Progress and log lines from inside the block are written with it, or after it was undone.
4. Once the COMMIT is answered nothing raises: a handler that gets an error may undo elsewhere what
   is committed here.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Coroutine
from types import TracebackType
from typing import TypeVar

from rowlock.context import Context, Transaction
from rowlock.errors import InvalidTransition
from rowlock.interrupts import shielded
from rowlock.lifecycle import Succeeded
from rowlock.store import Settlement
from rowlock.store.blocks import AsyncBlock, Block, Blocks, Conclusion
from rowlock.store.ops import hold
from rowlock.store.ops.settle import Settled
from rowlock.store.steps import Op
from rowlock.worker.progress import PausableProgress, Unwritten
from rowlock.worker.run import Run, success

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("rowlock.worker")


class RunBlock:
    """A `TransactionBlock` of one run."""

    def __init__(
        self, run: Run, context: Context, *, notes: PausableProgress, blocks: Blocks
    ) -> None:
        self._run = run
        self._context = context
        self._notes = notes
        self._blocks = blocks
        self._transaction: Transaction | None = None
        self._block: Block | None = None
        self._ablock: AsyncBlock | None = None

    # In a plain function

    def __enter__(self) -> Transaction:
        self._check(is_async=False)
        try:
            with shielded(raises=False):
                if self._blocks.is_only_writer:
                    self._notes.hold()
                self._block = self._blocks.block()
                return self._open(self._block.begin())
        except BaseException:
            if self._run.block is self:
                self.abandon()
            self._notes.let_go()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._block is not None
        with shielded(raises=False):
            transaction = self._close()
            try:
                if error is not None:
                    self._block.undo()
                    _raise_overdue(self._block, error)
                    return
                self._conclude(self._block, transaction)
            finally:
                self._notes.let_go()

    def abandon(self) -> None:
        """Undo it: its function has ended, or goes on, without it."""
        assert self._block is not None
        with shielded(raises=False):
            self._close()
            try:
                self._block.undo()
            finally:
                self._notes.let_go()

    def _conclude(self, block: Block, transaction: Transaction) -> None:
        try:
            succeeded = success(transaction.result)
            conclusion = self._conclusion(succeeded, self._notes.gather())
        except BaseException:
            block.undo()
            raise
        self._run.is_settling = True
        try:
            block.conclude(conclusion)
        except BaseException:
            self._run.is_settling = False
            raise
        self._on_committed(succeeded)

    # In a coroutine

    async def __aenter__(self) -> Transaction:
        self._check(is_async=True)
        try:
            if self._blocks.is_only_writer:
                await self._notes.ahold()
            self._ablock = self._blocks.ablock()
            return self._open(await self._ablock.begin())
        except BaseException:
            self._notes.let_go()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._ablock is not None
        transaction = self._close()
        try:
            if error is not None:
                await _undisturbed(self._ablock.undo())
                _raise_overdue(self._ablock, error)
                return
            await _undisturbed(self._aconclude(self._ablock, transaction))
        finally:
            self._notes.let_go()

    async def _aconclude(self, block: AsyncBlock, transaction: Transaction) -> None:
        try:
            succeeded = success(transaction.result)
            conclusion = self._conclusion(succeeded, await self._notes.agather())
        except BaseException:
            await block.undo()
            raise
        self._run.is_settling = True
        try:
            await block.conclude(conclusion)
        except BaseException:
            self._run.is_settling = False
            raise
        self._on_committed(succeeded)

    # In both

    def _check(self, *, is_async: bool) -> None:
        if is_async is not self._run.task.is_async:
            right = "`async with`" if self._run.task.is_async else "`with`"
            what = "a coroutine" if self._run.task.is_async else "a plain function"
            raise TypeError(f"{self._run.task.name} is {what}: write {right} ctx.transaction()")
        if self._run.is_settled:
            raise InvalidTransition(
                self._run.lease.id,
                "its run has committed a block of ctx.transaction(), and is settled by it: "
                "a run has one",
            )
        if self._run.block is not None:
            raise InvalidTransition(
                self._run.lease.id, "a block of ctx.transaction() is open already"
            )

    def _open(self, connection: object) -> Transaction:
        self._run.block = self
        self._transaction = Transaction(self._run.lease.id, connection)
        return self._transaction

    def _close(self) -> Transaction:
        assert self._transaction is not None
        self._run.block = None
        self._transaction.end()
        return self._transaction

    def _conclusion(self, succeeded: Succeeded, held: Unwritten) -> Conclusion:
        settlement = Settlement(
            self._run.lease, succeeded, self._context.follow_ups, self._context.growth
        )
        return Conclusion(settlement, self._note_ops(held))

    def _note_ops(self, held: Unwritten) -> list[Op[Settled]]:
        lease = self._run.lease
        ops: list[Op[Settled]] = []
        if held.progress is not None:
            fraction, text = held.progress
            ops.append(hold.progress(lease, fraction=fraction, text=text))
        if held.lines:
            ops.append(hold.log(lease, held.lines))
        return ops

    def _on_committed(self, succeeded: Succeeded) -> None:
        self._notes.end()
        self._run.settled(succeeded)


def _raise_overdue(block: Block | AsyncBlock, error: BaseException) -> None:
    """Say so if a statement failed because the block was undone. Other errors stay."""
    if block.overdue is not None and isinstance(error, sqlite3.Error):
        raise block.overdue from error


async def _undisturbed(work: Coroutine[None, None, T]) -> T:
    """Run work to its end that must not be cancelled halfway. A cancellation is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()
