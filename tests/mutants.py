"""Planted bugs: what a simulation and a run of chaos must find, applied by the tests themselves."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec

from rowlock import lifecycle
from rowlock.ids import new_id
from rowlock.job import Job, JobError, Lease
from rowlock.lifecycle import Crashed, Failed, Held, Lost, Outcome, Succeeded
from rowlock.store import NewJob, Settlement, statements
from rowlock.store.blocks import Conclusion
from rowlock.store.ops import (
    bulk,
    enqueue,
    finish,
    manage,
    recover,
    rooms,
    settle,
    waiting,
    workflow_manage,
    workflows,
)
from rowlock.store.ops.claim import Floor, Lane
from rowlock.store.ops.settle import Settled
from rowlock.store.postgres.engine import PostgresEngine
from rowlock.store.rotation import Alive, Rotation, Turn, WaitingRoom, Walk
from rowlock.store.statements import Dialect
from rowlock.store.steps import Begin, Commit, Op, Steps, writing
from rowlock.worker import runner
from rowlock.worker.claims import Claimer, Leased
from rowlock.worker.engine import WorkerEngine
from rowlock.worker.job_blocks import JobBlock
from rowlock.worker.progress import AsyncProgressWriter, BlockingProgressWriter
from rowlock.worker.report import RunSettlement
from rowlock.worker.run import Run
from rowlock.worker.settler import Settler
from rowlock.worker.shared_memory import HeldBlock

# Old text and new.
Change = tuple[str, str]
Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def _with_sql(
    sqlite: Mapping[str, Change] | None = None, postgres: Mapping[str, Change] | None = None
) -> Iterator[None]:
    """Statements with some of their text replaced."""
    with ExitStack() as stack:
        for dialect, changes in ((Dialect.SQLITE, sqlite), (Dialect.POSTGRES, postgres)):
            texts = statements._texts(dialect)
            for name, (old, _) in (changes or {}).items():
                assert old in texts[name], f"{name} of {dialect} has no {old!r} any more"
            changed = {
                name: texts[name].replace(old, new) for name, (old, new) in (changes or {}).items()
            }
            stack.enter_context(mock.patch.dict(texts, changed))
        stack.callback(_forget_texts)
        _forget_texts()
        yield
    _forget_texts()


def _forget_texts() -> None:
    statements.source.cache_clear()
    statements.compiled.cache_clear()


def settle_without_token() -> AbstractContextManager[None]:
    """A success is written whoever holds the job now."""
    fence = ("job.token = ending.token AND ", "")
    fenced = ("        AND job.token = ending.token\n", "")
    bare = ("job.token = :token AND ", "")
    fenced_bare = ("        AND job.token = :token::bigint\n", "")
    return _with_sql(
        {"finish": fence, "finish_held": fence, "finish_bare": bare, "finish_nodes": bare},
        {
            "finish": fenced,
            "finish_held": fenced,
            "finish_bare": fenced_bare,
            "finish_nodes": fenced_bare,
        },
    )


def block_settled_without_token() -> AbstractContextManager[None]:
    """The successes of a block are written whoever holds the jobs now."""
    return _with_sql(
        {"finish_bare": ("job.token = :token AND ", "")},
        {"finish_bare": ("        AND job.token = :token::bigint\n", "")},
    )


class _Unseen:
    """A block's slots, which say that a run has begun when it is over."""

    def __init__(self, held: HeldBlock) -> None:
        self._held = held
        self.is_revoked = held.is_revoked
        self.drop = held.drop

    def start(self, number: int) -> bool:
        return not self.is_revoked()

    def end(self, number: int) -> None:
        self._held.start(number)
        self._held.end(number)

    def part(self, number: int, lease: Lease) -> None:
        self._held.start(number)
        self._held.part(number, lease)


@contextmanager
def block_starts_unseen() -> Iterator[None]:
    """A job of a block is called before its slot says so."""
    make = JobBlock.__init__

    def make_unseen(block: JobBlock, claimed: Any, task: Any, held: HeldBlock) -> None:
        make(block, claimed, task, _Unseen(held))

    with mock.patch.object(JobBlock, "__init__", make_unseen):
        yield


