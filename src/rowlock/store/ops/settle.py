"""Settle: end runs, fenced by the tokens of their leases. Works in batches, each lease on its own.

1. A success of a lease that came from a claim needs one statement. Everything else is locked,
   decided by `lifecycle` on the current row (a cancel may have been requested), and applied.
2. The leases that still hold are settled even if others are lost. Then the lost ones are named.
3. A job whose last run ended under this very token was already settled: `InvalidTransition`. A
   repeat after a COMMIT with an unknown result finds just that, and counts it as done.
4. Follow-up jobs are enqueued in the same transaction, and only for leases that were settled as a
   success.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple

from rowlock import codec, config
from rowlock.chance import CHANCE
from rowlock.clock import duration_us
from rowlock.columns import JobRow
from rowlock.errors import InvalidTransition, LeaseLost, OptionInvalid
from rowlock.job import (
    ClaimNote,
    Job,
    JobState,
    Lease,
    Policy,
    bare_lease,
    decode_policy,
)
from rowlock.lifecycle import (
    CancelSeen,
    Crashed,
    Failed,
    Finish,
    Held,
    Outcome,
    Released,
    Return,
    Succeeded,
    Transition,
    decide,
    superseded,
)
from rowlock.store.local_state import LocalState
from rowlock.store.ops.enqueue import enqueue_within
from rowlock.store.ops.finish import (
    REMEMBER_US,
    Ending,
    NodeSuccesses,
    ending_of,
    errors_with,
    finish,
    is_held,
    kept_us,
    success_row,
)
from rowlock.store.ops.limits import FOR_EVER_US, close
from rowlock.store.ops.supersede import find_superseded
from rowlock.store.ops.workflows import Draft, grow
from rowlock.store.options import NewJob
from rowlock.store.steps import Batch, Begin, Op, Ring, Row, Statement, Steps, writing
from rowlock.tally import Ended, RunEnd

GIVE_BACK_COLUMNS = (
    "id",
    "token",
    "taken",
    "run_at",
    "attempt",
    "crashes",
    "losses",
    "interruptions",
    "quarantined",
    "errors",
)


# Neither this class nor its subclasses are frozen: one is made for every run, and a frozen one
# takes three times as long to make.
@dataclass(slots=True)
class Settlement:
    """How one run ended, and the jobs to enqueue if, and only if, it succeeded.

    `growth` are those that are added to its workflow.
    """

    lease: Lease
    outcome: Outcome
    follow_ups: Sequence[NewJob] = ()
    growth: Draft | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of settling runs.

    `ended` are those that were settled now, without plain successes of claimed jobs. `lost` are
    leases that another worker holds, or that are over. `repeated` are leases whose run was settled
    before, under the same token.
    """

    ended: Sequence[Ended] = ()
    lost: Sequence[Lease] = ()
    repeated: Sequence[Lease] = ()

    def raise_if_missed(self) -> None:
        """Raise if a lease could not be settled. The other leases are committed."""
        if self.lost:
            raise LeaseLost(self.lost)
        if self.repeated:
            raise InvalidTransition(self.repeated[0].id, "this run was already settled")


def settle(
    settlements: Sequence[Settlement],
    *,
    chance: random.Random = CHANCE,
    tenant: str | None = None,
) -> Op[Settled]:
    """Record how runs ended. Leases that could not be settled are returned, not raised.

    Args:
        chance: For the jitter of backoffs.
        tenant: Only this tenant's jobs. The leases of others are lost.
    """
    ids = [settlement.lease.id for settlement in settlements]
    if len(set(ids)) != len(ids):
        raise OptionInvalid("leases", "each job may be settled only once per call")
    ordered = sorted(settlements, key=lambda settlement: settlement.lease.id)
    tries = count()
    apart: set[str] = set()

    def steps(*, is_resend: bool) -> Steps[Settled]:
        # A try that lost a race is repeated by the statements that nothing can conflict with.
        may_be_bare = not is_resend and next(tries) == 0
        manner = _Manner(chance, apart, is_resend=is_resend, may_be_bare=may_be_bare)
        return _settle_own(ordered, manner, tenant)

    return writing("settle", lambda: steps(is_resend=False), repeat=lambda: steps(is_resend=True))


class Bare(NamedTuple):
    """Successes without a result, all under one token and kept for the same time."""

    token: int
    keep: int
    ids: list[str]


