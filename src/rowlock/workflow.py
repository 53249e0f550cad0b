"""Workflows, as users write them: jobs that wait for jobs.

    with app.workflow("crawl") as flow:
        pages = flow.map(fetch.job(url=url) for url in urls)
        flow.add(index.job(pages=pages.results), after=pages)

Nothing is written until the block ends: then all of it, or nothing.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Optional, Protocol, Self, TypeVar, cast, overload

from rowlock import config
from rowlock.clock import duration_us
from rowlock.errors import InvalidTransition, OptionInvalid
from rowlock.ids import new_id, parse_id
from rowlock.inputs import Input, Shape, StoredInput, stored_input, stored_inputs
from rowlock.job import Job
from rowlock.limits import TENANT, Limit
from rowlock.result_types import misfit, shown_type
from rowlock.signature import PayloadSchema
from rowlock.store import NewJob, options
from rowlock.store.ops.workflows import Draft, Edge, Stack, Written
from rowlock.store.options import NodePlace, TypedJob
from rowlock.workflow_info import WorkflowInfo
from rowlock.workflow_rules import FoldedNode, IfDead, Wants, When, fold, root_of, wants_of

R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

# The last bits of the ids of a workflow's jobs say which of its jobs they are.
_PLACE_BITS = 20
_MARKS = 0xF << 76 | 0x3 << 62
_VERSION_8 = 0x8 << 76 | 0x2 << 62


class Reference(Input):
    """Stands for the results of jobs that have not run yet: an argument of `task.job(...)`."""

    __slots__ = ("jobs", "result_type", "shape", "source")

    def __init__(self, source: str, jobs: Sequence[str], shape: Shape, result_type: Any) -> None:
        self.source: str = source
        self.jobs: Sequence[str] = jobs
        self.shape: Shape = shape
        self.result_type: Any = result_type

    def joined(self, inputs: Sequence[Input]) -> Reference:
        """What stands for a list of these. Each of them stands for one result."""
        references = [each for each in inputs if isinstance(each, Reference)]
        if any(each.shape.is_list for each in references):
            raise OptionInvalid("results", "must not be inside a list; pass them alone")
        may_be_none = any(each.shape.may_be_none for each in references)
        types = {each.result_type for each in references}
        return Reference(
            ", ".join(dict.fromkeys(each.source for each in references)),
            [job for each in references for job in each.jobs],
            Shape.LIST_OR_NONE if may_be_none else Shape.LIST,
            types.pop() if len(types) == 1 else Any,
        )

    @property
    def value_type(self) -> Any:
        """The type of the argument that it stands for."""
        one: Any = self.result_type
        if self.shape.may_be_none:
            one = Optional[one]  # noqa: UP045  # not every annotation takes `|`
        return list[one] if self.shape.is_list else one

    def __repr__(self) -> str:
        return f"<{self.source}>"

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{self!r} has no value before the workflow runs; pass it to task.job(...)")

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no value before the workflow runs; pass it to task.job(...)")


class Node(Generic[R_co]):
    """A job of a workflow that is not written yet. Made by `add`."""

    __slots__ = ("id", "kind", "result_type")

    def __init__(self, id: str, kind: str, result_type: Any) -> None:
        self.id: str = id
        self.kind: str = kind
        self.result_type: Any = result_type

    @property
    def result(self) -> R_co:
        """Stands for its result, as an argument of a job that runs after it."""
        return cast("R_co", self._reference(Shape.ONE))

    @property
    def result_or_none(self) -> R_co | None:
        """As `result`, for a job that also runs if this one did not succeed: then it is None."""
        return cast("R_co | None", self._reference(Shape.ONE_OR_NONE))

    def _reference(self, shape: Shape) -> Reference:
        return Reference(f"result of {self.kind}", [self.id], shape, self.result_type)

    def __repr__(self) -> str:
        return f"<Node {self.kind} {self.id}>"


class Group(Sequence[Node[R_co]]):
    """Jobs of a workflow that are not written yet. Made by `map`."""

    def __init__(self, nodes: Sequence[Node[R_co]]) -> None:
        self._nodes = nodes

    @overload
    def __getitem__(self, place: int) -> Node[R_co]: ...
    @overload
    def __getitem__(self, place: slice) -> Group[R_co]: ...
    def __getitem__(self, place: int | slice) -> Node[R_co] | Group[R_co]:
        if isinstance(place, slice):
            return Group(self._nodes[place])
        return self._nodes[place]

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def results(self) -> list[R_co]:
        """Stands for all their results, in the order of `map`."""
        return cast("list[R_co]", self._reference(Shape.LIST))

    @property
    def results_or_none(self) -> list[R_co | None]:
        """As `results`, for a job that also runs if some of them did not succeed.

        It gets None in their places.
        """
        return cast("list[R_co | None]", self._reference(Shape.LIST_OR_NONE))

    def _reference(self, shape: Shape) -> Reference:
        kinds = sorted({node.kind for node in self._nodes})
        result_type = self._nodes[0].result_type if len(kinds) == 1 else Any
        source = f"results of {', '.join(kinds) or 'no jobs'}"
        return Reference(source, [node.id for node in self._nodes], shape, result_type)

    def __repr__(self) -> str:
        return f"<Group of {len(self)}>"


Parent = Node[Any] | Group[Any] | Job | str | uuid.UUID
"""What a job can wait for: a node, a group, or a job that exists already, or its id."""
Parents = Parent | Iterable[Parent]


class _HasLimit(Protocol):
    """The options of a task, as a workflow sees them."""

    @property
    def limit(self) -> Limit | None: ...


class KnownTask(Protocol):
    """A task, as a workflow sees it."""

    @property
    def schema(self) -> PayloadSchema: ...
    @property
    def settings(self) -> _HasLimit: ...


Find = Callable[[str], KnownTask | None]


class Plan:
    """Jobs that wait for each other, being put together."""

    # Whether a job may bring an id. Only shims set this, and check that nobody has it.
    keeps_ids: bool = False

    def __init__(self, find: Find, draft: Draft, *, what: str) -> None:
        self._find = find
        self._draft = draft
        self._what = what
        self._first = _first_id(draft)
        self._wants: list[Wants] = []
        # The ids of its nodes, by which its own jobs are told from others.
        self._places: dict[str, int] = {}

    def add(
        self,
        job: TypedJob[R],
        *,
        after: Parents = (),
        when: When = "succeeded",
        if_dead: IfDead = "wait",
    ) -> Node[R]:
        """Add a job.

        Args:
            job: `task.job(...)`, or `task.using(...).job(...)`.
            after: What it waits for: nodes and groups of this workflow, and ids of jobs that exist
                already. Without it, the job can run at once.
            when: What it waits for them to do: "succeeded", "ended" (whatever happened), or "dead"
                (it runs once, if one of them dies, and is cancelled if none can any more).
            if_dead: With `when="succeeded"`, what to do if one of them is dead: "wait" until it is
                retried, "cancel" this job, or "run" it nevertheless.
        """
        self._check_open()
        return self._added(job, self._ids_of(after), wants_of(when, if_dead))

    def map(
        self,
        jobs: Iterable[TypedJob[R]],
        *,
        after: Parents = (),
        when: When = "succeeded",
        if_dead: IfDead = "wait",
    ) -> Group[R]:
        """Add many jobs that wait for the same. The arguments are those of `add`."""
        self._check_open()
        parents, wants = self._ids_of(after), wants_of(when, if_dead)
        return Group([self._added(job, parents, wants) for job in jobs])

    def _check_open(self) -> None:
        """Raise if nothing can be added any more."""

    def _added(self, added: TypedJob[R], parents: list[str], wants: Wants) -> Node[R]:
        draft, place, job = self._draft, len(self._draft.nodes), _new_job(added)
        _check_options(job, keeps_ids=self.keeps_ids)
        if place >= config.WORKFLOW_JOBS_MAX:
            most = config.WORKFLOW_JOBS_MAX
            raise OptionInvalid("job", f"{self._what} can have {most:,} jobs at most")
        if len(draft.edges) + len(parents) > config.WORKFLOW_EDGES_MAX:
            most = config.WORKFLOW_EDGES_MAX
            raise OptionInvalid("after", f"{self._what} can have {most:,} pairs of jobs at most")
        self._set_tenant(job)
        task = self._find(job.kind)
        job = _of_tenant(job, draft.tenant, None if task is None else task.settings.limit)
        inputs = self._inputs_of(job, parents, wants)
        node = NodePlace(draft.id, pending=len(parents), inputs=inputs)
        id = job.id if job.is_resend else str(uuid.UUID(int=self._first + place))
        if id in self._places:
            raise OptionInvalid("id", f"{id} is used twice in {self._what}")
        if wants is Wants.DEATH and not parents:
            # None of no jobs can die.
            node = node._replace(pending=1)
            draft.unneeded.append(id)
        draft.nodes.append(job._replace(id=id, node=node, inputs=None))
        draft.edges += [Edge(parent, id, int(wants)) for parent in parents]
        draft.outside.update(parent for parent in parents if parent not in self._places)
        self._wants.append(wants)
        self._places[id] = place
        return Node(id, job.kind, Any if task is None else task.schema.result_hint)

    def _set_tenant(self, job: NewJob) -> None:
        """All jobs of a workflow belong to one tenant, which is that of the first, if not given."""
        draft = self._draft
        if draft.tenant is None and not draft.nodes:
            draft.tenant = job.tenant
        if job.tenant not in (None, draft.tenant):
            raise OptionInvalid(
                "tenant",
                f"must be the same for all jobs of {self._what}: {draft.tenant!r}, not "
                f"{job.tenant!r}",
            )

    def _ids_of(self, after: Parents) -> list[str]:
        found = list(dict.fromkeys(_ids(after)))
        if len(found) > config.WORKFLOW_PARENTS_MAX:
            most = config.WORKFLOW_PARENTS_MAX
            raise OptionInvalid("after", f"must be {most:,} jobs at most, not {len(found):,}")
        return found

    def _inputs_of(self, job: NewJob, parents: Sequence[str], wants: Wants) -> str | None:
        if not job.inputs:
            return None
        known = set(parents)
        stored: dict[str, StoredInput] = {}
        task = self._find(job.kind)
        for name, reference in job.inputs.items():
            assert isinstance(reference, Reference)
            problem = _problem_of(reference, known, wants)
            if problem is None and task is not None:
                wanted = task.schema.hint_of(name)
                if misfit(reference.value_type, wanted):
                    given = shown_type(reference.value_type)
                    problem = f"is {given}, not {shown_type(wanted)}"
            if problem is not None:
                raise OptionInvalid(f"{job.kind}({name}=...)", f"the {reference.source} {problem}")
            stored[name] = stored_input(reference.shape, reference.jobs)
        return stored_inputs(stored)

    def finished(self) -> Draft:
        """The draft, complete."""
        draft, places = self._draft, self._places
        parents: list[list[int]] = [[] for _ in draft.nodes]
        has_children, watched = set[str](), set[str]()
        by_death = {
            job.id
            for job, wants in zip(draft.nodes, self._wants, strict=True)
            if wants is Wants.DEATH
        }
        for parent, child, wants in draft.edges:
            has_children.add(parent)
            if wants == Wants.DEATH:
                watched.add(parent)
            if parent in places:
                parents[places[child]].append(places[parent])
            if parent in by_death:
                by_death.add(child)
        folded = fold(
            [
                FoldedNode(job.kind, int(wants), before)
                for job, wants, before in zip(draft.nodes, self._wants, parents, strict=True)
            ],
            root=draft.root,
        )
        draft.stacks = [Stack(*row) for row in folded.rows]
        # What runs only after a death is not what others wait for.
        draft.sinks = [
            (job.id, stack)
            for job, stack in zip(draft.nodes, folded.stacks, strict=True)
            if job.id not in has_children and job.id not in by_death
        ]
        draft.nodes = [
            _placed(job, stack, watched=job.id in watched)
            for job, stack in zip(draft.nodes, folded.stacks, strict=True)
        ]
        return draft


def _placed(job: NewJob, stack: int, *, watched: bool) -> NewJob:
    assert job.node is not None
    return job._replace(node=job.node._replace(stack=stack, watched=watched))


def _ids(after: Parents) -> Iterator[str]:
    match after:
        case Node() | Job():
            yield after.id
        case str() | uuid.UUID():
            yield parse_id(after, option="after")
        case Iterable():
            for each in after:
                yield from _ids(each)
        case _:
            raise OptionInvalid("after", f"must be nodes, groups or ids of jobs, not {after!r}")


def _new_job(job: object) -> NewJob:
    if not isinstance(job, NewJob):
        raise OptionInvalid("job", f"must be task.job(...), not {job!r}")
    return job


def _of_tenant(job: NewJob, tenant: str | None, limit: Limit | None) -> NewJob:
    """The same job for a tenant. If its limit is per tenant, it counts there for that one."""
    made = job._replace(tenant=tenant)
    if limit is None or limit.per is not TENANT or (job.limit is not None and job.limit.key):
        return made
    return made._replace(limit=limit.place_at(tenant or ""))


def _check_options(job: NewJob, *, keeps_ids: bool) -> None:
    if job.replaces:
        raise OptionInvalid("if_held", "must not be 'replace' in a workflow, nor quiet be given")
    if job.is_resend and not keeps_ids:
        raise OptionInvalid("id", "is given by the workflow; leave it out")


def _problem_of(reference: Reference, known: set[str], wants: Wants) -> str | None:
    """Why a job that waits for `known` can't have these results."""
    if not known.issuperset(reference.jobs):
        return "is known after it has run: name it in `after`"
    if wants > Wants.SUCCESS_OR_CANCEL and not reference.shape.may_be_none:
        name = "results_or_none" if reference.shape.is_list else "result_or_none"
        return f"may not exist when this job runs: use .{name}"
    return None


