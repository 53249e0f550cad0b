"""`App`: the composition root that users import, with every client call, blocking and async."""

from __future__ import annotations

import asyncio
import builtins
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast
from uuid import UUID

from rowlock import codec, config
from rowlock.clock import Clock, pauses
from rowlock.errors import OptionInvalid
from rowlock.filters import FilterOptions
from rowlock.inputs import Input
from rowlock.job import BulkResult, BulkRetry, Job, JobState, Page, Policy
from rowlock.limits import Limit, OnDead, Per, Rate
from rowlock.store import NewJob, Store, open_store, options
from rowlock.store.methods import QueueVerbs
from rowlock.store.ops.bulk import BulkAction, Selection, bulk, selection
from rowlock.store.ops.manage import job_filter, unknown_job
from rowlock.store.ops.workflow_info import unknown_workflow
from rowlock.store.ops.workflows import Draft, Written, new_nodes
from rowlock.store.options import TypedJob
from rowlock.store.steps import Op
from rowlock.store.url import masked
from rowlock.task import EnqueueOptions, Task, Tasks
from rowlock.worker.calls import ScheduleCalls, WorkerCalls
from rowlock.worker.hooks import WorkerHooks
from rowlock.workflow import ChainStep, Workflow, put_chain, put_chord
from rowlock.workflow_info import WorkflowInfo

Answers = Sequence[Job]
T = TypeVar("T")
R = TypeVar("R")
Item = TypedJob[Any] | NewJob | Mapping[str, Any]
"""An item of `enqueue_many`: `task.job(...)`, or a dict with a `kind`."""

DATABASE_URL_VARIABLE = "ROWLOCK_DATABASE_URL"
# What to do if no database is named, for the library and for commands.
NO_DATABASE = (
    "no database is named. Pass its URL to App(...), set ROWLOCK_DATABASE_URL, or give a command "
    "--database-url. Examples: sqlite:///jobs.db, postgresql://USER@HOST/DATABASE"
)


