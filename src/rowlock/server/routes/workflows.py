"""`/v1/workflows`: enqueue jobs that wait for each other, look at them, cancel and retry them.

A token that is bound to a tenant sees and touches the workflows of that tenant alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rowlock import config
from rowlock.clock import duration_us
from rowlock.errors import OptionInvalid, PayloadInvalid, shown
from rowlock.ids import new_id, parse_id
from rowlock.inputs import Input
from rowlock.job import Count, JobState
from rowlock.server.gate import Caller
from rowlock.server.problems import FieldProblem, field_problems
from rowlock.server.routes.enqueue import (
    KEY_HEADER,
    KEY_TEXT,
    REPLAYED,
    JobOptions,
    content_of,
    given_options,
    idempotency_key,
    invalid_fields,
    key_reused,
    meta_of,
    not_both,
    own_id,
)
from rowlock.server.routes.jobs import JobPage, job_id
from rowlock.server.routing import AnyRoute, Call, Example, Link, Reply, Route, job_links, scopes
from rowlock.server.schemas import (
    EXAMPLE_AT,
    EXAMPLE_ID,
    EXAMPLE_JOB,
    JobSummary,
    JsonObject,
    Name,
    PageCursor,
    PageLimit,
    Seconds,
    Uuid,
    copied,
    summary_of,
)
from rowlock.server.service import Service
from rowlock.store import options
from rowlock.store.ops.audit import audited
from rowlock.store.ops.idempotency import FirstAnswer, KeyedRequest, KeyReused, enqueue_once
from rowlock.store.ops.workflow_info import (
    get_workflow,
    list_workflows,
    unknown_workflow,
    workflow_graph,
    workflow_jobs,
)
from rowlock.store.ops.workflow_manage import cancel_workflow, retry_workflow
from rowlock.store.ops.workflows import Draft, Written, enqueue_workflow
from rowlock.store.steps import Op
from rowlock.tokens import Scope
from rowlock.workflow import Group, Node, Parent, Plan
from rowlock.workflow_info import WorkflowInfo
from rowlock.workflow_rules import WorkflowState, in_order

ParentName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=config.NAME_CHARACTERS_MAX,
        description="The name of a job of this request, or the id of a job that exists.",
    ),
]
ParentNames = Annotated[list[ParentName], Meta(max_length=config.WORKFLOW_PARENTS_MAX)]


class NewNode(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of a workflow. Options that are left out are those of its task.

    Its `delay` begins when it no longer waits for other jobs.
    """

    RULES: ClassVar[Mapping[str, Any]] = {"allOf": [not_both("delay", "run_at")]}

    name: (
        Annotated[Name, Meta(description="What others in this request call it. It is not stored.")]
        | None
    ) = None
    after: Annotated[ParentNames, Meta(description="The jobs that it waits for.")] = msgspec.field(
        default_factory=list[str]
    )
    when: Annotated[
        Literal["succeeded", "ended", "dead"],
        Meta(
            description="What it waits for them to do. `dead`: it runs if one of them dies, and is "
            "cancelled if none can any more."
        ),
    ] = "succeeded"
    if_dead: Annotated[
        Literal["wait", "cancel", "run"],
        Meta(
            description="With `when: succeeded`, what to do if one of them is dead: wait until it "
            "is retried, cancel this job, or run it nevertheless."
        ),
    ] = "wait"
    inputs: Annotated[
        dict[Name, ParentName | ParentNames],
        Meta(
            description="Arguments that are results of jobs in `after`: of one, or a list of those "
            "of many. A job that did not succeed gives null."
        ),
    ] = msgspec.field(default_factory=dict[str, str | list[str]])


class NewWorkflow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs that wait for each other. All of them are enqueued, or none."""

    name: Name
    jobs: Annotated[list[NewNode], Meta(min_length=1, max_length=config.HTTP_BATCH_MAX)]
    key: Annotated[Name, Meta(description="One open workflow per tenant, name and key.")] | None = (
        None
    )
    tenant: Annotated[Name, Meta(description="By default the tenant of the token.")] | None = None
    deadline: (
        Annotated[Seconds, Meta(description="Seconds until what is left of it is cancelled.")]
        | None
    ) = None
    meta: JsonObject | UnsetType = UNSET
    id: (
        Annotated[
            Uuid,
            Meta(
                description="The same id again means the same workflow. If the token is bound to a "
                "tenant, the workflow's own id is derived from both: it is the `id` of the answer."
            ),
        ]
        | None
    ) = None


class WorkflowReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The workflow that was enqueued or found. `created` is false if it existed.

    `jobs` has the ids of the jobs that have names, if it is new. A job whose key another one holds
    is that other one.
    """

    id: Uuid
    created: bool
    jobs: dict[str, Uuid]


class WorkflowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs by state. `ready` has those that are scheduled and retrying, too."""

    waiting: Count
    ready: Count
    running: Count
    succeeded: Count
    dead: Count
    cancelled: Count


class WorkflowSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow, with the numbers of its jobs.

    `dead`: no job can run, and a job is dead. Retry it, and the workflow continues. `parent` is the
    job that began it. `not_needed` jobs were to run only if another job died, which can't happen
    any more.
    """

    id: Uuid
    name: str
    state: WorkflowState
    created_at: datetime
    ended_at: datetime | None
    deadline: datetime | None
    key: str | None
    tenant: str | None
    parent: Uuid | None
    meta: dict[str, Any]
    counts: WorkflowCounts
    not_needed: Count


class Workflows(msgspec.Struct, frozen=True, kw_only=True):
    """Workflows, newest first. A short or empty page may have a `next`: continue until it is null.

    Counts are exact up to 1,000.
    """

    workflows: list[WorkflowSchema]
    next: str | None


class WorkflowStackSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are alike: of one kind, waiting for the same stacks, which are named in `after`."""

    id: str
    kind: str
    after: list[str]
    when: str
    counts: WorkflowCounts


class WorkflowGraphSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a workflow: its jobs, folded into stacks. Parents come before children."""

    workflow: WorkflowSchema
    stacks: list[WorkflowStackSchema]


