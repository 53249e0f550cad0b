"""Enqueue: a job exists once per id, and once per key while that key is held.

1. A fresh id without a key needs one statement: nothing can conflict with it.
2. Otherwise the insert comes first. Only then, in a new statement of the same transaction, come the
   jobs that have ended: the insert may have waited for that very end. (One statement with WHERE
   NOT EXISTS races: it looks before it waits.)
3. A row that was inserted in vain is withdrawn before anyone else can see it.
4. The tokens of an id that the caller gave start at the clock. A job that had the id before, and
   was deleted or forgotten, may still have a run, and no such run can settle the new job.
   (Remembering each deleted id instead would cost a row per delete, with no end to keep it until.)
5. A job that was sent before is a resend too, even if we made its id: the first enqueue may have
   been committed without an answer, and the job may have ended since.
6. A job that replaces the one that holds its key changes it only while that one waits. If it was
   claimed meanwhile, the next round finds out whether its key is free by now.
7. Many jobs that can't conflict with anything are copied. This halves the server's work, and each
   `Job` is made only when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, repeat
from operator import itemgetter
from typing import Any, Final, overload

import msgspec

from rowlock import config
from rowlock.clock import from_us
from rowlock.columns import JobRow, given_of
from rowlock.errors import OptionInvalid, StoreUnavailable
from rowlock.job import QUEUED_STATES, Job, JobState, job_of
from rowlock.store.options import LIMITED_JOB_COLUMNS, NEW_JOB_COLUMNS, NODE_COLUMNS, NewJob
from rowlock.store.steps import (
    COPIED,
    Batch,
    Begin,
    Copy,
    News,
    Op,
    Ring,
    Row,
    Rows,
    Statement,
    Steps,
    writing,
)

# If the job that won a clash is gone when we look, it finished in between. This must have an end.
_ROUNDS_MAX = 10

_ASKED_COLUMNS = ("id", "tenant", "kind", "key")

_FRESH, _GIVEN = {"is_given": False}, {"is_given": True}


class Answers(dict[str, Job]):
    """The jobs of an enqueue by the ids that were asked for."""

    def __init__(self, *, is_lean: bool = False) -> None:
        super().__init__()
        self._is_lean = is_lean

    def view(self, row: JobRow, *, now: int, created: bool = False) -> Job:
        """A row as a job. A lean one is made without reading what can be large."""
        if self._is_lean:
            row = row._replace(payload="{}", result=None, meta=None, errors=None)
        return job_of(row, now=now, created=created)

    def new(self, job: NewJob, run_at: int, created_at: int, *, is_given: bool = False) -> Job:
        """A job that was inserted."""
        row = _row_of(job, run_at=run_at, created_at=created_at)
        if is_given:
            row = row._replace(token=created_at)
        return self.view(row, now=created_at, created=True)


def enqueue(
    jobs: Sequence[NewJob], *, tenant: str | None = None, is_lean: bool = False
) -> Op[Sequence[Job]]:
    """Insert jobs, all or none, and return them in order. Each says whether it is new.

    Args:
        tenant: The only tenant that the caller may act for. If an id belongs to another tenant,
            nothing is inserted or revealed.
        is_lean: The caller reads no payload, result, meta or error of the answers. Decoding sixty
            payloads of a megabyte took 0.4 s and 800 MiB.
    """
    if len(jobs) > config.ENQUEUE_MANY_MAX:
        raise OptionInvalid("jobs", f"must be {config.ENQUEUE_MANY_MAX} at most in one call")
    assert tenant is None or all(job.tenant == tenant for job in jobs)
    jobs = [job.sent() for job in jobs]
    tries = count()
    return writing(
        "enqueue",
        # A copy that meets a job that is there already (enqueued before) is undone.
        lambda: _enqueue(
            jobs, Answers(is_lean=is_lean), tenant, is_resend=False, may_copy=next(tries) == 0
        ),
        repeat=lambda: _enqueue(jobs, Answers(is_lean=is_lean), tenant, is_resend=True),
    )


def _enqueue(
    jobs: Sequence[NewJob],
    answers: Answers,
    tenant: str | None,
    *,
    is_resend: bool,
    may_copy: bool = False,
) -> Steps[Sequence[Job]]:
    if len(jobs) == 1 and not is_resend and not _needs_care(jobs[0]):
        return (yield from _enqueue_one(jobs[0], answers))
    if may_copy and _can_be_copied(jobs):
        yield Begin()
        return _of_tenant((yield from _copy(jobs, answers)), tenant)
    is_one_batch = next(_batches(jobs), jobs) is jobs
    if not is_one_batch or any(map(_needs_care, jobs)) or is_resend:
        yield Begin()
    listed = yield from enqueue_within(jobs, is_resend=is_resend, answers=answers)
    return _of_tenant(listed, tenant)


def _of_tenant(answers: Sequence[Job], tenant: str | None) -> Sequence[Job]:
    # Copied jobs are all new, and so the caller's own.
    if tenant is None or isinstance(answers, Copied):
        return answers
    if any(answer.tenant != tenant for answer in answers):
        raise id_taken()
    return answers


def _enqueue_one(job: NewJob, answers: Answers) -> Steps[list[Job]]:
    """Insert the most common case: a fresh id without a key."""
    inserted = yield _insert([job], is_given=False, rings=_news_of(job))
    if not inserted:
        # The id is not fresh after all: the same item was sent before.
        return (yield from enqueue_within([job], is_resend=False, answers=answers))
    yield Ring(frozenset((job.queue,)))
    return [answers.new(job, *inserted[0][1:])]


def _insert(jobs: Sequence[NewJob], *, is_given: bool, rings: News | None = None) -> Batch:
    given = _GIVEN if is_given else _FRESH
    if any(job.node is not None for job in jobs):
        nodes = [job.node_row() for job in jobs]
        return Batch("enqueue/node", NODE_COLUMNS, nodes, given)
    if any(job.limit is not None for job in jobs):
        rows = [job.limited_row() for job in jobs]
        alone = "enqueue_one/limited"
        return Batch("enqueue/limited", LIMITED_JOB_COLUMNS, rows, given, alone=alone, rings=rings)
    rows = [job.row() for job in jobs]
    return Batch("enqueue", NEW_JOB_COLUMNS, rows, given, alone="enqueue_one", rings=rings)


def _news_of(job: NewJob) -> News:
    """What a notification says of a job: its lane, unless it is in none or not due yet."""
    is_due = job.run_at is None and not job.delay and job.limit is None
    return News(job.queue, job.rank, job.kind) if is_due else News(job.queue)


def _can_be_copied(jobs: Sequence[NewJob]) -> bool:
    if len(jobs) < config.COPY_ROWS_MIN or any(map(_needs_care, jobs)):
        return False
    if any(job.limit is not None and job.limit.is_ordered for job in jobs):
        return False
    return len({job.id for job in jobs}) == len(jobs)


def insert_nodes(jobs: Sequence[NewJob], *, is_given: bool) -> Steps[None]:
    """Insert jobs of a workflow, within its transaction: no keys, and nobody has their ids.

    `is_given`: the user chose the id of the workflow, from which theirs are made.
    """
    if is_given or not _can_be_copied(jobs):
        for batch in _batches(jobs):
            yield _insert(batch, is_given=is_given)
        return
    now: int = (yield Statement("clock"))[0][0]
    for start in range(0, len(jobs), config.COPY_ROWS_MAX):
        part = jobs[start : start + config.COPY_ROWS_MAX]
        yield _copy_of(part, [_due_at(job, now) for job in part], now)


def _due_at(job: NewJob, now: int) -> int:
    """When a job is due, as it is stored: below 0, if it waits for others first."""
    if job.node is not None and job.node.pending:
        return -job.delay if job.run_at is None else job.run_at
    return now + job.delay if job.run_at is None else max(job.run_at, now)


def _copy(jobs: Sequence[NewJob], answers: Answers) -> Steps[Sequence[Job]]:
    now: int = (yield Statement("clock"))[0][0]
    times: list[tuple[int, int]] = []
    for start in range(0, len(jobs), config.COPY_ROWS_MAX):
        batch = jobs[start : start + config.COPY_ROWS_MAX]
        due = [_due_at(job, now) for job in batch]
        inserted = yield _copy_of(batch, due, now)
        if inserted == COPIED:
            times += zip(due, repeat(now))
            continue
        # A statement was run instead, which returns the times of each job that it inserted.
        known = {row[0]: (row[1], row[2]) for row in inserted}
        if len(inserted) < len(batch):
            # It left out a job that was enqueued before.
            copied = [job.id for job in jobs[:start]] + list(known)
            yield Statement("withdraw", {"ids": copied})
            return (yield from enqueue_within(jobs, is_resend=False, answers=answers))
        times += [known[job.id] for job in batch]
    yield Ring(frozenset(job.queue for job in jobs))
    return Copied(jobs, times, answers)


# Columns that a job may have no value for. Jobs with a key are not copied.
_OPTIONAL: Final = ("tenant", "max_attempts", "tags", "meta", "policy")


def _copy_of(jobs: Sequence[NewJob], due: Sequence[int], now: int) -> Copy:
    """A copy of jobs, without columns that none of them has a value for.

    On SQLite a row without them takes half the time (4.5 µs instead of 8.6): it need not be asked
    for each index whether the row belongs there.
    """
    given = [name for name in _OPTIONAL if any(getattr(job, name) is not None for job in jobs)]
    columns = ("id", "payload", "kind", "queue", "rank", *given)
    values = itemgetter(*map(NEW_JOB_COLUMNS.index, columns))

    def instead() -> Batch:
        return _insert(
            [job._replace(run_at=at) for job, at in zip(jobs, due, strict=True)], is_given=False
        )

    rows: list[Row] = [(*values(job), at, now) for job, at in zip(jobs, due, strict=True)]
    columns = (*columns, "run_at", "created_at")
    if any(job.limit is not None or job.node is not None for job in jobs):
        rows = [
            (*row, *_limit_values(job, is_due=at <= now))
            for row, job, at in zip(rows, jobs, due, strict=True)
        ]
        columns = (*columns, "limit_name", "limit_key", "held_by")
    if any(job.node is not None for job in jobs):
        rows = [(*row, *job.node_row()[_NODE_START:]) for row, job in zip(rows, jobs, strict=True)]
        columns = (*columns, *NODE_COLUMNS[_NODE_START:])
    return Copy("job", columns, rows, instead)


_NODE_START: Final = len(LIMITED_JOB_COLUMNS)


def _limit_values(job: NewJob, *, is_due: bool) -> Row:
    held = 3 if job.node is not None and job.node.pending else None
    if job.limit is None:
        return (None, None, held)
    return (job.limit.name, job.limit.key, held or (1 if is_due else 2))


class Copied(Sequence[Job]):
    """The jobs of a large enqueue, each made when it is read."""

    def __init__(
        self, jobs: Sequence[NewJob], times: Sequence[tuple[int, int]], answers: Answers
    ) -> None:
        self._jobs = jobs
        self._times = times
        self._answers = answers

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> Copied: ...
    def __getitem__(self, place: int | slice) -> Job | Copied:
        if isinstance(place, slice):
            return Copied(self._jobs[place], self._times[place], self._answers)
        return self._answers.new(self._jobs[place], *self._times[place])

    def column(self, name: str) -> list[Any]:
        """A field of every job, without making the jobs: of 10,000, that took 0.5 s."""
        match name:
            case "created":
                return [True] * len(self)
            case "priority":
                return [-job.rank for job in self._jobs]
            case "state":
                waits = {False: JobState.READY, True: JobState.SCHEDULED}
                return [waits[run_at > now] for run_at, now in self._times]
            case "run_at" | "created_at":
                stored = [time[name == "created_at"] for time in self._times]
                times = {each: from_us(each) for each in set(stored)}
                return [times[each] for each in stored]
            case _:
                return [getattr(job, name) for job in self._jobs]


def id_taken() -> OptionInvalid:
    """The error for another tenant's id. It does not reveal that the id exists."""
    return OptionInvalid("id", "is not available; choose another id or omit it")


