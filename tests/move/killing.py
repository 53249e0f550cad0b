"""Moves that are killed between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rowlock
from rowlock.move import Mover


class Stopped(BaseException):
    """The process was killed."""


def stop_at(stop: str, count: int, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Die at the n-th op of that name: before it was done, or before its answer was heard."""
    name, is_after = stop.removesuffix(", unknown"), stop.endswith("unknown")
    left = [count]

    def running(op: Any) -> Any:
        if op.name == name:
            left[0] -= 1
            if left[0] == 0:
                if is_after:
                    run(op)
                raise Stopped
        return run(op)

    return running


def kill(old: rowlock.App, new: rowlock.App, *, at: str, in_target: bool = False) -> None:
    """A move that dies before it does this, in the source or in the target."""
    store = new.store if in_target else old.store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "run", stop_at(at, 1, store.run))
        with pytest.raises(Stopped):
            Mover(old.store, new.store).run()