def sweep_ignores_expiry() -> AbstractContextManager[None]:
    """The sweep takes whatever is leased."""
    leased = "job.lease_expires_at IS NOT NULL"
    indexed = "job.indexed_lease IS NOT NULL"
    return _with_sql(
        {
            "look_expired": ("job.lease_expires_at <= {now}", leased),
            "lock_expired": ("job.lease_expires_at <= {now} - :older_than", leased),
        },
        {
            "look_expired": ("job.indexed_lease <= (SELECT {now})", indexed),
            "lock_expired": (
                "job.indexed_lease <= (SELECT {now}) - :older_than::bigint",
                indexed,
            ),
        },
    )


def recovery_misses_claims() -> AbstractContextManager[None]:
    """Recovery looks at leases in the index only, not at those that claims have noted."""
    stretch = ("        ORDER BY claim.until\n        OFFSET 0", "        LIMIT 0")
    return _with_sql(None, {"look_expired": stretch, "lock_expired": stretch})


@contextmanager
def claim_forgotten_early() -> Iterator[None]:
    """The first of a claim's jobs that succeeds removes its note."""

    def forget(leases: Sequence[Lease]) -> list[str]:
        return sorted({lease.claim.id for lease in leases if lease.claim is not None})

    with mock.patch.object(settle, "claims_over", forget):
        yield


def claim_ignores_run_at() -> AbstractContextManager[None]:
    """What waits for its time is claimed with its neighbours."""
    early = ("due.run_at <= {now}", "due.run_at <= {now} + 30000000")
    soon = ("run_at <= (SELECT now FROM clock)", "run_at <= (SELECT now FROM clock) + 30000000")
    claims = ("claim", "claim_block", "claim_mixed")
    return _with_sql(dict.fromkeys(claims, early), dict.fromkeys(claims, soon))


def beat_without_token() -> AbstractContextManager[None]:
    """A beat keeps a lease alive that is another's."""
    return _with_sql(
        {"heartbeat": ("id = :id AND token = :token AND", "id = :id AND")},
        {"heartbeat": ("    AND job.token = held.token\n", "")},
    )


def given_ids_start_afresh() -> AbstractContextManager[None]:
    """A job that has the id of a deleted one has the same tokens."""
    return _with_sql({"enqueue": ("CASE WHEN :is_given THEN {now} ELSE 0 END", "0")})


def claim_keeps_token() -> AbstractContextManager[None]:
    """The token does not grow: a run can't be told from the one before it."""
    first = ("token = job.token + 1,", "token = greatest(job.token, 1),")
    same = ("token = token + 1,", "token = max(token, 1),")
    return _with_sql(
        {"claim": same, "claim_block": same},
        dict.fromkeys(("claim", "claim_block", "claim_mixed"), first),
    )


def claim_without_lock() -> AbstractContextManager[None]:
    """Two workers that look at the same moment take the same job."""
    return _with_sql(
        None,
        {
            "claim": ("    FOR UPDATE SKIP LOCKED\n", ""),
            "claim_block": ("    FOR UPDATE SKIP LOCKED\n", ""),
            "claim_mixed": ("    FOR UPDATE OF job SKIP LOCKED\n", ""),
        },
    )


def claim_not_counted() -> AbstractContextManager[None]:
    """A claim is no attempt."""
    counted = ("attempt = job.attempt + 1,", "attempt = greatest(job.attempt, 1),")
    once = ("attempt = attempt + 1,", "attempt = max(attempt, 1),")
    claims = ("claim", "claim_block", "claim_mixed")
    return _with_sql(dict.fromkeys(claims, once), dict.fromkeys(claims, counted))


def tick_fired_by_all() -> AbstractContextManager[None]:
    """Every scheduler that sees a due tick fires it."""
    return _with_sql(
        None,
        {
            "due_schedules": ("FOR UPDATE OF schedule SKIP LOCKED\n", ""),
            "advance_schedules": ("    AND schedule.next_at = fresh.expected_at\n", ""),
        },
    )


@contextmanager
def clock_of_the_worker() -> Iterator[None]:
    """The worker's own clock decides."""

    def now(_: PostgresEngine) -> int:
        return time.time_ns() // 1000

    with mock.patch.object(PostgresEngine, "now", now):
        yield


