"""In which order tests are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TypeVar

T = TypeVar("T")


def long_ones_first(items: Sequence[T], is_long: Callable[[T], bool], processes: int) -> list[T]:
    """Let each process begin with its share of the long tests, so that none ends the run alone.

    Each process is given as many tests as the others, in one piece, and takes over others' later.
    """
    long = [item for item in items if is_long(item)]
    short = [item for item in items if not is_long(item)]
    share = ceil(len(short) / processes)
    return [
        item
        for number in range(processes)
        for item in (*long[number::processes], *short[number * share : (number + 1) * share])
    ]
