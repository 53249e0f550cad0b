"""What a program takes from its machine, taken from a seed instead: time, chance, ids, bounds."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from random import Random, SystemRandom
from typing import Any
from unittest import mock

from rowlock import config, ids
from rowlock.errors import StoreUnavailable
from rowlock.worker.trouble import Trouble
from tests.simulation.loop import SimulatedLoop

# 2030-01-01, in seconds since 1970.
BEGINNING = 1_893_456_000
_seed = Random.seed
_pause = Trouble.pause


@contextmanager
def seeded(loop: SimulatedLoop, chance: Random, bounds: Mapping[str, float]) -> Iterator[None]:
    """All that is drawn or read from a clock in the block comes from the loop and from `chance`."""
    state = random.getstate()
    with (
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(time, "time_ns", partial(_wall_ns, loop)),
        mock.patch.object(os, "urandom", chance.randbytes),
        mock.patch.object(Random, "seed", _seed_from(chance)),
        mock.patch.object(SystemRandom, "random", chance.random),
        mock.patch.multiple(config, **bounds),
        mock.patch.object(Trouble, "pause", _pause_for(loop)),
        _without_collections(),
        _without_logs(),
    ):
        random.seed(chance.getrandbits(64))
        ids._ids._start_afresh()
        try:
            yield
        finally:
            random.setstate(state)
            ids._ids._start_afresh()


def _wall_ns(loop: SimulatedLoop) -> int:
    return int((BEGINNING + loop.now + loop.current.wall_skew) * 1_000_000) * 1000


def _seed_from(chance: Random) -> Callable[..., None]:
    """`Random()` without a seed is where the source wants to differ between processes."""

    def seed(self: Random, a: Any = None, version: int = 2) -> None:
        _seed(self, chance.getrandbits(64) if a is None else a, version)

    return seed


def _pause_for(loop: SimulatedLoop) -> Callable[[Trouble, Exception], float]:
    """A service survives every error; here, one that is not the database's is a mistake of ours."""

    def pause(self: Trouble, error: Exception) -> float:
        if not isinstance(error, StoreUnavailable):
            loop.failures.append(error)
        return _pause(self, error)

    return pause


@contextmanager
def _without_collections() -> Iterator[None]:
    """A cycle is collected at a time that no seed decides, and its finalisers are code."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _without_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def tear_down(loop: SimulatedLoop) -> None:
    """Close what is left; coroutines in the middle of something may complain, to nobody."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for task in loop.tasks:
            task._log_destroy_pending = False
            coroutine = task.get_coro()
            try:
                coroutine.close()  # type: ignore[union-attr]
            except (RuntimeError, ValueError):
                continue
        loop.tasks.clear()
        loop.close()
        gc.collect()
    finally:
        sys.unraisablehook = hook
