"""Generated from the functions in `ops`: `python -m tests.typing.stubs`."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from rowlock.filters import JobFilter
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
    WorkerVitals,
)
from rowlock.limit_info import LimitInfo, LimitKeys
from rowlock.schedule import Fired, Schedule
from rowlock.store.ops.claim import KnownPolicy, LimitOf
from rowlock.store.ops.limits import ChosenNumbers, DeclaredLimit
from rowlock.store.ops.schedule import NewSchedule
from rowlock.store.ops.settle import Settlement
from rowlock.store.steps import Op
from rowlock.why import Why
from rowlock.workflow_info import WorkflowGraph, WorkflowInfo, WorkflowPage
from rowlock.workflow_rules import WorkflowState

class Verb:
    op: Callable[..., Op[Any]]
    is_async: bool
    then: Callable[[Any], None] | None
    is_local: bool
    name: str

class QueueVerbs:
    """What both an app and a store can do with the jobs, queues and workers of a database."""
    def cancel(self, id: str | UUID, *, tenant: str | None = None) -> Cancellation:
        """Stop a job: at once if it waits, otherwise by a request to its worker. Raises `NotFound`.

        Args:
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def acancel(self, id: str | UUID, *, tenant: str | None = None) -> Cancellation:
        """As `cancel`."""

    def delete(self, id: str | UUID, *, cascade: bool = False, tenant: str | None = None) -> None:
        """Remove a job that is not running. Raises `NotFound`, `InvalidTransition`.

        Args:
            cascade: Also if other jobs wait for it. Those that need its success are cancelled.
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def adelete(
        self, id: str | UUID, *, cascade: bool = False, tenant: str | None = None
    ) -> None:
        """As `delete`."""

    def get(self, id: str | UUID, *, tenant: str | None = None) -> Job | None:
        """A job by its id, live or finished. None if it does not exist, or was removed.

        Args:
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def aget(self, id: str | UUID, *, tenant: str | None = None) -> Job | None:
        """As `get`."""

    def cancel_workflow(self, id: str | UUID, *, tenant: str | None = None) -> int:
        """Cancel all jobs of a workflow that have not ended. Returns their number.

        Jobs that run are asked to end. Nothing can be added to the workflow any more.

        Args:
            tenant: Only a workflow of this tenant; another tenant's is not found.
        """

    async def acancel_workflow(self, id: str | UUID, *, tenant: str | None = None) -> int:
        """As `cancel_workflow`."""

    def get_workflow(self, id: str | UUID, *, tenant: str | None = None) -> WorkflowInfo | None:
        """A workflow by its id. None if it does not exist, or was removed.

        Args:
            tenant: Only a workflow of this tenant; another tenant's is not found.
        """

    async def aget_workflow(
        self, id: str | UUID, *, tenant: str | None = None
    ) -> WorkflowInfo | None:
        """As `get_workflow`."""

    def retry_workflow(self, id: str | UUID, *, tenant: str | None = None) -> int:
        """Retry the dead jobs of a workflow, and those that were cancelled because of them.

        Returns their number. Jobs whose key is in flight again are left out.

        Args:
            tenant: Only a workflow of this tenant; another tenant's is not found.
        """

    async def aretry_workflow(self, id: str | UUID, *, tenant: str | None = None) -> int:
        """As `retry_workflow`."""

    def workflow_graph(self, id: str | UUID, *, tenant: str | None = None) -> WorkflowGraph:
        """The shape of a workflow: stacks of jobs that are alike, and which waits for which.

        Args:
            tenant: Only a workflow of this tenant; another tenant's is not found.
        """

    async def aworkflow_graph(self, id: str | UUID, *, tenant: str | None = None) -> WorkflowGraph:
        """As `workflow_graph`."""

    def workflow_jobs(
        self,
        id: str | UUID,
        *,
        stack: str | None = None,
        state: str | JobState | None = None,
        limit: int = 100,
        cursor: str | None = None,
        tenant: str | None = None,
    ) -> Page:
        """A page of the jobs of a workflow: dead ones first, then live ones, then the others.

        Args:
            stack: Only those of this stack.
            state: Only those in this state.
            limit: The most jobs on this page, at most 1,000.
            cursor: The `next` of the page before.
            tenant: Only a workflow of this tenant; another tenant's is not found.
        """

    async def aworkflow_jobs(
        self,
        id: str | UUID,
        *,
        stack: str | None = None,
        state: str | JobState | None = None,
        limit: int = 100,
        cursor: str | None = None,
        tenant: str | None = None,
    ) -> Page:
        """As `workflow_jobs`."""

    def workflows(
        self,
        *,
        name: str | None = None,
        state: str | WorkflowState | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> WorkflowPage:
        """A page of workflows, newest first.

        Args:
            name: Only those of this name.
            state: Only those in this state.
            tenant: Only those of this tenant.
            limit: The most workflows on this page, at most 1,000.
            cursor: The `next` of the page before.
        """

    async def aworkflows(
        self,
        *,
        name: str | None = None,
        state: str | WorkflowState | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> WorkflowPage:
        """As `workflows`."""

    def limit_keys(
        self, name: str, *, limit: int = 50, after: str | None = None, tenant: str | None = None
    ) -> LimitKeys:
        """Keys of a limit: those with jobs that run or wait, that are paused, or have own numbers.

        By default, the busiest come first, of the first 1,000 keys. Raises `NotFound`.

        Args:
            limit: At most this many.
            after: In the order of their names instead, those after this one. "" begins with the first.
            tenant: Only this tenant's own key, with numbers of its own jobs. A limit whose keys are not
                tenants is not found.
        """

    async def alimit_keys(
        self, name: str, *, limit: int = 50, after: str | None = None, tenant: str | None = None
    ) -> LimitKeys:
        """As `limit_keys`."""

    def limits(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        tenant: str | None = None,
    ) -> builtins.list[LimitInfo]:
        """The limits in the order of their names, also those that jobs name and no worker declares.

        Args:
            names: Only these. None: all.
            after: Only those after this name: for the next page.
            limit: At most this many.
            tenant: Only limits whose keys are tenants. Numbers of jobs are of this tenant alone.
        """

    async def alimits(
        self,
        names: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 1000,
        tenant: str | None = None,
    ) -> builtins.list[LimitInfo]:
        """As `limits`."""

    def pause(self, queue: str) -> None:
        """Claim nothing from a queue until it is resumed. Jobs can still be enqueued.

        Jobs that workers have already claimed are run. So a few may begin after this has returned:
        usually within 0.1 seconds, rarely up to 3.
        """

    async def apause(self, queue: str) -> None:
        """As `pause`."""

    def reroute(self, id: str | UUID, queue: str, *, tenant: str | None = None) -> Job:
        """Move a job that waits to another queue.

        Args:
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def areroute(self, id: str | UUID, queue: str, *, tenant: str | None = None) -> Job:
        """As `reroute`."""

    def reschedule(
        self,
        id: str | UUID,
        run_at: datetime | None = None,
        *,
        delay: float | timedelta | None = None,
        tenant: str | None = None,
    ) -> Job:
        """Change when a job that waits is due. Its attempts stay as they are.

        Args:
            run_at: The new time, with a time zone. A time in the past means now.
            delay: Instead of `run_at`: from now on, in seconds or as a timedelta.
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def areschedule(
        self,
        id: str | UUID,
        run_at: datetime | None = None,
        *,
        delay: float | timedelta | None = None,
        tenant: str | None = None,
    ) -> Job:
        """As `reschedule`."""

    def resume(self, queue: str) -> None:
        """Claim from a paused queue again."""

    async def aresume(self, queue: str) -> None:
        """As `resume`."""

    def run_now(self, id: str | UUID, *, tenant: str | None = None) -> Job:
        """Make a scheduled or retrying job due now. A job that is ready stays as it is.

        Args:
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def arun_now(self, id: str | UUID, *, tenant: str | None = None) -> Job:
        """As `run_now`."""

    def set_order(self, queue: str, order: Literal["run_at", "created"]) -> None:
        """Set the order of retries in a queue: by the time they are due (default), or by their age."""

    async def aset_order(self, queue: str, order: Literal["run_at", "created"]) -> None:
        """As `set_order`."""

    def stats(self, queues: Sequence[str] | None = None) -> builtins.list[QueueStats]:
        """The number of jobs by queue and state, and the age of each queue's oldest ready job.

        Args:
            queues: Only these queues. A queue without jobs is returned with zeros. None: all known
                queues.
        """

    async def astats(self, queues: Sequence[str] | None = None) -> builtins.list[QueueStats]:
        """As `stats`."""

    def why(self, id: str | UUID, *, tenant: str | None = None) -> Why:
        """Why a job is not running: the first thing that keeps it from running. Raises `NotFound`.

        Args:
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def awhy(self, id: str | UUID, *, tenant: str | None = None) -> Why:
        """As `why`."""

    def workers(self) -> builtins.list[WorkerInfo]:
        """Workers that announced themselves or hold leases, and the jobs they run."""

    async def aworkers(self) -> builtins.list[WorkerInfo]:
        """As `workers`."""

class StoreVerbs(QueueVerbs):
    """What only a store can do."""
    def claim(
        self,
        *,
        worker: str,
        queues: Sequence[str] | Mapping[str, int] | None,
        kinds: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        limit: int = 1,
        lease: float | timedelta = 30.0,
        include_expired: bool = True,
        policies: Mapping[str, KnownPolicy] | None = None,
        limits: Mapping[str, LimitOf] | None = None,
        begun: bool = True,
        on_refused: Callable[[], None] | None = None,
    ) -> builtins.list[Lease]:
        """Lease up to `limit` due jobs, each to this worker alone.

        Args:
            worker: The name of the worker. No other process may use it.
            queues: In the order of preference. A mapping gives each queue a limit of its own. None:
                every queue.
            kinds: Only these kinds. None: all.
            tenants: Only these tenants' jobs. None: all.
            limit: At most 10,000.
            lease: How long until others may take the job, in seconds or as a timedelta.
            include_expired: Give back the expired leases of others first.
            policies: By kind, for jobs that were enqueued by name where the kind was not known.
            limits: By kind, the limit of a job that was enqueued without it. It is sent there.
            begun: Whether the claim is the beginning of each run. Otherwise the caller marks the runs
                that need it with `begin` before their handlers are called.
            on_refused: Called for each expired lease whose end the database refuses for the first time.
        """

    async def aclaim(
        self,
        *,
        worker: str,
        queues: Sequence[str] | Mapping[str, int] | None,
        kinds: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
        limit: int = 1,
        lease: float | timedelta = 30.0,
        include_expired: bool = True,
        policies: Mapping[str, KnownPolicy] | None = None,
        limits: Mapping[str, LimitOf] | None = None,
        begun: bool = True,
        on_refused: Callable[[], None] | None = None,
    ) -> builtins.list[Lease]:
        """As `claim`."""

    def heartbeat(
        self, leases: Sequence[Lease], *, lease: float | timedelta = 30.0
    ) -> builtins.list[Beat]:
        """Extend leases. Returns a `Beat` for each, in order: kept, lost, or asked to cancel."""

    async def aheartbeat(
        self, leases: Sequence[Lease], *, lease: float | timedelta = 30.0
    ) -> builtins.list[Beat]:
        """As `heartbeat`."""

    def progress(self, lease: Lease, *, fraction: float, text: str = "") -> None:
        """Set the progress of a running job, from 0 to 1. Raises `LeaseLost`."""

    async def aprogress(self, lease: Lease, *, fraction: float, text: str = "") -> None:
        """As `progress`."""

    def log(self, lease: Lease, lines: Sequence[str]) -> None:
        """Add lines to a running job's log, which keeps 1,000 in all. Raises `LeaseLost`."""

    async def alog(self, lease: Lease, lines: Sequence[str]) -> None:
        """As `log`."""

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how runs ended, in one transaction, each on its own.

        Raises:
            LeaseLost: Another run holds some of the jobs. All the others are settled.
            InvalidTransition: Some were already settled by this very run.
        """

    async def asettle(self, settlements: Sequence[Settlement]) -> None:
        """As `settle`."""

    def succeed(self, leases: Sequence[Lease], results: Sequence[Any] | None = None) -> None:
        """Record that runs have succeeded. Raises as `settle`.

        Args:
            results: What each run returned, in the order of `leases`.
        """

    async def asucceed(self, leases: Sequence[Lease], results: Sequence[Any] | None = None) -> None:
        """As `succeed`."""

    def fail(
        self,
        lease: Lease,
        error: BaseException | str,
        *,
        delay: float | timedelta | None = None,
        permanent: bool = False,
    ) -> None:
        """Record that a run has failed. Its job is retried, or ends `dead`. Raises as `settle`.

        Args:
            delay: When to retry, in seconds or as a timedelta, instead of the policy's backoff.
            permanent: Don't retry.
        """

    async def afail(
        self,
        lease: Lease,
        error: BaseException | str,
        *,
        delay: float | timedelta | None = None,
        permanent: bool = False,
    ) -> None:
        """As `fail`."""

    def release(self, lease: Lease, delay: float | timedelta = 0) -> None:
        """Give a job back without counting an attempt. Raises as `settle`.

        Args:
            delay: When it may run again, in seconds or as a timedelta; 0 is at its old position.
        """

    async def arelease(self, lease: Lease, delay: float | timedelta = 0) -> None:
        """As `release`."""

    def finish_cancelled(self, lease: Lease, reason: str | None = None) -> None:
        """Record that a run ended because of a request to cancel. Raises as `settle`."""

    async def afinish_cancelled(self, lease: Lease, reason: str | None = None) -> None:
        """As `finish_cancelled`."""

    def crash(self, leases: Sequence[Lease], evidence: str) -> None:
        """Record that the process that ran these jobs has died. Raises as `settle`.

        Args:
            leases: All the jobs that it ran. If there is only one, it may be poison.
            evidence: How the process ended, for the job's errors.
        """

    async def acrash(self, leases: Sequence[Lease], evidence: str) -> None:
        """As `crash`."""

    def announce(
        self,
        *,
        worker: str,
        queues: Sequence[str],
        kinds: Sequence[str],
        host: str,
        pid: int,
        vitals: WorkerVitals | None = None,
    ) -> None:
        """Register a worker: what it serves, and how it is doing. Call it with every heartbeat."""

    async def aannounce(
        self,
        *,
        worker: str,
        queues: Sequence[str],
        kinds: Sequence[str],
        host: str,
        pid: int,
        vitals: WorkerVitals | None = None,
    ) -> None:
        """As `announce`."""

    def depart(self, worker: str) -> None:
        """Remove a worker that has stopped from the list of workers."""

    async def adepart(self, worker: str) -> None:
        """As `depart`."""

    def recover(
        self, older_than: float | timedelta = 0, queues: Sequence[str] | None = None
    ) -> int:
        """Give back jobs whose lease has expired. Returns their number.

        Args:
            older_than: Only leases that expired at least this long ago, in seconds or as a timedelta.
            queues: Only jobs of these queues. None: all.
        """

    async def arecover(
        self, older_than: float | timedelta = 0, queues: Sequence[str] | None = None
    ) -> int:
        """As `recover`."""

    def adopt_orphans(
        self,
        queues: Sequence[str],
        action: Literal["retry", "park"] = "retry",
        older_than: float | timedelta = 300,
    ) -> int:
        """Take running jobs from workers that have gone silent. Returns the number of jobs.

        Args:
            queues: Only jobs of these queues.
            action: "retry" gives them back, "park" ends them `dead` for you to look at.
            older_than: Only jobs without a heartbeat for at least this long.
        """

    async def aadopt_orphans(
        self,
        queues: Sequence[str],
        action: Literal["retry", "park"] = "retry",
        older_than: float | timedelta = 300,
    ) -> int:
        """As `adopt_orphans`."""

    def release_worker(self, worker: str) -> int:
        """Give back every lease that a worker holds. Returns their number.

        Nothing is counted as an attempt. An at-most-once job whose run has begun ends `dead`.
        """

    async def arelease_worker(self, worker: str) -> int:
        """As `release_worker`."""

    def retry(
        self, id: str | UUID, payload: str | None = None, *, tenant: str | None = None
    ) -> Job:
        """Take a dead or cancelled job back to ready, like a new job.

        A job of a workflow waits again for the jobs that have not ended as it wants.

        Args:
            payload: Another payload, as JSON text.
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def aretry(
        self, id: str | UUID, payload: str | None = None, *, tenant: str | None = None
    ) -> Job:
        """As `retry`."""

    def run_again(
        self, id: str | UUID, payload: str | None = None, *, tenant: str | None = None
    ) -> Job:
        """Enqueue an ended job again, as a new job with its payload and options.

        The new job names the old one in its `meta`, as `run_again_of`. It has the key of the old one
        too, even if that key is still held by a job that has ended. If a live job has the key, this
        raises `InvalidTransition`.

        Args:
            payload: Another payload, as JSON text.
            tenant: Only a job of this tenant; another tenant's is not found.
        """

    async def arun_again(
        self, id: str | UUID, payload: str | None = None, *, tenant: str | None = None
    ) -> Job:
        """As `run_again`."""

    def retry_dead(self, chosen: JobFilter) -> BulkRetry:
        """Take all dead jobs that match back to ready. Jobs whose key is in use again are skipped."""

    async def aretry_dead(self, chosen: JobFilter) -> BulkRetry:
        """As `retry_dead`."""

    def prune(self, *, batch_rows: int = 500) -> int:
        """Remove finished jobs whose retention is over, in bounded batches. Returns their number.

        Expired keys, first answers, sessions, audit entries and records of bulk operations are removed,
        too.
        """

    async def aprune(self, *, batch_rows: int = 500) -> int:
        """As `prune`."""

    def list(
        self,
        chosen: JobFilter,
        *,
        state: str | JobState | None = None,
        limit: int = 100,
        cursor: str | None = None,
        full: bool = False,
        scan: int = 20000,
    ) -> Page:
        """A page of jobs. It reads at most `scan` rows of each table and returns where to continue.

        Unless `full`, payloads, results, meta and errors are not read.
        """

    async def alist(
        self,
        chosen: JobFilter,
        *,
        state: str | JobState | None = None,
        limit: int = 100,
        cursor: str | None = None,
        full: bool = False,
        scan: int = 20000,
    ) -> Page:
        """As `list`."""

    def read_log(self, id: str | UUID) -> builtins.list[LogLine]:
        """The log lines of a job, oldest first."""

    async def aread_log(self, id: str | UUID) -> builtins.list[LogLine]:
        """As `read_log`."""

    def declare_limits(self, declared: Sequence[DeclaredLimit]) -> builtins.list[str]:
        """Make the limits that were declared in code match the code. What was set since stays.

        Returns:
            The names of those that are new or have other numbers now.
        """

    async def adeclare_limits(self, declared: Sequence[DeclaredLimit]) -> builtins.list[str]:
        """As `declare_limits`."""

    def set_limit(
        self,
        name: str,
        key: str | None,
        chosen: ChosenNumbers,
        *,
        declared: DeclaredLimit | None = None,
    ) -> None:
        """Use other numbers for a limit, or for one of its keys, until they are unset.

        Args:
            declared: Written first, if the database does not know the limit yet.
        """

    async def aset_limit(
        self,
        name: str,
        key: str | None,
        chosen: ChosenNumbers,
        *,
        declared: DeclaredLimit | None = None,
    ) -> None:
        """As `set_limit`."""

    def unset_limit(self, name: str, key: str | None = None) -> None:
        """Go back to the declared numbers, for a limit or for one of its keys."""

    async def aunset_limit(self, name: str, key: str | None = None) -> None:
        """As `unset_limit`."""

    def pause_limit(
        self,
        name: str,
        key: str | None = None,
        seconds: float | timedelta | None = None,
        *,
        reason: str | None = None,
        declared: DeclaredLimit | None = None,
    ) -> None:
        """Start no job of a limit, or of one of its keys, for some time. None: until it is resumed."""

    async def apause_limit(
        self,
        name: str,
        key: str | None = None,
        seconds: float | timedelta | None = None,
        *,
        reason: str | None = None,
        declared: DeclaredLimit | None = None,
    ) -> None:
        """As `pause_limit`."""

    def resume_limit(self, name: str, key: str | None = None) -> None:
        """Start jobs of a limit, or of one of its keys, again."""

    async def aresume_limit(self, name: str, key: str | None = None) -> None:
        """As `resume_limit`."""

    def put_schedule(self, new: NewSchedule) -> Schedule:
        """Write a schedule. One of the same name is replaced.

        A replaced schedule stays paused if it was. It keeps its next time, unless its expression or its
        time zone changes.
        """

    async def aput_schedule(self, new: NewSchedule) -> Schedule:
        """As `put_schedule`."""

    def declare_schedules(
        self, declared: Sequence[NewSchedule], *, kinds: Sequence[str], owns_all: bool = False
    ) -> builtins.list[str]:
        """Make the schedules that were declared in code match the code.

        Args:
            declared: The schedules of the code. One that a call has taken over is left as it is.
            kinds: The tasks of that code. Their schedules that it does not declare are removed.
            owns_all: No other code declares schedules in this database: remove those of other kinds
                too.

        Returns:
            The names of the schedules that were removed.
        """

    async def adeclare_schedules(
        self, declared: Sequence[NewSchedule], *, kinds: Sequence[str], owns_all: bool = False
    ) -> builtins.list[str]:
        """As `declare_schedules`."""

    def list_schedules(
        self, *, after: str = "", limit: int = 1000, tenant: str | None = None
    ) -> builtins.list[Schedule]:
        """The schedules, ordered by name.

        Args:
            after: The last name of the page before.
            tenant: Only schedules of this tenant. None: all.
        """

    async def alist_schedules(
        self, *, after: str = "", limit: int = 1000, tenant: str | None = None
    ) -> builtins.list[Schedule]:
        """As `list_schedules`."""

    def pause_schedule(self, name: str, *, tenant: str | None = None) -> Schedule:
        """Don't fire a schedule until it is resumed. Raises `NotFound`.

        Args:
            tenant: Only a schedule of this tenant; another tenant's is not found.
        """

    async def apause_schedule(self, name: str, *, tenant: str | None = None) -> Schedule:
        """As `pause_schedule`."""

    def resume_schedule(self, name: str, *, tenant: str | None = None) -> Schedule:
        """Fire a paused schedule again, from its next tick on. Raises `NotFound`.

        Ticks that fell into the pause are not fired later.

        Args:
            tenant: Only a schedule of this tenant; another tenant's is not found.
        """

    async def aresume_schedule(self, name: str, *, tenant: str | None = None) -> Schedule:
        """As `resume_schedule`."""

    def run_schedule_now(self, name: str, *, tenant: str | None = None) -> Job:
        """Enqueue a schedule's job at once, paused or not. Keeps its next tick. Raises `NotFound`."""

    async def arun_schedule_now(self, name: str, *, tenant: str | None = None) -> Job:
        """As `run_schedule_now`."""

    def delete_schedule(self, name: str) -> None:
        """Remove a schedule. Jobs that it has enqueued stay. Raises `NotFound`."""

    async def adelete_schedule(self, name: str) -> None:
        """As `delete_schedule`."""

    def fire_due(self) -> Fired:
        """Enqueue the jobs of all due ticks, each once among any number of callers."""

    async def afire_due(self) -> Fired:
        """As `fire_due`."""
