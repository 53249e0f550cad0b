"""Hears when another process writes to a SQLite file: inotify on its write-ahead log.

Linux only, without any library; elsewhere nothing is heard, and workers poll.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import AsyncIterator
from pathlib import Path

_IN_MODIFY = 0x2
_IN_CREATE = 0x100
_IN_MOVED_TO = 0x80
_EVENTS_BYTES = 64 * 1024


async def watch(path: Path) -> AsyncIterator[str | None]:
    """Yield None once it watches, then the empty text (any queue) whenever the log has grown.

    Many writes while nobody waits are one.
    """
    descriptor = _open(path)
    if descriptor is None:
        return
    news = asyncio.Event()
    loop = asyncio.get_running_loop()
    name = f"{path.name}-wal".encode()

    def read() -> None:
        try:
            events = os.read(descriptor, _EVENTS_BYTES)
        except BlockingIOError:
            return
        if name in events:
            news.set()

    loop.add_reader(descriptor, read)
    try:
        yield None
        while True:
            await news.wait()
            news.clear()
            yield ""
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _open(path: Path) -> int | None:
    """An inotify descriptor on the directory: the log may be deleted and made anew."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        return None
    descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    mask = _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO
    if library.inotify_add_watch(descriptor, os.fsencode(path.parent), mask) < 0:
        os.close(descriptor)
        return None
    return descriptor