class App(QueueVerbs, WorkerCalls, ScheduleCalls):
    """A queue: its database and its tasks.

    Args:
        url: `sqlite:///FILE` or `postgresql://…`. By default `ROWLOCK_DATABASE_URL` from the
            environment. If that is not set either, the first use raises `OptionInvalid`.
        state: Your own object (pools, clients, settings). Handlers see it as `ctx.state`.
        strict: Refuse kinds that no task of this app has.
        schema: The PostgreSQL schema of its tables. On SQLite, the prefix of their names.
        keep_dead: How long dead jobs are kept, in seconds or as a timedelta. 30 days by default.
            None: forever.
        notify_in_transaction: Whether an enqueue on your own connection wakes the workers by a
            NOTIFY in that transaction.
        clock: For tests, a `ManualClock`. Otherwise the database's clock decides.

    Example:
        app = App("sqlite:///jobs.db")


        @app.task(queue="mail")
        async def send_email(to: str, subject: str) -> None: ...


        send_email.enqueue(to="a@b.c", subject="hi")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        state: Any = None,
        strict: bool = False,
        schema: str = "rowlock",
        keep_dead: float | timedelta | None = config.KEEP_DEAD_SECONDS_DEFAULT,
        notify_in_transaction: bool = True,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self._schema, self._clock = schema, clock
        self.worker_hooks: WorkerHooks = WorkerHooks()
        self._url: str | None = None
        self._store: Store | None = None
        named = self._environment_url() if url is None else url
        # Without one it can be created: a module that is imported may learn its database later.
        if named is not None:
            self.use_database(named)
        self.state = state
        self.is_strict = strict
        self.keep_dead_us: int | None = options.keep_us(keep_dead, option="keep_dead")
        self._notify_in_transaction = notify_in_transaction

    def __repr__(self) -> str:
        return f"<App {'without a database' if self._url is None else masked(self._url)}>"

    @property
    def url(self) -> str:
        """The database's URL, with its password if it has one. Not for logs."""
        return self._needed_url() if self._url is None else self._url

    @property
    def has_database(self) -> bool:
        """Whether a database is named: by the app, or by `ROWLOCK_DATABASE_URL`."""
        return self._url is not None or self._environment_url() is not None

    @property
    def store(self) -> Store:
        """The store of the database. Raises `OptionInvalid` if no database is named."""
        if self._store is None:
            self.use_database(self._needed_url())
        assert self._store is not None
        return self._store

    @store.setter
    def store(self, store: Store) -> None:
        self._store = store

    on_enqueued: Callable[[Sequence[NewJob], Answers], None] | None = None
    """Called with the jobs that this process enqueues, except on your own connections.

    It may be called from any thread.
    """

    def use_database(self, url: str) -> None:
        """Use another database from now on, as `--database-url` does."""
        self._store = open_store(url, schema=self._schema, clock=self._clock)
        self._url = url

    def _environment_url(self) -> str | None:
        # An empty variable is one that was not set.
        return os.environ.get(DATABASE_URL_VARIABLE) or None

    def _needed_url(self) -> str:
        """Return the URL that the environment names by now."""
        named = self._environment_url()
        if named is None:
            raise OptionInvalid("url", NO_DATABASE)
        return named

    def _register(self, task: Task[..., Any]) -> Task[..., Any]:
        super()._register(task).bind(self)
        return task

    def _add_limit(self, limit: Limit) -> None:
        super()._add_limit(limit)
        limit.bind(self)

    def limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        per: Per | None = None,
        concurrency_per_key: int | None = None,
        rate_per_key: str | Rate | None = None,
        weights: Mapping[str, int] | None = None,
        ordered: bool = False,
        on_dead: OnDead = "continue",
    ) -> Limit:
        """Declare a limit that any number of tasks share: `@app.task(limit=...)`.

        The arguments are those of `rowlock.Limit`.
        """
        limit = Limit(
            options.name(name, option="name"),
            concurrency=concurrency,
            rate=rate,
            per=per,
            concurrency_per_key=concurrency_per_key,
            rate_per_key=rate_per_key,
            weights=weights,
            ordered=ordered,
            on_dead=on_dead,
        )
        self._add_limit(limit)
        return limit

    def _run(self, op: Op[T]) -> T:
        return self.store.run(op)

    async def _arun(self, op: Op[T]) -> T:
        return await self.store.arun(op)

    def include(self, tasks: Tasks) -> None:
        """Add the tasks of another collection to this app. From now on it enqueues their jobs."""
        for task in tasks:
            self._register(task)

    @property
    def migrate_command(self) -> str:
        """The command that brings the schema up to date."""
        return "rowlock migrate"

    def migrate(self) -> builtins.list[int]:
        """Bring the database's schema up to date. Returns the numbers of the applied migrations.

        A SQLite file is migrated when it is opened. PostgreSQL is migrated only by this call or by
        `rowlock migrate`. Many processes may call it at once.
        """
        return self.store.migrate()

    async def amigrate(self) -> builtins.list[int]:
        """As `migrate`."""
        return await self.store.amigrate()

    def close(self) -> None:
        """Close this process's connections. A later call opens new ones."""
        if self._store is not None:
            self._store.close()

    async def aclose(self) -> None:
        """As `close`, also for the running loop's connections."""
        if self._store is not None:
            await self._store.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # For shims: other queues load their tasks late.

    def load_tasks(self) -> None:
        """Import the modules with tasks, if the app finds them late, as Celery's does.

        Commands and workers call it when they have loaded the app. An ordinary app does nothing.
        """

    # Enqueue

    def send(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]:
        """Enqueue checked jobs. Tasks use this."""
        rings = self._notify_in_transaction
        with self._sending(jobs) as marked:
            answers = self.store.enqueue(marked, conn=conn, notify_in_transaction=rings)
            return self._told(marked, answers, conn)

    async def asend(self, jobs: Sequence[NewJob], *, conn: object | None) -> Sequence[Job]:
        """As `send`."""
        rings = self._notify_in_transaction
        with self._sending(jobs) as marked:
            answers = await self.store.aenqueue(marked, conn=conn, notify_in_transaction=rings)
            return self._told(marked, answers, conn)

    def _told(self, jobs: Sequence[NewJob], answers: Answers, conn: object | None) -> Answers:
        # On the caller's own connection it is not known yet whether they will be committed.
        if self.on_enqueued is not None and conn is None:
            self.on_enqueued(jobs, answers)
        return answers

    def enqueue(
        self,
        kind: str,
        payload: Mapping[str, object] | None = None,
        **chosen: Unpack[EnqueueOptions],
    ) -> Job:
        """Enqueue a job by the name of its kind. The options are those of `Task.using`.

        A kind that no task here has is accepted, for a worker elsewhere, unless the app is strict.
        """
        return self.send([self._prepare(kind, payload, chosen)], conn=chosen.get("conn"))[0]

    async def aenqueue(
        self,
        kind: str,
        payload: Mapping[str, object] | None = None,
        **chosen: Unpack[EnqueueOptions],
    ) -> Job:
        """As `enqueue`."""
        job = self._prepare(kind, payload, chosen)
        return (await self.asend([job], conn=chosen.get("conn")))[0]

    def enqueue_many(self, items: Sequence[Item], *, conn: object | None = None) -> Sequence[Job]:
        """Enqueue many jobs in one transaction, all or none. Returns them in the same order.

        Args:
            items: `task.job(...)`, `task.using(...).job(...)`, or dicts with `kind`, `payload`
                and options.
            conn: Your own connection, as in `Task.using`.
        """
        return self.send([self.prepare(item) for item in items], conn=conn)

    async def aenqueue_many(
        self, items: Sequence[Item], *, conn: object | None = None
    ) -> Sequence[Job]:
        """As `enqueue_many`."""
        return await self.asend([self.prepare(item) for item in items], conn=conn)

    def prepare(self, item: Item, inputs: Mapping[str, Input] | None = None) -> NewJob:
        """Check one item of `enqueue_many`. The command line uses it to name a bad item.

        Args:
            inputs: For a job of a workflow: arguments that are results of other jobs.
        """
        if isinstance(item, NewJob):
            return item
        if not isinstance(item, Mapping) or "kind" not in item:
            raise OptionInvalid("items", "each must be task.job(...), or a dict with a `kind`")
        if item.get("conn") is not None:
            problem = "pass it to enqueue_many(items, conn=...), not to a single item"
            raise OptionInvalid("conn", problem)
        chosen = {name: item[name] for name in item if name not in ("kind", "payload")}
        options_of_it = cast("EnqueueOptions", chosen)
        return self._prepare(item["kind"], item.get("payload"), options_of_it, inputs)

    def _prepare(
        self,
        kind: str,
        payload: Mapping[str, object] | None,
        chosen: EnqueueOptions,
        inputs: Mapping[str, Input] | None = None,
    ) -> NewJob:
        options.refuse_unknown(chosen, EnqueueOptions.__annotations__)
        options.text(kind, option="kind")
        fields: Mapping[str, object] = {} if payload is None else payload
        task = self.find(kind)
        if task is not None and inputs:
            text = task.schema.encode((), {**fields, **inputs}, {})
            return task.prepare(text, chosen)._replace(inputs=inputs)
        if task is not None:
            return task.prepare(task.schema.validate(fields), chosen)
        if self.is_strict:
            raise OptionInvalid(
                "kind", f"no task of this strict app is named {kind!r}{self.nearest(kind)}"
            )
        made = self._prepare_unknown(kind, fields, chosen)
        return made._replace(inputs=inputs) if inputs else made

    def _prepare_unknown(
        self, kind: str, payload: Mapping[str, object], chosen: EnqueueOptions
    ) -> NewJob:
        """A job of a kind unknown here. The first worker that knows it completes its policy."""
        if chosen.get("limit_key") is not None:
            raise OptionInvalid(
                "limit_key", f"kind {kind!r} is unknown here, and so is its limit; leave it out"
            )
        for option in ("timeout", "expires"):
            if option in chosen:
                problem = f"needs the task, and kind {kind!r} is unknown here; set it in the task"
                raise OptionInvalid(option, problem)
        policy: Policy | None = None
        if "keep" in chosen:
            kept = options.keep_us(chosen["keep"])
            policy = Policy(keep=kept, keep_dead=self.keep_dead_us, is_partial=True)
        return options.new_job(
            kind=kind,
            payload=codec.encode_payload(kind, payload),
            queue=chosen.get("queue", "default"),
            priority=chosen.get("priority", 0),
            tenant=chosen.get("tenant"),
            key=chosen.get("key"),
            key_hold=chosen.get("key_hold"),
            if_held=chosen.get("if_held"),
            quiet=chosen.get("quiet"),
            max_wait=chosen.get("max_wait"),
            max_attempts=chosen.get("max_attempts"),
            run_at=chosen.get("run_at"),
            delay=chosen.get("delay"),
            tags=chosen.get("tags"),
            meta=chosen.get("meta"),
            id=chosen.get("id"),
            policy=policy,
        )

    # Workflows

    def workflow(
        self,
        name: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        deadline: float | timedelta | None = None,
        meta: Mapping[str, object] | None = None,
        id: str | UUID | None = None,
        conn: object | None = None,
    ) -> Workflow:
        """Jobs that wait for each other, written together when the block ends.

        Args:
            name: What it is, to find it by.
            key: Allows one open workflow per tenant, name and key. A second one is not written,
                and has the id of the first.
            tenant: The tenant that owns all its jobs. By default that of the first job.
            deadline: Cancel what is left of it after this long, in seconds or as a timedelta.
            meta: Free context, a small JSON object.
            id: A UUID of your own. The same id again means the same workflow.
            conn: Your own connection. The workflow exists if its transaction commits.

        Example:
            with app.workflow("crawl") as flow:
                pages = flow.map(fetch.job(url=url) for url in urls)
                flow.add(index.job(pages=pages.results), after=pages)
        """
        return Workflow(
            self,
            name,
            key=key,
            tenant=tenant,
            deadline=deadline,
            meta=meta,
            id=id,
            conn=conn,
        )

    def chain(self, *jobs: ChainStep, name: str = "chain") -> Workflow:
        """A workflow of jobs that run one after the other. Write it with `.enqueue()`.

        Args:
            jobs: `task.job(...)`, or a function that gets the result of the job before and returns
                `task.job(...)`.

        Example:
            app.chain(fetch.job(url=url), lambda page: index.job(page=page)).enqueue()
        """
        return put_chain(self.workflow(name), jobs)

    def group(self, *jobs: TypedJob[Any], name: str = "group") -> Workflow:
        """A workflow of jobs that run side by side. Write it with `.enqueue()`."""
        flow = self.workflow(name)
        flow.map(jobs)
        return flow

    def chord(
        self,
        jobs: Iterable[TypedJob[R]],
        body: TypedJob[Any] | Callable[[builtins.list[R]], TypedJob[Any]],
        *,
        name: str = "chord",
    ) -> Workflow:
        """A workflow of jobs side by side, and one after all of them. Write it with `.enqueue()`.

        Args:
            body: `task.job(...)`, or a function that gets the results and returns one.
        """
        return put_chord(self.workflow(name), jobs, body)

    def send_workflow(self, draft: Draft, *, conn: object | None) -> Written:
        """Write a workflow. `Workflow` uses this."""
        with self._sending(draft.nodes) as marked:
            written = self.store.enqueue_workflow(
                replace(draft, nodes=[*marked]),
                conn=conn,
                notify_in_transaction=self._notify_in_transaction,
            )
            self._workflow_told(marked, written, conn)
            return written

    async def asend_workflow(self, draft: Draft, *, conn: object | None) -> Written:
        """As `send_workflow`."""
        with self._sending(draft.nodes) as marked:
            written = await self.store.aenqueue_workflow(
                replace(draft, nodes=[*marked]),
                conn=conn,
                notify_in_transaction=self._notify_in_transaction,
            )
            self._workflow_told(marked, written, conn)
            return written

    def _workflow_told(self, jobs: Sequence[NewJob], written: Written, conn: object | None) -> None:
        if self.on_enqueued is not None and conn is None and written.created:
            self.on_enqueued(jobs, new_nodes(jobs))

    def wait_workflow(
        self, id: str | UUID, timeout: float | timedelta | None = None
    ) -> WorkflowInfo:
        """Wait until nothing of a workflow runs, or can run without help, and return how it is.

        Raises:
            TimeoutError: It has not stopped within `timeout`.
            NotFound: There is no such workflow.
        """
        for pause in pauses(timeout):
            found = self.get_workflow(id)
            if found is None:
                raise unknown_workflow(str(id))
            if found.state.has_stopped:
                return found
            time.sleep(pause)
        raise TimeoutError(f"workflow {id} has not stopped within {timeout} s")

    async def await_workflow(
        self,
        id: str | UUID,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  # as its blocking twin
    ) -> WorkflowInfo:
        """As `wait_workflow`."""
        for pause in pauses(timeout):
            found = await self.aget_workflow(id)
            if found is None:
                raise unknown_workflow(str(id))
            if found.state.has_stopped:
                return found
            await asyncio.sleep(pause)
        raise TimeoutError(f"workflow {id} has not stopped within {timeout} s")

    # Look

    def list(
        self,
        *,
        state: str | JobState | None = None,
        limit: int = config.LIST_LIMIT_DEFAULT,
        cursor: str | None = None,
        full: bool = False,
        **chosen: Unpack[FilterOptions],
    ) -> Page:
        """A page of jobs that match. Dead jobs come newest failure first, others newest first.

        Args:
            state: One of the eight. None: all.
            limit: The most jobs on this page, at most 1,000.
            cursor: The `next` of the page before.
            full: Also read payloads, results, meta and errors. By default they are left out,
                because they can be large: reading them from such a job raises `AttributeError`.
            chosen: Which jobs: the fields of `FilterOptions`.
        """
        return self.store.list(
            job_filter(**chosen), state=state, limit=limit, cursor=cursor, full=full
        )

    async def alist(
        self,
        *,
        state: str | JobState | None = None,
        limit: int = config.LIST_LIMIT_DEFAULT,
        cursor: str | None = None,
        full: bool = False,
        **chosen: Unpack[FilterOptions],
    ) -> Page:
        """As `list`."""
        return await self.store.alist(
            job_filter(**chosen), state=state, limit=limit, cursor=cursor, full=full
        )

    def wait(self, id: str | UUID, timeout: float | timedelta | None = None) -> Job:
        """Wait until a job has ended, and return it.

        Raises:
            TimeoutError: It has not ended within `timeout`.
            NotFound: There is no such job, or it was removed while waiting (keep=0).
        """
        for pause in pauses(timeout):
            job = _found(self.get(id), id)
            if job.state.is_terminal:
                return job
            time.sleep(pause)
        raise TimeoutError(f"job {id} has not finished within {timeout} s")

    async def await_(
        self,
        id: str | UUID,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  # as its blocking twin
    ) -> Job:
        """As `wait`. Named with an underscore because `await` is a keyword."""
        for pause in pauses(timeout):
            job = _found(await self.aget(id), id)
            if job.state.is_terminal:
                return job
            await asyncio.sleep(pause)
        raise TimeoutError(f"job {id} has not finished within {timeout} s")

    # Manage

    def retry(self, id: str | UUID, payload: Mapping[str, object] | None = None) -> Job:
        """Take a dead or cancelled job back to ready, optionally with another payload."""
        text = None if payload is None else self._new_payload(self.get(id), id, payload)
        return self.store.retry(id, text)

    async def aretry(self, id: str | UUID, payload: Mapping[str, object] | None = None) -> Job:
        """As `retry`."""
        text = None if payload is None else self._new_payload(await self.aget(id), id, payload)
        return await self.store.aretry(id, text)

    def _new_payload(self, job: Job | None, id: str | UUID, payload: Mapping[str, object]) -> str:
        kind = _found(job, id).kind
        task = self.find(kind)
        return task.schema.validate(payload) if task else codec.encode_payload(kind, payload)

    def run_again(self, id: str | UUID, payload: Mapping[str, object] | None = None) -> Job:
        """Enqueue an ended job again, as a new job, optionally with another payload.

        The new job has the options of the old one, and names it in its `meta`, as `run_again_of`.
        It raises `InvalidTransition` if the job has not ended, or a live job has its key.
        """
        text = None if payload is None else self._new_payload(self.get(id), id, payload)
        return self.store.run_again(id, text)

    async def arun_again(self, id: str | UUID, payload: Mapping[str, object] | None = None) -> Job:
        """As `run_again`."""
        text = None if payload is None else self._new_payload(await self.aget(id), id, payload)
        return await self.store.arun_again(id, text)

    def bulk(
        self,
        action: str | BulkAction,
        state: str | JobState | None = None,
        *,
        to: str | None = None,
        run_at: datetime | None = None,
        **chosen: Unpack[FilterOptions],
    ) -> BulkResult:
        """Act on all jobs that match, in transactions of up to 500 jobs.

        Args:
            action: `cancel`, `retry`, `delete`, `run_now`, `reschedule`, `reroute` or `run_again`.
            state: Only jobs in this state. Only `cancel` and `retry` work without it.
            to: The queue of a `reroute`.
            run_at: The time of a `reschedule`.
            chosen: Which jobs: the fields of `FilterOptions`.

        Example:
            app.bulk("reroute", "ready", queue="mial", to="mail")
        """
        return self.store.run(bulk(_selection(action, state, chosen, to=to, run_at=run_at)))

    async def abulk(
        self,
        action: str | BulkAction,
        state: str | JobState | None = None,
        *,
        to: str | None = None,
        run_at: datetime | None = None,
        **chosen: Unpack[FilterOptions],
    ) -> BulkResult:
        """As `bulk`."""
        wanted = _selection(action, state, chosen, to=to, run_at=run_at)
        return await self.store.arun(bulk(wanted))

    def retry_dead(self, **chosen: Unpack[FilterOptions]) -> BulkRetry:
        """Take all dead jobs that match back to ready. Jobs whose key is in use are skipped."""
        return self.store.retry_dead(job_filter(**chosen))

    async def aretry_dead(self, **chosen: Unpack[FilterOptions]) -> BulkRetry:
        """As `retry_dead`."""
        return await self.store.aretry_dead(job_filter(**chosen))


def _found(job: Job | None, id: str | UUID) -> Job:
    if job is None:
        raise unknown_job(str(id))
    return job


def _selection(
    action: str | BulkAction,
    state: str | JobState | None,
    chosen: FilterOptions,
    *,
    to: str | None,
    run_at: datetime | None,
) -> Selection:
    return selection(
        options.choice(BulkAction, action, option="action"),
        None if state is None else options.choice(JobState, state, option="state"),
        job_filter(**chosen),
        to=to,
        run_at=run_at,
    )
