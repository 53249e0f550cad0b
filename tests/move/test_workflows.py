"""Live workflows move: jobs go on in the target as if their parents had ended there."""

from __future__ import annotations

import pytest

import rowlock
from rowlock.job import Lease
from rowlock.move import Mover
from rowlock.store.ops import move
from rowlock.workflow import Workflow

Apps = tuple[rowlock.App, rowlock.App]


class Side:
    """One of the databases, with the tasks of both."""

    def __init__(self, app: rowlock.App) -> None:
        self.app = app
        self.log: list[str] = []
        self.broken: set[str] = set()

        @app.task(max_attempts=1)
        def step(name: str) -> str:
            if name in self.broken:
                raise ValueError(name)
            self.log.append(name)
            return name

        @app.task(max_attempts=1)
        def join(name: str, names: list[str]) -> str:
            self.log.append(f"{name}: {'+'.join(names)}")
            return name

        @app.task(max_attempts=1)
        def growing(ctx: rowlock.Context, name: str) -> str:
            ctx.workflow.add(step.job(name=f"added by {name}"))
            return name

        self.step, self.join, self.growing = step, join, growing

    def claim(self, name: str) -> Lease:
        """The lease of a job, by its name. What else is claimed is released again."""
        leases = self.app.store.claim(worker="w", queues=None, limit=50)
        (mine,) = [lease for lease in leases if lease.job.payload["name"] == name]
        for lease in leases:
            if lease is not mine:
                self.app.store.release(lease)
        return mine

    def states(self, flow: Workflow) -> dict[str, str]:
        """The state of each job that is here, by its name."""
        jobs = [self.app.get(each.id) for each in self.app.workflow_jobs(flow.id)]
        return {job.payload["name"]: job.state.value for job in jobs if job is not None}


Sides = tuple[Side, Side]


@pytest.fixture
def sides(apps: Apps) -> Sides:
    """Both databases, ready."""
    for app in apps:
        app.migrate()
    return Side(apps[0]), Side(apps[1])


def mover_of(sides: Sides) -> Mover:
    """A mover whose rounds the test calls."""
    mover = Mover(sides[0].app.store, sides[1].app.store)
    mover._name_both()
    return mover


def shape_of(side: Side, flow: Workflow) -> list[tuple[str, list[str]]]:
    """The kinds of the stacks, and for which others they wait."""
    graph = side.app.workflow_graph(flow.id)
    return [(stack.kind, sorted(stack.after)) for stack in graph.stacks]


def fan(side: Side) -> Workflow:
    """Three jobs, one that gets their results, and others that wait for them in other ways."""
    with side.app.workflow("fan") as flow:
        three = flow.map(side.step.job(name=name) for name in "abc")
        joined = flow.add(side.join.job(name="join", names=three.results), after=three)
        flow.add(side.step.job(name="last"), after=joined)
        flow.add(side.step.job(name="ended"), after=three, when="ended")
        flow.add(side.step.job(name="dead"), after=three, when="dead")
    return flow


def test_a_live_workflow_goes_on_in_the_target(sides: Sides):
    """One parent has ended before, one ends while the move runs, one runs in the target."""
    old, new = sides
    flow = fan(old)
    shape = shape_of(old, flow)
    old.app.store.succeed([old.claim("a")], ["a"])
    running = old.claim("b")
    mover = mover_of(sides)

    is_done = mover._round()
    between = new.states(flow)
    new.app.drain()
    too_early = list(new.log)
    old.app.store.succeed([running], ["b"])
    assert mover._round()
    new.app.drain()

    assert (is_done, too_early) == (False, ["c"])
    assert between == {"a": "succeeded", "c": "ready"} | dict.fromkeys(
        ["join", "last", "ended", "dead"], "waiting"
    )
    assert sorted(new.log) == ["c", "ended", "join: a+b+c", "last"]
    assert new.states(flow)["dead"] == "cancelled"
    assert len(old.app.workflows()) == 0
    assert shape_of(new, flow) == shape
    found = new.app.get_workflow(flow.id)
    assert found is not None
    assert (found.state, found.ended_at) == ("succeeded", None)