def _first_id(draft: Draft) -> int:
    """The id of the first job of a workflow. Those of the others follow."""
    if not draft.is_resend:
        return uuid.UUID(new_id()).int >> _PLACE_BITS << _PLACE_BITS
    # The same for the same workflow, whose id was chosen by the user.
    digest = hashlib.sha256(f"workflow {draft.tenant or ''}\0{draft.id}".encode()).digest()
    hashed = int.from_bytes(digest[:16], "big") & ~_MARKS | _VERSION_8
    return hashed >> _PLACE_BITS << _PLACE_BITS


class WorkflowHome(Protocol):
    """The app, as a workflow sees it."""

    def find(self, kind: str) -> KnownTask | None: ...
    def send_workflow(self, draft: Draft, *, conn: object | None) -> Written: ...
    async def asend_workflow(self, draft: Draft, *, conn: object | None) -> Written: ...
    def wait_workflow(self, id: str, timeout: float | timedelta | None = None) -> WorkflowInfo: ...
    async def await_workflow(
        self,
        id: str,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  # as its blocking twin
    ) -> WorkflowInfo: ...
    def cancel_workflow(self, id: str) -> int: ...
    async def acancel_workflow(self, id: str) -> int: ...
    def retry_workflow(self, id: str) -> int: ...
    async def aretry_workflow(self, id: str) -> int: ...