def enqueue_within(
    jobs: Sequence[NewJob], *, is_resend: bool, answers: Answers | None = None
) -> Steps[list[Job]]:
    """As `enqueue`, within another verb's transaction."""
    answers = Answers() if answers is None else answers
    # If two jobs of one call have the same id, the first is the job and the second its resend.
    firsts = {job.id: job for job in reversed(jobs)}.values()
    places = {job.id: place for place, job in reversed(list(enumerate(jobs)))}

    def order(job: NewJob) -> tuple[bool, str, str, str, str, int]:
        # Jobs of an ordered limit come last, in the order in which they were given. Two calls that
        # have keys of such jobs in opposite orders may deadlock, and one is repeated.
        if job.limit is not None and job.limit.is_ordered:
            return (True, "", "", "", "", places[job.id])
        # Other inserts touch keys in one order, so that two of them can't wait for each other. Of
        # two jobs with one key, the second finds it held by the first.
        id = job.id if job.key is None else ""
        return (False, job.tenant or "", job.kind, job.key or "", id, places[job.id])

    ordered = sorted(firsts, key=order)
    for batch in _batches(ordered):
        yield from _enqueue_batch(batch, answers, is_resend=is_resend)
    if is_resend:
        # Nobody else knows an id that we made: a job with that id is from our first try.
        for job in jobs:
            if not job.is_resend and answers[job.id].id == job.id:
                answers[job.id] = msgspec.structs.replace(answers[job.id], created=True)
    rung = frozenset(
        answers[job.id].queue for job in jobs if job.replaces or answers[job.id].created
    )
    if rung:
        yield Ring(rung)
    return _in_order(jobs, answers)


