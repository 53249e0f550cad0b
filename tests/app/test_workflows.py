"""Workflows: jobs that wait for jobs, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rowlock import TENANT, App, Context, ManualClock
from rowlock.errors import InvalidTransition, NotFound, OptionInvalid
from rowlock.job import Job, JobState
from rowlock.store.ops.workflow_manage import tend_workflows
from rowlock.workflow import Node, Workflow
from rowlock.workflow_rules import WorkflowState


class Shop:
    """An app with a few tasks, and what they have done."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.log: list[str] = []
        self.broken: set[str] = set()

        @app.task(max_attempts=1)
        def step(name: str, before: str = "") -> str:
            if name in self.broken:
                raise ValueError(name)
            self.log.append(f"{before}>{name}" if before else name)
            return name

        @app.task
        def join(names: list[str]) -> str:
            self.log.append("+".join(names))
            return "+".join(names)

        @app.task
        def sum_up(names: list[str | None]) -> int:
            self.log.append("+".join(name or "none" for name in names))
            return len(names)

        @app.task
        async def alone(name: str | None) -> str | None:
            self.log.append(f"alone with {name}")
            return name

        @app.task
        def split(ctx: Context, number: int) -> int:
            parts = ctx.workflow.map(step.job(name=f"part {n}") for n in range(number))
            ctx.workflow.add(join.job(names=parts.results), after=parts)
            return number

        self.step, self.join, self.sum_up, self.alone = step, join, sum_up, alone
        self.split = split

    def states(self, flow: Workflow | str) -> dict[str, str]:
        """The state of each job, by its kind and name."""
        id = flow if isinstance(flow, str) else flow.id
        found: dict[str, str] = {}
        for listed in self.app.workflow_jobs(id):
            job = self.app.get(listed.id)
            assert job is not None
            found[job.payload.get("name", job.kind)] = job.state.value
        return found

    def state(self, flow: Workflow) -> WorkflowState:
        """The state of a workflow."""
        found = self.app.get_workflow(flow.id)
        assert found is not None
        return found.state


@pytest.fixture
def shop(app: App) -> Shop:
    """A shop on each store."""
    return Shop(app)


def test_jobs_run_after_those_that_they_wait_for(shop: Shop):
    """A fan-out, a job that gets all results, in the order of the map, and one that gets its."""
    with shop.app.workflow("crawl") as flow:
        pages = flow.map(shop.step.job(name=name) for name in "abc")
        joined = flow.add(shop.join.job(names=pages.results), after=pages)
        flow.add(shop.step.job(name="report", before=joined.result), after=joined)
    waiting = shop.states(flow)
    shop.app.drain()

    assert waiting == {"a": "ready", "b": "ready", "c": "ready", "join": "waiting"} | {
        "report": "waiting"
    }
    assert shop.log == ["a", "b", "c", "a+b+c", "a+b+c>report"]
    assert shop.state(flow) is WorkflowState.SUCCEEDED


def _raise_after(node: Node[str]) -> None:
    raise ValueError(f"mine, after {node}")


def test_nothing_is_written_if_the_block_raises(shop: Shop):
    """Neither the workflow nor a job of it."""
    flow = shop.app.workflow("half")
    with pytest.raises(ValueError, match="mine"), flow:
        _raise_after(flow.add(shop.step.job(name="a")))

    assert (shop.app.get_workflow(flow.id), list(shop.app.list())) == (None, [])


ENDS = {
    "succeeded": (
        {"wait": "succeeded", "cancel": "succeeded", "run": "succeeded", "ended": "succeeded"}
        | {"dead": "cancelled"},
        "succeeded",
    ),
    "dead": (
        {"wait": "waiting", "cancel": "cancelled", "run": "succeeded", "ended": "succeeded"}
        | {"dead": "succeeded"},
        "dead",
    ),
    "cancelled": (
        {"wait": "cancelled", "cancel": "cancelled", "run": "cancelled", "ended": "succeeded"}
        | {"dead": "cancelled"},
        "cancelled",
    ),
}


