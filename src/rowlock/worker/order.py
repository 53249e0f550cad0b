"""How many jobs of which queue a claim takes: pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence


def weighted(queues: Mapping[str, int], *, chance: random.Random) -> list[str]:
    """The queues in a random order: each comes first as often as its weight says.

    A queue's weight is its number of slots, 1 without one. (Each draws a time until its first
    event, at a rate of its weight.)
    """
    drawn = {queue: chance.expovariate(max(1, weight)) for queue, weight in queues.items()}
    return sorted(drawn, key=drawn.__getitem__)


def shares(order: Sequence[str], weights: Mapping[str, int], room: int) -> dict[str, int]:
    """How many jobs each queue may give to a claim of `room`, so that none starves.

    The first in the order may take all but a little, which is left for the others: so every claim
    takes something of each queue that has jobs, and whose turn it is takes most.
    """
    total = sum(max(1, weights.get(queue, 0)) for queue in order)
    reserved = {
        queue: max(1, room * max(1, weights.get(queue, 0)) // (4 * total)) for queue in order
    }
    later = sum(reserved.values())
    taken: dict[str, int] = {}
    for queue in order:
        later -= reserved[queue]
        taken[queue] = max(1, room - later)
    return taken
