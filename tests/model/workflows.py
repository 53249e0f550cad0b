"""A model of workflows, in words of its own, and programs that run on it and on a store.

The model keeps, for each job, the parents that it still counts. Programs are made by chance, with
every way in which a job can end, and in which an end can be taken back. After each step all jobs
must be in the states that the model says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, get_args

import rowlock
from rowlock.columns import JobRow
from rowlock.errors import InvalidTransition, NotFound, RowlockError
from rowlock.job import Lease, job_of
from rowlock.lifecycle import Crashed, Failed, Outcome, Released, Succeeded
from rowlock.store import Settlement
from rowlock.store.ops.settle import settle
from rowlock.store.ops.workflow_manage import tend_workflows
from rowlock.store.steps import Statement, Steps, reading
from rowlock.workflow import Growth

Want = Literal["wait", "cancel", "run", "ended", "dead"]
WANTS: tuple[Want, ...] = get_args(Want)
# What the end of a parent does to a child, by what that wants.
_SUCCESS: dict[Want, str] = {"wait": "count", "cancel": "count", "run": "count", "ended": "count"}
_DEATH: dict[Want, str] = {"wait": "none", "cancel": "cancel", "run": "count", "ended": "count"}
_CANCEL: dict[Want, str] = {"wait": "cancel", "cancel": "cancel", "run": "cancel"}
EFFECTS: dict[str, dict[Want, str]] = {
    "succeeded": _SUCCESS | {"dead": "less"},
    "dead": _DEATH | {"dead": "release"},
    "cancelled": _CANCEL | {"ended": "count", "dead": "less"},
}
ENDED = tuple(EFFECTS)
TENANT = "zoo"
LEASE_SECONDS = 30
AGE_SECONDS = 31 * 86_400
HOW = ("succeed", "succeed", "fail", "fatal", "release", "crash", "park")


class DifferenceFound(AssertionError):
    """A store is not as the model says."""


@dataclass
class Node:
    """A job. `counted`: parents that it waits for. `met`: those that counted without success."""

    number: int
    wants: Want = "wait"
    parents: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    met: set[int] = field(default_factory=set)
    flow: int | None = None
    # Whose result it gets.
    given: int | None = None
    attempts: int = 1
    attempt: int = 0
    state: str = "ready"
    is_asked: bool = False
    # Cancelled because of another.
    is_dragged: bool = False
    is_unneeded: bool = False
    # Whether its time has begun to run out.
    is_aging: bool = False

    @property
    def is_live(self) -> bool:
        return self.state in ("waiting", "ready", "running")


class Model:
    """Workflows as they should be."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.cancelled: set[int] = set()
        self.ended: set[int] = set()

    def add(self, node: Node) -> None:
        """Add a job whose parents are there."""
        self.nodes[node.number] = node
        node.counted = set(node.parents)
        if node.counted:
            node.state = "waiting"
        elif node.wants == "dead":
            node.state = "waiting"
            self._cancelled([node.number], is_unneeded=True)
        for parent in sorted(node.parents):
            other = self.nodes[parent]
            if other.state in EFFECTS:
                # Why a job of another workflow was cancelled is not asked.
                is_unneeded = other.is_unneeded and other.flow == node.flow
                self._follow([(node, parent, other.state, is_unneeded)])

    def watch(self, numbers: Iterable[int], flow: int) -> None:
        """Jobs for which a workflow waits become part of it, unless they have succeeded."""
        for number in numbers:
            node = self.nodes[number]
            if node.flow is None and node.state != "succeeded":
                node.flow = flow

    def children(self, number: int) -> list[Node]:
        return [node for node in self.nodes.values() if number in node.parents]

    def end(self, number: int, state: str, *, within: int | None = None) -> None:
        """End a job, with all that follows. `within`: not in this workflow, which ends as well."""
        self._note_end(number, state)
        others = [
            child for child in self.children(number) if within is None or child.flow != within
        ]
        self._follow([(child, number, state, False) for child in others])

    def _note_end(self, number: int, state: str) -> None:
        node = self.nodes[number]
        node.state = state
        # Of a workflow, only a dead one; others when it has ended.
        node.is_aging = node.flow is None or state == "dead"

    def _follow(self, ends: Sequence[tuple[Node, int, str, bool]]) -> None:
        """Let children learn of ends. What is cancelled comes before what is not needed."""
        doomed: dict[int, bool] = {}
        unneeded: list[int] = []
        for child, parent, state, is_unneeded in ends:
            effect = self._affect(child, parent, state)
            if effect == "cancel" and child.state == "waiting":
                doomed[child.number] = is_unneeded
            elif effect == "less" and child.state == "waiting" and not child.counted:
                unneeded.append(child.number)
        for number, is_unneeded in doomed.items():
            if self.nodes[number].state == "waiting":
                self._cancelled([number], is_unneeded=is_unneeded)
        self._cancelled(
            [each for each in unneeded if self.nodes[each].state == "waiting"], is_unneeded=True
        )

    def _affect(self, child: Node, parent: int, state: str) -> str:
        """Count the end of a parent. Return its effect."""
        if parent in child.met:
            return "none"
        effect = EFFECTS[state][child.wants]
        if state != "succeeded" and effect in ("count", "less", "release"):
            child.met.add(parent)
        if child.state != "waiting":
            return effect
        if effect == "release":
            child.counted.clear()
        elif effect in ("count", "less"):
            child.counted.discard(parent)
        if not child.counted and effect in ("count", "release"):
            child.state = "ready"
        return effect

    def _cancelled(self, numbers: Sequence[int], *, is_unneeded: bool) -> None:
        """Cancel jobs that wait, and all below that need them, before others learn of it."""
        below = list(numbers)
        for number in below:
            node = self.nodes[number]
            self._note_end(number, "cancelled")
            node.is_unneeded, node.is_dragged = is_unneeded, not is_unneeded
            below += [
                child.number
                for child in self.children(number)
                if child.state == "waiting"
                and child.number not in below
                and number not in child.met
                and EFFECTS["cancelled"][child.wants] == "cancel"
            ]
        ends = [
            (child, number, "cancelled", is_unneeded)
            for number in below
            for child in self.children(number)
        ]
        if ends:
            self._follow(ends)

    def lose(self, number: int) -> None:
        """A job is removed."""
        node = self.nodes[number]
        if node.state != "succeeded":
            self._follow([(child, number, "cancelled", False) for child in self.children(number)])
        for child in self.children(number):
            child.parents.discard(number)
            child.counted.discard(number)
            child.met.discard(number)
        del self.nodes[number]

    def cancel(self, number: int) -> None:
        node = self.nodes[number]
        if node.state == "running":
            node.is_asked = True
        elif node.is_live:
            self.end(number, "cancelled")

    def cancel_flow(self, flow: int) -> None:
        """What waits goes first, so that nothing of it is released."""
        self.cancelled.add(flow)
        for state in ("waiting", "ready", "running"):
            mine = [
                node for node in self.nodes.values() if node.flow == flow and node.state == state
            ]
            if state != "running":
                for node in mine:
                    node.state = "cancelled"
            for node in mine:
                if state == "running":
                    node.is_asked = True
                else:
                    self.end(node.number, "cancelled", within=flow)

    def retry(self, numbers: Sequence[int]) -> None:
        """Take ended jobs back."""
        for number in numbers:
            node = self.nodes[number]
            node.state, node.attempt, node.is_asked = "ready", 0, False
            node.is_dragged = node.is_unneeded = node.is_aging = False
            if node.flow is not None:
                self.cancelled.discard(node.flow)
                self.ended.discard(node.flow)
        for number in numbers:
            node = self.nodes[number]
            node.counted = {each for each in node.parents - node.met if self._is_wanted(node, each)}
            if any(
                EFFECTS.get(self.nodes[each].state, {}).get(node.wants) == "release"
                for each in node.parents - node.met
            ):
                node.counted.clear()
            node.state = "waiting" if node.counted else "ready"

    def _is_wanted(self, node: Node, parent: int) -> bool:
        state = self.nodes[parent].state
        return state not in EFFECTS or EFFECTS[state][node.wants] in ("none", "cancel")

    def back(self, number: int, state: str) -> None:
        """A run is over: the job ends, or is given back."""
        node = self.nodes[number]
        if node.is_asked and state != "succeeded":
            state = "cancelled"
        if state == "ready":
            node.state = "ready"
        else:
            self.end(number, state)

    def grow(self, number: int, added: Sequence[Node]) -> None:
        """A job that succeeds adds others, each after the one before it."""
        waiting = [child for child in self.children(number) if number not in child.met]
        for node in added:
            self.add(node)
        sink = added[-1].number
        for child in waiting:
            child.parents.add(sink)
            if child.state == "waiting":
                child.counted.add(sink)

    def age(self) -> None:
        """A month passes: what is kept no longer is removed, then ended workflows are noted."""
        old = [
            node.number
            for node in self.nodes.values()
            if node.is_aging and (node.state == "dead" or node.flow is None or self._is_over(node))
        ]
        for number in old:
            # Those that are removed together do not affect each other.
            self.nodes[number].state = (
                "succeeded" if self.nodes[number].state == "succeeded" else "gone"
            )
        for number in old:
            self.lose(number)
        for flow in {node.flow for node in self.nodes.values() if node.flow is not None}:
            mine = [node for node in self.nodes.values() if node.flow == flow]
            if not any(node.is_live for node in mine):
                self.ended.add(flow)
                for node in mine:
                    node.is_aging = True

    def _is_over(self, node: Node) -> bool:
        return node.flow in self.ended

    def may_delete(self, number: int, *, cascade: bool) -> bool:
        node = self.nodes[number]
        if node.state == "running":
            return False
        waiting = [
            child
            for child in self.children(number)
            if child.state == "waiting" and number not in child.met
        ]
        return cascade or node.flow is None or node.state == "succeeded" or not waiting


