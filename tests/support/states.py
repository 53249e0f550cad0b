"""Jobs and workers in states that the public verbs don't reach: the one place that knows how.

Tests of the app, the commands and the frameworks use these, so that a move inside the store is no
business of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import rowlock
from rowlock.job import Lease, WorkerVitals
from rowlock.lifecycle import Outcome, Succeeded
from rowlock.store import NewJob, Settlement
from rowlock.store.ops import hold


def announce(
    app: rowlock.App,
    *,
    queues: list[str],
    kinds: list[str],
    worker: str = "w",
    vitals: WorkerVitals | None = None,
) -> None:
    """A worker that says of itself what it works for, and how busy it is."""
    app.store.run(
        hold.announce(worker=worker, queues=queues, kinds=kinds, host="h", pid=1, vitals=vitals)
    )


def claim_ahead(app: rowlock.App, queue: str, *, worker: str = "w", limit: int = 1) -> list[Lease]:
    """Claim jobs that are not begun yet, as a worker does for when it has a slot."""
    return app.store.claim(worker=worker, queues=[queue], limit=limit, begun=False)


def begin(app: rowlock.App, leases: Sequence[Lease]) -> None:
    """Mark jobs that were claimed ahead as begun."""
    app.store.run(hold.begin(leases))


def settle(
    app: rowlock.App,
    lease: Lease,
    outcome: Outcome | None = None,
    follow_ups: Sequence[NewJob] = (),
) -> None:
    """End a run, as its worker or whoever has ended it does; it has succeeded unless told."""
    app.store.settle([Settlement(lease, outcome or Succeeded(), list(follow_ups))])