def _with_every_child(shop: Shop) -> Workflow:
    with shop.app.workflow("every child") as flow:
        parent = flow.add(shop.step.job(name="parent"))
        flow.add(shop.step.job(name="wait"), after=parent)
        flow.add(shop.step.job(name="cancel"), after=parent, if_dead="cancel")
        flow.add(shop.step.job(name="run"), after=parent, if_dead="run")
        flow.add(shop.step.job(name="ended"), after=parent, when="ended")
        flow.add(shop.step.job(name="dead"), after=parent, when="dead")
    return flow


def _parent(shop: Shop, flow: Workflow) -> str:
    (job,) = [each for each in shop.app.workflow_jobs(flow.id) if each.waits_for == 0]
    return job.id


@pytest.mark.parametrize("end", ENDS)
def test_what_the_end_of_a_job_means(shop: Shop, end: str):
    """For each way to wait for it, and for the state of the workflow."""
    flow = _with_every_child(shop)
    if end == "dead":
        shop.broken.add("parent")
    if end == "cancelled":
        shop.app.cancel(_parent(shop, flow))
    shop.app.drain()
    children, state = ENDS[end]

    assert shop.states(flow) == {"parent": end} | children
    assert shop.state(flow) == state


@pytest.mark.parametrize("cascade", [True, False])
def test_delete_a_job_that_others_wait_for(shop: Shop, cascade: bool):
    """Only on request: then those that need its success are cancelled."""
    flow = _with_every_child(shop)
    shop.broken.add("parent")
    parent = _parent(shop, flow)
    shop.app.drain()
    before = shop.states(flow)
    if cascade:
        shop.app.delete(parent, cascade=True)
        assert shop.states(flow)["wait"] == "cancelled"
    else:
        with pytest.raises(InvalidTransition, match="other jobs wait for it"):
            shop.app.delete(parent)
        assert shop.states(flow) == before


def test_pruning_a_dead_job_cancels_what_waits_for_it(shop: Shop, clock: ManualClock):
    """After its own retention. The others are kept until none of the workflow is live."""
    flow = _with_every_child(shop)
    shop.broken.add("parent")
    shop.app.drain()
    clock.advance(timedelta(days=29))
    early = shop.app.store.prune()
    clock.advance(timedelta(days=2))
    shop.app.store.prune()
    left = shop.states(flow)

    assert early == 0
    assert left == {"wait": "cancelled", "cancel": "cancelled"} | dict.fromkeys(
        ["run", "ended", "dead"], "succeeded"
    )


def test_a_workflow_goes_on_after_a_retry(shop: Shop):
    """A death leaves it dead, not hanging; a retry of the job takes it further."""
    with shop.app.workflow("goes on") as flow:
        first = flow.add(shop.step.job(name="first"))
        second = flow.add(shop.step.job(name="second", before=first.result), after=first)
        flow.add(shop.step.job(name="third", before=second.result), after=second)
    shop.broken.add("second")
    shop.app.drain()
    stuck = flow.wait(timeout=0)
    (dead,) = shop.app.list(state="dead")
    shop.broken.clear()
    shop.app.retry(dead.id)
    shop.app.drain()

    assert stuck.state is WorkflowState.DEAD
    assert shop.log == ["first", "first>second", "second>third"]
    assert flow.wait().state is WorkflowState.SUCCEEDED


def test_a_death_counts_once(shop: Shop):
    """A job that ran because of a death does not run again when the dead one is retried."""
    flow = _with_every_child(shop)
    shop.broken.add("parent")
    shop.app.drain()
    shop.broken.clear()
    retried = flow.retry()
    shop.app.drain()

    assert retried == 2
    assert sorted(shop.log) == ["cancel", "dead", "ended", "parent", "run", "wait"]
    assert shop.state(flow) is WorkflowState.SUCCEEDED


def test_cancel_a_workflow(shop: Shop):
    """All that has not ended: also what would run whatever happens."""
    with shop.app.workflow("long") as flow:
        group = flow.map(shop.step.job(name=f"{n}") for n in range(700))
        flow.add(shop.step.job(name="at the end"), after=group, when="ended")
    cancelled = flow.cancel()
    shop.app.drain()

    assert (cancelled, shop.log, shop.state(flow)) == (701, [], WorkflowState.CANCELLED)