def settle_bare(bare: Bare, claims: Sequence[ClaimNote] = ()) -> Op[Settled]:
    """Record plain successes of claimed jobs of which no id or key must be remembered.

    As `settle`, without an object per job. It returns the leases that could not be settled.

    Args:
        claims: Notes that have these jobs. Those that have no others are removed.
    """
    bare = bare._replace(ids=sorted(bare.ids))
    ids = set(bare.ids) if claims else set[str]()
    over = [note.id for note in claims if note.open <= ids]
    tries = count()
    done: set[str] = set()

    def steps(*, is_resend: bool) -> Steps[Settled]:
        nonlocal done
        # A try that lost a race is repeated by the statement that nothing can conflict with.
        if next(tries) == 0:
            done |= yield from _finish_bare(bare, over)
            if len(done) == len(bare.ids):
                return Settled()
        left = _left_of(bare, done)
        ended = done | (yield from finish(left, over, apart=done))
        missed = [bare_lease(id, bare.token) for id in bare.ids if id not in ended]
        return (yield from explain_missed(missed, is_resend=is_resend))

    return writing(
        "settle",
        lambda: steps(is_resend=False),
        repeat=lambda: steps(is_resend=True),
    )


def kept_of(policy: Policy) -> int | None:
    """How long a bare success with this policy is kept. None if its id must be remembered after."""
    kept = kept_us(policy.keep)
    return None if 0 <= kept < REMEMBER_US else kept


class _Manner(NamedTuple):
    """How to settle. `chance` is for the jitter of backoffs, `tenant` whom the caller serves.

    `apart`: jobs whose end an earlier try has committed, before the rest of it was undone.
    """

    chance: random.Random
    apart: set[str]
    is_resend: bool = False
    may_be_bare: bool = False
    tenant: str | None = None


def _settle_own(
    settlements: Sequence[Settlement], manner: _Manner, tenant: str | None
) -> Steps[Settled]:
    if not settlements:
        return Settled()
    if tenant is None:
        return (yield from _settle(settlements, manner))
    yield Begin()
    own = yield from owned([settlement.lease.id for settlement in settlements], tenant)
    mine = [each for each in settlements if each.lease.id in own]
    settled = yield from _settle(mine, manner._replace(tenant=tenant))
    foreign = [each.lease for each in settlements if each.lease.id not in own]
    return replace(settled, lost=[*foreign, *settled.lost])


def owned(ids: Sequence[str], tenant: str) -> Steps[set[str]]:
    """Return which of these jobs belong to a tenant, whether they run or have ended."""
    rows = yield Statement("owners", {"ids": list(ids)})
    return {id for id, owner in rows if owner == tenant}


def _settle(settlements: Sequence[Settlement], manner: _Manner) -> Steps[Settled]:
    todo = [each for each in settlements if each.lease.id not in manner.apart]
    swift = [settlement for settlement in todo if _is_swift(settlement)]
    slow = [settlement for settlement in todo if not _is_swift(settlement)]
    bare, others = _without_bare(swift) if manner.may_be_bare else (None, swift)
    nodes, others = _without_nodes(others)
    endings = [_success(settlement) for settlement in others]
    statements = len({ending.is_held for ending in endings}) + len(nodes) + (bare is not None)
    is_one = statements == 1 and not any(ending.is_node for ending in endings)
    is_alone = is_one and not slow and not any(each.follow_ups for each in todo)
    if not is_alone:
        yield Begin()
    claims = claims_over([settlement.lease for settlement in settlements])
    done = set[str]() if bare is None else (yield from _finish_bare(bare, claims))
    if bare is not None and len(done) < len(bare.ids):
        endings += _left_of(bare, done)
        if is_alone:
            manner.apart.update(done)
    done |= yield from finish(
        endings, claims, nodes=nodes, apart=manner.apart if is_alone else None
    )
    ended = (yield from _settle_slowly(slow, manner)) if slow else []
    done |= {each.id for each in ended} | manner.apart
    yield from _enqueue_follow_ups(settlements, done)
    missed = [settlement.lease for settlement in settlements if settlement.lease.id not in done]
    explained = yield from explain_missed(missed, is_resend=manner.is_resend)
    return replace(explained, ended=ended) if ended else explained


def _left_of(bare: Bare, done: set[str]) -> list[Ending]:
    """Bare successes that the quick statement has skipped: lost, or part of a workflow by now."""
    left = [id for id in bare.ids if id not in done]
    return [Ending(success_row(id, bare.token, bare.keep, None), False) for id in left]


