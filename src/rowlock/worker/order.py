"""In which order a claim looks at the queues: pure."""

from __future__ import annotations

import random
from collections.abc import Mapping


def weighted(queues: Mapping[str, int], *, chance: random.Random) -> list[str]:
    """The queues in a random order: each comes first as often as its weight says.

    A queue's weight is its number of slots, 1 without one. As none always comes last, none
    starves. (Each draws a time until its first event, at a rate of its weight.)
    """
    drawn = {queue: chance.expovariate(max(1, weight)) for queue, weight in queues.items()}
    return sorted(drawn, key=drawn.__getitem__)