@dataclass
class Planned:
    """A job of a step that adds some."""

    number: int
    wants: Want
    parents: tuple[int, ...]
    given: int | None
    attempts: int
    keeps_nothing: bool


class Subject:
    """A store, driven by numbers."""

    def __init__(self, app: rowlock.App, clock: rowlock.ManualClock) -> None:
        self.app = app
        self.clock = clock
        self._programs = 0
        self.ids: dict[int, str] = {}
        self.flows: dict[int, str] = {}
        self.leases: dict[int, Lease] = {}

        @app.task(max_crashes=1)
        def node(number: int, given: str | None = None) -> str:
            return f"r{number}"

        self.task = node

    def queue(self, number: int) -> str:
        """The queue of a job, in which it is alone."""
        return f"{self._programs}.{number}"

    def forget(self) -> None:
        """Begin anew, beside what is left of other programs."""
        self._programs += 1
        for known in (self.ids, self.flows, self.leases):
            known.clear()

    def _job(self, planned: Planned, given: Any) -> Any:
        options: dict[str, Any] = {
            "queue": self.queue(planned.number),
            "max_attempts": planned.attempts,
            "tenant": TENANT,
        }
        if planned.keeps_nothing:
            options["keep"] = 0
        return self.task.using(**options).job(number=planned.number, given=given)

    def put(self, flow: Any, planned: Sequence[Planned]) -> None:
        """Add jobs to a workflow, or to the growth of one."""
        nodes: dict[int, Any] = {}
        for each in planned:
            given = None
            if each.given is not None:
                parent = nodes[each.given]
                is_strict = each.wants in ("wait", "cancel")
                given = parent.result if is_strict else parent.result_or_none
            after = [nodes.get(parent) or self.ids[parent] for parent in each.parents]
            options: dict[str, Any] = (
                {"when": each.wants} if each.wants in ("ended", "dead") else {"if_dead": each.wants}
            )
            nodes[each.number] = flow.add(self._job(each, given), after=after, **options)
            self.ids[each.number] = nodes[each.number].id

    def create(self, flow: int, planned: Sequence[Planned]) -> None:
        with self.app.workflow(f"w{flow}", tenant=TENANT) as made:
            self.put(made, planned)
        self.flows[flow] = made.id

    def plain(self, planned: Planned) -> None:
        made = self._job(planned, None)
        self.ids[planned.number] = self.app.store.enqueue([made])[0].id

    def claim(self, number: int) -> dict[str, Any] | None:
        leases = self.app.store.claim(
            worker="w", queues=[self.queue(number)], lease=LEASE_SECONDS, limit=1
        )
        for lease in leases:
            self.leases[number] = lease
            return lease.job.payload
        return None

    def settle(self, ends: Sequence[tuple[int, str]], *, is_theirs: bool) -> None:
        """Settle runs. `is_theirs`: by a worker of the tenant, as over HTTP."""
        settlements = [
            Settlement(self.leases.pop(number), _outcome(number, how)) for number, how in ends
        ]
        tenant = TENANT if is_theirs else None
        self.app.store.run(settle(settlements, tenant=tenant)).raise_if_missed()

    def park(self, number: int) -> None:
        self.app.store.adopt_orphans([self.queue(number)], "park", 0)

    def grow(self, number: int, planned: Sequence[Planned], flow: int) -> None:
        lease = self.leases.pop(number)
        growth = Growth(self.app.find, lease.job, lambda: False)
        self.put(growth, planned)
        self.flows.setdefault(flow, growth.id)
        ended = Settlement(lease, Succeeded(f'"r{number}"'), growth=growth.finished())
        self.app.store.settle([ended])

    def states(self) -> dict[int, str]:
        """The states of all jobs, read at once."""

        def steps() -> Steps[dict[str, str]]:
            rows = yield Statement("get", {"ids": list(self.ids.values())})
            return {row[0]: job_of(JobRow._make(row[:-1]), now=row[-1]).state.value for row in rows}

        found = self.app.store.run(reading("states", steps))
        return {number: found.get(id, "gone") for number, id in self.ids.items()}