def claims_over(leases: Sequence[Lease]) -> list[str]:
    """The ids of noted claims whose last leases are among these, to be removed with their end."""
    counts = Counter(lease.claim for lease in leases)
    ids = {lease.id for lease in leases} if len(counts) > (None in counts) else set[str]()
    return [note.id for note in counts if note is not None and note.open <= ids]


def _is_swift(settlement: Settlement) -> bool:
    """Whether it is a plain success of a claimed job, which no stored value can change."""
    outcome = settlement.outcome
    return (
        isinstance(outcome, Succeeded)
        and outcome.problem is None
        and settlement.lease.row is not None
        and settlement.growth is None
    )


def _success(settlement: Settlement) -> Ending:
    lease, outcome = settlement.lease, settlement.outcome
    job = lease.row
    assert job is not None and isinstance(outcome, Succeeded)
    kept = kept_us(decode_policy(job.policy).keep)
    row = success_row(job.id, job.token, kept, outcome.result)
    return Ending(row, is_held(job, kept), job.workflow is not None)


def _without_bare(swift: Sequence[Settlement]) -> tuple[Bare | None, Sequence[Settlement]]:
    """The largest group of bare successes, nearly always all of a batch, and the others.

    None if it would be a single job. That may be settled in a user's transaction, which a conflict
    would undo.
    """
    kinds = [_bare_kind(settlement) for settlement in swift]
    groups = Counter(kinds)
    del groups[None]
    ((kind, number),) = groups.most_common(1) or [(None, 0)]
    if kind is None or number < 2:
        return None, swift
    pairs = list(zip(swift, kinds, strict=True))
    ids = [settlement.lease.id for settlement, its in pairs if its == kind]
    return Bare(*kind, ids), [settlement for settlement, its in pairs if its != kind]


def _without_nodes(
    swift: Sequence[Settlement],
) -> tuple[NodeSuccesses, Sequence[Settlement]]:
    """The successes in workflows whose consequences are counts alone, and the others."""
    nodes: dict[tuple[int, int], list[tuple[str, str | None]]] = {}
    others: list[Settlement] = []
    for settlement in swift:
        job, outcome = settlement.lease.row, settlement.outcome
        assert job is not None and isinstance(outcome, Succeeded)
        kept = kept_us(decode_policy(job.policy).keep)
        if job.workflow is not None and not is_held(job, kept):
            nodes.setdefault((job.token, kept), []).append((job.id, outcome.result))
        else:
            others.append(settlement)
    return nodes, others


def _bare_kind(settlement: Settlement) -> tuple[int, int] | None:
    """The token of a bare success, and how long it is kept. None if it is another."""
    job, outcome = settlement.lease.row, settlement.outcome
    assert job is not None and isinstance(outcome, Succeeded)
    kept = kept_us(decode_policy(job.policy).keep)
    if outcome.result is not None or job.workflow is not None or is_held(job, kept):
        return None
    return job.token, kept


def _finish_bare(bare: Bare, claims: Sequence[str]) -> Steps[set[str]]:
    values = {**bare._asdict(), "claims": list(claims)}
    done = {row[0] for row in (yield Statement("finish_bare", values))}
    return set(bare.ids) if None in done else done


def _settle_slowly(slow: Sequence[Settlement], manner: _Manner) -> Steps[list[Ended]]:
    by_id = {settlement.lease.id: settlement for settlement in slow}
    rows = yield Statement("lock_leases", {"ids": list(by_id)})
    decided: list[tuple[JobRow, Transition]] = []
    now = 0
    for row in rows:
        job, now = JobRow._make(row[:-2]), row[-1]
        settlement = by_id[job.id]
        if job.lease_expires_at is not None and job.token == settlement.lease.token:
            held = _held_for(job, manner.tenant)
            step = decide(held, settlement.outcome, now=now, chance=manner.chance)
            if settlement.growth is not None and isinstance(settlement.outcome, Succeeded):
                job = yield from grow(job, settlement.growth)
            decided.append((job, step))
    applied = yield from apply(decided, taken=False)
    return [ended_of(job, step, now=now) for job, step in applied]


def ended_of(job: JobRow, step: Transition, *, now: int) -> Ended:
    """How a run ended that was leased until now."""
    started = now if job.started_at is None else job.started_at
    return Ended(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        tenant=job.tenant,
        end=_end_of(step),
        attempt=job.attempt,
        wait_us=started - job.run_at,
        run_us=now - started,
        error=None if step.error is None else step.error.type,
    )


