"""The verbs as methods, each blocking and async (`a…`). They are written once, in `ops`."""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar

from rowlock import codec, config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid
from rowlock.job import (
    Beat,
    BulkRetry,
    Cancellation,
    Job,
    JobState,
    Lease,
    LogLine,
    Page,
    QueueStats,
    WorkerInfo,
)
from rowlock.lifecycle import CancelSeen, Crashed, Failed, Released, Succeeded
from rowlock.store.caller import Callers
from rowlock.store.clock_watch import ClockWatch
from rowlock.store.engine import Engine
from rowlock.store.ops import bulk as _bulk
from rowlock.store.ops import claim as _claim
from rowlock.store.ops import hold as _hold
from rowlock.store.ops import look as _look
from rowlock.store.ops import manage as _manage
from rowlock.store.ops import recover as _recover
from rowlock.store.ops import settle as _settle
from rowlock.store.ops import stats as _stats
from rowlock.store.ops.claim import KnownPolicy
from rowlock.store.ops.enqueue import enqueue as _enqueue
from rowlock.store.ops.manage import JobFilter
from rowlock.store.ops.recover import Recovery, SetAside, arun_around, run_around
from rowlock.store.ops.settle import Settlement
from rowlock.store.options import NewJob
from rowlock.store.schedules import ScheduleVerbs
from rowlock.store.steps import Op

T = TypeVar("T")