@contextmanager
def settle_given_up() -> Iterator[None]:
    """An outcome that can't be written at once is forgotten."""
    write = Settler._write

    async def write_once(settler: Settler, batch: list[Settlement], **rest: Any) -> None:
        async def give_up(error: Exception) -> None:
            raise _GivenUpError from error

        with mock.patch.object(settler._trouble, "wait", give_up):
            try:
                await write(settler, batch, **rest)
            except _GivenUpError:
                settler._writing -= len(batch)

    with mock.patch.object(Settler, "_write", write_once):
        yield


class _GivenUpError(Exception):
    pass


@contextmanager
def resend_under_another_id() -> Iterator[None]:
    """An enqueue whose answer was lost is repeated as another job."""
    again = enqueue._enqueue

    def enqueue_anew(jobs: Sequence[NewJob], *words: Any, is_resend: bool, **rest: Any) -> Any:
        if is_resend:
            jobs = [job._replace(id=new_id()) for job in jobs]
        return again(jobs, *words, is_resend=is_resend, **rest)

    with mock.patch.object(enqueue, "_enqueue", enqueue_anew):
        yield


@contextmanager
def follow_ups_of_the_lost() -> Iterator[None]:
    """The follow-up jobs of a settle that was refused are enqueued all the same."""
    follow = settle._enqueue_follow_ups

    def follow_all(settlements: Sequence[Settlement], done: set[str]) -> Steps[list[Job]]:
        return (yield from follow(settlements, {each.lease.id for each in settlements}))

    with mock.patch.object(settle, "_enqueue_follow_ups", follow_all):
        yield


@contextmanager
def cancel_not_written() -> Iterator[None]:
    """Whoever cancels a waiting job is told that it is, and it is not."""

    def pretend(_: Any) -> Steps[set[str]]:
        return set()
        yield

    with mock.patch.object(manage, "finish_waiting", pretend):
        yield


@contextmanager
def block_ignores_a_lost_lease() -> Iterator[None]:
    """What a handler wrote in `ctx.transaction()` is committed, whoever holds the job now."""
    op = Conclusion.op

    def commit_anyway(conclusion: Conclusion) -> Op[Settled]:
        def steps() -> Steps[Settled]:
            yield from op(conclusion).start()
            return Settled()

        return writing("conclude", steps)

    with mock.patch.object(Conclusion, "op", commit_anyway):
        yield


@contextmanager
def settle_early() -> Iterator[None]:
    """A job is acknowledged when it starts."""
    start = WorkerEngine._start

    def start_and_settle(engine: WorkerEngine, run: Run) -> None:
        start(engine, run)
        engine.settler.put(RunSettlement(run.lease, Succeeded(), seconds=0.0))

    with mock.patch.object(WorkerEngine, "_start", start_and_settle):
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
        claimer._view = msgspec.structs.replace(claimer._view, lanes=lanes)

    async def claim_above(claimer: Claimer, *words: Any) -> Leased:
        leased = await claim(claimer, *words)
        cursor = cursors.setdefault(claimer, {})
        for row in (lease.row for lease in leased.one_by_one() if lease.row is not None):
            lane = (row.queue, row.rank, row.kind)
            cursor[lane] = max(cursor.get(lane, (0, "")), (row.run_at, row.id))
        return leased

    with (
        mock.patch.object(Claimer, "_look", look_above),
        mock.patch.object(Claimer, "_claim_seen", claim_above),
    ):
        yield


