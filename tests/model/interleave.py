"""Two verbs at once: the first is held at some point, the second runs until it ends or waits.

A verb is a generator, so that a pause between two of its steps, or before its COMMIT, is a wait
inside it: the engine, its transaction and its locks are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from rowlock.errors import RowlockError
from rowlock.store import Store
from rowlock.store.steps import Begin, Op, Rows, Step, Steps

PATIENCE_SECONDS = 30.0
# How long a writer is watched before we believe that another excludes it.
EXCLUDED_SECONDS = 0.03
LOOK_SECONDS = 0.001


class Abandoned(Exception):
    """Ends a held verb halfway, as a lost process would."""


@dataclass(frozen=True)
class Outcome:
    """What came of a verb: its value, our error, or nothing because it was abandoned."""

    value: Any = None
    error: RowlockError | None = None
    is_abandoned: bool = False

    @property
    def is_ok(self) -> bool:
        return self.error is None and not self.is_abandoned


@dataclass
class Pause:
    """A point in a verb: after so many steps, at most before its end and so its COMMIT.

    `is_whole`: all in one transaction, so that a statement that commits by itself is held too, as
    if it took its time.
    """

    after: int
    is_whole: bool
    is_reached: Event = field(default_factory=Event)
    may_go_on: Event = field(default_factory=Event)
    is_abandoned: bool = False
    starts: int = 0
    is_last: bool = False

    def within(self, op: Op[Any]) -> Op[Any]:
        """The same verb, held at this point on its first try."""
        return Op(op.name, op.writes, lambda: self._steps(op), op.repeat)

    def _steps(self, op: Op[Any]) -> Steps[Any]:
        self.starts += 1
        if self.is_whole:
            yield Begin()
        steps = op.start()
        rows: Rows | None = None
        done = 0
        while True:
            if done == self.after:
                self._hold()
            try:
                step: Step = next(steps) if rows is None else steps.send(rows)
            except StopIteration as end:
                self._hold_at_end(done)
                return end.value
            except RowlockError:
                self._hold_at_end(done)
                raise
            rows = yield step
            done += 1

    def _hold_at_end(self, done: int) -> None:
        if done < self.after:
            self.is_last = True
            self._hold()

    def _hold(self) -> None:
        self.is_reached.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS), "the test never went on"
        if self.is_abandoned:
            raise Abandoned


@dataclass(frozen=True)
class Race:
    """Both outcomes, whether the second had to wait, and whether the pause was the last one."""

    first: Outcome
    second: Outcome
    has_waited: bool
    is_last: bool
    starts: int


def race(
    store: Store,
    first: Op[Any],
    second: Op[Any],
    *,
    threads: ThreadPoolExecutor,
    pause_after: int,
    is_whole: bool,
    is_abandoned: bool,
    is_waiting: Callable[[], bool] | None,
) -> Race:
    """Hold the first verb, let the second go as far as it can, then let the first end."""
    pause = Pause(pause_after, is_whole=is_whole, is_abandoned=is_abandoned)
    held = threads.submit(_outcome_of, store, pause.within(first))
    assert pause.is_reached.wait(PATIENCE_SECONDS), "the first verb never came to its pause"
    try:
        other = threads.submit(_outcome_of, store, second)
        has_waited = not _runs_through(other, is_waiting)
    finally:
        pause.may_go_on.set()
    return Race(
        held.result(PATIENCE_SECONDS),
        other.result(PATIENCE_SECONDS),
        has_waited=has_waited,
        is_last=pause.is_last,
        starts=pause.starts,
    )


def _runs_through(other: Future[Outcome], is_waiting: Callable[[], bool] | None) -> bool:
    """Whether the verb ends by itself; False as soon as it is seen to wait for the held one."""
    if is_waiting is None:
        return bool(wait([other], EXCLUDED_SECONDS).done)
    for _ in range(int(PATIENCE_SECONDS / LOOK_SECONDS)):
        if wait([other], LOOK_SECONDS).done:
            return True
        if is_waiting():
            return False
    raise AssertionError("the second verb neither ended nor waited")


def _outcome_of(store: Store, op: Op[Any]) -> Outcome:
    try:
        return Outcome(store.run(op))
    except Abandoned:
        return Outcome(is_abandoned=True)
    except RowlockError as error:
        return Outcome(error=error)
