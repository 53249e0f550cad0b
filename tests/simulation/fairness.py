"""Whether keys with a backlog have equal turns, as far as claimers that share nothing can tell.

A key that gets a backlog begins where the one with the fewest turns is. Each claimer goes round by
itself, and may be in the middle of a turn: so keys may differ by two turns per claimer.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.database import Change

TURNS_PER_CLAIMER = 2


class FairShares:
    """The turns of the keys of one limit."""

    def __init__(self, name: str, weights: Mapping[str, int]) -> None:
        self._name = name
        self._weights = weights
        self._waiting: dict[str, set[str]] = {}
        self._turns: dict[str, float] = {}
        # Every process that ever claimed here: each remembers its own turn.
        self._claimers: set[str] = set()

    def see(self, change: Change) -> None:
        """Take a change of a job's row."""
        if change.new_limit_name != self._name or change.what not in "iud":
            return
        key = change.limit_key or ""
        waiting = self._waiting.setdefault(key, set())
        is_claimed = change.leased_until is None and change.new_leased_until is not None
        if is_claimed:
            self._turns[key] = self._turns.get(key, 0.0) + 1 / self._weights.get(key, 1)
            self._claimers.add(change.new_worker or "")
        if change.what != "d" and change.new_leased_until is None and change.held_by == 1:
            if not waiting:
                self._turns[key] = min(
                    (self._turns[other] for other, ids in self._waiting.items() if ids),
                    default=self._turns.get(key, 0.0),
                )
            waiting.add(change.id)
        else:
            waiting.discard(change.id)

    def problem(self) -> str | None:
        """What is wrong after a commit."""
        turns = {key: self._turns[key] for key, ids in self._waiting.items() if ids}
        if not turns:
            return None
        spread = max(turns.values()) - min(turns.values())
        bound = TURNS_PER_CLAIMER * max(1, len(self._claimers))
        return f"keys of {self._name} had {turns} turns" if spread > bound else None
