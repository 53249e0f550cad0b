"""A producer: enqueues jobs until each is acknowledged, and cancels some.

It is started as `python -m rowlock.chaos.producer`, with its orders as JSON in one argument.

1. It records each enqueue before it sends it, and the answer afterwards.
2. An enqueue without an answer is sent again, with the same id. Now and then it gives up instead.
3. Now and then it repeats an acknowledged enqueue, which must change nothing.
"""

from __future__ import annotations

import heapq
import mmap
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rowlock.app import App
from rowlock.chaos.jobs import JOURNALS, SCHEMA_VARIABLE, chaos_app
from rowlock.chaos.journal import DIRECTORY_VARIABLE, Journal, Word
from rowlock.chaos.plan import Shares, WantedJob, WantedNode, wanted_flow, wanted_jobs
from rowlock.errors import NotFound, StoreUnavailable
from rowlock.ids import new_id
from rowlock.worker.process import die_with_parent
from rowlock.workflow import Node, Workflow

BATCH_MAX: Final = 40
FLOW_JOBS_MAX: Final = 12
_PAUSE_SECONDS: Final = 0.01
_RESEND_SECONDS: Final = (0.02, 0.2)
# In percent: calls with many jobs, calls given up, calls repeated, jobs cancelled.
_MANY: Final = 0.5
_GIVEN_UP: Final = 0.1
_REPEATED: Final = 0.03
_CANCELLED: Final = 0.01
# Of all calls, those with workflows, and of these, those of a tenant, and those cancelled.
_FLOWS: Final = 0.3
_OF_TENANTS: Final = 0.3
_FLOWS_CANCELLED: Final = 0.05
_CANCEL_SECONDS: Final = (0.05, 1.5)
_REPEAT_SECONDS: Final = (0.0, 4.0)

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "wait": {},
    "cancel": {"if_dead": "cancel"},
    "run": {"if_dead": "run"},
    "ended": {"when": "ended"},
    "dead": {"when": "dead"},
}

# The layout of the shared file.
_NUMBER: Final = struct.Struct("=q")
_ALLOWED: Final = 0
_MADE: Final = 1

T = TypeVar("T")
Item = dict[str, Any]


class ProducerCounts:
    """The number of jobs that producers may create, and that each has created.

    All processes of a run map this file. Each number is written by one process.
    """

    def __init__(self, path: Path, producers: int) -> None:
        size = _NUMBER.size * (_MADE + producers)
        self._producers = producers
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, size)
            self._memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    @property
    def allowed(self) -> int:
        """How many jobs all producers together may have created by now."""
        return self._read(_ALLOWED)

    @allowed.setter
    def allowed(self, jobs: int) -> None:
        self._write(_ALLOWED, jobs)

    def made_by(self, producer: int) -> int:
        """Return how many jobs a producer has created, over all its processes."""
        return self._read(_MADE + producer)

    def add(self, producer: int, jobs: int) -> None:
        """Add jobs that a producer has created."""
        self._write(_MADE + producer, self.made_by(producer) + jobs)

    @property
    def made(self) -> int:
        """Return how many jobs were created."""
        return sum(map(self.made_by, range(self._producers)))

    def _read(self, index: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, index * _NUMBER.size)[0]
        return number

    def _write(self, index: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, index * _NUMBER.size, number)

    def close(self) -> None:
        self._memory.close()


class ProducerOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a producer."""

    number: int
    producers: int
    jobs: int
    shares: Shares
    chance: str


class Producer:
    """Enqueues its share of the jobs, as far as it is allowed to."""

    def __init__(self, orders: ProducerOrders, app: App, directory: Path) -> None:
        self._orders = orders
        self._app = app
        self._counts = ProducerCounts(directory / "counts", orders.producers)
        self._journal = Journal(directory / JOURNALS, "producer")
        self._chance = random.Random(orders.chance)
        self._wanted_jobs = wanted_jobs(self._chance, orders.shares)
        self._rest = threading.Event()
        # The jobs to cancel or send again, and when.
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    def run(self) -> None:
        """Run until its share is enqueued, and all that it wants to cancel is cancelled."""
        while (left := self._orders.jobs - self._made()) > 0:
            self._do_due()
            allowed = self._counts.allowed // self._orders.producers - self._made()
            if allowed <= 0:
                self._rest.wait(_PAUSE_SECONDS)
                continue
            if self._chance.random() < _FLOWS:
                self._make_flow(min(self._chance.randint(2, FLOW_JOBS_MAX), allowed, left))
                continue
            many = self._chance.randint(2, BATCH_MAX) if self._chance.random() < _MANY else 1
            self._make(list(islice(self._wanted_jobs, min(many, allowed, left))))
        while self._later:
            self._do_due()
            self._rest.wait(_PAUSE_SECONDS)

    def _made(self) -> int:
        return self._counts.made_by(self._orders.number)

    def _make(self, wanted: Sequence[WantedJob]) -> None:
        items: list[Item] = [
            {"kind": job.kind, "payload": job.payload, "id": new_id(), **job.options}
            for job in wanted
        ]
        self._journal.note_all(Word.ASK, [(item["id"], _asked(item)) for item in items])
        # Counted before it is sent: a producer that is killed now may have enqueued it.
        self._counts.add(self._orders.number, len(items))
        if not self._send(items):
            return
        if self._chance.random() < _REPEATED:
            # At once it is in flight, a little later it may have ended.
            self._do_later(partial(self._send, items), _REPEAT_SECONDS)
        for item in items:
            if item["kind"] == "linger" or self._is_regretted(item):
                self._do_later(partial(self._cancel, item["id"]), _CANCEL_SECONDS)

    def _make_flow(self, jobs: int) -> None:
        """Enqueue a workflow. Some are cancelled, and so are some of their jobs."""
        tenant = "acme" if self._chance.random() < _OF_TENANTS else None
        wanted = wanted_flow(self._chance, self._orders.shares, jobs)
        flow, nodes = self._draft(new_id(), tenant, wanted)
        for node, each in zip(nodes, wanted, strict=True):
            after = "".join(f" {nodes[place].id}" for place in each.after)
            self._journal.note(Word.ASK, node.id, 0, f"{node.kind} {tenant or '-'} 0")
            self._journal.note(Word.NODE, node.id, 0, f"{flow.id} {each.wants}{after}")
        self._counts.add(self._orders.number, jobs)
        if not self._send_flow(flow, nodes):
            return
        if self._chance.random() < _REPEATED:
            again = partial(self._draft, flow.id, tenant, wanted)
            self._do_later(lambda: self._send_flow(*again()), _REPEAT_SECONDS)
        for node in nodes:
            if self._chance.random() < _CANCELLED:
                self._do_later(partial(self._cancel, node.id), _CANCEL_SECONDS)
        if self._chance.random() < _FLOWS_CANCELLED:
            self._do_later(partial(self._cancel_flow, flow.id), _CANCEL_SECONDS)

    def _draft(
        self, id: str, tenant: str | None, wanted: Sequence[WantedNode]
    ) -> tuple[Workflow, list[Node[Any]]]:
        """Put a workflow together. With the same id, it is the same."""
        flow = self._app.workflow("chaos", id=id, tenant=tenant)
        nodes: list[Node[Any]] = []
        for each in wanted:
            task = self._app.find(each.job.kind)
            assert task is not None
            options: dict[str, Any] = {**each.job.options}
            after = [nodes[place] for place in each.after]
            job = task.using(**options).job(**each.job.payload)
            nodes.append(flow.add(job, after=after, **_OPTIONS[each.wants]))
        return flow, nodes

    def _send_flow(self, flow: Workflow, nodes: Sequence[Node[Any]]) -> bool:
        """Enqueue a workflow. Return whether it was acknowledged."""
        unknown = [(node.id, "-") for node in nodes]
        on_unknown = partial(self._journal.note_all, Word.UNKNOWN, unknown)
        if self._insist(flow.enqueue, on_unknown) is None:
            return False
        self._journal.note_all(Word.ACK, [(node.id, node.id) for node in nodes])
        return True

    def _cancel_flow(self, flow: str) -> None:
        self._journal.note(Word.CANCEL_FLOW, flow)
        self._insist(lambda: self._app.cancel_workflow(flow), lambda: None)

    def _do_later(self, act: Callable[[], object], within: tuple[float, float]) -> None:
        due = time.monotonic() + self._chance.uniform(*within)
        heapq.heappush(self._later, (due, next(self._numbers), act))

    def _do_due(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def _is_regretted(self, item: Item) -> bool:
        return item["kind"] in ("brief", "doom", "falter") and self._chance.random() < _CANCELLED

    def _send(self, items: Sequence[Item]) -> bool:
        """Enqueue jobs. Return whether they were acknowledged."""
        answers = self._insist(
            lambda: self._app.enqueue_many(items),
            lambda: self._journal.note_all(Word.UNKNOWN, [(item["id"], "-") for item in items]),
        )
        if answers is None:
            return False
        acknowledged = [
            (item["id"], answer.id) for item, answer in zip(items, answers, strict=True)
        ]
        self._journal.note_all(Word.ACK, acknowledged)
        return True

    def _insist(self, act: Callable[[], T], on_unknown: Callable[[], None]) -> T | None:
        """Retry an act until it returns. Return None if it is given up."""
        while True:
            try:
                return act()
            except StoreUnavailable:
                on_unknown()
                if self._chance.random() < _GIVEN_UP:
                    return None
                self._rest.wait(self._chance.uniform(*_RESEND_SECONDS))

    def _cancel(self, id: str) -> None:
        self._journal.note(Word.CANCEL, id)
        while True:
            try:
                outcome = self._app.cancel(id).outcome
            except NotFound:
                # Another job held its key, so it never existed.
                return
            except StoreUnavailable:
                self._rest.wait(self._chance.uniform(*_RESEND_SECONDS))
                continue
            self._journal.note(Word.CANCELLED, id, 0, outcome)
            return


def _asked(item: Item) -> str:
    return f"{item['kind']} {item.get('tenant', '-')} {round(1000 * item.get('delay', 0))}"


def main() -> None:
    """Produce all jobs, then exit."""
    die_with_parent()
    orders = msgspec.json.decode(sys.argv[1], type=ProducerOrders)
    with chaos_app(None, schema=os.environ[SCHEMA_VARIABLE]) as app:
        Producer(orders, app, Path(os.environ[DIRECTORY_VARIABLE])).run()


if __name__ == "__main__":
    main()