def test_a_deadline_cancels_what_is_left(shop: Shop, clock: ManualClock):
    """Once it has passed, the workers' sweep finds the workflow."""
    with shop.app.workflow("late", deadline=60) as flow:
        first = flow.add(shop.step.job(name="first"))
        flow.add(shop.step.using(delay=3600).job(name="second"), after=first)
    shop.app.drain()
    early = shop.app.store.run(tend_workflows()).to_cancel
    clock.advance(61)
    overdue = shop.app.store.run(tend_workflows()).to_cancel
    shop.app.cancel_workflow(*overdue)

    assert (early, overdue) == ([], [flow.id])
    assert shop.states(flow) == {"first": "succeeded", "second": "cancelled"}


def test_a_delay_starts_at_the_release(shop: Shop, clock: ManualClock):
    """Not at the enqueue."""
    with shop.app.workflow("delayed") as flow:
        first = flow.add(shop.step.using(delay=100).job(name="first"))
        flow.add(shop.step.using(delay=10).job(name="second"), after=first)
    clock.advance(100)
    shop.app.drain()
    released = shop.states(flow)
    clock.advance(9)
    shop.app.drain()
    too_early = list(shop.log)
    clock.advance(2)
    shop.app.drain()

    assert released == {"first": "succeeded", "second": "scheduled"}
    assert (too_early, shop.log) == (["first"], ["first", "second"])


def test_a_job_can_add_jobs(shop: Shop):
    """They run if it succeeds, and what waits for it waits for the last of them."""
    with shop.app.workflow("grows") as flow:
        parts = flow.add(shop.split.job(number=3))
        flow.add(shop.step.job(name="after all"), after=parts)
    shop.app.drain()

    assert shop.log == ["part 0", "part 1", "part 2", "part 0+part 1+part 2", "after all"]
    assert shop.state(flow) is WorkflowState.SUCCEEDED


def test_a_plain_job_can_begin_a_workflow(shop: Shop):
    """By adding jobs to its own."""
    job = shop.split.enqueue(number=2)
    shop.app.drain()
    (flow,) = shop.app.workflows()
    done = shop.app.get(job.id)

    assert done is not None
    assert (flow.parent, flow.name, flow.state) == (job.id, "split", WorkflowState.SUCCEEDED)
    assert (done.workflow, flow.counts[JobState.SUCCEEDED].value) == (flow.id, 4)


def _before(shop: Shop) -> Job:
    return shop.step.enqueue(name="before")


def _ended(shop: Shop) -> Job:
    job = _before(shop)
    shop.app.drain()
    return job


@pytest.mark.parametrize("make", [_before, _ended])
def test_wait_for_a_job_that_exists(shop: Shop, make: Callable[[Shop], Job]):
    """Whether it has ended or not. A live one becomes part of the workflow."""
    job = make(shop)
    with shop.app.workflow("after") as flow:
        flow.add(shop.step.job(name="after"), after=job.id)
    shop.app.drain()

    assert shop.log == ["before", "after"]
    assert shop.state(flow) is WorkflowState.SUCCEEDED


def test_wait_for_a_job_that_runs(shop: Shop):
    """Its worker does not know of it, and its success is counted all the same."""
    job = _before(shop)
    (lease,) = shop.app.store.claim(worker="w", queues=["default"])
    with shop.app.workflow("after") as flow:
        flow.add(shop.step.job(name="after"), after=job)
    before = shop.states(flow)["after"]
    shop.app.store.succeed([lease])

    assert (before, shop.states(flow)["after"]) == ("waiting", "ready")


def test_wait_for_a_dead_job_that_exists(shop: Shop):
    """It waits for its retry."""
    shop.broken.add("before")
    job = _ended(shop)
    with shop.app.workflow("after") as flow:
        flow.add(shop.step.job(name="after"), after=job)
    before = shop.states(flow)["after"]
    shop.broken.clear()
    shop.app.retry(job.id)
    shop.app.drain()

    assert (before, shop.log) == ("waiting", ["before", "after"])


