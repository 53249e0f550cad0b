"""Enqueue jobs once a SQLAlchemy session has committed, for a queue in another database.

If the session is on the queue's own database, use `task.using(conn=session)` instead: then the job
is part of the transaction. Here it is written right after the commit, so it is lost if the process
crashes in that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from rowlock.app import App
from rowlock.errors import OptionInvalid, RowlockError
from rowlock.store import NewJob

if TYPE_CHECKING:
    AnySession: TypeAlias = (
        Session | AsyncSession | scoped_session[Session] | async_scoped_session[AsyncSession]
    )

_PLACE = "rowlock.after_commit"
_Send: TypeAlias = Callable[[App, Sequence[NewJob]], object]


def after_commit(session: AnySession, queue: App, *jobs: NewJob) -> None:
    """Enqueue jobs once the session's transaction has committed, and not if it is rolled back.

    Jobs are checked now and written together after the commit. Jobs that were added inside a
    savepoint are dropped if it is rolled back. If the queue can't be reached, `commit()` raises,
    although the session's own writes are committed and jobs of other queues are sent. The ids stay,
    so you can send the same jobs again with `queue.enqueue_many`.

    Args:
        session: A `Session` or `AsyncSession`, or a scoped one.
        queue: The app that gets the jobs.
        jobs: `task.job(...)`, or `task.using(...).job(...)`.

    Example:
        session.add(order)
        after_commit(session, queue, confirm.job(number=order.number))
        session.commit()
    """
    for job in jobs:
        if not isinstance(job, NewJob):
            raise OptionInvalid("jobs", f"must be task.job(...), not {type(job).__name__}")
    own, send = _parts(session)
    if _PLACE not in own.info:
        own.info[_PLACE] = _Pending(own, send)
    own.info[_PLACE].note(queue, jobs)


def _parts(session: object) -> tuple[Session, _Send]:
    if isinstance(session, scoped_session | async_scoped_session):
        session = session()
    if isinstance(session, AsyncSession):
        return session.sync_session, _asend
    if isinstance(session, Session):
        return session, _send
    raise OptionInvalid("session", f"must be a session of SQLAlchemy, not {type(session).__name__}")


def _send(queue: App, jobs: Sequence[NewJob]) -> object:
    return queue.enqueue_many(jobs)


def _asend(queue: App, jobs: Sequence[NewJob]) -> object:
    # The commit of an AsyncSession runs in a greenlet, from which its loop can be awaited.
    return await_only(queue.aenqueue_many(jobs))


@dataclass(frozen=True, slots=True)
class _Noted:
    """A job that was added in a transaction, or in a savepoint of it."""

    queue: App
    job: NewJob
    transaction: SessionTransaction


@dataclass(slots=True, eq=False)
class _Pending:
    """The jobs that wait for a session's commit. Its listeners live as long as the session."""

    session: Session
    send: _Send
    noted: list[_Noted] = field(default_factory=list)
    committed: list[_Noted] = field(default_factory=list)

    def __post_init__(self) -> None:
        event.listen(self.session, "after_commit", self._after_commit)
        event.listen(self.session, "after_soft_rollback", self._after_rollback)
        event.listen(self.session, "after_transaction_end", self._after_end)

    def note(self, queue: App, jobs: Sequence[NewJob]) -> None:
        transaction = self.session.get_nested_transaction() or self.session.get_transaction()
        if transaction is None:
            # As the first statement would do.
            transaction = self.session.begin()
        self.noted += [_Noted(queue, job, transaction) for job in jobs]

    def _after_commit(self, session: Session) -> None:
        # Also called when a savepoint is released. Then the outer transaction still decides.
        if not session.in_nested_transaction():
            self.committed, self.noted = self.noted, []

    def _after_rollback(self, session: Session, transaction: SessionTransaction) -> None:
        self.noted = [each for each in self.noted if not _is_within(each, transaction)]

    def _after_end(self, session: Session, transaction: SessionTransaction) -> None:
        """Send the jobs. In `after_commit`, the session would still be in its commit."""
        if transaction.parent is None:
            self.noted = []
            committed, self.committed = self.committed, []
            self._enqueue(committed)

    def _enqueue(self, committed: list[_Noted]) -> None:
        by_queue: dict[int, tuple[App, list[Any]]] = {}
        for each in committed:
            by_queue.setdefault(id(each.queue), (each.queue, []))[1].append(each.job)
        failed: list[RowlockError] = []
        for queue, jobs in by_queue.values():
            try:
                self.send(queue, jobs)
            except RowlockError as error:
                failed.append(error)
        # Raised after all other queues have their jobs.
        for other in failed[1:]:
            failed[0].add_note(f"another queue failed, too: {other}")
        if failed:
            raise failed[0]


def _is_within(noted: _Noted, transaction: SessionTransaction) -> bool:
    """Return whether a job belongs to a transaction, directly or by a released savepoint."""
    inner: SessionTransaction | None = noted.transaction
    while inner is not None:
        if inner is transaction:
            return True
        inner = inner.parent
    return False