def test_a_parent_dies_in_the_source(sides: Sides):
    """The children in the target learn of it when it arrives, and of its retry there."""
    old, new = sides
    flow = fan(old)
    for name in "ab":
        old.app.store.succeed([old.claim(name)], [name])
    lease = old.claim("c")
    mover = mover_of(sides)
    mover._round()
    old.app.store.fail(lease, "no", permanent=True)
    assert mover._round()
    new.app.drain()
    stuck = new.states(flow)
    new.app.retry_workflow(flow.id)
    new.app.drain()

    assert stuck["join"] == "waiting"
    assert sorted(new.log) == ["c", "dead", "ended", "join: a+b+c", "last"]


def test_a_parent_is_cancelled_in_the_source_while_its_child_is_held(sides: Sides):
    """The mover was killed meanwhile. Its successor moves the child, or gives it back."""
    old, new = sides
    flow = fan(old)
    lease = old.claim("c")
    mover = mover_of(sides)
    hold = move.Hold("01890000-0000-7000-8000-000000000001", mover._target_name)
    old.app.store.run(move.take(hold, after=move.FIRST_ID, limit=50))
    old.app.cancel(lease.id)
    old.app.store.finish_cancelled(lease)
    held = old.states(flow)["join"]
    mover = mover_of(sides)
    assert mover._round()
    new.app.drain()

    assert held == "running"
    assert sorted(new.log) == ["a", "b", "ended"]
    assert [new.states(flow)[name] for name in ("join", "last", "dead")] == ["cancelled"] * 3


def test_what_was_given_back_learns_of_a_cancelled_parent(sides: Sides):
    """It could not be cancelled while it was held."""
    old, _ = sides
    flow = fan(old)
    lease = old.claim("c")
    mover = mover_of(sides)
    hold = move.Hold("01890000-0000-7000-8000-000000000001", mover._target_name)
    old.app.store.run(move.take(hold, after=move.FIRST_ID, limit=50))
    old.app.cancel(lease.id)
    old.app.store.finish_cancelled(lease)
    mover.give_back()
    old.app.drain()

    assert sorted(old.log) == ["a", "b", "ended"]
    assert [old.states(flow)[name] for name in ("join", "last", "dead")] == ["cancelled"] * 3


def test_a_child_waits_for_results_that_are_on_their_way(sides: Sides):
    """It was released in the source, and arrives before them."""
    old, new = sides
    flow = fan(old)
    for name in "abc":
        old.app.store.succeed([old.claim(name)], [name])
    mover = mover_of(sides)
    released = old.states(flow)["join"]
    mover._move_waiting()
    new.app.drain()
    early = list(new.log)
    assert mover._round()
    new.app.drain()

    assert (released, early) == ("ready", [])
    assert sorted(new.log) == ["ended", "join: a+b+c", "last"]


def test_a_job_grows_in_the_source(sides: Sides):
    """What waits for it in the target waits for the added job, wherever that ends."""
    old, new = sides
    with old.app.workflow("grows") as flow:
        first = flow.add(old.growing.job(name="first"))
        flow.add(old.step.job(name="last"), after=first)
    mover = mover_of(sides)
    # Only what waits moves: the job stays.
    lease = old.claim("first")
    mover._round()
    old.app.store.release(lease)
    old.app.drain(limit=1)
    before = old.states(flow)
    mover._move_ended()
    new.app.drain()
    early = list(new.log)
    assert mover._round()
    new.app.drain()

    assert (before, early) == ({"first": "succeeded", "added by first": "ready"}, [])
    assert new.log == ["added by first", "last"]


def test_a_parent_is_deleted_in_the_source(sides: Sides):
    """Its children in the target are cancelled when everything else has arrived."""
    old, new = sides
    flow = fan(old)
    lease = old.claim("c")
    mover = mover_of(sides)
    mover._round()
    old.app.store.fail(lease, "no", permanent=True)
    old.app.delete(lease.id, cascade=True)
    assert mover._round()
    new.app.drain()

    assert sorted(new.log) == ["a", "b", "ended"]
    assert new.states(flow)["join"] == "cancelled"


def test_a_cancelled_workflow_is_cancelled_on_both_sides(sides: Sides):
    """Also the part that has moved before."""
    old, new = sides
    flow = fan(old)
    lease = old.claim("c")
    mover = mover_of(sides)
    mover._round()
    old.app.cancel_workflow(flow.id)
    old.app.store.finish_cancelled(lease)
    assert mover._round()
    new.app.drain()

    assert new.log == []
    assert set(new.states(flow).values()) == {"cancelled"}