class WorkflowChanged(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs were cancelled or retried, and the workflow as it is now."""

    jobs: int
    workflow: WorkflowSchema


class WorkflowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflows, and which page of them."""

    name: Name | None = None
    state: WorkflowState | None = None
    tenant: Name | None = None
    limit: PageLimit = 50
    cursor: PageCursor | None = None


class WorkflowJobQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs of a workflow, and which page of them."""

    stack: Annotated[Name, Meta(description="Only jobs of this stack.")] | None = None
    state: JobState | None = None
    limit: PageLimit = 50
    cursor: PageCursor | None = None


# Enqueue


class _Planned(NamedTuple):
    """A workflow to write, and the ids of its jobs that have names."""

    draft: Draft
    named: dict[str, str]


def plan_of(service: Service, caller: Caller, new: NewWorkflow) -> _Planned:
    """The workflow to write, checked. A refusal names the bad fields of all jobs, up to a bound."""
    draft = Draft(
        id=new_id() if new.id is None else own_id(caller, parse_id(new.id)),
        name=options.name(new.name, option="name"),
        key=new.key,
        tenant=caller.tenant_of(new.tenant),
        deadline_us=None if new.deadline is None else duration_us(new.deadline, option="deadline"),
        meta=options.meta_of(meta_of(caller, new.meta)),
        is_resend=new.id is not None,
    )
    builder = _Builder(service, caller, new.jobs, Plan(service.app.find, draft, what="a workflow"))
    builder.add_all(draft.tenant)
    named = {job.name: builder.nodes[place].id for job, place in builder.named()}
    return _Planned(builder.plan.finished(), named)


class _Builder:
    """Adds the jobs of a request to a plan, parents first."""

    def __init__(
        self, service: Service, caller: Caller, jobs: Sequence[NewNode], plan: Plan
    ) -> None:
        self._service = service
        self._caller = caller
        self._jobs = jobs
        self.plan = plan
        self.nodes: dict[int, Node[Any]] = {}
        self._places = self._named_places()

    def named(self) -> list[tuple[Any, int]]:
        """The jobs that have names, and their places."""
        return [(self._jobs[place], place) for place in self._places.values()]

    def add_all(self, tenant: str | None) -> None:
        problems: list[FieldProblem] = []
        codes: set[str] = set()
        for place in self._order():
            job = self._jobs[place]
            if any(self._places.get(name, place) not in self.nodes for name in self._inner(job)):
                # The job that it waits for is refused already.
                continue
            try:
                self.nodes[place] = self._added(job, tenant)
            except (PayloadInvalid, OptionInvalid) as error:
                codes.add(error.code)
                problems += field_problems(error, within=f"jobs[{place}].")
                if len(problems) >= config.FIELD_ERRORS_MAX:
                    break
        if problems:
            raise invalid_fields(problems, codes)

    def _inner(self, job: NewNode) -> list[str]:
        """The jobs of this request that a job waits for."""
        return [name for name in job.after if name in self._places]

    def _named_places(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for place, job in enumerate(self._jobs):
            if job.name is None:
                continue
            if job.name in places:
                first = places[job.name]
                problem = f"{shown(job.name)} is the name of jobs[{first}] already"
                raise OptionInvalid(f"jobs[{place}].name", problem)
            places[job.name] = place
        return places

    def _order(self) -> list[int]:
        """The places of the jobs, parents first."""
        order = in_order([[self._places[name] for name in self._inner(job)] for job in self._jobs])
        if order.circle:
            names = [shown(self._jobs[place].name) for place in order.circle]
            rest = ["…"] if len(names) > _CIRCLE_SHOWN else []
            path = " → ".join([*names[:_CIRCLE_SHOWN], *rest, names[0]])
            problem = f"jobs wait for each other in a circle: {path}; take one out of `after`"
            raise OptionInvalid(f"jobs[{order.circle[0]}].after", problem)
        return order.places

    def _added(self, new: NewNode, tenant: str | None) -> Node[Any]:
        may_be_none = new.when != "succeeded" or new.if_dead == "run"
        inputs = {
            name: self._input(name, source, may_be_none=may_be_none)
            for name, source in new.inputs.items()
        }
        given = given_options(self._service, self._caller, new)
        twice = sorted(inputs.keys() & given["payload"].keys())
        if twice:
            raise OptionInvalid(f"inputs.{twice[0]}", "is in the payload, too; give it once")
        given["tenant"] = tenant
        job: Any = self._service.app.prepare(given, inputs)
        after = [self._parent(name, option="after") for name in new.after]
        return self.plan.add(job, after=after, when=new.when, if_dead=new.if_dead)

    def _input(self, name: str, source: str | list[str], *, may_be_none: bool) -> Input:
        """What stands for the results that an argument gets."""
        option = f"inputs.{name}"
        reference: Any
        if isinstance(source, str):
            node = self._source(source, option=option)
            reference = node.result_or_none if may_be_none else node.result
        else:
            group = Group([self._source(each, option=option) for each in source])
            reference = group.results_or_none if may_be_none else group.results
        assert isinstance(reference, Input)
        return reference

    def _source(self, name: str, *, option: str) -> Node[Any]:
        found = self._parent(name, option=option)
        return found if isinstance(found, Node) else Node(str(found), "job", Any)

    def _parent(self, name: str, *, option: str) -> Parent:
        place = self._places.get(name)
        if place is not None:
            if place not in self.nodes:
                raise OptionInvalid(option, f"name {shown(name)} in `after`, too")
            return self.nodes[place]
        try:
            return parse_id(name)
        except OptionInvalid:
            problem = f"{shown(name)} is neither the name of a job here nor the id of one"
            raise OptionInvalid(option, problem) from None


_CIRCLE_SHOWN: Final = 5


async def create_workflow(call: Call[NewWorkflow, None]) -> Reply:
    key, service, caller = idempotency_key(call.request), call.service, call.caller
    # Checking thousands of payloads takes a while, and would block the loop.
    size = config.HTTP_BATCH_BYTES_MAX
    planned = await service.compute(size, plan_of, service, caller, call.body)
    op, headers = enqueue_workflow(planned.draft), dict[str, str]()
    written: Written | FirstAnswer | KeyReused
    if key is None:
        written = await service.store.arun(op)
    else:
        content = await service.compute(size, content_of, call.body)
        request = KeyedRequest.of(key, tenant=caller.tenant, content=content)
        once = enqueue_once(op, request, answer=lambda made: _receipt_text(planned, made))
        written = await service.store.arun(once)
    if isinstance(written, KeyReused):
        raise key_reused()
    if isinstance(written, FirstAnswer):
        receipt = msgspec.json.decode(written.text, type=WorkflowReceipt)
        # An answer of our own is found if only the reply to its commit was lost.
        is_own = receipt.id == planned.draft.id and not planned.draft.is_resend
        headers = {} if is_own else dict(REPLAYED)
        is_new = is_own
    else:
        receipt = _receipt(planned, written)
        is_new = written.created
    if is_new:
        service.ledger.enqueued(planned.draft.nodes)
    place = f"{call.request.scope.get('root_path', '')}/v1/workflows/{receipt.id}"
    status = 201 if receipt.created else 200
    return Reply(receipt, status=status, headers={"location": place, **headers})


def _receipt(planned: _Planned, made: Written) -> WorkflowReceipt:
    return WorkflowReceipt(
        id=made.id, created=made.created, jobs=planned.named if made.created else {}
    )


def _receipt_text(planned: _Planned, made: Written) -> str:
    return msgspec.json.encode(_receipt(planned, made)).decode()


# Look


async def list_page(call: Call[None, WorkflowQuery]) -> Reply:
    query = call.query
    op = list_workflows(
        name=query.name,
        state=query.state,
        tenant=call.caller.tenant_of(query.tenant),
        limit=query.limit,
        cursor=await call.after(),
    )
    page = await call.store.arun(op)
    found = [workflow_of(each) for each in page]
    return Reply(Workflows(workflows=found, next=await call.next(page.next)))


def workflow_of(found: WorkflowInfo) -> WorkflowSchema:
    return copied(found, WorkflowSchema, counts=_counts_of(found.counts))


def _counts_of(counts: Mapping[JobState, Count]) -> WorkflowCounts:
    none = Count(0)
    names = WorkflowCounts.__struct_fields__
    return WorkflowCounts(**{name: counts.get(JobState(name), none) for name in names})


async def get_one(call: Call[None, None]) -> Reply:
    return Reply(await _found(call, job_id(call)))


async def _found(call: Call[Any, Any], id: str) -> WorkflowSchema:
    found = await call.store.arun(get_workflow(id, tenant=call.caller.tenant))
    if found is None:
        raise unknown_workflow(id)
    return workflow_of(found)


async def get_graph(call: Call[None, None]) -> Reply:
    found = await call.store.arun(workflow_graph(job_id(call), tenant=call.caller.tenant))
    return Reply(
        WorkflowGraphSchema(
            workflow=workflow_of(found.workflow),
            stacks=[
                copied(each, WorkflowStackSchema, counts=_counts_of(each.counts))
                for each in found.stacks
            ],
        )
    )


async def list_jobs(call: Call[None, WorkflowJobQuery]) -> Reply:
    query = call.query
    op = workflow_jobs(
        job_id(call),
        stack=query.stack,
        state=query.state,
        limit=query.limit,
        cursor=await call.after(),
        tenant=call.caller.tenant,
    )
    page = await call.store.arun(op)
    return Reply(JobPage(jobs=[summary_of(each) for each in page], next=await call.next(page.next)))


# Manage


async def cancel_one(call: Call[None, None]) -> Reply:
    id = job_id(call)
    return await _change(call, "workflow.cancel", cancel_workflow(id, tenant=call.caller.tenant))


async def retry_one(call: Call[None, None]) -> Reply:
    id = job_id(call)
    return await _change(call, "workflow.retry", retry_workflow(id, tenant=call.caller.tenant))


async def _change(call: Call[Any, Any], action: str, op: Op[int]) -> Reply:
    """Change a workflow, and answer with what it is now."""
    id = job_id(call)
    deed = call.deed(action, id)
    number = await call.store.arun(audited(op, deed, detail=lambda jobs: {"jobs": jobs}))
    return Reply(WorkflowChanged(jobs=number, workflow=await _found(call, id)))


_COUNTS: Final = WorkflowCounts(
    waiting=Count(1),
    ready=Count(2),
    running=Count(1),
    succeeded=Count(0),
    dead=Count(0),
    cancelled=Count(0),
)
_WORKFLOW = WorkflowSchema(
    id=EXAMPLE_ID,
    name="crawl",
    state=WorkflowState.RUNNING,
    created_at=EXAMPLE_AT,
    ended_at=None,
    deadline=None,
    key=None,
    tenant=None,
    parent=None,
    meta={},
    counts=_COUNTS,
    not_needed=Count(0),
)
_NEW = NewWorkflow(
    name="crawl",
    jobs=[
        NewNode(kind="fetch", name="home", payload=msgspec.Raw(b'{"url": "https://example.com"}')),
        NewNode(
            kind="fetch", name="about", payload=msgspec.Raw(b'{"url": "https://example.com/about"}')
        ),
        NewNode(
            kind="index",
            name="index",
            after=["home", "about"],
            inputs={"pages": ["home", "about"]},
        ),
        NewNode(kind="page_somebody", after=["index"], when="dead"),
    ],
)
_RECEIPT = WorkflowReceipt(id=EXAMPLE_ID, created=True, jobs={"home": EXAMPLE_ID})


def _links(id: str) -> list[Link]:
    """The calls that concern one workflow, whose id is at this place of an answer."""
    looks = ("getWorkflow", "getWorkflowGraph", "listWorkflowJobs")
    return [Link(each, {"id": id}) for each in (*looks, "cancelWorkflow", "retryWorkflow")]


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/workflows",
        operation="listWorkflows",
        summary="A page of workflows, with counts of their jobs",
        handler=list_page,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=WorkflowQuery,
        answers={200: Workflows},
        links={Workflows: _links("$response.body#/workflows/0/id")},
        example=Example(Workflows(workflows=[_WORKFLOW], next=None)),
    ),
    Route(
        method="POST",
        path="/v1/workflows",
        operation="createWorkflow",
        summary="Enqueue jobs that wait for each other, all or none",
        description="The status is 201 if the workflow is new, 200 if one with its key or id "
        "existed. Jobs that wait for each other in a circle are refused.",
        handler=create_workflow,
        scopes=scopes(Scope.ENQUEUE),
        body=NewWorkflow,
        bytes_max=config.HTTP_BATCH_BYTES_MAX,
        headers={KEY_HEADER: KEY_TEXT},
        answers={201: WorkflowReceipt, 200: WorkflowReceipt},
        located=WorkflowReceipt,
        links={WorkflowReceipt: _links("$response.body#/id")},
        refusals=["payload_invalid", "idempotency_key_reused", "not_found"],
        example=Example(_RECEIPT, _NEW),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}",
        operation="getWorkflow",
        summary="A workflow, with counts of its jobs",
        handler=get_one,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        answers={200: WorkflowSchema},
        refusals=["not_found"],
        example=Example(_WORKFLOW),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/graph",
        operation="getWorkflowGraph",
        summary="The shape of a workflow, with jobs that are alike folded into stacks",
        handler=get_graph,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        answers={200: WorkflowGraphSchema},
        refusals=["not_found"],
        example=Example(
            WorkflowGraphSchema(
                workflow=_WORKFLOW,
                stacks=[
                    WorkflowStackSchema(
                        id="4611686018427387904",
                        kind="fetch",
                        after=[],
                        when="succeeded",
                        counts=_COUNTS,
                    )
                ],
            )
        ),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{id}/jobs",
        operation="listWorkflowJobs",
        summary="A page of the jobs of a workflow",
        description="Dead ones first, then live ones, then the others.",
        handler=list_jobs,
        is_expensive=True,
        scopes=scopes(Scope.READ),
        query=WorkflowJobQuery,
        answers={200: JobPage},
        links={JobPage: job_links("$response.body#/jobs/0/id")},
        refusals=["not_found"],
        example=Example(JobPage(jobs=[copied(EXAMPLE_JOB, JobSummary)], next=None)),
    ),
    Route(
        method="POST",
        path="/v1/workflows/{id}/cancel",
        operation="cancelWorkflow",
        summary="Cancel all jobs of a workflow that have not ended",
        description="Jobs that run are asked to stop. Nothing can be added to it any more.",
        handler=cancel_one,
        scopes=scopes(Scope.ADMIN),
        answers={200: WorkflowChanged},
        refusals=["not_found"],
        example=Example(WorkflowChanged(jobs=4, workflow=_WORKFLOW)),
    ),
    Route(
        method="POST",
        path="/v1/workflows/{id}/retry",
        operation="retryWorkflow",
        summary="Retry the dead jobs of a workflow, and those cancelled because of them",
        handler=retry_one,
        scopes=scopes(Scope.ADMIN),
        answers={200: WorkflowChanged},
        refusals=["not_found", "invalid_transition"],
        example=Example(WorkflowChanged(jobs=1, workflow=_WORKFLOW)),
    ),
]
