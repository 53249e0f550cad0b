"""`python -m tests.simulation.planted NAME...`: which of these planted bugs no seed has found.

One process for many of them: it takes longer to import what they need than to find one.
"""

from __future__ import annotations

import itertools
import sys

from tests.mutants import WORKFLOW_MUTANTS
from tests.simulation.plan import theme_of
from tests.simulation.run import simulate_one

# In which theme a planted bug is found, by one of its first seeds.
THEME = {
    "settle without token": "zombies",
    "sweep ignores expiry": "zombies",
    "early acknowledgement": "zombies",
    "cursor never looks below": "back in line",
    "claim ignores run_at": "back in line",
    "beat without token": "zombies",
    "token does not grow": "zombies",
    "given ids start afresh": "again",
    "cancel dropped": "zombies",
    "ended ids forgotten": "again",
    "lost is started": "alone",
    "success dropped with last words": "last words",
    "handler before its mark": "zombies",
    "loss without a trace": "zombies",
    "claim is the beginning": "alone",
    "block settled without token": "blocks",
    "block starts unseen": "blocks",
    "retry outside its room": "limits",
    "rate moved later": "limits",
    "rate not moved": "limits",
    "walk never wraps": "limits",
    **dict.fromkeys(WORKFLOW_MUTANTS, "flows"),
}
SEEDS_MAX = 20


def is_found(mutant: str) -> bool:
    """Whether one of the first seeds of its theme finds a planted bug."""
    seeds = (seed for seed in itertools.count() if theme_of(seed) == THEME[mutant])
    return any(
        simulate_one(seed, mutant).problem is not None
        for seed in itertools.islice(seeds, SEEDS_MAX)
    )


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}\n" for name in sys.argv[1:] if not is_found(name))
