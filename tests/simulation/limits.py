"""The limits of a simulation: a number at once, a rate, an order, and fair turns."""

from __future__ import annotations

from rowlock.limits import Limit, Rate

# All jobs with a limit are of this queue, so that they wait in one room for each kind.
QUEUE = "default"
LANES = ("a", "b", "c", "d")
LIMITS = {
    "pool": Limit("pool", concurrency=5, per="lane", concurrency_per_key=2),
    "meter": Limit("meter", rate=Rate(2, burst=3), per="lane", rate_per_key=Rate(1, burst=2)),
    "line": Limit("line", per="lane", ordered=True),
    "fair": Limit("fair", per="lane", weights={"a": 3}),
}
# The kind of job that has each limit.
KINDS = {"pooled": "pool", "metered": "meter", "lined": "line", "shared": "fair"}
