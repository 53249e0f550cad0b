"""Planted bugs: what a simulation must find, applied by the test itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from rowlock.job import Lease
from rowlock.lifecycle import Held, Succeeded
from rowlock.store import text
from rowlock.store.ops import enqueue, recover, settle
from rowlock.store.ops.claim import Floor, Lane
from rowlock.store.steps import Steps
from rowlock.store.text import Dialect
from rowlock.worker import runner
from rowlock.worker.claimer import Claimer
from rowlock.worker.engine import Engine
from rowlock.worker.notes import LoopNotes
from rowlock.worker.report import RunSettlement
from rowlock.worker.run import Run

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def _with_sql(changes: Mapping[str, tuple[str, str]]) -> Iterator[None]:
    """Statements of SQLite with some of their text replaced."""
    texts = text._texts(Dialect.SQLITE)
    for name, (old, _) in changes.items():
        assert old in texts[name], f"{name} has no {old!r} any more"
    changed = {name: texts[name].replace(old, new) for name, (old, new) in changes.items()}
    with mock.patch.dict(texts, changed):
        _forget_texts()
        try:
            yield
        finally:
            _forget_texts()
    _forget_texts()


def _forget_texts() -> None:
    text.source.cache_clear()
    text.compiled.cache_clear()


def settle_without_token() -> AbstractContextManager[None]:
    """A success is written whoever holds the job now."""
    fence = "job.token = ending.token AND "
    return _with_sql({"finish": (fence, ""), "finish_held": (fence, "")})


def sweep_ignores_expiry() -> AbstractContextManager[None]:
    """The sweep takes whatever is leased."""
    return _with_sql(
        {
            "look_expired": ("job.lease_expires_at <= {now}", "job.lease_expires_at IS NOT NULL"),
            "lock_expired": (
                "job.lease_expires_at <= {now} - :older_than",
                "job.lease_expires_at IS NOT NULL",
            ),
        }
    )


def claim_ignores_run_at() -> AbstractContextManager[None]:
    """What waits for its time is claimed with its neighbours."""
    early = ("due.run_at <= {now}", "due.run_at <= {now} + 30000000")
    return _with_sql({"claim": early, "claim_mixed": early})


def beat_without_token() -> AbstractContextManager[None]:
    """A beat keeps a lease alive that is another's."""
    return _with_sql({"heartbeat": ("id = :id AND token = :token AND", "id = :id AND")})


def given_ids_start_afresh() -> AbstractContextManager[None]:
    """A job that has the id of a deleted one has the same tokens."""
    return _with_sql({"enqueue": ("CASE WHEN :is_given THEN {now} ELSE 0 END", "0")})


def claim_keeps_token() -> AbstractContextManager[None]:
    """The token does not grow: a run can't be told from the one before it."""
    return _with_sql({"claim": ("token = token + 1,", "token = max(token, 1),")})


@contextmanager
def settle_early() -> Iterator[None]:
    """A job is acknowledged when it starts."""
    start = Engine._start

    def start_and_settle(engine: Engine, run: Run) -> None:
        start(engine, run)
        engine._settler.put(RunSettlement(run.lease, Succeeded(), seconds=0.0))

    with mock.patch.object(Engine, "_start", start_and_settle):
        yield


@contextmanager
def cursor_never_looks_below() -> Iterator[None]:
    """A claimer goes on from where it was, for ever."""
    look, claim = Claimer._look, Claimer._claim_seen
    cursors: dict[Claimer, dict[tuple[str, int, str], Floor]] = {}

    async def look_above(claimer: Claimer) -> None:
        await look(claimer)
        cursor = cursors.setdefault(claimer, {})
        lanes = [_raised(lane, cursor) for lane in claimer._view.lanes]
        claimer._view = replace(claimer._view, lanes=lanes)

    async def claim_above(claimer: Claimer, *words: Any) -> list[Lease]:
        leases = await claim(claimer, *words)
        cursor = cursors.setdefault(claimer, {})
        for row in (lease.row for lease in leases if lease.row is not None):
            lane = (row.queue, row.rank, row.kind)
            cursor[lane] = max(cursor.get(lane, (0, "")), (row.run_at, row.id))
        return leases

    with (
        mock.patch.object(Claimer, "_look", look_above),
        mock.patch.object(Claimer, "_claim_seen", claim_above),
    ):
        yield


def _raised(lane: Lane, cursor: Mapping[tuple[str, int, str], Floor]) -> Lane:
    return replace(
        lane, floor=max(lane.floor, cursor.get((lane.queue, lane.rank, lane.kind), (0, "")))
    )


@contextmanager
def cancel_dropped() -> Iterator[None]:
    """Whoever ends a run does not look whether somebody asked to cancel the job."""
    held_of = settle.held_of

    def blind(job: Any) -> Held:
        return replace(held_of(job), cancel_requested=False)

    with (
        mock.patch.object(settle, "held_of", blind),
        mock.patch.object(recover, "held_of", blind),
    ):
        yield


@contextmanager
def ended_ids_forgotten() -> Iterator[None]:
    """A repeated enqueue looks among live jobs only."""

    def nothing(*_: Any) -> Steps[None]:
        return
        yield

    with mock.patch.object(enqueue, "_yield_to_settled", nothing):
        yield


@contextmanager
def lost_is_started() -> Iterator[None]:
    """A worker that was told of a lost lease starts the job all the same."""
    lose = Engine.lose

    def lose_running(engine: Engine, id: str, token: int) -> None:
        if (id, token) in engine._running:
            lose(engine, id, token)

    with mock.patch.object(Engine, "lose", lose_running):
        yield


@contextmanager
def success_dropped_with_last_words() -> Iterator[None]:
    """A cancel that comes while the last lines are written goes past the outcome."""

    async def flush(_: Run, notes: LoopNotes) -> None:
        await notes.aflush()

    with mock.patch.object(runner, "_flush_last", flush):
        yield


MUTANTS: dict[str, Mutant] = {
    "settle without token": settle_without_token,
    "sweep ignores expiry": sweep_ignores_expiry,
    "early acknowledgement": settle_early,
    "cursor never looks below": cursor_never_looks_below,
    "claim ignores run_at": claim_ignores_run_at,
    "beat without token": beat_without_token,
    "token does not grow": claim_keeps_token,
    "given ids start afresh": given_ids_start_afresh,
    "cancel dropped": cancel_dropped,
    "ended ids forgotten": ended_ids_forgotten,
    "lost is started": lost_is_started,
    "success dropped with last words": success_dropped_with_last_words,
}
