"""Heartbeats from a thread: they keep the leases of this process alive while handlers work.

For workers without a supervisor. A handler that holds the GIL for longer than a lease stops these
beats too. Under `rowlock worker` it can't.

The beats have their own connections. Handlers may keep all of the app's busy, and a call that hangs
until the app's timeout would cost several beats.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence

from rowlock import config
from rowlock.chance import CHANCE
from rowlock.job import Beat, Lease, bare_lease
from rowlock.store import Store, open_store
from rowlock.store.url import hurried
from rowlock.worker.trouble import ServiceErrors, ServiceName, Trouble


class Beats:
    """Extends the leases that it holds, three times per lease length. A context manager.

    `on_beat` is called in the beats' thread for each lease that was lost or whose job should be
    cancelled. It is also the `HeldLeases` of an embedded engine, whose deadlines nobody watches.
    """

    def __init__(
        self,
        store: Store,
        *,
        lease_seconds: float,
        on_beat: Callable[[Lease, Beat], None],
        errors: ServiceErrors | None = None,
    ) -> None:
        self._engine = store.engine
        self._lease_seconds = lease_seconds
        self._on_beat = on_beat
        self._leases: dict[tuple[str, int], Lease] = {}
        self._trouble = Trouble("leases can't be extended", ServiceName.HEARTBEAT, errors)
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._outlives = False
        self._thread = threading.Thread(target=self._serve, name="rowlock-beats", daemon=True)

    def __enter__(self) -> Beats:
        engine = self._engine
        url = hurried(engine.address, self._lease_seconds / 3)
        self._store = open_store(url, schema=engine.schema, clock=engine.clock)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._outlives:
            self._over.set()
            self._thread.join()

    def wait_over(self) -> None:
        """Wait for the end of beats that outlive their block, once nothing is held."""
        with self._guard:
            is_over = self._outlives and not self._leases
        if is_over:
            self._thread.join()

    @property
    def store(self) -> Store:
        """The store that the beats use. It is open for as long as a lease is held."""
        return self._store

    def outlive(self, leases: Sequence[Lease]) -> None:
        """Keep beating for these leases, and no others, after the block, until all are dropped."""
        with self._guard:
            self._leases = {
                (lease.id, lease.token): lease
                for lease in leases
                if (lease.id, lease.token) in self._leases
            }
            self._outlives = bool(self._leases)

    async def __aenter__(self) -> Beats:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        # A beat that is under way may take a moment.
        await asyncio.to_thread(self.__exit__)

    def hold(self, lease: Lease) -> None:
        """Beat for a lease from now on."""
        with self._guard:
            self._leases[lease.id, lease.token] = lease

    def hold_block(self, ids: Sequence[str], token: int) -> BeatenBlock:
        """Beat for leases that were claimed together from now on."""
        with self._guard:
            self._leases.update(((id, token), bare_lease(id, token)) for id in ids)
        return BeatenBlock(self, ids, token)

    def start(self, lease: Lease, *, deadline: float | None = None) -> bool:
        """Its run begins. Here only its own time limit ends it."""
        return True

    def is_revoked(self, lease: Lease) -> bool:
        """Always False: there is no supervisor to revoke it."""
        return False

    def settle(self, lease: Lease) -> None:
        """Its run has settled itself and continues."""
        self.drop(lease)

    def end(self, lease: Lease) -> None:
        """Its run is over. The lease is held until the outcome is written."""

    def must_end_by(self, lease: Lease, deadline: float) -> None:
        """Its run was cancelled. A thread that does not stop keeps its lease until it expires."""

    def lose(self, lease: Lease) -> None:
        """Another worker holds it now."""
        self.drop(lease)

    def drop(self, lease: Lease) -> None:
        """Stop beating for it."""
        self.drop_all([(lease.id, lease.token)])

    def drop_all(self, keys: Iterable[tuple[str, int]]) -> None:
        """Stop beating for these."""
        with self._guard:
            for key in keys:
                self._leases.pop(key, None)
            if self._outlives and not self._leases:
                self._over.set()

    def count_finished(self, jobs: int) -> None:
        """Nothing here reads this number."""

    def _serve(self) -> None:
        try:
            self._beat_on()
        finally:
            self._store.close()

    def _beat_on(self) -> None:
        pause = third = self._lease_seconds / 3
        # Processes that were started together must not stay in step.
        while not self._over.wait(CHANCE.uniform(0.8, 1.0) * pause):
            with self._guard:
                leases = list(self._leases.values())
            try:
                if leases:
                    self._beat(leases)
                    self._trouble.over()
                pause = third
            except Exception as error:  # noqa: BLE001  # without beats every lease would be lost
                # The next beat may come through before the leases end.
                pause = min(third, config.BEAT_RETRY_SECONDS_MAX, self._trouble.pause(error))

    def _beat(self, leases: list[Lease]) -> None:
        beats = self._store.heartbeat(leases, lease=self._lease_seconds)
        for lease, beat in zip(leases, beats, strict=True):
            if beat is not Beat.KEPT and (lease.id, lease.token) in self._leases:
                self._on_beat(lease, beat)


class BeatenBlock:
    """Leases that were claimed together. It is the `HeldBlock` of an embedded engine."""

    def __init__(self, beats: Beats, ids: Sequence[str], token: int) -> None:
        self._beats = beats
        self._ids = ids
        self._token = token

    def start(self, number: int) -> bool:
        """Its run begins."""
        return True

    def end(self, number: int) -> None:
        """Its run is over. The lease is held until the outcome is written."""

    def is_revoked(self) -> bool:
        """Always False: there is no supervisor to revoke it."""
        return False

    def part(self, number: int, lease: Lease) -> None:
        """Have it held by its lease alone, by which it is found anyway."""

    def drop(self, first: int, count: int) -> None:
        """Stop beating for these."""
        self._beats.drop_all((id, self._token) for id in self._ids[first : first + count])