def test_one_open_workflow_per_key(shop: Shop):
    """A second one is the first, until that has ended."""
    with shop.app.workflow("daily", key="monday") as first:
        first.add(shop.step.job(name="a"))
    with shop.app.workflow("daily", key="monday") as second:
        second.add(shop.step.job(name="b"))
    with shop.app.workflow("weekly", key="monday") as other:
        other.add(shop.step.job(name="c"))
    shop.app.drain()
    with shop.app.workflow("daily", key="monday") as third:
        third.add(shop.step.job(name="d"))

    assert (first.created, second.created, second.id == first.id) == (True, False, True)
    assert (other.created, third.created, sorted(shop.log)) == (True, True, ["a", "c"])


def test_the_same_id_is_the_same_workflow(shop: Shop):
    """Sent twice, it is written once."""
    id = "01890000-0000-7000-8000-00000000abcd"
    made = []
    for _ in range(2):
        with shop.app.workflow("once", id=id) as flow:
            first = flow.add(shop.step.job(name="a"))
            flow.add(shop.step.job(name="b"), after=first)
        made.append(flow.created)
    shop.app.drain()

    assert (made, shop.log) == ([True, False], ["a", "b"])


def test_a_node_whose_key_is_held_is_the_job_that_holds_it(shop: Shop):
    """What waits for the node waits for that job, and gets its result."""
    holder = shop.step.using(key="k").enqueue(name="holder")
    with shop.app.workflow("shares") as flow:
        node = flow.add(shop.step.using(key="k").job(name="node"))
        flow.add(shop.step.job(name="after", before=node.result), after=node)
    shop.app.drain()
    job = shop.app.get(holder.id)

    assert shop.log == ["holder", "holder>after"]
    assert job is not None and job.workflow == flow.id


def test_results_of_jobs_that_died_are_none(shop: Shop):
    """In their places, for a job that runs nevertheless."""
    shop.broken.add("b")
    with shop.app.workflow("none") as flow:
        group = flow.map(shop.step.job(name=name) for name in "abc")
        flow.add(shop.sum_up.job(names=group.results_or_none), after=group, when="ended")
        flow.add(shop.alone.job(name=group[1].result_or_none), after=group[1], if_dead="run")
    shop.app.drain()

    assert sorted(shop.log) == ["a", "a+none+c", "alone with None", "c"]


def test_a_job_that_keeps_nothing_is_kept_for_its_workflow(shop: Shop, clock: ManualClock):
    """Others need its result. When the workflow has ended, its time is over."""
    with shop.app.workflow("keeps") as flow:
        first = flow.add(shop.step.using(keep=0).job(name="first"))
        flow.add(shop.step.using(delay=60).job(name="second", before=first.result), after=first)
    shop.app.drain()
    shop.app.store.prune()
    clock.advance(61)
    shop.app.drain()
    shop.app.store.run(tend_workflows())
    shop.app.store.prune()

    assert shop.log == ["first", "first>second"]
    assert shop.states(flow) == {"second": "succeeded"}


def test_a_workflow_is_removed_with_the_last_of_its_jobs(shop: Shop, clock: ManualClock):
    """And its id may be used again."""
    with shop.app.workflow("goes") as flow:
        flow.add(shop.step.using(keep=0).job(name="only"))
    shop.app.drain()
    shop.app.store.run(tend_workflows())
    shop.app.store.prune()
    known = shop.app.get_workflow(flow.id)
    clock.advance(timedelta(hours=1))
    shop.app.store.prune()

    assert known is not None and known.ended_at is not None
    assert shop.app.get_workflow(flow.id) is None


def test_a_node_with_a_limit(shop: Shop, clock: ManualClock):
    """It waits at its limit once it waits for no other, and takes no turn there before."""
    limited = shop.app.limit("slow", rate="1/s", per="name")

    @shop.app.task(limit=limited)
    def slowly(name: str) -> None:
        shop.log.append(name)

    shop.app.store.declare_limits([limited.declared])
    with shop.app.workflow("limited") as flow:
        first = flow.add(shop.step.using(delay=5).job(name="first"))
        flow.map([slowly.job(name="x"), slowly.job(name="x")], after=first)
    slowly.enqueue(name="x")
    shop.app.drain()
    alone = list(shop.log)
    clock.advance(6)
    shop.app.drain()
    two = list(shop.log)
    clock.advance(1)
    shop.app.drain()

    assert (alone, two) == (["x"], ["x", "first", "x"])
    assert (shop.log, shop.state(flow)) == (["x", "first", "x", "x"], WorkflowState.SUCCEEDED)


