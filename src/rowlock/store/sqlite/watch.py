"""Notices when another process writes to a SQLite file: inotify on its lock file and its log.

Our own writers open and close the lock file after each commit. Other programs only write to the
log, which grows before its content can be read: it is synchronised first, and only then published
in shared memory, which makes no event. So the file's version is read until it has changed. Linux
only, without any library. Elsewhere nothing is noticed, and workers poll.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from rowlock.store.steps import News

_ANY = News("")
_IN_MODIFY = 0x2
_IN_CLOSE_NOWRITE = 0x10
_IN_CREATE = 0x100
_IN_MOVED_TO = 0x80
_EVENTS_BYTES = 64 * 1024
# How often the version is read after an event: for 64 ms in all, for a disk that is slow to sync.
_PAUSES_SECONDS = (0.0005, 0.0005, 0.001, 0.002, *(15 * [0.004]))


async def watch(path: Path, version: Callable[[], int]) -> AsyncIterator[News | None]:
    """Yield None once it watches, then news of any queue after commits of other processes.

    Commits that happen between two reads count as one.

    Args:
        version: A number that changes with every commit of other connections.
    """
    descriptor = _open(path)
    if descriptor is None:
        return
    news = asyncio.Event()
    loop = asyncio.get_running_loop()
    log, lock = f"{path.name}-wal".encode(), f"{path.name}-rowlock".encode()

    def read() -> None:
        try:
            events = os.read(descriptor, _EVENTS_BYTES)
        except BlockingIOError:
            return
        if log in events or lock in events:
            news.set()

    loop.add_reader(descriptor, read)
    try:
        seen = version()
        yield None
        while True:
            await news.wait()
            before, seen = seen, await _version_after(news, version, seen)
            if seen != before:
                yield _ANY
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _version_after(news: asyncio.Event, version: Callable[[], int], seen: int) -> int:
    """Wait for the version after an event. Unchanged if nothing was committed after all."""
    pauses = iter(_PAUSES_SECONDS)
    while True:
        if news.is_set():
            news.clear()
            pauses = iter(_PAUSES_SECONDS)
        now, seconds = version(), next(pauses, None)
        if now != seen or seconds is None:
            return now
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await news.wait()


def _open(path: Path) -> int | None:
    """An inotify descriptor on the directory: the log may be deleted and created again."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        return None
    descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    mask = _IN_MODIFY | _IN_CLOSE_NOWRITE | _IN_CREATE | _IN_MOVED_TO
    if library.inotify_add_watch(descriptor, os.fsencode(path.parent), mask) < 0:
        os.close(descriptor)
        return None
    return descriptor
