"""Supersede: a job that gave up its key when it started returns only if no newer job has the key.

1. A waiting job is the newest of the live jobs with its key. So if one waits, a job that would
   return is older, and ends. It also ends if a newer one runs: otherwise it would take the key, and
   the newer job could not return.
2. The key is taken before anything is written, by a row that is withdrawn in the same transaction.
   An update could only fail: PostgreSQL has no ON CONFLICT for it, and a failed statement undoes
   the ends of all the other jobs.
3. Taking a key waits for a transaction that is about to take it. A statement that begins afterwards
   then sees the job that has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rowlock.columns import JobRow
from rowlock.errors import StoreUnavailable
from rowlock.ids import new_id
from rowlock.job import KEY_HELD_UNTIL_STARTED
from rowlock.store.steps import Batch, Statement, Steps

_COLUMNS: Final = ("id", "tenant", "kind", "key")
# If the job that has a key is gone when we look, it ended in between. This must have an end.
_ROUNDS_MAX: Final = 10

_Key = tuple[str, str, str]


def find_superseded(returning: Sequence[JobRow]) -> Steps[dict[str, str]]:
    """Find which jobs may not return, and by which jobs they are superseded, by id.

    The jobs run, and this transaction has locked them.
    """
    freed = [job for job in returning if job.key_hold == KEY_HELD_UNTIL_STARTED]
    if not freed:
        return {}
    newest = {_key_of(job): job for job in sorted(freed, key=_age_of)}
    rivals = yield from _find_rivals(newest, own=[job.id for job in freed])
    heirs = {key: rivals.get(key, job.id) for key, job in newest.items()}
    return {job.id: heir for job in freed if (heir := heirs[_key_of(job)]) != job.id}


def _find_rivals(newest: Mapping[_Key, JobRow], *, own: Sequence[str]) -> Steps[dict[_Key, str]]:
    """Find the jobs that keep others from returning, by key."""
    # Keys are touched in one order, as by an enqueue.
    asking = dict(sorted(newest.items()))
    rivals: dict[_Key, str] = {}
    places: list[str] = []
    for _ in range(_ROUNDS_MAX):
        asked = {new_id(): key for key in asking}
        rows = [(id, asking[key].tenant, *key[1:]) for id, key in asked.items()]
        taken = [row[0] for row in (yield Batch("take_keys", _COLUMNS, rows))]
        places += taken
        found = yield Batch("find_rival", _COLUMNS, rows, {"own": [*own, *places]})
        for id, rival, created_at, holds in found:
            if holds or (created_at, rival) > _age_of(asking[asked[id]]):
                rivals[asked[id]] = rival
        settled = {asked[id] for id in taken} | rivals.keys()
        asking = {key: job for key, job in asking.items() if key not in settled}
        if not asking:
            break
    # By hand, also before an error: nothing else would undo it in a caller's own transaction.
    yield Statement("withdraw", {"ids": sorted(places)})
    if asking:
        raise StoreUnavailable(
            f"{len(asking)} keys kept passing from one job to another; settle the runs again"
        )
    return rivals


def _key_of(job: JobRow) -> _Key:
    assert job.key is not None
    return (job.tenant or "", job.kind, job.key)


def _age_of(job: JobRow) -> tuple[int, str]:
    return (job.created_at, job.id)