def test_nodes_that_run_in_order(shop: Shop):
    """The place of a node is that of its release: one that waits holds up nobody."""
    in_order = shop.app.limit("in order", per="name", ordered=True)

    @shop.app.task(limit=in_order)
    def orderly(name: str, number: int) -> None:
        shop.log.append(f"{name} {number}")

    shop.app.store.declare_limits([in_order.declared])
    with shop.app.workflow("ordered") as flow:
        first = flow.add(shop.step.job(name="first"))
        flow.add(orderly.job(name="x", number=1), after=first)
    orderly.enqueue(name="x", number=2)
    (lease,) = shop.app.store.claim(worker="w", queues=["default"], kinds=["step"])
    shop.app.drain()
    shop.app.store.succeed([lease])
    shop.app.drain()

    assert shop.log == ["x 2", "x 1"]


def test_a_transaction_of_a_node(shop: Shop):
    """Its commit is the success that others wait for, and has what it adds to the workflow."""

    @shop.app.task
    def books(ctx: Context) -> None:
        with ctx.transaction() as tx:
            ctx.workflow.add(shop.step.job(name="added"))
            tx.result = "booked"

    with shop.app.workflow("books") as flow:
        booked = flow.add(books.job())
        flow.add(shop.alone.job(name=booked.result), after=booked)
    shop.app.drain()

    assert sorted(shop.log) == ["added", "alone with booked"]
    assert shop.state(flow) is WorkflowState.SUCCEEDED


def test_a_workflow_in_ones_own_transaction(shop: Shop, any_url: str):
    """It exists if, and only if, that commits."""
    import sqlite3

    import psycopg

    is_sqlite = any_url.startswith("sqlite")
    path = any_url.removeprefix("sqlite:///")
    shop.app.migrate()
    flows = []
    for ends in ("rollback", "commit"):
        connection: Any = sqlite3.connect(path) if is_sqlite else psycopg.connect(any_url)
        with shop.app.workflow("mine", conn=connection) as flow:
            group = flow.map(shop.step.job(name=f"{n}") for n in range(300))
            flow.add(shop.step.job(name="last"), after=group)
        getattr(connection, ends)()
        connection.close()
        flows.append(flow)
    undone, done = flows
    shop.app.drain()

    assert shop.app.get_workflow(undone.id) is None
    assert (shop.state(done), len(shop.log)) == (WorkflowState.SUCCEEDED, 301)


def test_what_ends_a_job_outside_of_its_run(shop: Shop, clock: ManualClock):
    """A lost lease that was the last, a crash, a bulk cancel: what waits learns of all."""
    app = shop.app
    flows = []
    for _ in range(3):
        with app.workflow("lost") as flow:
            first = flow.add(shop.step.job(name="first"))
            flow.add(shop.step.job(name="ended"), after=first, when="ended")
            flow.add(shop.step.job(name="dead"), after=first, when="dead")
        flows.append(flow)
    leases = app.store.claim(worker="w", queues=["default"], limit=2, lease=5)
    app.bulk("cancel", "ready", kind="step")
    app.store.crash([leases[1]], "segfault")
    clock.advance(10)
    app.store.recover()
    states = [shop.states(flow) for flow in flows]

    assert states[0] == states[1] | {"first": "dead"}
    assert states[0] == {"first": "dead", "ended": "ready", "dead": "ready"}
    assert states[2] == {"first": "cancelled", "ended": "ready", "dead": "cancelled"}


