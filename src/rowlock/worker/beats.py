"""Heartbeats from a thread: keeps the leases of this process alive while handlers work."""

from __future__ import annotations

import logging
import threading

from rowlock.errors import StoreUnavailable
from rowlock.job import Beat, Lease
from rowlock.store import Store

logger: logging.Logger = logging.getLogger("rowlock.worker")


class Run:
    """What one running job is told from outside; read by its `Context`."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.cancel_requested = False
        self.is_lost = False
        self.stopping = False


class Beats:
    """Extends the leases of runs every third of their length; a context manager."""

    def __init__(self, store: Store, *, lease_seconds: float) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._runs: dict[str, Run] = {}
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rowlock-beats", daemon=True)

    def __enter__(self) -> Beats:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def hold(self, lease: Lease) -> Run:
        run = Run(lease)
        with self._guard:
            self._runs[lease.id] = run
        return run

    def let_go(self, run: Run) -> None:
        with self._guard:
            self._runs.pop(run.lease.id, None)

    def _serve(self) -> None:
        while not self._over.wait(self._lease_seconds / 3):
            with self._guard:
                runs = list(self._runs.values())
            if runs:
                self._beat(runs)

    def _beat(self, runs: list[Run]) -> None:
        try:
            beats = self._store.heartbeat([run.lease for run in runs], lease=self._lease_seconds)
        except StoreUnavailable as error:
            # The next beat may come through before the leases end.
            logger.warning("leases could not be extended: %s", error)
            return
        for run, beat in zip(runs, beats, strict=True):
            run.cancel_requested = run.cancel_requested or beat is Beat.CANCEL_REQUESTED
            run.is_lost = beat is Beat.LOST