def _raised(lane: Lane, cursor: Mapping[tuple[str, int, str], Floor]) -> Lane:
    return msgspec.structs.replace(
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
    lose = WorkerEngine.lose

    def lose_running(engine: WorkerEngine, id: str, token: int) -> None:
        if (id, token) in engine._running:
            lose(engine, id, token)

    with mock.patch.object(WorkerEngine, "lose", lose_running):
        yield


@contextmanager
def success_dropped_with_last_words() -> Iterator[None]:
    """A cancel that comes while the last lines are written goes past the outcome."""

    async def flush_last(
        _: Run,
        __: AsyncProgressWriter | BlockingProgressWriter,
        flush: Callable[[], Awaitable[object]],
    ) -> None:
        await flush()

    with mock.patch.object(runner, "_flush_last", flush_last):
        yield


@contextmanager
def handler_before_its_mark() -> Iterator[None]:
    """A handler that may run once is called before it is written that it has begun."""

    async def mark(_: WorkerEngine, __: Run) -> bool:
        return True

    with mock.patch.object(WorkerEngine, "_mark", mark):
        yield


@contextmanager
def loss_without_a_trace() -> Iterator[None]:
    """A lease that was lost is not written into the job's errors."""
    error_of = lifecycle._error_of

    def forgetful(held: Held, outcome: Outcome, now: int) -> JobError | None:
        return None if isinstance(outcome, Lost) else error_of(held, outcome, now)

    with mock.patch.object(lifecycle, "_error_of", forgetful):
        yield


@contextmanager
def bystanders_are_blamed() -> Iterator[None]:
    """A crash counts as an attempt of every job that ran in the process."""
    cut_short = lifecycle._cut_short

    def blame(held: Held, outcome: Any, now: int) -> lifecycle.Transition:
        if isinstance(outcome, Crashed):
            outcome = replace(outcome, alone=True)
        return cut_short(held, outcome, now)

    with mock.patch.object(lifecycle, "_cut_short", blame):
        yield


def claim_is_the_beginning() -> AbstractContextManager[None]:
    """What a worker claims counts as begun, also if it never was."""
    claims = ("claim", "claim_block", "claim_mixed")
    changes = dict.fromkeys(claims, ("begun = :begun", "begun = 1"))
    first = dict.fromkeys(claims, ("begun = :begun::boolean", "begun = true"))
    return _with_sql(changes, first)


def limit_locked_and_counted_at_once() -> AbstractContextManager[None]:
    """What runs is counted by the statement that takes the locks: it can't see the last holder."""
    counted = ("counted.concurrency - cardinality", "NULL::bigint - cardinality")
    return _with_sql(None, {"take_room": counted})


def limit_counted_without_a_lock() -> AbstractContextManager[None]:
    """Two claimers count at the same moment, and both find room."""
    locked = ("ELSE pg_try_advisory_xact_lock", "ELSE true OR pg_try_advisory_xact_lock")
    return _with_sql(None, {"walk_room": locked})


@contextmanager
def floor_above_a_living_turn() -> Iterator[None]:
    """What a claimer has just started is below the floor from which it counts next time."""

    def too_high(_: Sequence[int], turns: Sequence[int], **__: Any) -> Alive:
        return Alive(max(turns))

    with (
        mock.patch.object(rooms, "still_alive", too_high),
        mock.patch.object(Rotation, "is_slow", return_value=True),
    ):
        yield


def retry_outside_its_room() -> AbstractContextManager[None]:
    """A job that is given back waits in its lane, where nobody asks for its limit."""
    return _with_sql(
        {"give_back": ("WHEN limit_name IS NULL THEN NULL", "WHEN true THEN NULL")},
        {"give_back": ("WHEN job.limit_name IS NULL THEN NULL", "WHEN true THEN NULL")},
    )


@contextmanager
def rate_moved_later() -> Iterator[None]:
    """The leases are committed before the rate knows of them."""
    spend = rooms._spend

    def spend_later(*words: Any) -> Steps[None]:
        yield Commit()
        yield Begin()
        yield from spend(*words)

    with mock.patch.object(rooms, "_spend", spend_later):
        yield


@contextmanager
def rate_not_moved() -> Iterator[None]:
    """A start leaves no trace in its rate."""

    def nothing(*_: Any) -> Steps[None]:
        return
        yield

    with mock.patch.object(rooms, "_spend", nothing):
        yield


@contextmanager
def walk_never_wraps() -> Iterator[None]:
    """A walk ends with the last key, and the next one begins there again."""

    walk = rooms._walk

    def walk_on(room: WaitingRoom, turn: Turn, *words: Any) -> Steps[Walk]:
        seen = yield from walk(room, turn, *words)
        return seen._replace(keys=[key for key in seen.keys if key.key >= turn.start])

    with mock.patch.object(rooms, "_walk", walk_on):
        yield


def released_by_looking() -> AbstractContextManager[None]:
    """A child is released by whoever sees no living parent, instead of by its count."""
    living = (
        "EXISTS (SELECT 1 FROM {job} AS parent JOIN {edge} AS own ON own.parent = parent.id "
        "WHERE own.child = {child}.id AND parent.id NOT IN ({gone}))"
    )
    sqlite = living.format(
        job="rowlock_job",
        edge="rowlock_edge",
        child="child",
        gone="SELECT ending.id FROM ending",
    )
    postgres = living.format(
        job="rowlock.job", edge="rowlock.edge", child="job", gone="SELECT gone.id FROM gone"
    )
    return _with_sql(
        {"finish_nodes": ("child.pending > met.number", sqlite)},
        {"finish_nodes": ("job.pending > met.number", postgres)},
    )


def needed_parent_pruned() -> AbstractContextManager[None]:
    """A result is removed when its own time is over, though others may need it."""
    guard = ("OR NOT EXISTS (", "OR true OR NOT EXISTS (")
    forever = "+ 253000000000000000 END"
    return _with_sql(
        {"expired": guard, "finish_nodes": (forever, "+ {now} END")},
        {"expired": guard, "finish_nodes": (forever, "+ clock.now END")},
    )


def result_not_kept() -> AbstractContextManager[None]:
    """A job of a workflow that keeps nothing is removed at once, with its result."""
    return _with_sql(
        {"finish_nodes": ("\nON CONFLICT", " AND :keep <> 0\nON CONFLICT")},
        {"finish_nodes": ("FROM gone, clock\n", "FROM gone, clock WHERE :keep::bigint <> 0\n")},
    )


def workflow_begun_unseen() -> AbstractContextManager[None]:
    """A success does not notice that a workflow waits for its job since it was claimed."""
    bare = ("        AND job.workflow IS NULL\n", "")
    return _with_sql(
        {
            "finish": ("{steps? | AND job.workflow IS NULL}", ""),
            "finish_bare": (" AND job.workflow IS NULL", ""),
        },
        {
            "finish": ("CASE WHEN job.workflow IS NULL THEN true END", "true"),
            "finish_bare": bare,
        },
    )


def success_is_any_end() -> AbstractContextManager[None]:
    """A success counts for what waits for a death."""
    return _with_sql(
        {"finish_nodes": ("AND job.watched IS NULL", "")},
        {"finish_nodes": ("AND job.watched IS NULL", "")},
    )


def _quietly(steps: Steps[Any]) -> Steps[Any]:
    """The same steps, but what waits for the jobs that they end does not learn of it."""

    def nothing(*_: Any) -> Steps[None]:
        return
        yield

    answer: Any = None
    while True:
        with mock.patch.object(finish, "_consequences", nothing):
            try:
                wanted = steps.send(answer)
            except StopIteration as over:
                return over.value
        answer = yield wanted


@contextmanager
def _forgetful(
    *paths: tuple[Any, str], wants: Callable[..., bool] = lambda *_, **__: True
) -> Iterator[None]:
    """Paths on which jobs end, and nobody else learns of it, if `wants` says so."""

    def made(act: Callable[..., Steps[Any]]) -> Callable[..., Steps[Any]]:
        def forgetful(*words: Any, **options: Any) -> Steps[Any]:
            steps = act(*words, **options)
            return _quietly(steps) if wants(*words, **options) else steps

        return forgetful

    with ExitStack() as stack:
        for module, name in paths:
            stack.enter_context(mock.patch.object(module, name, made(getattr(module, name))))
        yield


def recovery_forgets_children() -> AbstractContextManager[None]:
    """A job that ends because its lease was lost leaves those waiting that wait for it."""
    return _forgetful((recover, "apply"))


def cancel_forgets_children() -> AbstractContextManager[None]:
    """A cancel leaves those waiting that wait for the job."""
    return _forgetful((manage, "finish_waiting"))


def bulk_forgets_children() -> AbstractContextManager[None]:
    """A cancel of many leaves those waiting that wait for the jobs."""
    return _forgetful((bulk, "finish_waiting"))


def workflow_cancel_forgets_children() -> AbstractContextManager[None]:
    """A cancel of a workflow leaves those waiting that wait for its jobs in others."""
    return _forgetful((workflow_manage, "finish_within"))


def crash_forgets_children() -> AbstractContextManager[None]:
    """A job that is given up as poison leaves those waiting that wait for it."""

    def has_crash(slow: Sequence[Settlement], *_: Any) -> bool:
        return any(isinstance(each.outcome, Crashed) for each in slow)

    return _forgetful((settle, "_settle_slowly"), wants=has_crash)


def death_forgets_children() -> AbstractContextManager[None]:
    """A failure for good leaves those waiting that wait for the job."""

    def has_failure(slow: Sequence[Settlement], *_: Any) -> bool:
        return any(isinstance(each.outcome, Failed) for each in slow)

    return _forgetful((settle, "_settle_slowly"), wants=has_failure)


def tenants_forget_children() -> AbstractContextManager[None]:
    """What a tenant's worker settles over HTTP leaves those waiting that wait for the jobs."""

    def is_theirs(_: object, __: object, tenant: str | None) -> bool:
        return tenant is not None

    return _forgetful((settle, "_settle_own"), wants=is_theirs)


def prune_forgets_children() -> AbstractContextManager[None]:
    """A dead job that is removed leaves those waiting that wait for its retry."""
    return _forgetful((manage, "removed"))


def delete_forgets_children() -> AbstractContextManager[None]:
    """A job that is deleted leaves those waiting that wait for it."""
    return _forgetful((waiting, "removed"))


@contextmanager
def retry_forgets_parents() -> Iterator[None]:
    """A job that is retried runs at once, whatever it should wait for."""

    def nothing(_: object) -> Steps[None]:
        return
        yield

    with mock.patch.object(waiting, "_wait_again", nothing):
        yield


@contextmanager
def growth_forgets_children() -> Iterator[None]:
    """What waits for a job that adds others does not wait for these."""

    def nothing(*_: Any) -> Steps[list[Any]]:
        return []
        yield

    with mock.patch.object(workflows, "_wait_for_sinks", nothing):
        yield


# Those that a simulation on SQLite can find.
SIMULATED: dict[str, Mutant] = {
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
    "handler before its mark": handler_before_its_mark,
    "loss without a trace": loss_without_a_trace,
    "claim is the beginning": claim_is_the_beginning,
    "block settled without token": block_settled_without_token,
    "block starts unseen": block_starts_unseen,
    "retry outside its room": retry_outside_its_room,
    "rate moved later": rate_moved_later,
    "rate not moved": rate_not_moved,
    "walk never wraps": walk_never_wraps,
}
# Those that the model of workflows finds, too.
WORKFLOW_MUTANTS: dict[str, Mutant] = {
    "released by looking": released_by_looking,
    "needed parent pruned": needed_parent_pruned,
    "result not kept": result_not_kept,
    "workflow begun unseen": workflow_begun_unseen,
    "success is any end": success_is_any_end,
    "recovery forgets children": recovery_forgets_children,
    "cancel forgets children": cancel_forgets_children,
    "bulk forgets children": bulk_forgets_children,
    "workflow cancel forgets children": workflow_cancel_forgets_children,
    "crash forgets children": crash_forgets_children,
    "death forgets children": death_forgets_children,
    "tenants forget children": tenants_forget_children,
    "prune forgets children": prune_forgets_children,
    "delete forgets children": delete_forgets_children,
    "retry forgets parents": retry_forgets_parents,
    "growth forgets children": growth_forgets_children,
}
# Too few jobs of the simulation are waited for in that way, and succeed by the quick statement.
SIMULATED |= {
    name: mutant for name, mutant in WORKFLOW_MUTANTS.items() if name != "success is any end"
}
MUTANTS: dict[str, Mutant] = {
    **SIMULATED,
    **WORKFLOW_MUTANTS,
    "recovery misses claims": recovery_misses_claims,
    "claim forgotten early": claim_forgotten_early,
    "claim without lock": claim_without_lock,
    "claim not counted": claim_not_counted,
    "tick fired by all": tick_fired_by_all,
    "clock of the worker": clock_of_the_worker,
    "settle given up": settle_given_up,
    "resend under another id": resend_under_another_id,
    "follow-ups of the lost": follow_ups_of_the_lost,
    "cancel not written": cancel_not_written,
    "block ignores a lost lease": block_ignores_a_lost_lease,
    "bystanders are blamed": bystanders_are_blamed,
    "limit locked and counted at once": limit_locked_and_counted_at_once,
    "limit counted without a lock": limit_counted_without_a_lock,
    "floor above a living turn": floor_above_a_living_turn,
}
# What this process was given for good.
_planted = ExitStack()


def plant(name: str) -> None:
    """Have a bug in this process from now on."""
    _planted.enter_context(MUTANTS[name]())