class Store(ScheduleVerbs):
    """A queue's database: every verb, in both colours, on any number of threads and loops."""

    def __init__(self, engine: Engine, *, chance: random.Random | None = None) -> None:
        self.engine = engine
        self._callers = Callers(engine)
        self.clock_watch: ClockWatch = ClockWatch(engine.clock)
        self.set_aside: SetAside = SetAside()
        # Not seeded by the user's own random.seed(): jitter must differ between processes.
        self._chance = chance or random.Random()

    def run(self, op: Op[T]) -> T:
        """Run a verb and wait for it."""
        return self.engine.run(op)

    async def arun(self, op: Op[T]) -> T:
        """As `run`."""
        return await self.engine.arun(op)

    def migrate(self) -> list[int]:
        """Apply missing migrations; returns their numbers. Safe to call from many at once."""
        return self.engine.migrate()

    async def amigrate(self) -> list[int]:
        """As `migrate`."""
        return await asyncio.to_thread(self.engine.migrate)

    def close(self) -> None:
        """Close this process's connections. A later call opens new ones."""
        self.engine.close()

    async def aclose(self) -> None:
        """As `close`, from a coroutine: this loop's connections too."""
        await self.engine.aclose()

    # Enqueue

    def enqueue(
        self, jobs: Sequence[NewJob], *, conn: object = None, notify_in_transaction: bool = True
    ) -> Sequence[Job]:
        """Insert jobs, all or none; each answer's `created` tells whether it is new.

        Args:
            conn: A connection of the caller's own to this database: the jobs exist if, and only
                if, its transaction is committed. Errors of its driver are raised as they are.
            notify_in_transaction: Wake workers by a NOTIFY in that transaction, where the library
                has no hook for after the commit. Without, they find the jobs when they next poll.
        """
        if conn is None or not jobs:
            return self.run(_enqueue(jobs)) if jobs else []
        return self._callers.run(_enqueue(jobs), conn, notify_in_transaction=notify_in_transaction)

    async def aenqueue(
        self, jobs: Sequence[NewJob], *, conn: object = None, notify_in_transaction: bool = True
    ) -> Sequence[Job]:
        """As `enqueue`; `conn` is an async connection."""
        if conn is None or not jobs:
            return await self.arun(_enqueue(jobs)) if jobs else []
        return await self._callers.arun(
            _enqueue(jobs), conn, notify_in_transaction=notify_in_transaction
        )

    # Claim

    def claim(
        self,
        *,
        worker: str,
        queues: Sequence[str] | Mapping[str, int] | None,
        kinds: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        limit: int = 1,
        lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
        include_expired: bool = True,
        policies: Mapping[str, KnownPolicy] | None = None,
    ) -> list[Lease]:
        """Lease up to `limit` due jobs, each to this worker alone.

        Args:
            worker: Who asks; a name that no other process uses.
            queues: In the order of preference; a mapping gives each a limit of its own; None is
                every queue.
            kinds: Only these kinds. None: all.
            tenants: Only these tenants' jobs. None: all.
            limit: 10,000 at most.
            lease: How long until others may take the job, in seconds or as a timedelta.
            include_expired: Give back the expired leases of others first.
            policies: By kind, for jobs enqueued by name where the kind was not known.
        """
        recovery = Recovery(self.set_aside, refusals_max=config.CLAIM_REFUSALS_MAX)
        return run_around(
            self.run,
            lambda: _claim.claim(
                worker=worker,
                queues=queues,
                kinds=kinds,
                tenants=tenants,
                limit=limit,
                lease=lease,
                include_expired=include_expired,
                policies=policies,
                watch=self.clock_watch,
                recovery=recovery,
            ),
            recovery,
        )

    async def aclaim(
        self,
        *,
        worker: str,
        queues: Sequence[str] | Mapping[str, int] | None,
        kinds: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        limit: int = 1,
        lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
        include_expired: bool = True,
        policies: Mapping[str, KnownPolicy] | None = None,
    ) -> list[Lease]:
        """As `claim`."""
        recovery = Recovery(self.set_aside, refusals_max=config.CLAIM_REFUSALS_MAX)
        return await arun_around(
            self.arun,
            lambda: _claim.claim(
                worker=worker,
                queues=queues,
                kinds=kinds,
                tenants=tenants,
                limit=limit,
                lease=lease,
                include_expired=include_expired,
                policies=policies,
                watch=self.clock_watch,
                recovery=recovery,
            ),
            recovery,
        )

    def heartbeat(
        self,
        leases: Sequence[Lease],
        *,
        lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
    ) -> list[Beat]:
        """Extend leases; a `Beat` for each, in order: what was found of it."""
        return self.run(_hold.heartbeat(leases, lease=lease))

    async def aheartbeat(
        self,
        leases: Sequence[Lease],
        *,
        lease: float | timedelta = config.LEASE_SECONDS_DEFAULT,
    ) -> list[Beat]:
        """As `heartbeat`."""
        return await self.arun(_hold.heartbeat(leases, lease=lease))

    def progress(self, lease: Lease, *, fraction: float, text: str = "") -> None:
        """Say how far a running job is (0 to 1). Raises `LeaseLost`."""
        self.run(_hold.progress(lease, fraction=fraction, text=text)).raise_if_any()

    async def aprogress(self, lease: Lease, *, fraction: float, text: str = "") -> None:
        """As `progress`."""
        (await self.arun(_hold.progress(lease, fraction=fraction, text=text))).raise_if_any()

    def log(self, lease: Lease, lines: Sequence[str]) -> None:
        """Add lines to a running job's log, 1,000 in all. Raises `LeaseLost`."""
        self.run(_hold.log(lease, lines)).raise_if_any()

    async def alog(self, lease: Lease, lines: Sequence[str]) -> None:
        """As `log`."""
        (await self.arun(_hold.log(lease, lines))).raise_if_any()

    def read_log(self, id: str) -> list[LogLine]:
        """A job's log lines, oldest first."""
        return self.run(_hold.read_log(id))

    async def aread_log(self, id: str) -> list[LogLine]:
        """As `read_log`."""
        return await self.arun(_hold.read_log(id))

    # Settle

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how runs ended, in one transaction, each judged alone.

        Raises:
            LeaseLost: Somebody else holds some of the jobs; all the others are settled.
            InvalidTransition: Some were settled by this very run before.
        """
        if settlements:
            self.run(_settle.settle(settlements, chance=self._chance)).raise_if_any()

    async def asettle(self, settlements: Sequence[Settlement]) -> None:
        """As `settle`."""
        if settlements:
            missed = await self.arun(_settle.settle(settlements, chance=self._chance))
            missed.raise_if_any()

    def succeed(self, leases: Sequence[Lease], results: Sequence[Any] | None = None) -> None:
        """These runs are done; `results` is parallel to `leases`. Raises as `settle`."""
        self.settle(_successes(leases, results))

    async def asucceed(self, leases: Sequence[Lease], results: Sequence[Any] | None = None) -> None:
        """As `succeed`."""
        await self.asettle(_successes(leases, results))

    def fail(
        self,
        lease: Lease,
        error: BaseException | str,
        *,
        delay: float | timedelta | None = None,
        permanent: bool = False,
    ) -> None:
        """This run failed: its job waits for the policy's backoff, or `delay`; or is given up."""
        self.settle([_failure(lease, error, delay=delay, permanent=permanent)])

    async def afail(
        self,
        lease: Lease,
        error: BaseException | str,
        *,
        delay: float | timedelta | None = None,
        permanent: bool = False,
    ) -> None:
        """As `fail`."""
        await self.asettle([_failure(lease, error, delay=delay, permanent=permanent)])

    def release(self, lease: Lease, delay: float | timedelta = 0) -> None:
        """Give a job back uncounted: to its old place, or after a delay."""
        self.settle([_release(lease, delay)])

    async def arelease(self, lease: Lease, delay: float | timedelta = 0) -> None:
        """As `release`."""
        await self.asettle([_release(lease, delay)])

    def finish_cancelled(self, lease: Lease, reason: str | None = None) -> None:
        """The run saw the request to cancel, and ended."""
        self.settle([Settlement(lease, CancelSeen(reason))])

    async def afinish_cancelled(self, lease: Lease, reason: str | None = None) -> None:
        """As `finish_cancelled`."""
        await self.asettle([Settlement(lease, CancelSeen(reason))])

    def crash(self, leases: Sequence[Lease], evidence: str) -> None:
        """The process that ran these jobs died; one that was alone may be poison."""
        self.settle(_crashes(leases, evidence))

    async def acrash(self, leases: Sequence[Lease], evidence: str) -> None:
        """As `crash`."""
        await self.asettle(_crashes(leases, evidence))

    # Recover

    def recover(
        self, older_than: float | timedelta = 0, queues: Sequence[str] | None = None
    ) -> int:
        """Give back jobs whose lease expired at least so many seconds ago; how many."""
        recovery = Recovery()
        return run_around(
            self.run,
            lambda: _recover.recover(older_than=older_than, queues=queues, recovery=recovery),
            recovery,
        )

    async def arecover(
        self, older_than: float | timedelta = 0, queues: Sequence[str] | None = None
    ) -> int:
        """As `recover`."""
        recovery = Recovery()
        return await arun_around(
            self.arun,
            lambda: _recover.recover(older_than=older_than, queues=queues, recovery=recovery),
            recovery,
        )

    def adopt_orphans(
        self,
        queues: Sequence[str],
        action: Literal["retry", "park"] = "retry",
        older_than: float | timedelta = 300,
    ) -> int:
        """Take over jobs of these queues not heard of for so long, or park them dead; how many."""
        recovery = Recovery()
        return run_around(
            self.run,
            lambda: _recover.adopt_orphans(
                queues, action=action, older_than=older_than, recovery=recovery
            ),
            recovery,
        )

    async def aadopt_orphans(
        self,
        queues: Sequence[str],
        action: Literal["retry", "park"] = "retry",
        older_than: float | timedelta = 300,
    ) -> int:
        """As `adopt_orphans`."""
        recovery = Recovery()
        return await arun_around(
            self.arun,
            lambda: _recover.adopt_orphans(
                queues, action=action, older_than=older_than, recovery=recovery
            ),
            recovery,
        )

    def release_worker(self, worker: str) -> int:
        """Give back, uncounted, all that a worker holds; how many."""
        recovery = Recovery()
        return run_around(
            self.run, lambda: _recover.release_worker(worker, recovery=recovery), recovery
        )

    async def arelease_worker(self, worker: str) -> int:
        """As `release_worker`."""
        recovery = Recovery()
        return await arun_around(
            self.arun, lambda: _recover.release_worker(worker, recovery=recovery), recovery
        )

    # Manage

    def cancel(self, id: str) -> Cancellation:
        """Stop a job, or ask its worker to. Raises `NotFound`."""
        return self.run(_manage.cancel(id))

    async def acancel(self, id: str) -> Cancellation:
        """As `cancel`."""
        return await self.arun(_manage.cancel(id))

    def retry(self, id: str, payload: str | None = None) -> Job:
        """Take a dead or cancelled job back to ready, as new; `payload` is JSON text."""
        return self.run(_manage.retry(id, payload=payload))

    async def aretry(self, id: str, payload: str | None = None) -> Job:
        """As `retry`."""
        return await self.arun(_manage.retry(id, payload=payload))

    def retry_dead(self, chosen: JobFilter) -> BulkRetry:
        """Take all dead jobs that fit back to ready; those whose key is in use are skipped."""
        return self.run(_bulk.retry_dead(chosen))

    async def aretry_dead(self, chosen: JobFilter) -> BulkRetry:
        """As `retry_dead`."""
        return await self.arun(_bulk.retry_dead(chosen))

    def delete(self, id: str) -> None:
        """Remove a job that does not run. Raises `NotFound`, `InvalidTransition`."""
        self.run(_manage.delete(id))

    async def adelete(self, id: str) -> None:
        """As `delete`."""
        await self.arun(_manage.delete(id))

    def pause(self, queue: str) -> None:
        """Claim nothing of a queue until it is resumed; what was claimed before is run."""
        self.run(_manage.set_pause(queue, is_paused=True))

    async def apause(self, queue: str) -> None:
        """As `pause`."""
        await self.arun(_manage.set_pause(queue, is_paused=True))

    def resume(self, queue: str) -> None:
        """Claim from a paused queue again."""
        self.run(_manage.set_pause(queue, is_paused=False))

    async def aresume(self, queue: str) -> None:
        """As `resume`."""
        await self.arun(_manage.set_pause(queue, is_paused=False))

    def set_order(self, queue: str, order: Literal["run_at", "created"]) -> None:
        """Whether retries of a queue stand by the time they are due (default) or by their age."""
        self.run(_manage.set_order(queue, order=order))

    async def aset_order(self, queue: str, order: Literal["run_at", "created"]) -> None:
        """As `set_order`."""
        await self.arun(_manage.set_order(queue, order=order))

    def prune(self) -> int:
        """Remove finished jobs whose retention is over, in bounded batches; how many."""
        return self.run(_manage.prune())

    async def aprune(self) -> int:
        """As `prune`."""
        return await self.arun(_manage.prune())

    # Look

    def get(self, id: str) -> Job | None:
        """A job by its id; None if there is none (any more)."""
        return self.run(_look.get(id))

    async def aget(self, id: str) -> Job | None:
        """As `get`."""
        return await self.arun(_look.get(id))

    def list(
        self,
        chosen: JobFilter,
        *,
        state: str | JobState | None = None,
        limit: int = config.LIST_LIMIT_DEFAULT,
        cursor: str | None = None,
        full: bool = False,
    ) -> Page:
        """A page of jobs: dead ones newest failure first, all others newest first."""
        return self.run(_look.list_jobs(chosen, state=state, limit=limit, cursor=cursor, full=full))

    async def alist(
        self,
        chosen: JobFilter,
        *,
        state: str | JobState | None = None,
        limit: int = config.LIST_LIMIT_DEFAULT,
        cursor: str | None = None,
        full: bool = False,
    ) -> Page:
        """As `list`."""
        op = _look.list_jobs(chosen, state=state, limit=limit, cursor=cursor, full=full)
        return await self.arun(op)

    def stats(self, queues: Sequence[str] | None = None) -> builtins.list[QueueStats]:
        """Counts per queue and state; with names, zeros for those that are empty."""
        return self.run(_stats.stats(queues))

    async def astats(self, queues: Sequence[str] | None = None) -> builtins.list[QueueStats]:
        """As `stats`."""
        return await self.arun(_stats.stats(queues))

    def workers(self) -> builtins.list[WorkerInfo]:
        """Workers that announced themselves or hold leases, and what they run."""
        return self.run(_look.workers())

    async def aworkers(self) -> builtins.list[WorkerInfo]:
        """As `workers`."""
        return await self.arun(_look.workers())

    def announce(
        self, *, worker: str, queues: Sequence[str], kinds: Sequence[str], host: str, pid: int
    ) -> None:
        """A worker says that it is there, and what it serves; again at every beat."""
        self.run(_hold.announce(worker=worker, queues=queues, kinds=kinds, host=host, pid=pid))

    async def aannounce(
        self, *, worker: str, queues: Sequence[str], kinds: Sequence[str], host: str, pid: int
    ) -> None:
        """As `announce`."""
        await self.arun(
            _hold.announce(worker=worker, queues=queues, kinds=kinds, host=host, pid=pid)
        )

    def depart(self, worker: str) -> None:
        """A worker says goodbye."""
        self.run(_hold.depart(worker))

    async def adepart(self, worker: str) -> None:
        """As `depart`."""
        await self.arun(_hold.depart(worker))


def _successes(leases: Sequence[Lease], results: Sequence[Any] | None) -> list[Settlement]:
    if results is None:
        return [Settlement(lease, Succeeded()) for lease in leases]
    if len(results) != len(leases):
        raise OptionInvalid("results", f"has {len(results)} items for {len(leases)} leases")
    return [
        Settlement(lease, Succeeded(*codec.encode_result(result)))
        for lease, result in zip(leases, results, strict=True)
    ]


def _failure(
    lease: Lease,
    error: BaseException | str,
    *,
    delay: float | timedelta | None,
    permanent: bool,
) -> Settlement:
    text = codec.error_record(error)
    wait = None if delay is None else duration_us(delay, option="delay")
    outcome = Failed(text.type, text.message, text.traceback, permanent=permanent, delay=wait)
    return Settlement(lease, outcome)


def _release(lease: Lease, delay: float | timedelta) -> Settlement:
    return Settlement(lease, Released(duration_us(delay, option="delay") or None))


def _crashes(leases: Sequence[Lease], evidence: str) -> list[Settlement]:
    text = codec.clean_text(evidence, bytes_max=config.ERROR_BYTES_MAX)
    return [Settlement(lease, Crashed(text, alone=len(leases) == 1)) for lease in leases]
