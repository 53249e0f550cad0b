"""Simulate a crash of a run's process, to test that handlers can run twice.

As after SIGKILL, nothing is given back and nothing more is written. The job stays leased until its
lease expires, and then runs again.
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
    """Crash the process of the first run that reaches a point. The drain ends there, too.

    Args:
        point: "after-claim": the job is leased, and its handler was not called. "after-handler":
            the handler has ended. "before-settle": its last progress and log lines are written,
            too. "after-settle": its outcome is written, but the worker got no answer.
        task: Only runs of this task, or of the kind of this name.

    Raises:
        AssertionError: No run reached the point.

    Example:
        with rowlock_crash("after-handler"):
            rowlock_app.drain()
        rowlock_clock.advance(60)  # its lease expires
        rowlock_app.drain()  # it runs again
    """
    if point not in get_args(Point):
        raise ValueError(f"point must be one of {', '.join(get_args(Point))}, not {point!r}")
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
        # What the test does next counts as a new process.
        pass
    finally:
        test_state.on_reached = before
    if not reached:
        whose = "no job" if kind is None else f"no job of {kind!r}"
        raise AssertionError(f"{whose} reached {point!r}; call drain() within the block")


__all__ = ["Point", "rowlock_crash"]