def _needs_care(job: NewJob) -> bool:
    return job.is_resend or job.key is not None


def _batches(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """Parts that one statement inserts, bounded by rows and by bytes. One part is `jobs` itself."""
    start = size = 0
    for place, job in enumerate(jobs):
        size += len(job.payload)
        rows = place - start
        if rows and (rows == config.BATCH_ROWS or size > config.BATCH_BYTES):
            yield jobs[start:place]
            start, size = place, len(job.payload)
    if jobs:
        yield jobs[start:] if start else jobs


def _enqueue_batch(batch: Sequence[NewJob], answers: Answers, *, is_resend: bool) -> Steps[None]:
    waiting = {job.id: job for job in batch if job.id not in answers}
    # One resend is enough to set this for the batch: a later start of the tokens does no harm.
    is_given = is_resend or any(job.is_resend for job in batch)
    for _ in range(_ROUNDS_MAX):
        inserted = yield _insert(list(waiting.values()), is_given=is_given)
        for id, run_at, created_at in inserted:
            answers[id] = answers.new(waiting[id], run_at, created_at, is_given=is_given)
        careful = [waiting[row[0]] for row in inserted if is_resend or _needs_care(waiting[row[0]])]
        if careful:
            yield from _yield_to_settled(careful, answers)
        waiting = {id: job for id, job in waiting.items() if id not in answers}
        if waiting:
            yield from _answer_from_live(waiting, answers, is_resend=is_resend)
            yield from _replace(waiting, answers)
            waiting = {id: job for id, job in waiting.items() if id not in answers}
        if waiting:
            # The conflicting job has ended, or was a duplicate in this batch and is withdrawn.
            yield from _answer_from_settled(list(waiting.values()), answers)
            waiting = {id: job for id, job in waiting.items() if id not in answers}
        if not waiting:
            return
    # Undone by hand: nothing else would undo it in the caller's own transaction.
    yield Statement("withdraw", {"ids": [id for id, job in answers.items() if job.created]})
    raise StoreUnavailable(
        f"{len(waiting)} jobs kept clashing with jobs that then ended; enqueue them again"
    )


def _yield_to_settled(inserted: Sequence[NewJob], answers: Answers) -> Steps[None]:
    """Return the ended job instead where it still holds the id or the key."""
    found = yield Batch("find_settled", _ASKED_COLUMNS, _asked(inserted))
    if found:
        yield Statement("withdraw", {"ids": sorted({row[0] for row in found})})
        yield from _answer_by(found, inserted, answers)


def _answer_from_settled(waiting: Sequence[NewJob], answers: Answers) -> Steps[None]:
    found = yield Batch("find_settled", _ASKED_COLUMNS, _asked(waiting))
    if found:
        yield from _answer_by(found, waiting, answers)


def _answer_by(found: Rows, jobs: Sequence[NewJob], answers: Answers) -> Steps[None]:
    """Answer with what `find_settled` found. If it found several for one job, the first counts."""
    holders = {row[0]: row for row in reversed(found)}
    rows = yield Statement("get", {"ids": [row[1] for row in holders.values()]})
    known = {row[0]: answers.view(JobRow._make(row[:-1]), now=row[-1]) for row in rows}
    by_id = {job.id: job for job in jobs}
    for asked, row in holders.items():
        answers[asked] = known.get(row[1]) or _remembered(by_id[asked], row, answers)


def _answer_from_live(
    waiting: dict[str, NewJob], answers: Answers, *, is_resend: bool
) -> Steps[None]:
    for row in (yield Batch("find_live", _ASKED_COLUMNS, _asked(list(waiting.values())))):
        answers.setdefault(row[0], answers.view(JobRow._make(row[1:-1]), now=row[-1]))
    # A resend is the same job, even if it has ended and another job holds its key by now.
    by_key = [
        job
        for id, job in waiting.items()
        if (is_resend or job.is_resend) and id in answers and answers[id].id != id
    ]
    if by_key:
        by_id_alone = [(job.id, None, job.kind, None) for job in by_key]
        found = yield Batch("find_settled", _ASKED_COLUMNS, by_id_alone)
        if found:
            yield from _answer_by(found, by_key, answers)


def _replace(waiting: Mapping[str, NewJob], answers: Answers) -> Steps[None]:
    """Give the payloads and options of enqueues to the waiting jobs that hold their keys.

    Of several enqueues of one key the last counts. If a job was claimed meanwhile, they have no
    answer yet.
    """
    # By the job to replace. A job is not replaced by its own resend.
    last = {
        answers[job.id].id: job
        for job in waiting.values()
        if job.replaces and job.id in answers and _can_be_replaced(answers[job.id], job)
    }
    if not last:
        return
    rows = [(*job.limited_row(), job.max_wait) for job in last.values()]
    replaced: dict[str, Job] = {}
    for row in (yield Batch("replace", (*LIMITED_JOB_COLUMNS, "max_wait"), rows)):
        job = answers.view(JobRow._make(row[1:-1]), now=row[-1])
        replaced[job.id] = job
    for id, answer in list(answers.items()):
        if answer.id in replaced:
            answers[id] = msgspec.structs.replace(replaced[answer.id], created=answer.created)
        elif answer.id in last and id in waiting and waiting[id].replaces:
            del answers[id]


def _can_be_replaced(held: Job, job: NewJob) -> bool:
    return held.id != job.id and held.state in QUEUED_STATES


def _asked(jobs: Sequence[NewJob]) -> list[Row]:
    return [(job.id, job.tenant, job.kind, job.key) for job in jobs]


def _in_order(jobs: Sequence[NewJob], answers: Answers) -> list[Job]:
    """One answer per job. If two jobs of one call have the same id, only the first is new."""
    seen: set[str] = set()
    listed: list[Job] = []
    for job in jobs:
        answer = answers[job.id]
        is_first = job.id not in seen
        listed.append(answer if is_first else msgspec.structs.replace(answer, created=False))
        seen.add(job.id)
    return listed


def _remembered(asked: NewJob, row: Row, answers: Answers) -> Job:
    """A job whose row is gone (keep=0): only its id, names and state are known.

    A resend by id gets its own payload back. For a key, the first job's payload is unknown.
    """
    _, holder, kind, queue, tenant, key, state, token, now = row
    base = _row_of(asked, run_at=now, created_at=now)
    payload = asked.payload if holder == asked.id else "{}"
    gone = base._replace(
        id=holder, kind=kind, queue=queue, tenant=tenant, key=key, token=token, payload=payload
    )
    return answers.view(gone._replace(state=JobState(state).value), now=now)


# A new job has none of the other columns yet.
_UNSET: Final = tuple(JobRow._field_defaults.values())


def _row_of(job: NewJob, *, run_at: int, created_at: int) -> JobRow:
    row = JobRow._make((*given_of(job), run_at, created_at, *_UNSET))
    if job.limit is not None:
        row = row._replace(limit_name=job.limit.name, limit_key=job.limit.key)
    if job.node is not None:
        node = job.node
        row = row._replace(
            workflow=node.workflow,
            pending=node.pending,
            inputs=node.inputs,
            stack=node.stack,
        )
    return row


__all__ = ["Answers", "Copied", "enqueue", "enqueue_within", "id_taken", "insert_nodes"]