class Workflow(Plan):
    """Jobs that wait for each other. Made by `app.workflow(...)`.

    Use it as a context manager, also with `async with`: it is written when the block ends. If the
    block raises, nothing is written.
    """

    def __init__(
        self,
        home: WorkflowHome,
        name: str,
        *,
        key: str | None = None,
        tenant: str | None = None,
        deadline: float | timedelta | None = None,
        meta: Mapping[str, object] | None = None,
        id: str | uuid.UUID | None = None,
        conn: object | None = None,
    ) -> None:
        draft = Draft(
            id=new_id() if id is None else parse_id(id),
            name=options.name(name, option="name"),
            key=None if key is None else options.name(key, option="key"),
            tenant=None if tenant is None else options.name(tenant, option="tenant"),
            deadline_us=None if deadline is None else duration_us(deadline, option="deadline"),
            meta=None if meta is None else options.meta_of(meta),
            is_resend=id is not None,
        )
        super().__init__(home.find, draft, what="a workflow")
        self._home = home
        self._conn = conn
        self._written: Written | None = None

    @property
    def id(self) -> str:
        """Its id. With a `key` that an open workflow holds, it is that workflow's after writing."""
        return self._draft.id if self._written is None else self._written.id

    @property
    def created(self) -> bool:
        """Whether it was written. False if it was there already, by its id or its key."""
        return self._written is not None and self._written.created

    def enqueue(self) -> Self:
        """Write it now. The end of the block does this."""
        self._check_open()
        self._written = self._home.send_workflow(self.finished(), conn=self._conn)
        return self

    async def aenqueue(self) -> Self:
        """As `enqueue`."""
        self._check_open()
        self._written = await self._home.asend_workflow(self.finished(), conn=self._conn)
        return self

    def _check_open(self) -> None:
        if self._written is not None:
            raise InvalidTransition(
                self.id, "this workflow is written; a running job can add to it: ctx.workflow.add"
            )

    def wait(self, timeout: float | timedelta | None = None) -> WorkflowInfo:
        """Wait until nothing of it runs or can run any more, and return how it is.

        Raises:
            TimeoutError: It has not stopped within `timeout`.
        """
        return self._home.wait_workflow(self.id, timeout)

    async def await_(
        self,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  # as its blocking twin
    ) -> WorkflowInfo:
        """As `wait`. Named with an underscore because `await` is a keyword."""
        return await self._home.await_workflow(self.id, timeout)

    def cancel(self) -> int:
        """Cancel all its jobs that have not ended. Returns their number."""
        return self._home.cancel_workflow(self.id)

    async def acancel(self) -> int:
        """As `cancel`."""
        return await self._home.acancel_workflow(self.id)

    def retry(self) -> int:
        """Retry its dead jobs, and those that were cancelled because of them."""
        return self._home.retry_workflow(self.id)

    async def aretry(self) -> int:
        """As `retry`."""
        return await self._home.aretry_workflow(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._written is None:
            self.enqueue()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._written is None:
            await self.aenqueue()

    def __repr__(self) -> str:
        return f"<Workflow {self._draft.name!r} {self.id}>"


class Growth(Plan):
    """Jobs that a running job adds to its workflow, if it succeeds. It is `ctx.workflow`.

    Jobs that wait for this job also wait for the last of the added ones.
    """

    def __init__(self, find: Find, job: Job, is_settled: Callable[[], bool]) -> None:
        draft = Draft(
            id=new_id() if job.workflow is None else job.workflow,
            name=job.kind,
            tenant=job.tenant,
            parent=job.id,
            root=root_of(job.kind) if job.stack is None else int(job.stack),
        )
        super().__init__(find, draft, what="a job's addition to its workflow")
        self._job = job
        self._is_settled = is_settled

    @property
    def id(self) -> str:
        """The id of the workflow. If the job belongs to none, that of one that it begins."""
        return self._draft.id

    def _check_open(self) -> None:
        if self._is_settled():
            raise InvalidTransition(
                self._job.id, "its success is already committed; add jobs inside the block"
            )


ChainStep = TypedJob[Any] | Callable[[Any], TypedJob[Any]]
"""A job of a chain, or a function that gets the result of the job before and returns one."""


def put_chain(flow: Workflow, jobs: Sequence[ChainStep]) -> Workflow:
    """Add jobs that run one after the other."""
    last: Node[Any] | None = None
    for step in jobs:
        if not callable(step):
            job = step
        elif last is None:
            raise OptionInvalid("jobs", "the first must be task.job(...): it gets no result")
        else:
            job = step(last.result)
        last = flow.add(job, after=() if last is None else last)
    return flow


def put_chord(
    flow: Workflow,
    jobs: Iterable[TypedJob[R]],
    body: TypedJob[T] | Callable[[list[R]], TypedJob[T]],
) -> Workflow:
    """Add jobs that run side by side, and one that runs when all have succeeded."""
    group = flow.map(jobs)
    last = body(group.results) if callable(body) else body
    flow.add(last, after=group)
    return flow
