"""What must be true before some handlers are called.

1. A run of an at-most-once job (`max_attempts=1`) or of a suspect is marked as begun by a committed
   write, fenced by its token, before its handler is called. Without the mark, anybody who finds its
   lease lost knows that the handler was not called.
2. A suspect, whose lease was lost twice in a row, runs with no other suspect beside it on this
   machine: when the whole machine or container goes down, only one of them can be blamed for it.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import socket
import sys
from typing import Protocol

from rowlock.job import Lease
from rowlock.store import Store
from rowlock.store.ops.hold import begin


class Marker:
    """Marks runs as begun. Those that ask while a write is under way share the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._waiting: dict[tuple[str, int], Lease] = {}
        self._answers: dict[tuple[str, int], bool] = {}

    async def mark(self, lease: Lease) -> bool:
        """Whether the run is marked; False if its lease is lost."""
        key = (lease.id, lease.token)
        self._waiting[key] = lease
        try:
            async with self._turn:
                if key not in self._answers:
                    await self._write()
                return self._answers[key]
        finally:
            self._waiting.pop(key, None)
            self._answers.pop(key, None)

    async def _write(self) -> None:
        batch = {key: lease for key, lease in self._waiting.items() if key not in self._answers}
        held = await self._store.arun(begin(list(batch.values())))
        self._answers.update((key, key in held) for key in batch)


class RunLock(Protocol):
    """What one of several processes holds while it runs a job."""

    def take(self) -> bool:
        """Whether it is ours now."""
        ...

    def free(self) -> None:
        """Let another have it."""
        ...


class SuspectLock:
    """Held by the one process of this machine that runs a suspect of this database.

    A socket of Linux's abstract namespace: no file is needed, the system frees it when the process
    dies, and containers that share a network share it. Elsewhere each process holds its own.
    """

    def __init__(self, store: Store) -> None:
        engine = store.engine
        place = f"{os.getuid()} {engine.address} {engine.schema}" if _IS_LINUX else ""
        self._name = "\0rowlock-suspect-" + hashlib.sha256(place.encode()).hexdigest()[:32]
        self._socket: socket.socket | None = None

    def take(self) -> bool:
        """Whether it is ours now."""
        if self._socket is not None or not _IS_LINUX:
            return True
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(self._name)
        except OSError as error:
            bound.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._socket = bound
        return True

    def free(self) -> None:
        """Let another have it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_IS_LINUX = sys.platform == "linux"