def _end_of(step: Transition) -> RunEnd:
    if isinstance(step, Finish):
        return RunEnd(step.state.value)
    return RunEnd.RETRYING if step.is_counted else RunEnd.RELEASED


def held_of(job: JobRow) -> Held:
    """The part of a stored row that a decision needs."""
    return Held(
        attempt=job.attempt,
        max_attempts=job.max_attempts or config.MAX_ATTEMPTS_DEFAULT,
        crashes=job.crashes,
        run_at=job.run_at,
        cancel_requested=bool(job.cancel_requested),
        policy=decode_policy(job.policy),
        begun=bool(job.begun),
        losses=job.losses,
        interruptions=job.interruptions,
        quarantined=bool(job.quarantined),
        has_limit=job.limit_name is not None,
    )


def _held_for(job: JobRow, tenant: str | None) -> Held:
    """As `held_of`. A tenant's worker can't close a key that may be that of others, too."""
    held = held_of(job)
    return held if tenant in (None, job.limit_key) else replace(held, has_limit=False)


def apply(
    decided: Sequence[tuple[JobRow, Transition]], *, taken: bool
) -> Steps[list[tuple[JobRow, Transition]]]:
    """Write transitions of running jobs that this transaction has locked. Return those written.

    A job that would return, but whose key a newer job has, ends instead.

    `taken`: someone other than the holder ends the lease, so the holder has lost it.
    """
    # The jobs that end come first: their keys are then free.
    ending = [(job, step) for job, step in decided if isinstance(step, Finish)]
    done = yield from finish([ending_of(job, step, taken=taken) for job, step in ending])
    returning = [(job, step) for job, step in decided if isinstance(step, Return)]
    back, late = yield from _without_superseded(returning)
    done |= yield from finish([ending_of(job, step, taken=taken) for job, step in late])
    if back:
        rows = [_give_back_row(job, step, taken=taken) for job, step in back]
        done |= {row[0] for row in (yield Batch("give_back", GIVE_BACK_COLUMNS, rows))}
        yield Ring(frozenset(job.queue for job, _ in back))
    written: list[tuple[JobRow, Transition]] = [*ending, *late, *back]
    yield from _close_keys([(job, step) for job, step in written if job.limit_name is not None])
    return [(job, step) for job, step in written if job.id in done]


def _without_superseded(
    returning: Sequence[tuple[JobRow, Return]],
) -> Steps[tuple[Sequence[tuple[JobRow, Return]], Sequence[tuple[JobRow, Finish]]]]:
    """The jobs that may return, and those that end because a newer job has their key."""
    heirs = yield from find_superseded([job for job, _ in returning])
    if not heirs:
        return returning, []
    now: int = (yield Statement("clock"))[0][0]
    late = [
        (
            # The error of the run itself stays, before the one that says why the job has ended.
            job._replace(errors=errors_with(job, step) or job.errors),
            superseded(held_of(job), step, by=heirs[job.id], now=now),
        )
        for job, step in returning
        if job.id in heirs
    ]
    return [pair for pair in returning if pair[0].id not in heirs], late


def _close_keys(limited: Sequence[tuple[JobRow, Transition]]) -> Steps[None]:
    """Close the keys of jobs that were throttled, or that died in an order that must not go on."""
    for job, step in limited:
        assert job.limit_name is not None
        if isinstance(step, Return):
            if step.throttled is not None:
                throttled = step.throttled
                yield from close(job.limit_name, job.limit_key, throttled.delay, throttled.reason)
        elif step.state is JobState.DEAD and job.place is not None:
            values = {"limit_name": job.limit_name, "key": job.limit_key, "time": FOR_EVER_US}
            yield Statement("close_when_dead", {**values, "reason": f"job {job.id} is dead"})


@dataclass(frozen=True, slots=True)
class Waiting:
    """A live job that nobody runs, how it is to end, and how its last lease ended."""

    job: JobRow
    step: Finish
    taken: bool


def finish_waiting(waiting: Sequence[Waiting]) -> Steps[set[str]]:
    """End live jobs that nobody runs (they were cancelled). Return the ids of those that ended."""
    return (
        yield from finish(
            [ending_of(each.job, each.step, taken=each.taken, leased=False) for each in waiting]
        )
    )


def _give_back_row(job: JobRow, step: Return, *, taken: bool) -> Row:
    errors = errors_with(job, step)
    counts = (step.attempt, step.crashes, step.losses, step.interruptions)
    return (job.id, job.token, taken, step.run_at, *counts, step.quarantined, errors)


