"""Let the process of a run die, as far as its job can tell: to test that handlers may run twice.

Nothing is given back and nothing more is written, as after SIGKILL: the job is leased until its
lease expires, and is then run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

from rowlock.job import Lease
from rowlock.task import Task
from rowlock.testing.app import current
from rowlock.worker.drain import ProcessDied

Point = Literal["after-claim", "after-handler", "before-settle", "after-settle"]


@contextmanager
def rowlock_crash(point: Point, task: Task[..., Any] | str | None = None) -> Iterator[None]:
    """Let the first run that reaches a point end there with its process, and the drain with it.

    Args:
        point: "after-claim": it has been leased, and its handler not called. "after-handler": the
            handler has ended. "before-settle": its last notes are written too. "after-settle": its
            outcome is written, and nobody was told.
        task: Only runs of this one, or of the kind of this name.

    Raises:
        AssertionError: No run reached it.

    Example:
        with rowlock_crash("after-handler"):
            rowlock_app.drain()
        rowlock_clock.advance(60)  # its lease is over
        rowlock_app.drain()  # it is run again
    """
    if point not in get_args(Point):
        raise ValueError(f"{point!r} is none of {', '.join(get_args(Point))}")
    kind = task.name if isinstance(task, Task) else task
    test_state = current().test_state
    reached: list[str] = []

    def die(where: str, lease: Lease) -> None:
        if where == point and kind in (None, lease.job.kind) and not reached:
            reached.append(lease.id)
            raise ProcessDied

    before, test_state.on_reached = test_state.on_reached, die
    try:
        yield
    except ProcessDied:
        # What the test does next is done by a new process.
        pass
    finally:
        test_state.on_reached = before
    if not reached:
        whose = "no job" if kind is None else f"no job of {kind!r}"
        raise AssertionError(f"{whose} came to {point!r}: drain what was enqueued within the block")


__all__ = ["Point", "rowlock_crash"]