def test_chain_group_and_chord(shop: Shop):
    """Short forms, with results passed on by functions."""
    step, join = shop.step, shop.join
    shop.app.chain(step.job(name="a"), lambda a: step.job(name="b", before=a)).enqueue()
    shop.app.drain()
    shop.app.group(step.job(name="c"), step.job(name="d")).enqueue()
    shop.app.drain()
    shop.app.chord(
        [step.job(name="e"), step.job(name="f")], lambda names: join.job(names=names)
    ).enqueue()
    shop.app.drain()

    assert shop.log == ["a", "a>b", "c", "d", "e", "f", "e+f"]


def _without_after(shop: Shop, flow: Workflow) -> None:
    first = flow.add(shop.step.job(name="a"))
    flow.add(shop.step.job(name="b", before=first.result))


def _wrong_type(shop: Shop, flow: Workflow) -> None:
    first: Any = flow.add(shop.sum_up.job(names=[]))
    flow.add(shop.step.job(name="b", before=first.result), after=first)


def _maybe_missing(shop: Shop, flow: Workflow) -> None:
    first = flow.add(shop.step.job(name="a"))
    flow.add(shop.step.job(name="b", before=first.result), after=first, when="ended")


def _unknown_parent(shop: Shop, flow: Workflow) -> None:
    flow.add(shop.step.job(name="a"), after="01890000-0000-7000-8000-000000000000")


def _foreign_parent(shop: Shop, flow: Workflow) -> None:
    job = shop.step.using(tenant="zoo").enqueue(name="theirs")
    flow.add(shop.step.job(name="a"), after=job)


def _two_tenants(shop: Shop, flow: Workflow) -> None:
    flow.add(shop.step.using(tenant="a").job(name="a"))
    flow.add(shop.step.using(tenant="b").job(name="b"))


def _bad_when(shop: Shop, flow: Workflow) -> None:
    when: Any = "failed"
    flow.add(shop.step.job(name="a"), when=when)


def _own_id(shop: Shop, flow: Workflow) -> None:
    flow.add(shop.step.using(id="01890000-0000-7000-8000-000000000000").job(name="a"))


def _too_many_parents(shop: Shop, flow: Workflow) -> None:
    group = flow.map(shop.step.job(name=f"{n}") for n in range(10_001))
    flow.add(shop.step.job(name="a"), after=group)


BAD = {
    "without after": (
        _without_after,
        OptionInvalid,
        "result of step is known after",
    ),
    "wrong type": (_wrong_type, OptionInvalid, "is int, not str"),
    "maybe missing": (_maybe_missing, OptionInvalid, "result_or_none"),
    "unknown parent": (_unknown_parent, NotFound, "to wait for"),
    "foreign parent": (_foreign_parent, NotFound, "to wait for"),
    "two tenants": (_two_tenants, OptionInvalid, "must be the same"),
    "bad when": (_bad_when, OptionInvalid, "'succeeded', 'ended' or 'dead'"),
    "own id": (_own_id, OptionInvalid, "given by the workflow"),
    "too many parents": (_too_many_parents, OptionInvalid, "10,000 jobs at most"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_writes_nothing(shop: Shop, name: str):
    """A typed error that says what to do."""
    put, error, text = BAD[name]
    flow = shop.app.workflow("bad")
    with pytest.raises(error, match=text), flow:
        put(shop, flow)

    assert (shop.app.get_workflow(flow.id), len(shop.app.workflows())) == (None, 0)


def test_a_result_outside_of_a_workflow(shop: Shop):
    """Has no value there."""
    flow = shop.app.workflow("never")
    node = flow.add(shop.step.job(name="a"))
    with pytest.raises(OptionInvalid, match="add this one to a workflow"):
        shop.step.enqueue(name="b", before=node.result)
    with pytest.raises(TypeError, match="no value before the workflow runs"):
        bool(node.result)


def test_a_limit_per_tenant_counts_the_tenant_of_the_workflow(app: App):
    """Not each job has to name it."""

    @app.task(limit=app.limit("exports", per=TENANT))
    def export(part: int) -> None: ...

    with app.workflow("exports", tenant="acme") as flow:
        first = flow.add(export.job(part=1))
        second = flow.add(export.using(limit_key="other").job(part=2), after=first)
    keys = [job.limit_key for id in (first.id, second.id) if (job := app.get(id)) is not None]

    assert keys == ["acme", "other"]