def _outcome(number: int, how: str) -> Outcome:
    match how:
        case "succeed":
            return Succeeded(f'"r{number}"')
        case "fail":
            return Failed("Error", "no", delay=0)
        case "fatal":
            return Failed("Error", "no", permanent=True)
        case "release":
            return Released(0)
        case _:
            return Crashed("died", alone=True)


class Program:
    """Steps by chance, on the model and on stores at once."""

    def __init__(self, seed: int, subjects: Sequence[Subject]) -> None:
        self._chance = Random(seed)
        self._subjects = subjects
        self.model = Model()
        self.steps: list[str] = []
        self._numbers = 0
        self._flows = 0

    def run(self, steps: int) -> None:
        """Take steps. Raises `DifferenceFound` at the first difference."""
        self._create()
        actions = {
            self._create: 2,
            self._plain: 2,
            self._claim: 14,
            self._settle: 10,
            self._grow: 3,
            self._expire: 1,
            self._cancel: 2,
            self._cancel_flow: 1,
            self._retry: 3,
            self._retry_flow: 2,
            self._delete: 2,
            self._age: 1,
        }
        for _ in range(steps):
            act = self._chance.choices(list(actions), list(actions.values()))[0]
            try:
                act()
            except RowlockError as error:
                raise self._difference(f"{type(error).__name__}: {error}") from error
            self._compare()
        self._finish()

    def _difference(self, text: str) -> DifferenceFound:
        return DifferenceFound("\n".join([text, "after", *self.steps]))

    def _finish(self) -> None:
        """What can run runs, until nothing can: then nothing waits but for the dead."""
        for _ in range(200):
            self._expire()
            ready = [node.number for node in self.model.nodes.values() if node.state == "ready"]
            if not ready:
                break
            for number in ready:
                self._claim_one(number)
            held = [number for number in ready if self._is_running(number)]
            self._settle_these([(number, "succeed") for number in held])
            self._compare()
        for node in self.model.nodes.values():
            lost = [each for each in node.counted if self.model.nodes[each].state != "succeeded"]
            if node.state == "waiting":
                self._claim_one(node.number)
            if node.state == "waiting" and not lost:
                raise self._difference(f"{node} waits for nothing")

    def _is_running(self, number: int) -> bool:
        node = self.model.nodes.get(number)
        return node is not None and node.state == "running"

    def _note(self, text: str) -> None:
        self.steps.append(text)

    def _compare(self) -> None:
        for subject in self._subjects:
            for number, found in subject.states().items():
                node = self.model.nodes.get(number)
                wanted = "gone" if node is None else node.state
                if found != wanted:
                    place = type(subject.app.store.engine).__name__
                    raise self._difference(f"{place}: job {number} is {found}, not {wanted}")

    def _new(self, before: Sequence[int], outside: Sequence[int] = ()) -> Planned:
        chance = self._chance
        self._numbers += 1
        inside = chance.sample(before, min(len(before), chance.choice((0, 1, 1, 2, 3))))
        beyond = [chance.choice(outside)] if outside and chance.random() < 0.3 else []
        wants = chance.choice(WANTS)
        given = chance.choice(inside) if inside and chance.random() < 0.5 else None
        return Planned(
            self._numbers,
            wants if inside or beyond or chance.random() < 0.1 else "wait",
            (*inside, *beyond),
            given,
            chance.choice((1, 1, 2)),
            chance.random() < 0.3,
        )

    def _model_nodes(self, planned: Sequence[Planned], flow: int) -> list[Node]:
        return [
            Node(
                each.number,
                each.wants,
                set(each.parents),
                flow=flow,
                given=each.given,
                attempts=each.attempts,
            )
            for each in planned
        ]

    def _create(self, outside: Sequence[int] = ()) -> None:
        self._flows += 1
        flow, outside = self._flows, outside or sorted(self.model.nodes)
        planned: list[Planned] = []
        for _ in range(self._chance.randint(2, 6)):
            planned.append(self._new([each.number for each in planned], outside))
        self._note(f"create {flow}: {planned}")
        for subject in self._subjects:
            subject.create(flow, planned)
        mine = {each.number for each in planned}
        self.model.watch({p for each in planned for p in each.parents if p not in mine}, flow)
        for node in self._model_nodes(planned, flow):
            self.model.add(node)

    def _plain(self) -> None:
        self._numbers += 1
        planned = Planned(self._numbers, "wait", (), None, 1, False)
        self._note(f"plain {planned.number}")
        for subject in self._subjects:
            subject.plain(planned)
        self.model.add(Node(planned.number))
        if self._chance.random() < 0.5:
            # A job that runs does not know of those that begin to wait for it.
            self._claim_one(planned.number)
            self._create([planned.number])
            if self._chance.random() < 0.5:
                self._settle_these([(planned.number, "succeed")])

    def _claim(self) -> None:
        live = [node.number for node in self.model.nodes.values() if node.is_live]
        if live:
            self._claim_one(self._chance.choice(live))

    def _claim_one(self, number: int) -> None:
        node = self.model.nodes[number]
        wanted = node.state == "ready"
        given, is_lost = None, False
        if node.given is not None:
            parent = self.model.nodes.get(node.given)
            has_result = parent is not None and parent.state == "succeeded"
            given = f"r{node.given}" if has_result else None
            is_lost = not has_result and node.wants in ("wait", "cancel")
        self._note(f"claim {number}")
        for subject in self._subjects:
            payload = subject.claim(number)
            expected = {"number": number, "given": given} if wanted and not is_lost else None
            got = None if payload is None else {"given": None, **payload}
            if got != expected:
                raise self._difference(f"claimed {got}, not {expected}")
        if wanted and is_lost:
            self.model.end(number, "dead")
        elif wanted:
            node.state = "running"
            node.attempt += 1

    def _running(self) -> list[int]:
        return [node.number for node in self.model.nodes.values() if node.state == "running"]

    def _settle(self) -> None:
        running = self._running()
        if not running:
            return
        chosen = self._chance.sample(running, self._chance.randint(1, min(3, len(running))))
        how = [(number, self._chance.choice(HOW)) for number in chosen]
        parked = [number for number, each in how if each == "park"]
        for number in parked:
            self._note(f"park {number}")
            for subject in self._subjects:
                subject.park(number)
                subject.leases.pop(number)
            self.model.back(number, "dead")
        self._settle_these([each for each in how if each[1] != "park"])

    def _settle_these(self, ends: Sequence[tuple[int, str]]) -> None:
        if not ends:
            return
        is_theirs = self._chance.random() < 0.3
        self._note(f"settle {ends}{' over HTTP' if is_theirs else ''}")
        for subject in self._subjects:
            subject.settle(ends, is_theirs=is_theirs)
        for number, each in ends:
            node = self.model.nodes[number]
            is_last = node.attempt >= node.attempts
            states = {"succeed": "succeeded", "fatal": "dead", "crash": "dead", "release": "ready"}
            if each == "release":
                node.attempt -= 1
            self.model.back(number, states.get(each, "dead" if is_last else "ready"))

    def _grow(self) -> None:
        running = self._running()
        if not running:
            return
        number = self._chance.choice(running)
        node = self.model.nodes[number]
        first = self._new([])
        planned = [first]
        if self._chance.random() < 0.5:
            second = self._new([first.number])
            planned.append(
                Planned(second.number, "wait", (first.number,), None, second.attempts, False)
            )
        planned = [
            Planned(each.number, "wait", each.parents, None, each.attempts, False)
            for each in planned
        ]
        self._note(f"grow {number} by {planned}")
        flow = node.flow
        if flow is None:
            self._flows += 1
            flow = self._flows
        for subject in self._subjects:
            subject.grow(number, planned, flow)
        if flow not in self.model.cancelled:
            node.flow = flow
            self.model.grow(number, self._model_nodes(planned, flow))
        self.model.back(number, "succeeded")

    def _expire(self) -> None:
        self._note("expire")
        for subject in {id(each.clock): each for each in self._subjects}.values():
            subject.clock.advance(LEASE_SECONDS + 1)
        for subject in self._subjects:
            subject.leases.clear()
            subject.app.store.recover()
        for number in self._running():
            node = self.model.nodes[number]
            self.model.back(number, "dead" if node.attempt >= node.attempts else "ready")

    def _cancel(self) -> None:
        number = self._any()
        in_bulk = self._chance.random() < 0.4
        node = self.model.nodes[number]
        self._note(f"cancel {number}{' in bulk' if in_bulk else ''}")
        for subject in self._subjects:
            if not in_bulk:
                subject.app.cancel(subject.ids[number])
            elif node.is_live:
                subject.app.bulk("cancel", node.state, queue=subject.queue(number))
        self.model.cancel(number)

    def _cancel_flow(self) -> None:
        flow = self._flow()
        self._note(f"cancel flow {flow}")
        if self._each_flow("cancel_workflow", flow):
            self.model.cancel_flow(flow)

    def _retry(self) -> None:
        lost = [
            node.number for node in self.model.nodes.values() if node.state in ("dead", "cancelled")
        ]
        if not lost:
            return
        number = self._chance.choice(lost)
        self._note(f"retry {number}")
        for subject in self._subjects:
            subject.app.retry(subject.ids[number])
        self.model.retry([number])

    def _retry_flow(self) -> None:
        flow = self._flow()
        self._note(f"retry flow {flow}")
        if self._each_flow("retry_workflow", flow):
            mine = [node for node in self.model.nodes.values() if node.flow == flow]
            self.model.retry(
                [node.number for node in mine if node.state == "dead" or node.is_dragged]
            )

    def _each_flow(self, verb: str, flow: int) -> bool:
        """Call a verb for a workflow. Return whether it exists."""
        found: set[bool] = set()
        for subject in self._subjects:
            try:
                getattr(subject.app, verb)(subject.flows[flow])
                found.add(True)
            except NotFound:
                found.add(False)
        if len(found) > 1:
            raise self._difference(f"one store has workflow {flow}, the other has not")
        return found.pop()

    def _delete(self) -> None:
        number = self._any()
        cascade = self._chance.random() < 0.6
        may = self.model.may_delete(number, cascade=cascade)
        self._note(f"delete {number} {cascade=}")
        for subject in self._subjects:
            try:
                subject.app.delete(subject.ids[number], cascade=cascade)
                did = True
            except InvalidTransition:
                did = False
            if did != may:
                raise self._difference(f"deleted: {did}")
        if may:
            self.model.lose(number)

    def _age(self) -> None:
        self._note("age")
        # Leases would expire, and be found some time.
        self._expire()
        for subject in {id(each.clock): each for each in self._subjects}.values():
            subject.clock.advance(AGE_SECONDS)
        for subject in self._subjects:
            subject.app.store.prune()
            subject.app.store.run(tend_workflows())
        self.model.age()

    def _any(self) -> int:
        if not self.model.nodes:
            self._plain()
        return self._chance.choice(sorted(self.model.nodes))

    def _flow(self) -> int:
        return self._chance.randint(1, self._flows)