def _enqueue_follow_ups(settlements: Sequence[Settlement], done: set[str]) -> Steps[list[Job]]:
    wanted = [
        job.following(settlement.lease.id)
        for settlement in settlements
        if settlement.lease.id in done and isinstance(settlement.outcome, Succeeded)
        for job in settlement.follow_ups
    ]
    if not wanted:
        return []
    return (yield from enqueue_within(wanted, is_resend=False))


def explain_missed(missed: Sequence[Lease], *, is_resend: bool) -> Steps[Settled]:
    """Separate leases that were taken away from those that their own holder settled before."""
    if not missed:
        return Settled()
    ends = yield from _ends(missed)
    repeated = [lease for lease in missed if ends.get(lease.id) == (lease.token, False)]
    lost = [lease for lease in missed if lease not in repeated]
    return Settled(lost=lost, repeated=[] if is_resend else repeated)


def _ends(missed: Sequence[Lease]) -> Steps[Mapping[str, tuple[int, bool]]]:
    """The last token of jobs that nobody runs, and whether it was taken from its holder."""
    ids = [lease.id for lease in missed]
    # The lock comes first: it waits for a COMMIT in progress that ends one of them, and only a
    # statement that begins afterwards sees the end.
    live = yield Statement("lock_leases", {"ids": ids})
    ended = yield Statement("find_ends", {"ids": ids})
    ends = {row[0]: (row[1], bool(row[2])) for row in ended}
    for row in live:
        job = JobRow._make(row[:-2])
        if job.lease_expires_at is None:
            ends[job.id] = (job.token, bool(row[-2]))
    return ends


def settle_each(local: LocalState, /, settlements: Sequence[Settlement]) -> Op[Settled]:
    """Record how runs ended, in one transaction, each on its own.

    Raises:
        LeaseLost: Another run holds some of the jobs. All the others are settled.
        InvalidTransition: Some were already settled by this very run.
    """
    return settle(settlements, chance=local.chance)


def succeed(leases: Sequence[Lease], results: Sequence[Any] | None = None) -> Op[Settled]:
    """Record that runs have succeeded. Raises as `settle`.

    Args:
        results: What each run returned, in the order of `leases`.
    """
    if results is None:
        return settle([Settlement(lease, Succeeded()) for lease in leases])
    if len(results) != len(leases):
        raise OptionInvalid("results", f"has {len(results)} items for {len(leases)} leases")
    return settle(
        [
            Settlement(lease, Succeeded(*codec.encode_result(result)))
            for lease, result in zip(leases, results, strict=True)
        ]
    )


def fail(
    local: LocalState,
    /,
    lease: Lease,
    error: BaseException | str,
    *,
    delay: float | timedelta | None = None,
    permanent: bool = False,
) -> Op[Settled]:
    """Record that a run has failed. Its job is retried, or ends `dead`. Raises as `settle`.

    Args:
        delay: When to retry, in seconds or as a timedelta, instead of the policy's backoff.
        permanent: Don't retry.
    """
    text = codec.error_record(error)
    wait = None if delay is None else duration_us(delay, option="delay")
    outcome = Failed(text.type, text.message, text.traceback, permanent=permanent, delay=wait)
    return settle([Settlement(lease, outcome)], chance=local.chance)


def release(lease: Lease, delay: float | timedelta = 0) -> Op[Settled]:
    """Give a job back without counting an attempt. Raises as `settle`.

    Args:
        delay: When it may run again, in seconds or as a timedelta; 0 is at its old position.
    """
    return settle([Settlement(lease, Released(duration_us(delay, option="delay") or None))])


def finish_cancelled(lease: Lease, reason: str | None = None) -> Op[Settled]:
    """Record that a run ended because of a request to cancel. Raises as `settle`."""
    return settle([Settlement(lease, CancelSeen(reason))])


def crash(leases: Sequence[Lease], evidence: str) -> Op[Settled]:
    """Record that the process that ran these jobs has died. Raises as `settle`.

    Args:
        leases: All the jobs that it ran. If there is only one, it may be poison.
        evidence: How the process ended, for the job's errors.
    """
    text = codec.clean_text(evidence, bytes_max=config.ERROR_BYTES_MAX)
    outcome = Crashed(text, alone=len(leases) == 1)
    return settle([Settlement(lease, outcome) for lease in leases])
