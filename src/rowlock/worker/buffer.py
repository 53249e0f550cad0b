"""The jobs that a child has leased and not started: which of them is next.

1. Within a queue by rank, then in the order of the claim.
2. Between queues in turns, so that a burst on one does not hold up another; or, if the order is
   strict, as the queues were named.
3. One that must run alone (its process died before) waits apart, until nothing else runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from rowlock.worker.run import Run


class Buffer:
    """Runs that wait for a slot."""

    def __init__(self, *, strict: Sequence[str] | None = None) -> None:
        # Of each queue its ranks, of each rank its runs; the queue whose turn is next comes first.
        self._queues: dict[str, dict[int, deque[Run]]] = {}
        self._counts: dict[str, int] = {}
        self._alone: deque[Run] = deque()
        self._strict = None if strict is None else {name: at for at, name in enumerate(strict)}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Run]:
        yield from self._alone
        for ranks in self._queues.values():
            for runs in ranks.values():
                yield from runs

    def waiting(self, queue: str) -> int:
        """How many of a queue wait."""
        return self._counts.get(queue, 0)

    def of(self, id: str, token: int | None = None) -> list[Run]:
        """The waiting runs of a job, each of another lease; or the one of this lease."""
        return [run for run in self if run.lease.id == id and token in (None, run.lease.token)]

    def put(self, run: Run) -> None:
        """Have a run wait for its turn."""
        self._length += 1
        self._counts[run.queue] = self._counts.get(run.queue, 0) + 1
        if run.is_quarantined:
            self._alone.append(run)
            return
        ranks = self._queues.get(run.queue)
        if ranks is None:
            ranks = self._queues[run.queue] = {}
            self._sort()
        runs = ranks.get(run.rank)
        if runs is None:
            ranks[run.rank] = runs = deque()
            if len(ranks) > 1:
                self._queues[run.queue] = dict(sorted(ranks.items()))
        runs.append(run)

    def _sort(self) -> None:
        if self._strict is not None:
            places = self._strict
            self._queues = dict(sorted(self._queues.items(), key=lambda item: places[item[0]]))

    def pop(self, has_slot: Callable[[str], bool] | None = None) -> Run | None:
        """The next run, of a queue that has a slot free; None if there is none."""
        queues = self._queues if has_slot is None else filter(has_slot, self._queues)
        queue = next(iter(queues), None)
        if queue is None:
            return None
        ranks = self._queues[queue]
        rank, runs = next(iter(ranks.items()))
        run = runs.popleft()
        if not runs:
            del ranks[rank]
        if not ranks:
            del self._queues[queue]
        elif self._strict is None and len(self._queues) > 1:
            # Its next turn comes after all others'.
            self._queues[queue] = self._queues.pop(queue)
        self._forget(run)
        return run

    @property
    def next_alone(self) -> Run | None:
        """The next of those that must run alone."""
        return self._alone[0] if self._alone else None

    def pop_alone(self) -> Run | None:
        """Take it."""
        run = self.next_alone
        if run is not None:
            self.remove(run)
        return run

    def remove(self, run: Run) -> None:
        """Take one out, wherever it stands."""
        if run.is_quarantined:
            self._alone.remove(run)
        else:
            ranks = self._queues[run.queue]
            ranks[run.rank].remove(run)
            if not ranks[run.rank]:
                del ranks[run.rank]
            if not ranks:
                del self._queues[run.queue]
        self._forget(run)

    def _forget(self, run: Run) -> None:
        self._length -= 1
        left = self._counts[run.queue] - 1
        if left:
            self._counts[run.queue] = left
        else:
            del self._counts[run.queue]
